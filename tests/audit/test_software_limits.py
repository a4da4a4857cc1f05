"""Where a verdict on software changes: modules, settings, services, what a job inherits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.audit.paper import (
    DENIED,
    PaperHost,
    Text,
    readings,
    verdicts,
    worst,
)
from tests.audit.test_port_limits import CLASS, ETH0, ETH1

from syntony.audit.checks.environment import inherited
from syntony.audit.checks.services import _KNOWN
from syntony.audit.facts import UnreadableError

ROCE2 = (ETH0, ETH1)
RDMA_MODULES = "ib_core 1 0 - Live 0x0\nib_uverbs 1 0 - Live 0x0"
SYS = "/proc/sys/net/ipv4"
ROUTED = {
    f"{SYS}/conf/all/rp_filter": "2", f"{SYS}/conf/all/arp_ignore": "1",
    f"{SYS}/conf/all/arp_announce": "2", f"{SYS}/neigh/default/gc_thresh3": "2048",
}  # fmt: skip
VERBS = "1 libs found in cache `x'\n\tlibibverbs.so.1 (libc6) => /lib/libibverbs.so.1"
SOFTWARE: list[tuple[str, Mapping[str, Text], Mapping[str, Text], Any, set[str]]] = [
    ("sw.sysctl", ROUTED, {}, {}, set()),
    ("sw.sysctl", ROUTED | {f"{SYS}/conf/all/rp_filter": "1"}, {}, {}, {"warn rp_filter"}),
    ("sw.sysctl", ROUTED | {f"{SYS}/conf/all/arp_ignore": "0"}, {}, {}, {"warn arp_ignore"}),
    ("sw.sysctl", ROUTED | {f"{SYS}/conf/all/arp_announce": "0"}, {}, {}, {"warn arp_announce"}),
    ("sw.sysctl", ROUTED, {}, {"peers": 1024}, set()),
    ("sw.sysctl", ROUTED, {}, {"peers": 1025}, {"fail gc_thresh3"}),
    ("sw.sysctl", ROUTED | {"/proc/sys/vm/overcommit_memory": ""}, {}, {},
     {"unknown vm/overcommit_memory"}),
    ("sw.kernel-cmdline", {"/proc/cmdline": "ro quiet"}, {}, {}, set()),
    ("sw.kernel-cmdline", {"/proc/cmdline": "intel_iommu=on iommu=pt"}, {}, {}, set()),
    ("sw.kernel-cmdline", {"/proc/cmdline": "intel_iommu=on"}, {}, {}, {"fail"}),
    ("sw.kernel-cmdline", {"/proc/cmdline": "iommu=pt pci=noats"}, {}, {}, {"fail"}),
    ("sw.kernel-cmdline", {"/proc/cmdline": "two\nlines"}, {}, {}, {"unknown"}),
    ("sw.modules", {"/proc/modules": RDMA_MODULES}, {}, {}, set()),
    ("sw.modules", {"/proc/modules": "ib_core 1 0 - Live 0x0"}, {}, {}, {"fail"}),
    ("sw.modules", {"/proc/modules": "ib_core 1 0 - Live 0x0", "/sys/module/ib_uverbs/x": ""}, {},
     {}, set()),
    ("sw.modules", {"/proc/modules": "ib_core geladen"}, {}, {}, {"unknown"}),
    ("sw.governor", {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance"}, {},
     {}, set()),
    ("sw.governor", {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
                     "/sys/devices/system/cpu/cpu11/cpufreq/scaling_governor": "schedutil"}, {},
     {}, {"warn"}),
    ("sw.governor", {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "schedutil"}, {},
     {"allowed": ["schedutil"]}, set()),
    ("sw.governor", {"/sys/devices/system/cpu/cpuidle/cpufreq/scaling_governor": "x"}, {}, {},
     {"skip"}),
    ("sw.env", {"/etc/environment": "NCCL_IB_HCA==mlx5_1"}, {}, {}, set()),
    ("sw.env", {"/etc/environment": "NCCL_IB_HCA=mlx5_1"}, {}, {}, {"fail NCCL_IB_HCA"}),
    ("sw.env", {"/etc/environment": "NCCL_IB_HCA=mlx5_1"}, {},
     {"allowed": ["NCCL_IB_HCA=mlx5_1"]}, set()),
    ("sw.env", {"/etc/profile.d/x.sh": 'export NCCL_P2P_DISABLE="1" # no'}, {}, {},
     {"fail NCCL_P2P_DISABLE"}),
    ("sw.env", {"/etc/environment": "NCCL_P2P_DISABLE=0"}, {}, {}, set()),
    ("sw.env", {"/etc/nccl.conf": DENIED}, {}, {}, {"unknown"}),
    ("sw.env", {}, {}, {}, {"unknown"}),
    ("sw.libs", {f"{CLASS}/mlx5_0/fw_ver": "1", "/lib/libibverbs.so.1": "ELF"},
     {"ldconfig -p": VERBS},
     {}, set()),
    ("sw.libs", {f"{CLASS}/mlx5_0/fw_ver": "1", "/lib/libibverbs.so.1": ""},
     {"ldconfig -p": VERBS},
     {}, {"fail libibverbs"}),
    ("sw.libs", {f"{CLASS}/mlx5_0/fw_ver": "1"},
     {"ldconfig -p": VERBS},
     {}, {"fail libibverbs"}),
    ("sw.libs", {f"{CLASS}/mlx5_0/fw_ver": "1"}, {"ldconfig -p": "0 libs found in cache `x'"}, {},
     {"fail libibverbs"}),
    ("sw.nic-fw", {f"{CLASS}/mlx5_0/fw_ver": "28.1"}, {}, {}, set()),
    ("sw.nic-fw", {f"{CLASS}/mlx5_0/fw_ver": "fw_ver"}, {}, {}, {"unknown mlx5_0"}),
    ("sw.nic-fw", {}, {}, {}, {"skip"}),
    ("sw.os", {"/etc/os-release": "PRETTY_NAME='x'", "/proc/sys/kernel/osrelease": "6.1"}, {}, {},
     set()),
    ("sw.os", {"/etc/os-release": "PRETTY_NAME=''"}, {}, {}, {"unknown"}),
    ("sw.services", {}, {}, {}, {"skip"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "files", "commands", "limits", "bad"),
    [pytest.param(*case, id=f"{case[0]}-{number}") for number, case in enumerate(SOFTWARE)],
)
def test_softwares_verdict_changes_where_the_check_says(
    name: str, files: Mapping[str, Text], commands: Mapping[str, Text], limits: Any, bad: set[str]
) -> None:
    host = PaperHost(files, commands, ROCE2)
    assert worst(name, host, **limits) == bad, verdicts(name, host, **limits)


@pytest.mark.parametrize(
    ("states", "failed", "bad"),
    [
        ({"slurmd": "active"}, "", set()),
        ({"kubelet": "active"}, "", set()),
        ({}, "", {"fail slurmd|kubelet"}),
        ({"slurmd": "activating"}, "", {"fail slurmd|kubelet"}),
        ({"slurmd": "active"}, "nvme.service loaded failed failed", {"warn failed units"}),
        ({"slurmd": "nonsense"}, "", {"unknown"}),
    ],
)
def test_services_that_a_fleet_requires(states: dict[str, str], failed: str, bad: set[str]) -> None:
    commands: dict[str, Text] = {
        f"systemctl is-active {name}": UnreadableError("exit 3: inactive") for name in _KNOWN
    }
    commands |= {f"systemctl is-active {name}": state for name, state in states.items()}
    commands["systemctl list-units --failed --plain --no-legend"] = failed
    host = PaperHost(commands=commands)
    assert worst("sw.services", host, required=["slurmd|kubelet"]) == bad
    if states.get("slurmd") == "active":
        assert readings("sw.services", host)["sw.services", ""] == "slurmd"
    booted = UnreadableError("System has not been booted with systemd as init system")
    assert worst("sw.services", PaperHost(commands={
        "systemctl is-active slurmd": booted})) == {"skip"}  # fmt: skip


def test_what_a_job_inherits_is_read_from_every_file_that_may_be_read() -> None:
    host = PaperHost({
        "/etc/environment": "NCCL_DEBUG=INFO\nPATH=/bin\nUCX_TLS='rc'",
        "/etc/nccl.conf": "NCCL_DEBUG=WARN", "/root/.nccl.conf": DENIED,
        "/etc/profile.d/a.sh": "  export CUDA_X=1 # why",
    })  # fmt: skip
    settings, denied = inherited(host)
    assert settings == {"NCCL_DEBUG": "WARN", "UCX_TLS": "rc", "CUDA_X": "1"}
    assert denied == ["permission denied"]
