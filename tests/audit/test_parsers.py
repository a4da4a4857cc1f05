"""Parsers of foreign text: truncated, of another language, empty, hostile. Unknown, never a crash,
never a pass.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.audit import speeds
from tests.audit.hosts import LSPCI, nvidia_host, smi

from syntony.audit.check import examine
from syntony.audit.facts import AbsentError, UnreadableError
from syntony.audit.hostlist import parse_hosts
from syntony.audit.parse import bandwidth, kernel_log, lspci, nvidia, smbios
from syntony.audit.parse.text import json_of, version_key, whole
from syntony.audit.rdma import parse_ibstat
from syntony.audit.registry import host_checks
from syntony.audit.result import Result, Status
from syntony.cli import run
from syntony.errors import InputError, UsageError
from syntony.io.audit.host import recorded_host, unpack_dump
from syntony.links.snapshot import PortSnapshot

_SMI = smi(["0000:03:00.0"])
_TEXTS: dict[Callable[[str], object], str | None] = {
    nvidia.parse_query: _SMI,
    nvidia.parse_nvlink_status: nvidia_host().commands["nvidia-smi nvlink -s"],
    nvidia.parse_topology: nvidia_host().commands["nvidia-smi topo -m"],
    lspci.parse_lspci: LSPCI,
    bandwidth.parse_nvbandwidth: speeds.nvbandwidth(),
    bandwidth.parse_rocm_bandwidth: speeds.rocm_bandwidth(),
    smbios.parse_memory: nvidia_host().commands["dmidecode -t 17"],
    kernel_log.xids: "[1.0] NVRM: Xid (PCI:0000:9b:00): 119, pid=1\n",
    kernel_log.machine_checks: "[1.0] mce: [Hardware Error]: Machine check events logged\n",
    lambda text: list(parse_ibstat(text)): "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n",
    lambda text: list(nvidia.parse_nvlink_errors(text)): "GPU 0: X\n Link 0: Replay Errors: 0\n",
    lambda text: json_of(text, "it"): '{"a": [1, 2]}',
}


@pytest.mark.parametrize("number", range(len(_TEXTS)))
@settings(max_examples=60)
@given(cut=st.integers(0, 4000), junk=st.text(max_size=40), at=st.integers(0, 4000))
def test_broken_text_is_unreadable_or_less(number: int, cut: int, junk: str, at: int) -> None:
    parse, good = list(_TEXTS.items())[number]
    assert good is not None
    for text in (good[:cut], good[:at] + junk + good[at:], junk, good.replace(":", "："), ""):
        with contextlib.suppress(UnreadableError):
            parse(text)


class Hostile:
    """A host that answers every question with the same text."""

    host = "evil"

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, path: str) -> str:
        return self._text.strip()

    def read_bytes(self, path: str) -> bytes:
        return self._text.encode("utf-8", "replace")

    def names(self, path: str) -> tuple[str, ...]:
        return ("0", "0000:03:00.0", "mlx5_0", "node0", "mc0", "eth0", "cpu0", "uverbs0", "umad0")

    def exists(self, path: str) -> bool:
        return True

    def real(self, path: str) -> str:
        return path

    def run(self, *command: str) -> str:
        return self._text

    def ports(self) -> tuple[PortSnapshot, ...]:
        return ()

    def later(self, after_ns: int) -> None:
        return None


_SCRAPS = st.sampled_from([
    "", "\0\0\0", "N/A", "-1", "9" * 400, "{", "[]", "{}", "[{}]", "null", "true", '"x"',
    '[{"gpu": {}, "temperature": []}]', '{"gpu_data": 7}', "<nvidia_smi_log/>",
    "<nvidia_smi_log><gpu/></nvidia_smi_log>", "a:b:c\n" * 9, "Iface\nx\n", "1 (a) D 1 1",
    "Zugriff verweigert", "권한이 없습니다", "%s%n{0}", "../../../../etc/passwd", "mlx5_0",
    "<!DOCTYPE x [<!ENTITY a 'b'>]><nvidia_smi_log>&a;</nvidia_smi_log>",
])  # fmt: skip


@settings(max_examples=40)
@given(text=st.one_of(_SCRAPS, st.text(max_size=200)))
def test_no_check_breaks_on_a_hostile_host(text: str) -> None:
    for kind in host_checks(active=True):
        for said in examine(kind(), Hostile(text)):
            if isinstance(said, Result):
                assert "the check itself failed" not in said.evidence, (kind.id, said)


@pytest.mark.parametrize("text", ["", "Zugriff verweigert", "\0", "<html>502 Bad Gateway</html>"])
def test_what_makes_no_sense_is_never_a_pass(text: str) -> None:
    """Of what a garbled program or file says, no check concludes that all is well."""
    # Any line is a command line, any text a shell's file without settings.
    searching = {"sw.env", "sw.kernel-cmdline"}
    for kind in host_checks(active=True):
        if kind.id in searching:
            continue
        for said in examine(kind(), Hostile(text)):
            assert not isinstance(said, Result) or said.status is not Status.PASS, (kind.id, said)


def test_half_permissions_are_unknown_and_say_which(tmp_path: Path) -> None:
    """A host where every command is refused and no file can be read."""

    class Refusing(Hostile):
        def read(self, path: str) -> str:
            raise UnreadableError(f"{path}: Permission denied")

        def names(self, path: str) -> tuple[str, ...]:
            raise UnreadableError(f"{path}: Permission denied")

        def run(self, *command: str) -> str:
            raise UnreadableError(f"`{' '.join(command)}`: Operation not permitted")

    for kind in host_checks(active=True):
        for said in examine(kind(), Refusing("")):
            assert isinstance(said, Result), kind.id
            assert said.status in {Status.UNKNOWN, Status.SKIP}, said
            assert said.evidence


def test_an_empty_host_has_no_pass_either(tmp_path: Path) -> None:
    class Empty(Hostile):
        def read(self, path: str) -> str:
            raise AbsentError(f"no {path}")

        def names(self, path: str) -> tuple[str, ...]:
            raise AbsentError(f"no {path}")

        def exists(self, path: str) -> bool:
            return False

        def run(self, *command: str) -> str:
            raise AbsentError(f"{command[0]} is not installed")

    for kind in host_checks(active=True):
        for said in examine(kind(), Empty("")):
            assert not isinstance(said, Result) or said.status is not Status.PASS, said


# --- real captures ---


def _tree(captures: Path, tmp_path: Path, **commands: str) -> Path:
    folder = tmp_path / "h100/sys/class/infiniband"
    shutil.copytree(captures / "gpud/sys-class-infiniband-h100.0", folder)
    (tmp_path / "h100/commands").mkdir()
    for name, file in commands.items():
        target = tmp_path / "h100/commands" / name.replace("_", " ")
        target.write_bytes((captures / file).read_bytes())
    return tmp_path / "h100"


def _describe(root: Path, check: str) -> list[Any]:
    (kind,) = host_checks([check])
    return examine(kind(), recorded_host(root))


def test_a_real_h100s_counter_that_is_full_is_found(captures: Path, tmp_path: Path) -> None:
    root = _tree(captures, tmp_path)
    warned = [each for each in _describe(root, "be.act.counters") if each.status is Status.WARN]
    assert [(each.subject, each.got) for each in warned] == [("h100/mlx5_1:1", "link_downed ≥ 255")]
    states = {each.status for each in _describe(root, "be.act.state")}
    assert states == {Status.PASS}


def test_real_bridges_with_acs_and_a_real_xid_are_found(captures: Path, tmp_path: Path) -> None:
    root = _tree(captures, tmp_path, dmesg="gpud/dmesg-with-xid-119.log")
    shutil.copy(captures / "gpud/lspci-vvv", root / "commands/lspci -vvv")
    acs = [each for each in _describe(root, "pcie.acs") if each.status is Status.FAIL]
    assert len(acs) == 6
    assert sum("ReqRedir+" in each.got for each in acs) == 4
    (xid,) = [each for each in _describe(root, "node.xid") if each.status is Status.FAIL]
    assert xid.got == "Xid 119"
    assert "GSP" in xid.meaning


def test_real_nvlinks(captures: Path) -> None:
    good = nvidia.parse_nvlink_status((captures / "gpud/nvidia-smi.nvlink.status.a100").read_text())
    assert all(len(gpu.rates) == 12 and not gpu.down for gpu in good)
    bad = nvidia.parse_nvlink_status((captures / "aznhc/bad_nvlink_status.txt").read_text())
    assert [len(gpu.rates) for gpu in bad] == [0]


def test_real_ibstat(captures: Path) -> None:
    good, bad = (
        list(parse_ibstat((captures / f"ibsim-ours/{name}.ibstat-gpu001-mlx5_1.txt").read_text()))
        for name in ("good", "bad-link-down")
    )
    assert [str(port.state) for port in good] == ["active"]
    assert [str(port.state) for port in bad] == ["no-peer"]


def test_a_real_dump_with_a_device_bound_to_another_card(
    captures: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    good, bad = (captures / f"gcm/learn_{name}.json" for name in ("good", "ib_misbound_if"))
    words = ["audit", "run", f"--root={good}", f"--root={bad}", "--golden", "learn_good",
             "--check", "pcie.numbering", "--check", "be.act.state", "--json"]  # fmt: skip
    assert run(words) == 2
    found = json.loads(capsys.readouterr().out)
    failed = {each["subject"]: each["got"] for each in found if each["status"] == "fail"}
    assert failed.keys() == {"learn_ib_misbound_if/mlx5_0", "learn_ib_misbound_if/mlx5_1"}
    assert failed["learn_ib_misbound_if/mlx5_1"] == "0000:0c:00.0 ib1"
    active = [each for each in found if each["check"] == "be.act.state"]
    assert {each["status"] for each in active} == {"pass"}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"a": "b"}', '{"/../x": "b"}', '{"/a": 1}', '{"/a": "", "/a/b": ""}']
)
def test_what_is_no_dump(text: str, tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_text(text)
    with pytest.raises(InputError):
        unpack_dump(tmp_path / "dump.json", tmp_path / "tree")


# --- small forms ---


def test_host_lists() -> None:
    assert parse_hosts("gpu[001-003,7],login1 admin@n[8-9]x") == (
        "gpu001", "gpu002", "gpu003", "gpu7", "login1", "admin@n8x", "admin@n9x")  # fmt: skip
    for bad in ("", "gpu[1-", "-oProxyCommand=x", "gpu[5-1]", "a[0-999999999]", "a;b", "x[1-2"):
        with pytest.raises(UsageError):
            parse_hosts(bad)


def test_long_host_lists_take_linear_time() -> None:
    begun_s = time.process_time()
    assert len(parse_hosts("\n".join(f"gpu{number}" for number in range(50_000)))) == 50_000
    for text in ("," * 1_000_000, "[" * 1_000_000, "[1]" * 300_000, "h[" * 500_000):
        with pytest.raises(UsageError) as caught:
            parse_hosts(text)
        assert len(str(caught.value)) < 200
    assert time.process_time() - begun_s < 5


@given(text=st.text(alphabet="gpu[]0123456789-, @", max_size=30))
def test_host_lists_of_any_kind(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert parse_hosts(text)


def test_versions_and_counts() -> None:
    assert version_key("535.129.3") < version_key("535.129.10")
    assert version_key("1.2rc1") < version_key("1.2.1")
    assert [whole(text) for text in ("7", " 7\n", "-7", "N/A", "", "9" * 30)] == [
        7, 7, None, None, None, None]  # fmt: skip
