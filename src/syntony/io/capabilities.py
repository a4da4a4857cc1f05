"""Checks what this host supports for an agent or a lab, one row per capability."""

from __future__ import annotations

import re
import socket
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from syntony.io.ethtool import ask
from syntony.io.interposer import IPPROTO_MPTCP

_CAP_NET_ADMIN = 12  # linux/capability.h
_CAP_NET_RAW = 13
_ETHTOOL_GET_TS_INFO = 0x41  # linux/ethtool.h
_TS_INFO = struct.Struct("=IIiI12xI12x")
"""struct ethtool_ts_info: command, abilities, PHC index, transmit types, receive filters."""
_TX_HARDWARE, _TX_SOFTWARE, _RX_HARDWARE, _RX_SOFTWARE = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FILTER_ALL = 1 << 1  # linux/net_tstamp.h: HWTSTAMP_FILTER_ALL
_USES = {
    "CAP_NET_RAW": "tracing of paths and sampling of segments",
    "CAP_NET_ADMIN": "hardware stamps and steering",
}
_PATIENCE_S = 5.0


class Capability(NamedTuple):
    """One thing this host can do (`ok`), cannot, or that could not be found out (None)."""

    name: str
    ok: bool | None
    detail: str
    remedy: str
    """The remedy; empty if nothing is missing or nothing can be done."""


class StampAbilities(NamedTuple):
    """What a NIC's driver says it can stamp."""

    tx_software: bool
    rx_software: bool
    hardware: bool
    """Every packet, both directions: PTP-only filters do not match probes."""
    phc_index: int | None


def survey(nics: Sequence[str], root: Path = Path("/")) -> tuple[Capability, ...]:
    """Everything, host first, then NIC by NIC. Never raises for what is merely missing.

    `root` is where /proc and /sys are looked for.
    """
    host = (
        _user_namespaces(),
        *_privileges(root / "proc/self/status"),
        _mptcp(root / "proc/sys/net/mptcp/enabled"),
        _rdma(root / "sys/class/infiniband"),
    )
    return host + tuple(row for nic in nics for row in _stamps(nic))


def stamp_abilities(nic: str) -> StampAbilities:
    """Ask the NIC's driver (ETHTOOL_GET_TS_INFO). Raises `OSError`: no such interface, or a driver
    that does not say."""
    answer = ask(nic, _TS_INFO.pack(_ETHTOOL_GET_TS_INFO, 0, 0, 0, 0))
    _, abilities, phc_index, _, filters = _TS_INFO.unpack(answer)
    both = _TX_HARDWARE | _RX_HARDWARE
    return StampAbilities(
        tx_software=bool(abilities & _TX_SOFTWARE),
        rx_software=bool(abilities & _RX_SOFTWARE),
        hardware=abilities & both == both and bool(filters & _FILTER_ALL) and phc_index >= 0,
        phc_index=phc_index if phc_index >= 0 else None,
    )


def _user_namespaces() -> Capability:
    name = "user namespaces"
    try:
        result = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--net", "true"],
            capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return Capability(name, None, "unshare is not installed", "install util-linux")
    except subprocess.TimeoutExpired:
        return Capability(name, None, f"no answer in {_PATIENCE_S:g} s", "")
    if result.returncode == 0:
        return Capability(name, True, "a lab needs no root", "")
    remedy = (
        "set kernel.unprivileged_userns_clone=1 (Debian) or"
        " kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), or run the lab as root"
    )
    return Capability(name, False, result.stderr.strip() or "refused", remedy)


def grantable(status: Path = Path("/proc/self/status")) -> tuple[Capability, ...]:
    """The privileges of an agent that a process which this one starts can have."""
    return tuple(
        each._replace(detail="cannot be granted here: no " + _USES[each.name])
        if each.ok is False
        else each
        for each in _privileges(status, "CapBnd")
    )


def _privileges(status: Path, kind: str = "CapEff") -> tuple[Capability, ...]:
    """`kind`: which set of them (proc_pid_status(5))."""
    wanted = (("CAP_NET_RAW", _CAP_NET_RAW), ("CAP_NET_ADMIN", _CAP_NET_ADMIN))
    held = _capability_set(status, kind)
    if held is None:
        return tuple(Capability(name, None, f"{status} cannot be read", "") for name, _ in wanted)
    return tuple(
        Capability(name, True, f"held: {_USES[name]}", "")
        if held >> bit & 1
        else Capability(name, False, f"not held: no {_USES[name]}", f"grant the agent {name}")
        for name, bit in wanted
    )


def _capability_set(status: Path, kind: str) -> int | None:
    try:
        match = re.search(rf"^{kind}:\s*([0-9a-f]+)$", status.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1], 16) if match else None


def _mptcp(switch: Path) -> Capability:
    name = "MPTCP"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP):
            return Capability(name, True, "sockets can be made", "")
    except OSError as error:
        if not switch.exists():
            return Capability(name, False, "not in this kernel", "use a kernel with CONFIG_MPTCP")
        return Capability(name, False, error.strerror or "refused", "sysctl net.mptcp.enabled=1")


def _rdma(devices: Path) -> Capability:
    try:
        names = sorted(device.name for device in devices.iterdir())
    except FileNotFoundError:
        names = []
    except OSError as error:
        return Capability("RDMA devices", None, f"{devices}: {error.strerror}", "")
    if names:
        return Capability("RDMA devices", True, ", ".join(names), "")
    return Capability("RDMA devices", False, "none", "load the NIC's RDMA driver, if it has one")


def _stamps(nic: str) -> tuple[Capability, ...]:
    software, hardware = f"{nic}: kernel stamps", f"{nic}: hardware stamps"
    try:
        can = stamp_abilities(nic)
    except OSError as error:
        detail = f"the driver does not say ({error.strerror})"
        return tuple(Capability(name, None, detail, "") for name in (software, hardware))
    ways = {"transmit": can.tx_software, "receive": can.rx_software}
    missing = [way for way, able in ways.items() if not able]
    detail = f"no {' and '.join(missing)} stamps" if missing else "transmit and receive"
    remedy = "use a driver with software timestamps" if missing else ""
    return (
        Capability(software, not missing, detail, remedy),
        Capability(hardware, can.hardware, _hardware_detail(can), ""),
    )


def _hardware_detail(can: StampAbilities) -> str:
    if can.hardware:
        return f"every packet, clock /dev/ptp{can.phc_index}"
    return "not for every packet" if can.phc_index is not None else "the NIC has no clock"
