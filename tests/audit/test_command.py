"""`syntony audit` as people and schedulers call it."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
import tomllib
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.audit.hosts import IB, nvidia_host
from tests.audit.trees import Broken, broken, write

from syntony.audit.changes import compare
from syntony.audit.registry import every_check
from syntony.audit.report.summary import ExitStyle, exit_code
from syntony.audit.result import HostReport, Result, Status
from syntony.cli import run
from syntony.errors import RemoteError
from syntony.io.audit.fleet import ask_hosts
from syntony.io.audit.runs import RunWriter, read_run
from syntony.io.audit.ssh import unpack
from syntony.model.names import host_of

PORT0 = f"{IB}/mlx5_0/ports/1"
SHAPE = ["check", "status", "subject", "expected", "got", "evidence", "meaning", "remedy",
         "suspect", "follows"]  # fmt: skip


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hosts that are right and one whose port 0 is dark."""
    folder = tmp_path_factory.mktemp("fleet")
    good = write(nvidia_host(), folder / "a")
    for name in ("b", "c", "dark"):
        shutil.copytree(good, folder / name, symlinks=True)
    dark: dict[str, str | None] = {f"{PORT0}/state": "1: DOWN", f"{PORT0}/phys_state": "2: Polling"}
    broken(folder / "dark", folder / "dark2", Broken(dark))
    shutil.rmtree(folder / "dark")
    for path in folder.iterdir():
        (path / "etc/hostname").write_text(f"{path.name}\n")
    return folder


@pytest.fixture(autouse=True)
def kept_runs_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def _roots(fleet: Path, *names: str) -> list[str]:
    return [f"--root={fleet / name}" for name in names]


def test_json_and_exit_status(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["audit", "run", *_roots(fleet, "a", "b", "c"), "--check", "be", "--json"]
    code = run(words)
    found = json.loads(capsys.readouterr().out)
    assert [list(each) for each in found] == [SHAPE] * len(found)
    assert {each["status"] for each in found} == {"pass", "skip"}
    assert {host_of(each["subject"]) for each in found} == {"a", "b", "c", "fleet"}
    assert {each["status"] for each in found if each["subject"] == "fleet"} == {"skip"}
    assert code == 0


def test_a_dark_port_is_told_with_what_to_do(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "run", *_roots(fleet, "a", "b", "c", "dark2"), "--check", "be.init.phys"]
    assert run([*words, "--json"]) == 2
    (bad,) = [each for each in json.loads(capsys.readouterr().out) if each["status"] == "fail"]
    assert (bad["subject"], bad["suspect"]) == ("dark2/mlx5_0:1", "cable")
    assert bad["got"] == "1: DOWN, 2: Polling"
    assert "reseat the cable" in bad["remedy"]
    assert run(words) == 2
    shown = capsys.readouterr().out
    assert "dark2" in shown
    assert "mlx5_0:1" in shown
    assert run([*words, "--exit-style", "npd"]) == 1
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert len(line) <= 81
    assert run([*words, "--exit-style", "slurm"]) == 1


def test_one_dead_cable_is_one_failure_with_its_consequences(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "run", *_roots(fleet, "a", "b", "c", "dark2"), "--check", "be"]
    assert run([*words, "--json"]) == 2
    reported = json.loads(capsys.readouterr().out)
    (bad,) = [each for each in reported if each["status"] in {"fail", "warn", "unknown"}]
    assert (bad["check"], bad["subject"]) == ("be.init.phys", "dark2/mlx5_0:1")
    assert "hence also be.act.state (1: DOWN, 2: Polling)" in bad["evidence"]
    followers = [each for each in reported if each["follows"]]
    assert {each["follows"] for each in followers} == {"be.init.phys dark2/mlx5_0:1"}
    assert {each["status"] for each in followers} == {"skip"}
    assert all("follows from be.init.phys" in each["evidence"] for each in followers)
    run(words)
    assert "1 failures" not in capsys.readouterr().out


def test_one_host_alone_gets_verdicts(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What nobody can compare is counted apart; a host without a spec can be well."""
    words = ["audit", "run", *_roots(fleet, "a"), "--check", "be", "--check", "mem"]
    assert run([*words, "--json"]) == 0
    counts = Counter(each["status"] for each in json.loads(capsys.readouterr().out))
    assert counts["pass"] > 20
    assert counts["not-compared"] > 5
    assert not counts["unknown"] + counts["fail"] + counts["warn"]
    run(words)
    shown = capsys.readouterr().out
    assert f"{counts['not-compared']} values have nothing to be compared with" in shown
    assert run([*words[:3], "--check", "sw.os", "--json"]) == 3  # nothing at all was judged


def test_what_differs_comes_first_and_nothing_is_cut(
    fleet: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = "<2>[ 1.0] EXT4-fs error (device nvme0n1p2): " + "checksum invalid, " * 9 + "the end"
    change: dict[str, str | None] = {
        "/proc/modules": _without(fleet / "a/proc/modules", "nvidia_peermem"),
        "/proc/meminfo": re.sub(r"MemTotal: *\d+", "MemTotal: 1013929216",
                                (fleet / "a/proc/meminfo").read_text()),
    }  # fmt: skip
    log = next(each for each in (fleet / "a/commands").iterdir() if each.name.startswith("dmesg"))
    odd = broken(fleet / "a", tmp_path / "odd", Broken(change, {log.name: log.read_text() + line}))
    (odd / "etc/hostname").unlink()
    (odd / "etc/hostname").write_text("odd\n")
    words = [*_roots(fleet, "a", "b", "c"), f"--root={odd}"]
    names = ["--check", "sw.modules", "--check", "mem.total", "--check", "node.kernel"]
    run(["audit", "run", *words, *names])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "sw.modules missing nvidia_peermem; of: " in shown
    assert "mem.total 967 GiB (expected" in shown
    assert "the end" in shown


def _without(file: Path, name: str) -> str:
    lines = file.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(f"{name} ")]
    assert len(kept) < len(lines)
    return "".join(kept)


def test_documents(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["audit", "run", *_roots(fleet, "a", "b", "c", "dark2"), "--check", "be"]
    run([*words, "--junit"])
    suites = ET.fromstring(capsys.readouterr().out)  # noqa: S314 - our own
    assert sum(int(suite.get("failures", "0")) for suite in suites) == len(
        suites.findall(".//failure")
    )
    assert suites.findall(".//failure")
    _check_junit(suites)
    run([*words, "--html"])
    page = capsys.readouterr().out
    assert "dark2" in page
    assert not [mark for mark in ("http://", "https://", "<script", "src=") if mark in page]
    run([*words, "--md"])
    ticket = capsys.readouterr().out
    assert "| Agent | NIC | Initialized | Active | GID Index | Connectivity |" in ticket
    assert "| dark2 | mlx5_0:1 | fail | fail |" in ticket


def _check_junit(suites: ET.Element) -> None:
    """As the schema that Jenkins publishes for JUnit's reports has it (junit-10.xsd)."""
    assert suites.tag == "testsuites"
    for suite in suites:
        assert suite.tag == "testsuite"
        assert suite.attrib.keys() == {"name", "tests", "failures", "errors", "skipped"}
        assert int(suite.get("tests", "-1")) == len(suite)
        for kind in ("failure", "error", "skipped"):
            plural = {"failure": "failures", "error": "errors"}.get(kind, kind)
            assert int(suite.get(plural, "-1")) == len(suite.findall(f"testcase/{kind}"))
        for case in suite:
            assert case.tag == "testcase"
            assert case.attrib.keys() == {"name", "classname"}
            assert len(case) <= 1
            assert {each.tag for each in case} <= {"failure", "error", "skipped", "system-out"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "--only", "latncy"], "did you mean 'latency'?"),
        (["run", "--ibnetdiscover", "/no/such"], "no such file"),
        (["run", "--skip", "1,2,3,4,5"], "leave nothing"),
        (["run", "--ibnetdiscover", "x", "--lldp", "y"], "not both"),
        (["run", "--network-deadline", "soon"], "soon"),
        (["run", "--rounds", "0"], "--rounds"),
        (["run", "--root", "/no/such"], "is not a directory"),
        (["run", "--root", "."], "is not a recorded tree"),
        (["run", "--check", "be.act.rat"], "did you mean 'be.act.rate'?"),
        (["run", "--spec", "/no/such.toml"], "cannot be read"),
        (["run", "--resume"], "--save"),
        (["run", "--hosts", "gpu[1-"], "no"),
        (["run", "--hosts", "@/no/such"], "cannot be read"),
        (["run", "--lab", "x", "--controller", "y:1"], "not both"),
        (["run", "--replay", "pyproject.toml"], "is not a run"),
        (["show", "/no/such"], "No such file"),
        (["diff"], "runs kept below"),
        (["show"], "runs kept below"),
        (["run", "--root", "A", "--golden", "nobody", "--check", "sw.os"], "--golden nobody"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: list[str], says: str, *, fleet: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    monkeypatch.chdir(tmp_path)
    assert run(["audit", *(word.replace("A", str(fleet / "a")) for word in words)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert says in err
    assert err.count("\n") == 1


def test_learn_then_run(fleet: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    assert run(["audit", "learn", *_roots(fleet, "a"), "--out", str(spec)]) == 0
    text = spec.read_text()
    assert tomllib.loads(text)["roles"]["all"]["expect"]["sw.driver"] == "535.129.03"
    words = ["audit", "run", *_roots(fleet, "b"), f"--spec={spec}", "--check", "be", "--json"]
    assert run(words) == 0
    capsys.readouterr()
    spec.write_text(text.replace("400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)"))
    assert run(words) == 2
    failed = [each for each in json.loads(capsys.readouterr().out) if each["status"] == "fail"]
    assert {each["check"] for each in failed} == {"be.act.rate"}
    spec.write_text(text.replace('"sw.driver"', '"sw.drivr"'))
    assert run(words) == 2
    assert "did you mean 'sw.driver'?" in capsys.readouterr().err


def test_a_full_disk_leaves_the_spec_that_was_there(
    fleet: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_number: int) -> None:
        raise OSError(28, "No space left on device")

    spec = tmp_path / "spec.toml"
    spec.write_text("# before")
    monkeypatch.setattr("syntony.io.files.os.fsync", full)
    assert run(["audit", "learn", *_roots(fleet, "a"), "--out", str(spec)]) == 2
    assert "spec.toml: No space left on device" in capsys.readouterr().err
    assert spec.read_text() == "# before"
    assert list(tmp_path.glob(".spec*")) == []


def test_show_and_diff(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = ["--check", "be.init.phys"]
    run(["audit", "run", *_roots(fleet, "a", "b", "c"), *check])
    assert run(["audit", "show", "--json"]) == 0
    run(["audit", "run", *_roots(fleet, "a", "b", "dark2"), *check])
    capsys.readouterr()
    assert run(["audit", "diff", "--json"]) == 1
    changes = json.loads(capsys.readouterr().out)
    assert [(each["change"], each["subject"]) for each in changes] == [
        ("new", "dark2/mlx5_0:1"), ("gone", "c")]  # fmt: skip
    assert run(["audit", "show", "--host", "a"]) == 0
    assert run(["audit", "show", "--host", "zz"]) == 2


def test_the_reference_has_the_table_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "checks", "--markdown"]) == 0
    table = capsys.readouterr().out
    page = Path(__file__).parents[2] / "docs/reference/audit-checks.md"
    assert table.strip() in page.read_text()
    assert run(["audit", "checks", "--json"]) == 0
    assert all(each["expected"] for each in json.loads(capsys.readouterr().out))


def test_checks_without_a_test_of_their_own_are_those_the_reference_names() -> None:
    families = ("be.conn.", "be.lat.", "nccl.", "be.topo.routes", "fe.bw")
    words_only = {check.id for check in every_check() if not hasattr(check, "test")}
    assert words_only == {check.id for check in every_check() if check.id.startswith(families)}


# --- over SSH ---

_SSH = """#!/bin/sh
# Stands in for ssh: the last two words are the host and what it runs.
while [ $# -gt 2 ]; do shift; done
echo "$1" >> "$SSH_LOG"
case "$1" in
  refused) echo "ssh: connect to host refused port 22: Connection refused" >&2; exit 255;;
  hangs) exec sleep 600;;
  liar) head -c 3000 /dev/urandom; exit 0;;
esac
exec $2
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hosts that answer, refuse, hang or send rubbish. The others are this machine."""
    program = tmp_path / "bin/ssh"
    program.parent.mkdir()
    program.write_text(_SSH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("SSH_LOG", str(tmp_path / "asked"))
    return tmp_path / "asked"


@pytest.mark.slow
def test_one_dead_host_holds_up_nobody(
    ssh: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "run", "--hosts", "n[1-2],hangs,refused,liar", "--check", "sw.os",
             "--deadline", "15s", "--save", str(tmp_path / "run.jsonl"), "--json"]  # fmt: skip
    assert run(words) == 2
    found = json.loads(capsys.readouterr().out)
    dead = {each["subject"]: each["evidence"] for each in found if each["check"] == "node.reach"}
    assert dead.keys() == {"hangs", "refused", "liar"}
    assert "no answer" in dead["hangs"]
    assert "Connection refused" in dead["refused"]
    assert "did not send a recorded tree" in dead["liar"]
    alive = {each["subject"] for each in found if each["check"] == "sw.os" and each["got"]}
    assert alive == {"n1", "n2"}


def test_a_resumed_run_asks_only_who_has_not_answered(
    ssh: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save = tmp_path / "run.jsonl"
    words = ["audit", "run", "--check", "sw.os", f"--save={save}", "--json"]
    run([*words, "--hosts", "n1,refused"])
    with save.open("ab") as file:
        file.write(b'{"host":"n9","taken')  # interrupted in the middle of a line
    ssh.unlink()
    run([*words, "--hosts", "n1,refused,n2", "--resume"])
    assert sorted(ssh.read_text().split()) == ["n2", "refused"]
    capsys.readouterr()
    run(["audit", "show", str(save), "--json"])
    subjects = {each["subject"] for each in json.loads(capsys.readouterr().out)}
    assert subjects == {"n1", "n2", "refused"}


def test_a_recording_says_what_the_host_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = tmp_path / "tree"
    checks = [f"--check={name}" for name in ("sw.os", "mem.total", "pcie.present", "fe.iface")]
    assert run(["audit", "record", str(tree), *checks]) == 0
    capsys.readouterr()
    run(["audit", "run", "--local", *checks, "--json"])
    live = json.loads(capsys.readouterr().out)
    run(["audit", "run", f"--root={tree}", *checks, "--json"])
    assert json.loads(capsys.readouterr().out) == live


def test_a_hosts_archive_cannot_write_outside(tmp_path: Path) -> None:
    """A compromised host sends what it likes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, link in (("../evil", ""), ("/abs", ""), ("out", "/etc"), ("out/passwd", "")):
            entry = tarfile.TarInfo(name)
            if link:
                entry.type, entry.linkname = tarfile.SYMTYPE, link
                tar.addfile(entry)
            else:
                entry.size = 4
                tar.addfile(entry, io.BytesIO(b"evil"))
    inside = tmp_path / "inside"
    inside.mkdir()
    unpack(packed.getvalue(), inside)
    assert not (tmp_path / "evil").exists()
    assert not (inside / "out").is_symlink()
    assert Path("/etc/passwd").read_bytes() != b"evil"
    for rubbish in (b"", b"rubbish", packed.getvalue()[:60]):
        with pytest.raises(RemoteError):
            unpack(rubbish, inside)


# --- runs and verdicts ---


def test_asking_many_hosts_of_which_some_break() -> None:
    def ask(host: str) -> HostReport:
        if host.endswith("7"):
            raise RuntimeError("broken host")
        return HostReport(host=host, taken_ns=1)

    hosts = [f"h{number}" for number in range(200)]
    found = {report.host: report for report in ask_hosts(hosts, ask, lambda: 1, at_once=16)}
    assert sorted(found) == sorted(hosts)
    assert sum(bool(report.unreachable) for report in found.values()) == 20


def test_a_run_is_readable_up_to_its_last_whole_line(tmp_path: Path) -> None:
    from syntony.audit.runfile import Head

    path = tmp_path / "run.jsonl"
    with RunWriter(path, Head(taken_ns=1)) as writer:
        for number in range(3):
            writer.add(HostReport(host=f"h{number}", taken_ns=number))
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    head, reports = read_run(path)
    assert head.taken_ns == 1
    assert [report.host for report in reports] == ["h0", "h1"]


_S = Status


@pytest.mark.parametrize(
    ("seen", "nagios", "npd", "slurm"),
    [
        ([_S.PASS, _S.SKIP], 0, 0, 0),
        ([_S.PASS, _S.WARN], 1, 0, 0),
        ([_S.PASS, _S.UNKNOWN, _S.WARN], 3, 2, 3),
        ([_S.PASS, _S.UNKNOWN, _S.FAIL], 2, 1, 1),
        ([_S.SKIP], 3, 2, 3),
        ([], 3, 2, 3),
    ],
)
def test_exit_codes(seen: list[Status], nagios: int, npd: int, slurm: int) -> None:
    codes = [exit_code(seen, style) for style in (ExitStyle.NAGIOS, ExitStyle.NPD, ExitStyle.SLURM)]
    assert codes == [nagios, npd, slurm]


def _result(subject: str, status: Status, got: str = "") -> Result:
    return Result(check="be.act.rate", status=status, subject=subject, got=got)


def test_changes_are_told_worst_first() -> None:
    before = [_result("a/1", _S.PASS), _result("a/2", _S.FAIL), _result("a/3", _S.FAIL, "x"),
              _result("a/4", _S.UNKNOWN, "1"), _result("b", _S.FAIL)]  # fmt: skip
    after = [_result("a/1", _S.FAIL), _result("a/2", _S.PASS), _result("a/3", _S.FAIL, "y"),
             _result("a/4", _S.UNKNOWN, "2")]  # fmt: skip
    assert [(each.change, each.subject) for each in compare(before, after)] == [
        ("worse", "a/1"), ("gone", "b"), ("changed", "a/3"), ("better", "a/2")]  # fmt: skip
    assert compare(after, after) == []
