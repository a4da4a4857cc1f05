"""Directories of labs: private, claimed once, swept when their lab is dead."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from syntony.errors import MissingError, RemoteError, UsageError
from syntony.lab import state, world
from syntony.lab.client import Lab
from syntony.lab.plan import FabricSpec
from syntony.lab.world import GUARD, World, new_lab

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Shorter than pytest's own, so that a socket's path fits."""
    with tempfile.TemporaryDirectory(prefix="sy") as place:
        yield Path(place)


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_the_root_is_private() -> None:
    info = state.labs_root().parent.stat()
    assert stat.S_IMODE(info.st_mode) == 0o700


def test_a_place_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"syntony-{os.getuid()}").mkdir(mode=0o700)
    (tmp_path / f"syntony-{os.getuid()}").chmod(0o755)
    with pytest.raises(MissingError, match="open to other users"):
        state.labs_root()


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f"syntony-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MissingError, match="open to other users"):
        state.labs_root()


def test_a_place_that_the_world_hides_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/run/user/0")
    assert not str(state.labs_root()).startswith("/run")


def test_a_name_is_claimed_once_and_freed_with_its_lock() -> None:
    directory, lock = state.claim("one")
    assert state.running() == ["one"]
    with pytest.raises(UsageError, match="already up"):
        state.claim("one")
    os.close(lock)
    assert state.running() == []
    assert not directory.exists()


def test_a_dead_labs_name_can_be_used_again() -> None:
    directory, lock = state.claim("one")
    os.close(lock)
    (directory / "rubbish").mkdir(parents=True)
    _, lock = state.claim("one")
    assert not (directory / "rubbish").exists()
    os.close(lock)


def test_a_directory_is_removed_only_while_nobody_claims_one() -> None:
    """The guard of a lab that ended may be late: its name may be a new lab's by then."""
    directory, lock = state.claim("one")
    argv = ["sh", "-c", GUARD, "guard", str(directory), str(state.registry()), "true"]
    with state.registry().open("rb") as claiming:
        fcntl.flock(claiming, fcntl.LOCK_EX)
        with subprocess.Popen(argv, pass_fds=[lock]) as guard:
            os.close(lock)
            with pytest.raises(subprocess.TimeoutExpired):
                guard.wait(0.3)
            assert directory.exists()
            fcntl.flock(claiming, fcntl.LOCK_UN)
            assert guard.wait() == 0
    assert not directory.exists()


def test_the_only_lab_is_the_default() -> None:
    with pytest.raises(UsageError, match="no lab is running"):
        state.find(None)
    first, lock_a = state.claim("a")
    assert state.find(None) == first
    _, lock_b = state.claim("b")
    with pytest.raises(UsageError, match=r"a \| b"):
        state.find(None)
    with pytest.raises(UsageError, match="running: a, b"):
        state.find("c")
    os.close(lock_a)
    os.close(lock_b)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a b", "x" * 33, "é"])
def test_bad_names(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a lab"):
        state.claim(name)


def test_a_path_too_long_for_sockets_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    with pytest.raises(MissingError, match="too long for a socket"):
        state.claim("one")
    assert state.running() == []


def test_the_controller_that_took_charge_last_is_the_one_asked(tmp_path: Path) -> None:
    """Those that died or stand still leave their sockets behind."""
    first, second = (state.controller_socket(tmp_path, number) for number in (1, 2))
    assert state.socket_in_charge(tmp_path) == first
    for latest, other in ((second, first), (first, second)):
        latest.touch()
        assert state.socket_in_charge(tmp_path) == latest
        other.touch()
        os.utime(latest, ns=(0, 2 * 10**18))
        assert state.socket_in_charge(tmp_path) == latest
        os.utime(other, ns=(0, 3 * 10**18))
        assert state.socket_in_charge(tmp_path) == other
        for path in (first, second):
            path.unlink()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_lab_that_is_interrupted_before_it_starts_leaves_nothing(
    error: BaseException | type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:
        raise error

    monkeypatch.setattr(world, "unshare_argv", list)
    monkeypatch.setattr(World, "_start", start)
    with pytest.raises((KeyboardInterrupt, MissingError)):
        World(new_lab("early", FabricSpec(hosts=2), agents=False), detach=True)
    assert not (state.labs_root() / "early").exists()


def test_the_directory_of_a_killed_lab_goes_with_its_last_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine processes that were killed hold the lock for some time. Here they let go
    of it while somebody waits for it."""
    directory, lock = state.claim("killed")
    monkeypatch.setattr("time.sleep", lambda _s: os.close(lock))
    assert state.remove_killed(directory)
    assert not directory.exists()
    assert state.remove_killed(directory)


def test_a_killed_lab_whose_process_cannot_end_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither where a lab is started nor where it is ended."""
    killed: list[int] = []
    monkeypatch.setattr(state, "_KILLED_TIMEOUT_S", 0.0)
    monkeypatch.setattr(Lab, "pid", lambda _lab: 4711)
    monkeypatch.setattr("os.kill", lambda pid, _signal: killed.append(pid))
    directory, lock = state.claim("stuck")
    assert not state.remove_killed(directory)
    with pytest.raises(RemoteError, match="process 4711 or one of its children waits"):
        Lab(directory).down()  # it does not answer either
    assert killed == [4711]
    assert directory.exists()
    os.close(lock)
    assert "stuck" not in state.running()
    assert not directory.exists()
