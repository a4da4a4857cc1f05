"""Checks this machine against the requirements of a lab, with a remedy for each gap."""

from __future__ import annotations

import enum
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from syntony.errors import MissingError
from syntony.lab import relay
from syntony.lab.commands import SEED_SYSCTL
from syntony.lab.verbs import image
from syntony.lab.world import TOOLS, missing_tools, need, search_path, unshare_argv


class RequirementLevel(enum.StrEnum):
    """How bad it is: `warning` costs one feature, `missing` costs the lab."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


class LabRequirement(msgspec.Struct, frozen=True):
    """One thing a lab needs."""

    name: str
    level: RequirementLevel
    detail: str
    remedy: str = ""


_FEATURES = {
    "veth": "ip link add sv0 type veth peer name sv1",
    "tbf": "tc qdisc add dev sv0 root tbf rate 1mbit burst 32k latency 20ms",
    "nft": "nft add table inet syntony_doctor",
    "nft numgen": (
        "nft 'add chain inet syntony_doctor c { type filter hook prerouting priority 0; }' && "
        "nft add rule inet syntony_doctor c numgen random mod 100 '<' 5 drop"
    ),
    "IPv6": "test -d /proc/sys/net/ipv6",
    "ECMP hash on 5-tuples": "echo 3 > /proc/sys/net/ipv4/fib_multipath_hash_policy",
    "sysfs": "mount -t sysfs none /sys",
}
"""Tried in this order in a temporary world; each needs its shell command to succeed."""
_REMEDIES = {
    "veth": "modprobe veth (CONFIG_VETH)",
    "tbf": "modprobe sch_tbf (CONFIG_NET_SCH_TBF)",
    "nft": "modprobe nf_tables (CONFIG_NF_TABLES_INET)",
    "nft numgen": "modprobe nft_numgen (CONFIG_NFT_NUMGEN)",
    "IPv6": "boot without ipv6.disable=1",
    "ECMP hash on 5-tuples": "use Linux 5.12 or later (CONFIG_IP_ROUTE_MULTIPATH)",
    "sysfs": "run outside this container, or with an unmasked /sys",
}


def examine() -> list[LabRequirement]:
    """Every check, in the order in which a lab needs them."""
    checks = list(_tools())
    try:
        argv = unshare_argv()
    except MissingError as error:
        lack, _, remedy = str(error).partition("; ")
        checks.append(LabRequirement("private namespaces", RequirementLevel.MISSING, lack, remedy))
        return checks
    how = "as this user" if "-Urnmpf" in argv else "as root, user namespaces are forbidden"
    checks.append(LabRequirement("private namespaces", RequirementLevel.OK, how))
    checks += _features(argv)
    relays = _found("delay relay (delay fault)", relay.relay_program, "found")
    machines = "machines with Soft-RoCE (lab verbs)", partial(need, image.TOOLS)
    return [*checks, _seed(), _tun(), relays, _found(*machines, "all programs found")]


def exit_code(checks: list[LabRequirement]) -> int:
    """0: nothing is missing; 1: a feature is missing; 2: no lab can be brought up."""
    levels = {check.level for check in checks}
    if RequirementLevel.MISSING in levels:
        return 2
    return 1 if RequirementLevel.WARNING in levels else 0


def conclusion(checks: list[LabRequirement]) -> str:
    """Whether a lab can run here, and the next command."""
    missing = [check for check in checks if check.level is RequirementLevel.MISSING]
    if missing:
        names = ", ".join(check.name for check in missing)
        return f"no lab can run on this machine: {names}; next: {missing[0].remedy}"
    lacking = ", ".join(check.name for check in checks if check.level is RequirementLevel.WARNING)
    without = f", without: {lacking}" if lacking else ""
    return f"a lab can run on this machine{without}; start one: syntony lab up --detach"


def _tools() -> Iterator[LabRequirement]:
    missing = missing_tools()
    for name, package in TOOLS.items():
        if name in missing:
            yield LabRequirement(
                name, RequirementLevel.MISSING, "not found", f"apt install {package}"
            )
        else:
            yield LabRequirement(name, RequirementLevel.OK, f"found ({package})")


def _features(argv: list[str]) -> Iterator[LabRequirement]:
    script = "\n".join(
        f'm=$( ({command}) 2>&1 ) && echo ok || echo "$m" | head -n1 | sed "s/^$/no/"'
        for command in _FEATURES.values()
    )
    env = {**os.environ, "PATH": search_path()}
    done = subprocess.run(
        [*argv, "sh", "-c", script], env=env, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    for i, name in enumerate(_FEATURES):
        said = lines[i] if i < len(lines) else done.stderr.strip() or "no answer"
        if said == "ok":
            yield LabRequirement(name, RequirementLevel.OK, "works")
        else:
            yield LabRequirement(name, RequirementLevel.MISSING, said, _REMEDIES[name])


def _seed() -> LabRequirement:
    name = "ECMP seed per switch"
    if Path("/proc/sys", SEED_SYSCTL).exists():
        return LabRequirement(name, RequirementLevel.OK, "works")
    return LabRequirement(
        name, RequirementLevel.WARNING, "all switches hash alike", "use Linux 6.11 or later"
    )


def _tun() -> LabRequirement:
    name = "TUN device (delay fault)"
    if not relay.TUN_DEVICE.exists():
        return LabRequirement(
            name, RequirementLevel.WARNING, f"no {relay.TUN_DEVICE}", "modprobe tun"
        )
    if not os.access(relay.TUN_DEVICE, os.R_OK | os.W_OK):
        remedy = f"as root: chmod 0666 {relay.TUN_DEVICE}"
        return LabRequirement(
            name, RequirementLevel.WARNING, f"{relay.TUN_DEVICE} is not yours to open", remedy
        )
    return LabRequirement(name, RequirementLevel.OK, "works")


def _found(name: str, look: Callable[[], object], found: str) -> LabRequirement:
    try:
        look()
    except MissingError as error:
        detail, _, remedy = str(error).partition("; ")
        return LabRequirement(
            name, RequirementLevel.WARNING, detail, remedy.removeprefix("install with: ")
        )
    return LabRequirement(name, RequirementLevel.OK, found)
