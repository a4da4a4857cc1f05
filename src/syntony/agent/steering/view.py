"""Snapshots for other threads of the thread that reacts: jobs' flows, results of orders, and
connections as `syntony paths` shows them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from syntony.model.paths import FourTuple
from syntony.traffic.connection import MptcpConnection, Subflow, SubflowState
from syntony.traffic.failover import Failover
from syntony.traffic.flows import ReportedFlow, job_flows
from syntony.traffic.moving import Outcome
from syntony.traffic.path_notices import ProcessPath
from syntony.traffic.plain_flow import PlainFlow
from syntony.traffic.process_rates import PacedPath
from syntony.wire.failover import ConnectionView, SubflowView


class View:
    """Written by the thread that reacts; each attribute is replaced as a whole, so that any other
    thread may read it."""

    def __init__(self, failover: Failover, name: Callable[[FourTuple | None], str]) -> None:
        self._failover = failover
        self._name = name
        self.job_flows: tuple[ReportedFlow, ...] = ()
        """Subflows and plain connections of managed jobs."""
        self.outcomes: tuple[Outcome, ...] = ()
        """Results of the newest orders, oldest first."""
        self._moved: Mapping[PacedPath, ProcessPath] = {}
        self._moving: frozenset[PacedPath] = frozenset()
        self.connections: tuple[ConnectionView, ...] = ()

    def take_flows(self) -> None:
        its = self._failover
        flows = job_flows(its.connections.values(), its.relocation, its.plain.managed())
        self.job_flows = tuple(flows)
        self._moved, self._moving = its.rails.moved_to, its.rails.moving
        self.outcomes = tuple(its.relocation.outcomes)

    def rails(self, flows: Iterable[ReportedFlow]) -> tuple[ReportedFlow, ...]:
        """Rates that processes send by queue pairs, and the actions on them."""
        return tuple(
            each._replace(
                movable=self._failover.rails.may_move(each.job),
                moving=path in self._moving,
                moved_to=self._moved.get(path),
            )
            for each in flows
            for path in [(each.process, each.flow.local, each.flow.remote)]
        )

    def take_connections(self) -> None:
        jobs = [each for each in self._failover.connections.values() if each.job]
        self.connections = (
            *(describe(each, self._name) for each in jobs),
            *(describe_plain(each, self._name) for each in self._failover.plain.managed()),
        )


def describe(conn: MptcpConnection, name: Callable[[FourTuple | None], str]) -> ConnectionView:
    """`name` writes a flow with the NICs' names."""
    return ConnectionView(
        job=conn.job or "",
        connection=f"{conn.token:08x}",
        subflows=tuple(
            SubflowView(path=name(flow), state=_state(subflow), rate_bps=subflow.rate_bps)
            for flow, subflow in conn.subflows.items()
        ),
        degraded=conn.degraded.evidence if conn.degraded is not None else "",
    )


def describe_plain(flow: PlainFlow, name: Callable[[FourTuple | None], str]) -> ConnectionView:
    """The path of its packets, with the ports that they have there."""
    path = SubflowView(
        path=name(flow.wire), state=_plain_state(flow), rate_bps=flow.subflow.rate_bps
    )
    return ConnectionView(job=flow.job or "", connection=f"{flow.inode:08x}", subflows=(path,))


def _plain_state(flow: PlainFlow) -> str:
    if flow.subflow.stalled is not None:
        return "stalled"
    if not flow.detoured:
        return "plain"
    return "redrawn" if flow.wire[0::2] == flow.flow[0::2] else "detour"


def _state(subflow: Subflow) -> str:
    if subflow.state is SubflowState.COMING:
        return "coming"
    if subflow.stalled is not None:
        return "stalled"
    return "standby" if subflow.on_standby else "up"
