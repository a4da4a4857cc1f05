"""`syntony doctor --for …`: the first step that is not done, and the command for it."""

from __future__ import annotations

import datetime as dt
import getpass
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

import pytest
from tests.live import syntony

from syntony.cli import doctor_host, run
from syntony.cli.doctor_host import StepNotDoneError
from syntony.config import load_config
from syntony.controller.config import ControllerConfig
from syntony.errors import MissingError
from syntony.io.capabilities import grantable
from syntony.model.tls_files import TlsFiles

AGENT = """\
host = "gpu001"
controller = "127.0.0.1:1"
spool_dir = "{place}/spool"
[tls]
ca = "{place}/ca/ca.crt"
cert = "{place}/tls/gpu001.crt"
key = "{place}/tls/gpu001.key"
[[nics]]
name = "{nic}"
rail = 0
"""
BOTH_CAPABILITIES = (1 << 13) | (1 << 12)
CONTROLLER = """\
listen = "127.0.0.1:8443"
tls_ca = "{place}/ca/tls/ca.crt"
tls_cert = "{place}/ca/tls/controller.crt"
tls_key = "{place}/ca/tls/controller.key"
local_socket = "{place}/controller.sock"
[enrolment]
listen = "127.0.0.1:8444"
authority = "{place}/ca"
"""


def asked(role: str, file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str, int]:
    """Steps that are done, the next command, and the exit code."""
    code = run(["doctor", "--for", role, "--config", str(file), "--json"])
    said = capsys.readouterr()
    done = [check["name"] for check in json.loads(said.out) if check["level"] == "ok"]
    return done, said.err.strip(), code


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_host, "USER", getpass.getuser())


def test_a_host_without_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done, hint, code = asked("agent", tmp_path / "agent.toml", capsys)
    assert (done, code) == ([], 2)
    assert hint.startswith("next: apt install syntony-agent")


def test_each_step_of_an_agent_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(AGENT.format(place=tmp_path, nic="nope0"))
    done, hint, code = asked("agent", file, capsys)
    assert (done, code) == (["configuration"], 2)
    assert "edit" in hint

    file.write_text(AGENT.format(place=tmp_path / "missing", nic="lo"))
    done, hint, _ = asked("agent", file, capsys)
    assert done[-1] == "user"
    assert "install -d -m 700" in hint

    file.write_text(AGENT.format(place=tmp_path, nic="lo"))
    done, hint, _ = asked("agent", file, capsys)
    assert done[-1] == "clock"
    assert "enrol join gpu001 --at 127.0.0.1:8444" in hint
    assert "syntony enrol token agent gpu001" in hint


def test_an_agent_that_cannot_reach_its_controller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a real certificate: the authority's own, for want of another without a controller."""
    made = syntony("enrol", "authority", str(tmp_path / "ca"), "--address", "localhost")
    assert made.returncode == 0, made.stderr
    tls = tmp_path / "tls"
    tls.mkdir()
    for end in ("crt", "key"):
        (tls / f"gpu001.{end}").write_bytes((tmp_path / f"ca/tls/controller.{end}").read_bytes())
    file = tmp_path / "agent.toml"
    file.write_text(AGENT.format(place=tmp_path, nic="lo"))
    done, hint, code = asked("agent", file, capsys)
    assert done[-1] == "certificate"
    assert "open TCP to 127.0.0.1:1" in hint
    assert code == 2


def test_a_controller_needs_an_authority_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_host, "HOME", tmp_path)
    file = tmp_path / "controller.toml"
    file.write_text(CONTROLLER.format(place=tmp_path))
    done, hint, _ = asked("controller", file, capsys)
    assert done[-1] == "clock"
    assert f"enrol authority {tmp_path}/ca --address" in hint
    assert syntony("enrol", "authority", str(tmp_path / "ca"), "--address", "h").returncode == 0
    done, hint, code = asked("controller", file, capsys)
    assert done[-1] == "certificate"
    assert "syntony-controller" in hint
    assert code == 2


def test_files_that_root_made_for_itself_are_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`syntony enrol` without `runuser`: root can read them, the daemon cannot."""
    monkeypatch.setattr(doctor_host, "HOME", tmp_path)
    home = tmp_path / "ca"
    assert syntony("enrol", "authority", str(home), "--address", "h").returncode == 0
    file = tmp_path / "controller.toml"
    file.write_text(CONTROLLER.format(place=tmp_path))
    monkeypatch.setattr(doctor_host, "_directory", lambda _: "good")
    monkeypatch.setattr(doctor_host, "USER", "nobody")
    done, hint, code = asked("controller", file, capsys)
    assert (done[-1], code) == ("clock", 2)
    assert hint == f"next: chown -R nobody: {home}"
    with pytest.raises(StepNotDoneError, match="cannot be read by the user nobody") as lack:
        doctor_host._certificate(load_config(str(file), ControllerConfig).tls)
    assert lack.value.remedy == f"chown -R nobody: {home / 'tls'}"


@pytest.mark.parametrize("name", ["agent.toml", "gpu001.key"])
def test_who_may_not_read_is_asked_to_be_root(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And neither to edit a file nor to join again."""
    file = tmp_path / "agent.toml"
    text = AGENT.format(place=tmp_path, nic="lo")
    file.write_text("not read" if name == file.name else text)
    monkeypatch.setattr(doctor_host, "is_denied", lambda path: Path(path).name == name)
    _, hint, code = asked("agent", file, capsys)
    assert (hint, code) == ("next: run this as root", 2)


def test_somebody_elses_directory_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "agent.toml"
    # /proc/1 is root's; for root itself a directory is given away.
    other = Path("/proc/1")
    if os.geteuid() == 0:
        other = tmp_path / "other"
        other.mkdir()
        os.chown(other, 65534, 65534)
    text = AGENT.format(place=tmp_path, nic="lo")
    file.write_text(text.replace(f"{tmp_path}/spool", f"{other}/spool"))
    done, hint, _ = asked("agent", file, capsys)
    assert done[-1] == "user"
    assert "install -d" in hint


def test_one_controller_of_several_is_enough() -> None:
    """A standby does not answer; where none does, each is named."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        up = f"127.0.0.1:{server.getsockname()[1]}"
        assert doctor_host._reached(("127.0.0.1:1", up)) == up
        with pytest.raises(doctor_host.StepNotDoneError, match=r"127.0.0.1:1: .*; nonsense: "):
            doctor_host._reached(("127.0.0.1:1", "nonsense"))


def steps(file: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    """Of an agent, by name."""
    run(["doctor", "--for", "agent", "--config", str(file), "--json"])
    return {check["name"]: check for check in json.loads(capsys.readouterr().out)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An agent's configuration, and a directory that is its user's."""
    found = tmp_path / "agent.toml"
    found.write_text(AGENT.format(place=tmp_path, nic="lo"))
    return found


def test_a_host_with_ipv6_only_is_told_to_set_the_family(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def addresses(family: str) -> Callable[[str, str], str]:
        def address(name: str, wanted: str) -> str:
            if family != wanted:
                raise MissingError("none")
            return name

        return address

    monkeypatch.setattr(doctor_host, "address", addresses("ipv6"))
    nics = steps(file, capsys)["NICs"]
    assert nics["detail"] == "no ipv4 address at lo, but ipv6 ones"
    assert nics["remedy"].startswith(f'set family = "ipv6" in {file}')

    text = file.read_text().replace('"127.0.0.1:1"', '"[::1]:1"\nfamily = "ipv6"')
    file.write_text(text)
    found = steps(file, capsys)
    assert found["NICs"]["detail"] == "lo, probed at their ipv6 addresses"
    assert "--at [::1]:8444" in found["certificate"]["remedy"]

    monkeypatch.setattr(doctor_host, "address", addresses("none"))
    assert steps(file, capsys)["NICs"]["remedy"].startswith("ip -br address show dev lo")


class _Place(NamedTuple):
    """The part of what `os.statvfs` returns that is looked at."""

    f_flag: int = 0
    f_bavail: int = 1 << 20
    f_frsize: int = 4096
    f_files: int = 100
    f_favail: int = 100


@pytest.mark.parametrize(
    ("place", "texts"),
    [
        (_Place(f_bavail=0), ("has 0 MiB free, 16 are needed", "df -h {}; du -xhd1 {}")),
        (_Place(f_favail=0), ("has no free inode", "df -i {}")),
        (_Place(f_flag=os.ST_RDONLY), ("is on a read-only file system", "--target {})")),
        (_Place(f_files=0, f_favail=0), ("", "")),  # btrfs does not count them
    ],
)
def test_state_needs_room(
    place: _Place, texts: tuple[str, str], file: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "statvfs", lambda _: place)
    detail, remedy = texts
    found = steps(file, capsys)["directory"]
    assert (found["level"] == "ok") == (not detail)
    assert detail in found["detail"]
    assert found.get("remedy", "").endswith(remedy.replace("{}", str(file.parent)))


def test_a_directory_that_its_user_may_not_write(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.parent.chmod(0o500)
    try:
        found = steps(file, capsys)["directory"]
    finally:
        file.parent.chmod(0o700)
    assert "its mode forbids that" in found["detail"]
    assert found["remedy"].startswith("install -d -m 700")


class _Clock(dt.datetime):
    """A clock that was never set."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Self:
        return cls(2020, 1, 1, tzinfo=tz)


def test_a_clock_that_was_never_set_is_a_finding(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syntony.cli.doctor_host.dt.datetime", _Clock)
    found = steps(file, capsys)["clock"]
    assert found["level"] == "missing"
    assert found["detail"].startswith("it says 2020-01-01 00:00 UTC, but this program is of ")
    assert found["remedy"].startswith("timedatectl set-ntp true")


def test_a_certificate_that_is_not_valid_yet_is_a_clock_that_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert syntony("enrol", "authority", str(tmp_path), "--address", "localhost").returncode == 0
    tls = tmp_path / "tls"
    files = TlsFiles(
        ca=str(tls / "ca.crt"), cert=str(tls / "controller.crt"), key=str(tls / "controller.key")
    )
    assert "good for" in doctor_host._certificate(files)
    monkeypatch.setattr("syntony.cli.doctor_host.dt.datetime", _Clock)
    with pytest.raises(StepNotDoneError, match="this host's clock says 2020-01-01") as lack:
        doctor_host._certificate(files)
    assert lack.value.remedy.startswith("timedatectl set-ntp true")


def test_missing_capabilities_and_systemd_do_not_hide_later_steps(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_host, "_certificate", lambda _: "good")
    monkeypatch.setattr(doctor_host, "_reached", lambda _: "there")
    monkeypatch.setattr(doctor_host, "_BOOTED", tmp_path / "none")
    status = tmp_path / "status"
    monkeypatch.setattr(doctor_host, "grantable", lambda: grantable(status))
    status.write_text(f"CapEff:\t{0:016x}\nCapBnd:\t{BOTH_CAPABILITIES & ~(1 << 13):016x}\n")
    found = steps(file, capsys)
    lack = found["capabilities"]
    assert lack["level"] == "warning"
    assert lack["detail"] == (
        "CAP_NET_RAW cannot be granted here: no tracing of paths and sampling of segments"
    )
    assert "add the capabilities NET_ADMIN and NET_RAW" in lack["remedy"]
    for name, words in (("syntony-reactor", "agent reactor"), ("syntony-agent", "agent")):
        assert found[name]["level"] == "warning"
        assert found[name]["detail"] == "not checked: this host runs no systemd"
        assert found[name]["remedy"].endswith(f"syntony {words} --config {file}")
    assert found["fleet time"]["remedy"].startswith("read what syntony-agent writes")
    status.write_text(f"CapBnd:\t{BOTH_CAPABILITIES:016x}\n")
    assert steps(file, capsys)["capabilities"]["level"] == "ok"


@pytest.mark.parametrize(
    ("state", "says"), [("failed", "failed"), ("activating", "it ends soon after each start")]
)
def test_the_log_says_why_a_daemon_does_not_stay(
    state: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To enable and start it again would change nothing."""
    monkeypatch.setattr(doctor_host, "_systemctl", lambda *_: state)
    with pytest.raises(StepNotDoneError, match=says) as lack:
        doctor_host._active("syntony-controller")
    assert lack.value.remedy == "journalctl -u syntony-controller -n 50"


@pytest.mark.parametrize("older", [False, True])
def test_a_daemon_that_was_not_restarted_after_an_upgrade(
    older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"is-active": "active", "show": "4711"}
    monkeypatch.setattr(doctor_host, "_systemctl", lambda *words: answers[words[0]])
    monkeypatch.setattr(doctor_host, "is_older", lambda pid: pid == 4711 and older)
    if not older:
        assert doctor_host._active("syntony-agent") == "active"
        return
    with pytest.raises(StepNotDoneError, match="since before the package was installed") as lack:
        doctor_host._active("syntony-agent")
    assert lack.value.remedy == "systemctl restart syntony-agent"
