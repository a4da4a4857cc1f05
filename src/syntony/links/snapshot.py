"""One reading of one port, as the readers deliver it."""

from __future__ import annotations

import fnmatch
from typing import NamedTuple

from syntony.links.ports import LinkRate, PortState
from syntony.links.roles import LinkRole


class Slot(NamedTuple):
    """The PCIe link of a card; NaN for what is not known."""

    gts: float
    """GT/s per lane, now."""
    max_gts: float
    """That card and slot can."""
    width: float
    """Lanes, now."""
    max_width: float


class PortSnapshot(NamedTuple):
    name: str
    """The interface, or ``device:port`` of an RDMA port without one (``mlx5_0:1``)."""
    netdev: str
    """Empty where there is none: an InfiniBand port without IPoIB."""
    rdma: str
    """``mlx5_0:1``; empty where there is none."""
    link_layer: str
    """``Ethernet`` or ``InfiniBand``."""
    driver: str
    role: LinkRole
    state: PortState
    rate: LinkRate | None
    epoch: str
    """Identifies the present life of its counters; changes with a boot or a reload of the
    driver."""
    counters: dict[str, int | None]
    """Counter key → value; None for one that is there and cannot be read."""
    slot: Slot | None = None
    """Of its card; None: it is on no PCIe bus."""


def with_backend(
    ports: tuple[PortSnapshot, ...], patterns: tuple[str, ...]
) -> tuple[PortSnapshot, ...]:
    """The ports with the roles an operator gave them.

    Args:
        ports: as they were found.
        patterns: shell patterns of RDMA devices, ``device:port`` or interfaces that carry the job;
            no other RDMA port does then. Empty: the roles stay as found.
    """
    if not patterns:
        return ports
    return tuple(_reassigned(port, patterns) for port in ports)


def _reassigned(port: PortSnapshot, patterns: tuple[str, ...]) -> PortSnapshot:
    names = {port.name, port.netdev, port.rdma, port.rdma.partition(":")[0]} - {""}
    if any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns):
        return port._replace(role=LinkRole.COMPUTE)
    return port._replace(role=LinkRole.FRONTEND) if port.role is LinkRole.COMPUTE else port
