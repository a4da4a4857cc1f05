"""The flows of a host's managed jobs, as whoever places them needs to know them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from syntony.model.paths import FourTuple
from syntony.traffic.connection import Connection
from syntony.traffic.relocate import Relocation


class JobFlow(NamedTuple):
    """One subflow that can carry data."""

    job: str
    token: int
    nic: str
    flow: FourTuple
    dialled: bool
    """This host made the connection: it alone can give the flow another source port."""
    movable: bool
    """… and may."""
    moving: bool
    """It comes or goes in a move that is under way."""
    tx_bps: int
    """Over the last whole window."""
    rx_bps: int
    windows: int
    """Whole windows measured since it began."""


def job_flows(conns: Iterable[Connection], relocation: Relocation) -> Iterator[JobFlow]:
    """In no order."""
    for conn in conns:
        if not conn.job:
            continue
        movable = not conn.accepted and relocation.movable(conn)
        for subflow in conn.up():
            if subflow.nic is None:
                continue
            yield JobFlow(
                job=conn.job,
                token=conn.token,
                nic=subflow.nic,
                flow=subflow.flow,
                dialled=not conn.accepted,
                movable=movable,
                moving=(subflow.nic, subflow.flow.remote) in conn.moving,
                tx_bps=subflow.meter.tx_bps,
                rx_bps=subflow.meter.rx_bps,
                windows=subflow.meter.windows,
            )
