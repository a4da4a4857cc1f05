"""Labs come, coexist and go; whatever ends them, nothing stays."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.live import SYNTONY, LiveLab, eventually, live, syntony

import syntony as syntony_package
from syntony.errors import UsageError
from syntony.lab import state
from syntony.lab.messages import LabRefusal

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("able")]
SMALL = ("--hosts", "2", "--rails", "1", "--leaves", "1", "--spines", "1")


def world_processes(directory: Path) -> set[int]:
    """Processes that belong to the lab of this directory, by their arguments."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(directory) in words:
                found.add(int(entry.name))
    return found


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/ns/net").exists()


def devices() -> str:
    return subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def foreground() -> Iterator[subprocess.Popen[str]]:
    """`lab up` without --detach, ready."""
    # A test run in the background inherits an ignored SIGINT, and would hand it on.
    argv = ["env", "--default-signal=INT", *SYNTONY]
    argv += ["lab", "up", "--name", "t-front", "--no-agents", "--json", *SMALL]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        assert json.loads(up.stdout.readline())["name"] == "t-front"
        yield up
        up.kill()


def assert_gone(directory: Path, pids: set[int], before: str) -> None:
    eventually(lambda: not world_processes(directory), "no process")
    eventually(lambda: not any(_alive(pid) for pid in pids), "no process")
    eventually(lambda: directory.name not in state.running(), "no lab")
    assert not directory.exists()
    assert devices() == before


def test_a_detached_lab_stays_where_nobody_reads_that_it_is_up() -> None:
    """As with `lab up --detach 2>&1 | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    argv = [*SYNTONY, "lab", "up", "--name", "t-unread", "--no-agents", "--detach", *SMALL]
    try:
        subprocess.run(argv, stdout=writing, stderr=writing, check=False)
        assert "t-unread" in state.running()
    finally:
        os.close(writing)
        subprocess.run([*SYNTONY, "lab", "down", "--name", "t-unread"], check=False)


def test_up_status_down_leaves_nothing() -> None:
    before = devices()
    with live("t-life", *SMALL) as lab:
        pids = world_processes(lab.directory) | {lab.pid()}
        assert devices() == before
        status = json.loads(syntony("lab", "status", "--name", "t-life", "--json").stdout)
        assert status["hosts"] == ["h0", "h1"]
        assert all(link["up"] for link in status["links"])
        shown = syntony("lab", "status", "--name", "t-life").stdout
        assert "leaf0-0" in shown
        assert syntony("lab", "down", "--name", "t-life").returncode == 0
        assert not lab.directory.exists()
        assert_gone(lab.directory, pids, before)


@pytest.mark.parametrize(
    ("argv", "code"),
    [(("true",), 0), (("sh", "-c", "exit 7"), 7), (("no-such-command",), 127)],
)
def test_exec_keeps_the_exit_code(small: LiveLab, argv: tuple[str, ...], code: int) -> None:
    assert syntony("lab", "exec", "--name", small.name, "h1", "--", *argv).returncode == code


def test_exec_passes_standard_input_directory_and_arguments(small: LiveLab, tmp_path: Path) -> None:
    words = ("lab", "exec", "--name", small.name, "h1", "--", "sh", "-c", 'cat; pwd; echo "$@"')
    done = subprocess.run(
        [*SYNTONY, *words, "x", "a b", "--help"],
        input="typed\n", capture_output=True, text=True, cwd=tmp_path, check=True,
    )  # fmt: skip
    assert done.stdout == f"typed\n{tmp_path}\na b --help\n"


def test_exec_is_inside_one_host(small: LiveLab) -> None:
    names = [line.split("@")[0].split()[0] for line in
             small.run("h1", "ip", "-br", "link").splitlines()]  # fmt: skip
    assert sorted(names) == ["lo", "mgmt0", "rail0"]
    assert "rail0" in small.run("h1", "ls", "/sys/class/net")


@pytest.fixture(scope="module")
def small(able: None) -> Iterator[LiveLab]:
    with live("t-small", *SMALL) as lab:
        yield lab


BAD: list[tuple[tuple[str, ...], str]] = [
    (("up", "--name", "t-small"), "already up"),
    (("up", "--name", "../evil"), "cannot name a lab"),
    (("up", "--name", "x" * 40), "cannot name a lab"),
    (("up", "--name", "t-bad", "--hosts", "65"), "2 to 64"),
    (("up", "--name", "t-bad", "--rate", "3"), "not a rate"),
    (("up", "--name", "t-bad", "--convergence", "3"), "not a duration"),
    (("up", "--name", "t-bad", "--convergence", "1h"), "out of range"),
    (("up", "--name", "t-bad", "--clock-steps", "h3"), "not a step"),
    (("up", "--name", "t-bad", "--clock-steps", "h99:1s:1ms"), "no host 'h99'"),
    (("up", "--name", "t-bad", "--clock-swing", "much"), "not a swing"),
    (("status", "--name", "t-none"), "no lab 't-none'"),
    (("exec", "--name", "t-small", "h9", "--", "true"), "no host 'h9'"),
    (("exec", "--name", "t-small", "h1"), "needs a command"),
    (("fault", "--name", "t-small", "blackhole"), "KIND TARGET"),
    (("fault", "--name", "t-small", "blackhole", "h1/rail0", "--for", "0s"), "more than 0"),
    (("fault", "--name", "t-small", "blackhole", "h1/rail0", "--list"), "cannot be combined"),
    (("fault", "--name", "t-small", "--clear", "x"), "a fault's number"),
    (("path", "--name", "t-small", "h0/rail0", "h0/rail0", "--sport", "1", "--dport", "1"),
     "to itself"),
    (("path", "--name", "t-small", "h0/rail0", "h1/rail0", "--sport", "0", "--dport", "1"),
     "not a port"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "says"), BAD)
def test_bad_input_is_one_line_and_leaves_nothing(
    small: LiveLab, words: tuple[str, ...], says: str
) -> None:
    done = syntony("lab", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert done.stderr.startswith("syntony: error: ")
    assert done.stderr.count("\n") == 1
    assert "t-bad" not in state.running()
    assert small.name in state.running()


def test_two_labs_at_once_and_then_a_name_is_needed(small: LiveLab) -> None:
    with live("t-second", *SMALL) as second:
        assert second.pid() != small.pid()
        mine, other = (
            {Path(f"/proc/{lab.pid()}/ns/{kind}").stat().st_ino for kind in ("net", "mnt", "pid")}
            for lab in (small, second)
        )
        assert not mine & other
        with pytest.raises(UsageError, match="choose one"):
            state.find(None)
        second.inject("blackhole", "h1/rail0")
        assert small.status().faults == ()


def test_a_malformed_request_is_refused(small: LiveLab) -> None:
    for line in (b"\n", b"{}\n", b'{"type":"inject"}\n', b"\xff\xfe\n", b"[" * 5000 + b"\n"):
        with small._connect() as peer:
            peer.sendall(line)
            reply = msgspec.json.decode(peer.makefile("rb").readline())
        assert reply["type"] == msgspec.inspect.type_info(LabRefusal).tag  # type: ignore[attr-defined]
    assert small.status().name == small.name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_lab_goes_with_its_command_line(
    foreground: subprocess.Popen[str], number: signal.Signals
) -> None:
    before = devices()
    lab = LiveLab(state.find("t-front"))
    pids = world_processes(lab.directory) | {lab.pid()}
    foreground.send_signal(number)
    foreground.wait(20)
    assert_gone(lab.directory, pids, before)


@pytest.mark.parametrize("who", ["supervisor", "init", "unshare", "guard", "all"])
def test_killing_any_of_its_processes_leaves_nothing(who: str) -> None:
    before = devices()
    with live("t-kill", *SMALL) as lab:
        chain = _chain(lab)
        pids = set(chain.values())
        for pid in pids if who == "all" else [chain[who]]:
            # Of all, one may have gone with those before it.
            with contextlib.suppress(*[ProcessLookupError] * (who == "all")):
                os.kill(pid, signal.SIGKILL)
        if who == "guard":  # the lab goes on without it, and ends in order
            assert lab.status().name == "t-kill"
            lab.down()
        assert_gone(lab.directory, pids, before)


def _chain(lab: LiveLab) -> dict[str, int]:
    """Guard → unshare → first process → supervisor."""
    chain = [lab.pid()]
    while len(chain) < 4:
        stat = Path(f"/proc/{chain[-1]}/stat").read_text(encoding="ascii")
        chain.append(int(stat.rpartition(")")[2].split()[1]))
    return dict(zip(("supervisor", "init", "unshare", "guard"), chain, strict=True))


def test_a_missing_tool_is_named_with_its_package(tmp_path: Path) -> None:
    script = (
        "import sys; from syntony.lab import world; world.search_path = lambda: sys.argv[1];"
        "from syntony.cli import run; sys.exit(run(['lab', 'up', '--name', 't-bad']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "ip, tc, nft" in done.stderr
    assert "apt install" in done.stderr
    assert "t-bad" not in state.running()


NOBODY = (
    "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
    "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all",
)  # fmt: skip


def _readable_python() -> tuple[dict[str, str], str] | None:
    """An interpreter that uid 65534 can run Syntony with."""
    places = [Path(syntony_package.__file__).parents[1], Path(msgspec.__file__).parents[1]]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    for python in (sys.executable, "/usr/bin/python3"):
        argv = [*NOBODY, "unshare", "-Ur", python, "-c", "import syntony.lab.client, click"]
        if subprocess.run(argv, env=env, capture_output=True, check=False).returncode == 0:
            return env, python
    return None


def test_an_ordinary_user_can_bring_a_lab_up() -> None:
    if os.geteuid() != 0:
        pytest.skip(
            "needs root: a lab of an ordinary user is NOT tested here, but all other tests run "
            "as one"
        )
    found = _readable_python()
    if found is None:
        pytest.skip(
            "needs a Python that uid 65534 can run Syntony with: a lab of an ordinary user is "
            "NOT tested"
        )
    env, python = found
    env = {name: value for name, value in env.items() if name != "TMPDIR"}  # ours is root's

    def nobody(*words: str) -> str:
        argv = [*NOBODY, python, "-m", "syntony", "lab", *words]
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout

    nobody("up", "--name", "t-user", "--no-agents", "--detach", *SMALL)
    try:
        assert "10.10.0." in nobody("exec", "--name", "t-user", "h1", "--", "ip", "-br", "a")
        nobody("fault", "--name", "t-user", "loss", "h1/rail0", "--percent", "5")
    finally:
        nobody("down", "--name", "t-user")
