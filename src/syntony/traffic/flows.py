"""The flows of a host's managed jobs, as placement and pacing need them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from syntony.model.paths import FourTuple
from syntony.traffic.connection import MptcpConnection
from syntony.traffic.plain_flow import PlainFlow
from syntony.traffic.relocate import Relocation

PLAIN_BPS = 1_000_000
"""A plain connection slower than this, in both directions together, is not traced: a job may have
thousands for control."""


class ReportedFlow(NamedTuple):
    """One subflow, or plain connection, that can carry data."""

    job: str
    token: int
    """Token of its MPTCP connection; 0: it is plain TCP."""
    nic: str
    flow: FourTuple
    dialled: bool
    """This host made the connection: it alone can give the flow another source port. Of plain TCP,
    which is never moved, the end with the greater port: both ends say so alike."""
    movable: bool
    """… and may."""
    moving: bool
    """It is part of a move that is under way."""
    tx_bps: int
    """Over the last whole window."""
    rx_bps: int
    windows: int
    """Whole windows measured since it began."""
    process: int = 0
    """Process that sends by queue pairs of its own, all of them between two addresses together:
    their ports are not known, and are 0. 0: a socket."""
    left: bool = False
    """No queue pair that has sent anything there carries any now."""
    moved_to: tuple[str, str] | None = None
    """By order it avoids this rail and sends between these addresses, local and remote."""
    rtt_ns: int = 0
    """The kernel's smoothed round trip; 0: not known."""
    retransmits: int = 0
    """Segments sent again since it began."""
    window_limited_ns: int = -1
    """Its data waited for the peer's window since it began; -1: not known."""
    dscp: int = -1
    """Of what this end sends; -1: not known."""
    redrawn: bool = False
    """Plain TCP on a detour by other ports between its own NICs: of its path only the ends are
    known, and it is neither placed nor paced."""

    @property
    def traced(self) -> bool:
        """Whether its path is to be learnt."""
        return (
            self.flow.local_port != 0
            and not self.redrawn
            and (self.token != 0 or self.tx_bps + self.rx_bps >= PLAIN_BPS)
        )


def job_flows(
    conns: Iterable[MptcpConnection], relocation: Relocation, plain: Iterable[PlainFlow] = ()
) -> Iterator[ReportedFlow]:
    """In no order; plain connections while they go between their own NICs only."""
    for conn in conns:
        if not conn.job:
            continue
        movable = not conn.accepted and relocation.movable(conn)
        for subflow in conn.up():
            if subflow.nic is None:
                continue
            yield ReportedFlow(
                job=conn.job,
                token=conn.token,
                nic=subflow.nic,
                flow=subflow.flow,
                dialled=not conn.accepted,
                movable=movable and not subflow.on_standby,
                moving=(subflow.nic, subflow.flow.remote) in conn.moving,
                tx_bps=subflow.meter.tx_bps,
                rx_bps=subflow.meter.rx_bps,
                windows=subflow.meter.windows,
                rtt_ns=subflow.meter.rtt_ns,
                retransmits=subflow.meter.retransmits,
                window_limited_ns=subflow.meter.window_limited_ns,
                dscp=subflow.meter.dscp,
            )
    for known in plain:
        way = known.subflow
        if way.nic is None or not known.job or known.wire[0::2] != known.flow[0::2]:
            continue
        yield ReportedFlow(
            job=known.job,
            token=0,
            nic=way.nic,
            flow=known.flow,
            dialled=(known.flow.local_port, known.flow.local)
            > (known.flow.remote_port, known.flow.remote),
            movable=False,
            moving=False,
            tx_bps=way.meter.tx_bps,
            rx_bps=way.meter.rx_bps,
            windows=way.meter.windows,
            rtt_ns=way.meter.rtt_ns,
            retransmits=way.meter.retransmits,
            window_limited_ns=way.meter.window_limited_ns,
            dscp=way.meter.dscp,
            redrawn=known.detoured,
        )
