"""Programs that checks ask: absent, failing, hanging, of another language; and their recordings."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.live import eventually

from syntony.audit.check import HostCheck, Section
from syntony.audit.facts import AbsentError, Facts, UnreadableError
from syntony.audit.result import Status
from syntony.io.audit.commands import LiveCommands, RecordedCommands, file_name
from syntony.io.audit.examine import examine_host
from syntony.io.audit.host import recorded_host, this_host
from syntony.model import MS, S


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (
        ("says", 'echo "$LC_ALL $1"'),
        ("fails", "echo 'no permission' >&2; exit 4"),
        ("hangs", f"sleep 300 & echo $! > {tmp_path}/child; wait"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    return tmp_path


def test_programs_are_asked_in_the_c_locale_without_a_shell(programs: Path) -> None:
    assert LiveCommands(5 * S).run(("says", "$(id); `id`")) == "C $(id); `id`\n"


def test_what_fails_and_what_is_not_there(programs: Path) -> None:
    with pytest.raises(AbsentError, match="nonesuch is not installed"):
        LiveCommands(5 * S).run(("nonesuch",))
    with pytest.raises(UnreadableError, match="`fails`: no permission"):
        LiveCommands(5 * S).run(("fails",))


def test_a_program_that_hangs_is_killed_with_its_children(programs: Path) -> None:
    with pytest.raises(UnreadableError, match=r"no answer in 0\.3 s"):
        LiveCommands(300 * MS).run(("hangs",))
    child = int((programs / "child").read_text())
    eventually(lambda: not _alive(child), "the child ends")


def _alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_recordings(tmp_path: Path) -> None:
    folder = tmp_path / "commands"
    folder.mkdir()
    (folder / file_name(("cat", "/a/b%c"))).write_text("text")
    (folder / "tool -x").write_text("denied")
    (folder / "tool -x.exit").write_text("13")
    (folder / "gone.absent").write_text("")
    commands = RecordedCommands(tmp_path)
    assert commands.run(("cat", "/a/b%c")) == "text"
    with pytest.raises(UnreadableError, match="denied"):
        commands.run(("tool", "-x"))
    with pytest.raises(AbsentError):
        commands.run(("gone", "--version"))
    with pytest.raises(UnreadableError, match="was not recorded"):
        commands.run(("other",))


class Waits(HostCheck):
    """Hangs.

    Expected results: none.
    """

    id = "test.waits"
    section = Section.NODE
    reads = ()
    meaning = remedy = "none"
    never = threading.Event()

    def test(self, host: Facts):  # type: ignore[no-untyped-def]
        self.never.wait()
        yield self.verdict(True, host, "", "")


class Breaks(Waits):
    """Breaks.

    Expected results: none.
    """

    id = "test.breaks"

    def test(self, host: Facts):  # type: ignore[no-untyped-def]
        yield self.verdict(True, host, "first", "first")
        raise ZeroDivisionError("a bug")


def test_a_check_that_hangs_or_breaks_is_unknown_and_the_others_go_on() -> None:
    report = examine_host(this_host(), [Waits(), Breaks()], 0, deadline_ns=500 * MS)
    said = [(each.check, each.status, each.evidence) for each in report.results]
    assert said[0] == ("test.waits", Status.UNKNOWN, "no answer in 0.5 s")
    assert [each[1] for each in said[1:]] == [Status.PASS, Status.UNKNOWN]
    assert "ZeroDivisionError: a bug" in said[2][2]
    Waits.never.set()


def test_a_tree_does_not_lead_out_of_itself(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "etc").mkdir(parents=True)
    (root / "etc/os-release").symlink_to("/etc/os-release")
    (tmp_path / "secret").write_text("secret")
    (root / "etc/up").symlink_to("../../secret")
    host = recorded_host(root, "h")
    for path in ("/etc/os-release", "/etc/up", "/../secret", "/etc/../../secret"):
        with pytest.raises((AbsentError, UnreadableError)):
            host.read(path)
    assert not host.exists("/etc/up")
    with pytest.raises(UnreadableError, match=r"Permission denied|Is a directory"):
        host.read("/etc")
