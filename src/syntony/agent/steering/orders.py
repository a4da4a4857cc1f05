"""Converts between the controller's messages and path control: flows up, orders down. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from syntony.model.paths import FourTuple
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.moving import MoveOrder, Outcome
from syntony.traffic.rail_moves import RailOrder
from syntony.wire.bounds import MAX_VIEWS
from syntony.wire.traffic import (
    EXPIRED,
    REDRAWN,
    FlowsReport,
    FlowView,
    Move,
    MoveOutcome,
    ProbeDelay,
)

MAX_EVIDENCE = 300
Hops = Callable[[str, FourTuple], tuple[str, ...]]
"""NIC and flow → addresses of its hops; empty: unknown."""
PaceOf = Callable[[ReportedFlow], tuple[bool, int]]
"""Whether a flow could be rate-limited, and its limit; 0: none."""


def flows_report(
    flows: Sequence[ReportedFlow],
    outcomes: Sequence[Outcome],
    hops: Hops,
    *,
    fleet_ns: int,
    join_port: int,
    delays: tuple[ProbeDelay, ...] = (),
    pace_of: PaceOf = lambda _flow: (False, 0),
    late_paces: int = 0,
) -> FlowsReport:
    """If there are too many, the fastest flows."""
    ranked = sorted(flows, key=lambda each: -(each.tx_bps + each.rx_bps))
    kept = ranked[:MAX_VIEWS]
    return FlowsReport(
        at_ns=fleet_ns,
        flows=tuple(_view(each, hops, pace_of(each)) for each in kept if not each.redrawn),
        redrawn=tuple(_view(each, lambda *_: (), (False, 0)) for each in kept if each.redrawn),
        outcomes=tuple(
            MoveOutcome(move_id=o.move_id, result=o.result, tried=o.tried) for o in outcomes
        ),
        delays=delays,
        join_port=join_port,
        left_out=max(0, len(ranked) - MAX_VIEWS),
        late_paces=late_paces,
    )


def order_of(move: Move, fleet_now_ns: int | None) -> MoveOrder | RailOrder | str:
    """The order, or why it is invalid.

    Args:
        fleet_now_ns: None while this host has no fleet time: then an order's age is unknown.
    """
    if fleet_now_ns is None:
        return "no fleet time here: the order's age is unknown"
    if fleet_now_ns >= move.expires_ns:
        return f"{EXPIRED}{(fleet_now_ns - move.expires_ns) // 1_000_000} ms ago"
    if move.process:
        return _rail_order(move)
    try:
        token = int(move.connection, 16)
    except ValueError:
        return f"{move.connection[:20]!r} is no connection"
    if not 0 < move.port < 1 << 16:
        return f"{move.port} is no port"
    return MoveOrder(
        move_id=move.move_id,
        token=token,
        flow=FourTuple.of(move),
        port=move.port,
        evidence=move.evidence[:MAX_EVIDENCE],
    )


def _rail_order(move: Move) -> RailOrder | str:
    if move.instead is None:
        return "no rail to send by instead"
    return RailOrder(
        move_id=move.move_id,
        process=move.process,
        path=(move.local, move.remote),
        instead=move.instead,
        evidence=move.evidence[:MAX_EVIDENCE],
    )


def _connection(each: ReportedFlow) -> str:
    if each.process:
        return f"rdma-{each.process}"
    if each.token:
        return f"{each.token:08x}"
    kind = REDRAWN if each.redrawn else "tcp-"
    return f"{kind}{each.flow.local_port}-{each.flow.remote_port}"


def _view(each: ReportedFlow, hops: Hops, pace: tuple[bool, int]) -> FlowView:
    return FlowView(
        job=each.job,
        connection=_connection(each),
        nic=each.nic,
        **each.flow._asdict(),
        dialled=each.dialled,
        movable=each.movable,
        moving=each.moving,
        tx_bps=each.tx_bps,
        rx_bps=each.rx_bps,
        windows=each.windows,
        rtt_ns=each.rtt_ns,
        retransmits=each.retransmits,
        dscp=each.dscp,
        window_limited_ns=each.window_limited_ns,
        hops=hops(each.nic, each.flow),
        paceable=pace[0],
        pace_bps=pace[1],
        process=each.process,
        left=each.left,
        moved_to=each.moved_to,
    )
