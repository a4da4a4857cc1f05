"""Determine the role of a NIC. A management NIC must never drain a node."""

from __future__ import annotations

import enum
from typing import NamedTuple


class LinkRole(enum.StrEnum):
    COMPUTE = "compute"
    """Carries the job's collectives: back-end, one per GPU or so."""
    FRONTEND = "frontend"
    """Carries the default route: storage, control, logins."""
    MANAGEMENT = "management"
    """The board's own little Ethernet port, USB to the BMC, a DPU's host channel."""
    VIRTUAL = "virtual"
    """No cable of its own: bridge, tunnel, container end, virtual function."""


class NicFacts(NamedTuple):
    """Facts about one NIC; None if unknown."""

    name: str
    physical: bool
    """It has a device below ``/sys/class/net/X/device``."""
    virtual_function: bool
    rdma: bool
    """An RDMA device sits on it."""
    infiniband: bool
    """Its link layer is InfiniBand."""
    default_route: bool | None
    """A default route leaves by it, or by what is built on it (bond, VLAN, bridge)."""
    speed_gbps: float | None
    driver: str
    storage: bool = False
    """Its card serves the front end by another port and is of another kind than most."""


MANAGEMENT_DRIVERS = frozenset(
    {"cdc_ether", "cdc_ncm", "rndis_host", "tmfifo", "mlxbf_gige", "igb"}
)
"""USB Ethernet of a BMC, the host channel and the out-of-band port of a DPU, 1 GbE on boards."""
SLOW_GBPS = 10.0
"""Slower NICs do not carry collectives: ports on boards have 1 Gb/s, at most 10."""


def role_of(nic: NicFacts, *, configured: bool = False) -> LinkRole:
    """What the NIC is for.

    Args:
        nic: what is known of it.
        configured: the operator lists it among the NICs to probe: then it is a compute NIC.
    """
    if configured or nic.infiniband:
        return LinkRole.COMPUTE
    if not nic.physical or nic.virtual_function:
        return LinkRole.VIRTUAL
    if nic.default_route or nic.storage:
        return LinkRole.FRONTEND
    slow = nic.speed_gbps is not None and nic.speed_gbps <= SLOW_GBPS
    if nic.driver in MANAGEMENT_DRIVERS or (slow and not nic.rdma):
        return LinkRole.MANAGEMENT
    return LinkRole.COMPUTE if nic.rdma else LinkRole.FRONTEND
