# ruff: noqa: E501 - the words of messages
"""Parsers of what hosts say: whatever the text, a result or a `FactError`, never anything else."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.audit.checks.bmc import freeipmi_sensors, ipmitool_sensors
from syntony.audit.checks.disks import mounts_of
from syntony.audit.checks.gpu_memory import amd_uncorrected
from syntony.audit.facts import FactError
from syntony.audit.parse.clocks import parse_chrony, parse_ntpq, parse_timesyncd
from syntony.audit.parse.kernel_faults import FAULTS, is_known_fault, kernel_faults
from syntony.audit.parse.kernel_log import xids
from syntony.audit.parse.nvidia import parse_query
from syntony.audit.xid import Action, action_of, latest
from syntony.io.frontend_nics import frontend_nics, storage_routes
from syntony.model import MS

_WORDS = st.sampled_from([
    "nvme nvme0: ", "controller is down; will reset", "INFO: task ", ":12 blocked for more than ",
    "rcu: ", "detected stalls on CPU", "SXid (PCI:0000:c1:00.0): 12020", ", Fatal, ", ", Non-fatal, ",
    "NVRM: Xid (PCI:0000:01:00): 154", "action changed from 0x0 (None) to 0x1 (", ")", "pciehp: Slot(",
    "): Link Down", "): Link Up", "EXT4-fs (", "Remounting filesystem read-only", "[1.0] ", "\n", "|",
    "offset=", "rootdelay=1", "Offset: ", "-1.5ms", "1e400", "rw", "ro,", " /x ", "nfs4", "addr=10.0.0.1",
    "eth0\t00000000\t", "FFFFFFFF", "0000000A", "\x00", "\udcff", "９",
])  # fmt: skip
TEXTS = st.one_of(st.text(max_size=80), st.lists(_WORDS, max_size=30).map("".join))
PARSERS = (parse_chrony, parse_ntpq, parse_timesyncd, freeipmi_sensors, ipmitool_sensors,
           parse_query)  # fmt: skip


@given(text=TEXTS)
def test_any_text(text: str) -> None:
    for parse in PARSERS:
        with contextlib.suppress(FactError):
            parse(text)
    mounts_of(text)
    is_known_fault(text)
    for reported in kernel_faults(text):
        assert reported.item
        assert reported.fault.meaning
        assert reported.fault.remedy
    for each in latest(xids(text)):
        assert action_of(each).meaning


@given(table=TEXTS, mounts=TEXTS)
def test_any_routes_and_mounts(table: str, mounts: str) -> None:
    storage_routes(table, mounts)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["ecc", "ecc_blocks", "UMC", "uncorrectable_count",
                         "total_uncorrectable_count"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(record=st.dictionaries(st.sampled_from(["ecc", "ecc_blocks"]), _JSON, max_size=2))
def test_any_amd_record(record: dict[str, object]) -> None:
    assert all(count >= 0 for _, count in amd_uncorrected(record))


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("12020, Fatal, Link 46 egress sequence ID error", Action.RESET),
        ("12020, Non-fatal, Link 46 egress non-posted PRIV error", Action.WATCH),
        ("20001, Non-fatal, Link 46 TX Replay Error", Action.APPLICATION),
        ("20001, Fatal, Link 46 TX Replay Error", Action.RESET),
        ("12020", Action.RESET),
        ("22013", Action.APPLICATION),
    ],
)
def test_a_switch_says_itself_whether_it_is_fatal(line: str, action: Action) -> None:
    (error,) = xids(f"[1.0] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {line}")
    assert action_of(error).action is action


@pytest.mark.parametrize(
    ("actions", "wanted"),
    [
        (["None"], Action.APPLICATION),
        (["GPU Reset Required"], Action.RESET),
        (["GPU Reset Required", "None"], Action.APPLICATION),
        (["GPU Reset Required", "Node Reboot Required"], Action.REBOOT),
        (["OS Reboot"], Action.REBOOT),
        (["Drain and Reset"], Action.RESET),
        (["PF FLR"], Action.RESET),
    ],
)
def test_the_last_recovery_action_counts(actions: list[str], wanted: Action) -> None:
    log = "\n".join(
        f"[{number}.0] NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 "
        f"(Whatever) to 0x{number} ({action})"
        for number, action in enumerate(actions)
    )
    (error,) = latest(xids(log))
    assert action_of(error).action is wanted


HARMLESS = (
    "pcieport 0000:10:01.0: pciehp: Slot(1): Card present",
    "pcieport 0000:10:01.0: pciehp: Slot(1): Link Up",
    "EXT4-fs (nvme0n1p2): re-mounted. Opts: errors=remount-ro. Quota mode: none.",
    "Memory cgroup out of memory: Killed process 99 (python) total-vm:1kB",
    "rcu: Hierarchical SRCU implementation.",
    "nvme nvme0: 128/0/0 default/read/poll queues",
    "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ)",
    "I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x0",
    "NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus.",
    "INFO: rcu_sched: 12 callbacks",
    "perf: interrupt took too long (2501 > 2500)",
    "traps: python[812] general protection fault ip:7ff9fe sp:7ffc8f error:0 in libc.so.6[1ac9d8]",
)


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless_kernel_messages(line: str) -> None:
    assert not list(kernel_faults(f"[   12.345678] {line}\n"))


@pytest.mark.parametrize(
    "line",
    [
        "general protection fault: 0000 [#1] SMP PTI",
        "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP",
        "Oops: general protection fault, maybe for address 0xffff: 0000 [#1] PREEMPT SMP",
    ],
)
def test_a_protection_fault_in_the_kernel_is_a_crash(line: str) -> None:
    (found,) = kernel_faults(f"[   12.345678] {line}\n")
    assert found.fault.name == "kernel crash"


def test_what_is_over_is_told_so() -> None:
    down = "[1.0] pcieport 0000:10:01.0: pciehp: Slot(7): Link Down\n"
    up = "[2.0] pcieport 0000:10:01.0: pciehp: Slot(7): Link Up\n"
    assert [each.over for each in kernel_faults(down + up)] == [True]
    assert [each.over for each in kernel_faults(up + down)] == [False]
    other = up.replace("Slot(7)", "Slot(8)")
    assert [each.over for each in kernel_faults(down + other)] == [False]


def test_faults_are_told_whatever_stands_around_them() -> None:
    """In any order, with any time stamps, in thousands of other lines."""
    seed = 20261122
    chance = random.Random(seed)
    lines = [
        "INFO: task nfsd:812 blocked for more than 241 seconds.",
        "XFS (dm-3): Filesystem has been shut down due to log error (0x2).",
        "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3",
        "Out of memory: Killed process 77 (kubelet) total-vm:7kB",
    ]
    stamps = ("[{:12.6f}] ", "<4>[{:12.6f}] ", "", "kern  :warn  : [{:12.6f}] ")
    for _ in range(20):
        noise = [f"usb 1-{chance.randrange(9)}: new device" for _ in range(chance.randrange(400))]
        log = [*noise, *lines]
        chance.shuffle(log)
        text = "\n".join(chance.choice(stamps).format(chance.random() * 1e6) + line for line in log)
        found = {each.fault.name for each in kernel_faults(text)}
        assert found == {"hung task", "file system shut down", "hard lockup", "out of memory"}, seed


def test_every_kind_of_fault_has_its_words() -> None:
    for each in FAULTS:
        assert each.meaning, each.name
        assert each.remedy, each.name
        assert "(?P<item>" in each.pattern.pattern, each.name


@pytest.mark.parametrize(
    ("source", "leap", "good"),
    [("0A090035,10.9.0.53", "Normal", True), ("7F7F0101,", "Normal", False),
     ("00000000,0.0.0.0", "Normal", False), ("0A090035,10.9.0.53", "Not synchronised", False)],
)  # fmt: skip
def test_chrony_without_a_source_is_not_synchronised(source: str, leap: str, good: bool) -> None:
    line = f"{source},3,1700000000.1,-0.000002,0.000001,0.000003,1,0,0.1,0.0008,0.0003,64,{leap}"
    wall = parse_chrony(line)
    assert wall.synchronised is good
    assert (wall.offset_ns, wall.bound_ns) == pytest.approx((-2_000, 400_000 + 300_000))


def test_clocks() -> None:
    wall = parse_timesyncd(
        "Server: x\nOffset: -1min 2.5s\nDelay: 4ms\nRoot distance: 1ms (max: 5s)"
    )
    assert wall.offset_ns == -62_500 * MS
    assert wall.bound_ns == 3 * MS
    wall = parse_ntpq("leap=00, rootdelay=2.0, rootdisp=1.5, offset=-0.25, sync_ntp")
    assert (wall.synchronised, wall.offset_ns, wall.bound_ns) == (True, -0.25 * MS, 2.5 * MS)


def test_interfaces_that_are_built_on_each_other_in_a_circle(tmp_path: Path) -> None:
    net = tmp_path / "sys/class/net"
    for name, other in (("a", "b"), ("b", "a")):
        (net / name).mkdir(parents=True)
        (net / name / f"lower_{other}").mkdir()
        (net / name / "master").symlink_to(f"../{other}")
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/route").write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
        "a\t00000000\t0100000A\t3\t0\t0\t0\t00000000\n"
        "../../x\t00000000\t0100000A\t3\t0\t0\t0\t00000000\n")  # fmt: skip
    assert frontend_nics(tmp_path).default == frozenset({"a", "b"})
