"""A connection as `syntony paths` shows it. Pure."""

from __future__ import annotations

from collections.abc import Callable

from syntony.model.paths import FourTuple
from syntony.traffic.connection import Connection, State, Subflow
from syntony.traffic.plain_flow import PlainFlow
from syntony.wire.failover import ConnectionView, SubflowView


def describe(conn: Connection, name: Callable[[FourTuple | None], str]) -> ConnectionView:
    """`name` writes a flow with the NICs' names."""
    return ConnectionView(
        job=conn.job or "",
        connection=f"{conn.token:08x}",
        subflows=tuple(
            SubflowView(path=name(flow), state=_state(subflow), rate_bps=subflow.rate_bps)
            for flow, subflow in conn.subflows.items()
        ),
    )


def describe_plain(flow: PlainFlow, name: Callable[[FourTuple | None], str]) -> ConnectionView:
    """The one way that its packets take, as they are named there."""
    path = SubflowView(path=name(flow.wire), state=_plain_state(flow), rate_bps=flow.judge.rate_bps)
    return ConnectionView(job=flow.job or "", connection=f"{flow.inode:08x}", subflows=(path,))


def _plain_state(flow: PlainFlow) -> str:
    if flow.judge.stalled is not None:
        return "stalled"
    if not flow.detoured:
        return "plain"
    return "redrawn" if flow.wire[0::2] == flow.flow[0::2] else "detour"


def _state(subflow: Subflow) -> str:
    if subflow.state is State.COMING:
        return "coming"
    return "stalled" if subflow.stalled is not None else "up"
