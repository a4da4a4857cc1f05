"""Parse the state and rate of a port from sysfs, with remedies for operators."""

from __future__ import annotations

import enum
import re
from typing import NamedTuple


class PortState(enum.StrEnum):
    """State of a port, for InfiniBand and Ethernet alike."""

    UNKNOWN = "unknown"
    """It could not be read: neither up nor down."""
    ABSENT = "absent"
    """The device is gone."""
    DISABLED = "disabled"
    """Set down by an administrator, or sleeping."""
    NO_PEER = "no-peer"
    """Nothing answers on the cable: Polling, or no carrier."""
    TRAINING = "training"
    """Light, but the link does not come up."""
    RECOVERING = "recovering"
    """It was up and is retraining."""
    NO_SUBNET_MANAGER = "no-subnet-manager"
    """The link is up; nobody has configured it (INIT, ARMED)."""
    ACTIVE = "active"


REMEDIES: dict[PortState, str] = {
    PortState.UNKNOWN: "read it by hand; check the driver",
    PortState.ABSENT: "check the PCIe bus (lspci) and the driver; reseat the card",
    PortState.DISABLED: "set it up: ip link set NIC up, or ibportstate enable",
    PortState.NO_PEER: "check that the far port is on; clean and reseat the cable",
    PortState.TRAINING: "clean and reseat the cable; try it in another port",
    PortState.RECOVERING: "watch link_error_recovery; clean and reseat the cable if it continues",
    PortState.NO_SUBNET_MANAGER: "start the subnet manager, or look why it does not see this port",
    PortState.ACTIVE: "",
}

_NUMBERED = re.compile(r"\s*(\d+)\s*:\s*(\S.*?)\s*")
_RATE = re.compile(r"\s*([\d.]+)\s*Gb/sec\s*(?:\(\s*(\d+)X(?:\s+(\w+))?\s*\))?\s*", re.IGNORECASE)

# InfiniBand Architecture 1.4 §14.2.5.6 (PortInfo).
_LOGICAL = {
    1: PortState.NO_PEER,
    2: PortState.NO_SUBNET_MANAGER,
    3: PortState.NO_SUBNET_MANAGER,
    4: PortState.ACTIVE,
}
_PHYSICAL = {
    1: PortState.DISABLED,  # Sleep
    2: PortState.NO_PEER,  # Polling
    3: PortState.DISABLED,
    4: PortState.TRAINING,
    6: PortState.RECOVERING,
    7: PortState.TRAINING,  # Phy test
}


class LinkRate(NamedTuple):
    """A port's speed; lanes and generation where the file names them."""

    gbps: float
    lanes: int | None
    generation: str
    """``NDR``, ``HDR``…; empty where not reported."""


def numbered(text: str | None) -> tuple[int, str] | None:
    """``"4: ACTIVE"`` → (4, "ACTIVE"); None for anything else, "N/A" included."""
    match = _NUMBERED.fullmatch(text or "")
    return (int(match[1]), match[2]) if match else None


def infiniband_state(state: str | None, phys_state: str | None) -> PortState:
    """From a port's ``state`` and ``phys_state`` files; None for one that could not be read.

    The physical state decides while the link is not up; an active port is active, even where its
    ``phys_state`` says that the driver does not know.
    """
    logical, physical = numbered(state), numbered(phys_state)
    if logical and logical[0] == 4:
        return PortState.ACTIVE
    if physical and physical[0] in _PHYSICAL:
        return _PHYSICAL[physical[0]]
    return _LOGICAL.get(logical[0], PortState.UNKNOWN) if logical else PortState.UNKNOWN


def ethernet_state(*, admin_up: bool | None, carrier: bool | None) -> PortState:
    """From an interface's flags; None for what could not be read."""
    if admin_up is None:
        return PortState.UNKNOWN
    if not admin_up:
        return PortState.DISABLED
    if carrier is None:
        return PortState.UNKNOWN
    return PortState.ACTIVE if carrier else PortState.NO_PEER


def infiniband_rate(text: str | None) -> LinkRate | None:
    """``"400 Gb/sec (4X NDR)"`` → LinkRate; None if it has none."""
    match = _RATE.fullmatch(text or "")
    if not match:
        return None
    return LinkRate(float(match[1]), int(match[2]) if match[2] else None, (match[3] or "").upper())


def ethernet_rate(text: str | None) -> LinkRate | None:
    """An interface's ``speed`` file, Mb/s; -1 and unreadable mean not known."""
    try:
        mbps = int(text or "")
    except ValueError:
        return None
    return LinkRate(mbps / 1000, None, "") if mbps > 0 else None
