"""The MPTCP connections of one host, as the kernel's events and listing describe them. Pure.

It makes no decisions. It returns log entries for operators (a join that came up, failed, or was
refused) as `Note`s.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from syntony.model import S
from syntony.model.paths import FlowSample, FourTuple, LinkEvent, ip_version
from syntony.traffic import events
from syntony.traffic.connection import MptcpConnection, RemoteAddress, Subflow, SubflowState
from syntony.traffic.health import Health
from syntony.traffic.instructions import (
    Announce,
    Cause,
    Create,
    Destroy,
    Instruction,
    KernelRefusal,
    Note,
    Reason,
    Retire,
    Withdraw,
)
from syntony.traffic.joins import join_failed, join_succeeded
from syntony.traffic.policy import Policy, is_named
from syntony.traffic.source_ports import SourcePorts
from syntony.traffic.standby import refused_standby

FORGET_NS = 5 * S
"""A connection absent from the kernel's listing for this long has ended: its event was lost."""
_MAX_RAILS = 31
_CONNECTION_GONE = (errno.ESRCH, errno.ENOTCONN)

Reported = (
    events.JobFound | events.SubflowUp | events.SubflowDown | events.AddressEvent | KernelRefusal
)


class ConnectionTable:
    """By token.

    Args:
        policy: which jobs are managed, how long to wait between attempts.
        health: whose the addresses are.
        ports: source ports that failed are avoided from then on.
    """

    def __init__(self, policy: Policy, health: Health, ports: SourcePorts) -> None:
        self._policy = policy
        self._health = health
        self._ports = ports
        self.by_token: dict[int, MptcpConnection] = {}

    # --- connections ---

    def established(self, event: events.ConnectionUp) -> MptcpConnection:
        """A connection may have further subflows from now on."""
        conn = MptcpConnection(event.token, event.at_ns, accepted=event.accepted)
        known = self.by_token.get(event.token)
        if known is not None:
            conn.job, conn.remotes = known.job, known.remotes
        self.by_token[event.token] = conn
        self._add(conn, event.flow, event.at_ns, local_id=0)
        return conn

    def find(self, event: Reported) -> MptcpConnection | None:
        """The connection of an event. An announcement by the peer may arrive before the local event
        that the connection is established."""
        token = event.instruction.token if isinstance(event, KernelRefusal) else event.token
        if token not in self.by_token and isinstance(event, events.AddressAnnounced):
            self.by_token[token] = MptcpConnection(token, event.at_ns, accepted=True)
        return self.by_token.get(token)

    def sampled(self, sample: FlowSample) -> tuple[MptcpConnection, Subflow | None]:
        """The connection and subflow of a sample; no subflow if it was ended but is still
        listed."""
        conn = self.by_token.get(sample.token)
        if conn is None:
            conn = self.by_token[sample.token] = self._listed(sample)
        elif not conn.local:  # only announcements arrived: it may be older than this process
            conn.accepted = self._listed(sample).accepted
            conn.guessed = conn.inherited = True
        conn.seen_ns = sample.at_ns
        subflow = conn.subflows.get(sample.flow)
        if subflow is None and sample.flow not in conn.ended:
            subflow = self._add(conn, sample.flow, sample.at_ns, sample.local_id)
        return conn, subflow

    def _listed(self, sample: FlowSample) -> MptcpConnection:
        """A connection older than this process. The port shows which end opened it: the kernel
        chooses the initiator's port, the application the other's."""
        ours = sample.flow.local_port == self._policy.port
        accepted = ours or sample.flow.local_port < sample.flow.remote_port
        conn = MptcpConnection(sample.token, sample.at_ns, accepted=accepted)
        conn.guessed = conn.inherited = True
        return conn

    def forget(self, now_ns: int) -> list[MptcpConnection]:
        """Drop what the kernel no longer lists; returns connections that lost a subflow."""
        fewer = []
        for token, conn in list(self.by_token.items()):
            gone = [
                flow
                for flow, subflow in conn.subflows.items()
                if subflow.state is SubflowState.UP and now_ns - subflow.seen_ns > FORGET_NS
            ]
            for flow in gone:
                del conn.subflows[flow]
            if not conn.subflows and now_ns - conn.seen_ns > FORGET_NS:
                del self.by_token[token]
            elif gone:
                fewer.append(conn)
        return fewer

    def renamed(self, event: LinkEvent) -> None:
        """A NIC may have been renamed."""
        for conn in self.by_token.values():
            for subflow in conn.subflows.values():
                if subflow.nic is not None and subflow.flow.local in event.addresses:
                    if subflow.nic in conn.announced and subflow.nic != event.nic:
                        conn.announced[event.nic] = conn.announced.pop(subflow.nic)
                    subflow.nic = event.nic

    def replan(self) -> None:
        """The plan has changed: look up the rails of addresses again."""
        for conn in self.by_token.values():
            for remote_id, remote in conn.remotes.items():
                remote.rail = self._rail(remote.address, remote_id)

    def excuse(self, now_ns: int) -> None:
        """This process was paused: silence counts from now."""
        for conn in self.by_token.values():
            for subflow in conn.subflows.values():
                subflow.excuse(now_ns)

    def pairs(self) -> set[tuple[str, str]]:
        """Pairs (NIC, remote address) that managed connections use, or would if they were
        announced."""
        rails = {nic.rail: nic.name for nic in self._health.nics()}
        managed = [conn for conn in self.by_token.values() if conn.job]
        used = {
            (each.nic, each.flow.remote)
            for conn in managed
            for each in conn.subflows.values()
            if each.nic is not None
        }
        announced = {
            (remote.address, remote.rail) for conn in managed for remote in conn.remotes.values()
        }
        planned = {
            (address, rail)
            for peer in {remote for _, remote in used}
            for address, rail in self._health.plan.addresses_of(peer).items()
            if ip_version(address) == ip_version(peer)
        }
        return used | {
            (rails[rail], address) for address, rail in announced | planned if rail in rails
        }

    # --- events of one connection ---

    def take(self, conn: MptcpConnection, event: Reported) -> Sequence[Instruction]:
        """Take an event; returns log entries for operators."""
        match event:
            case events.JobFound():
                self._job(conn, event)
            case events.SubflowUp():
                return self._subflow_up(conn, event)
            case events.SubflowDown():
                return self._subflow_down(conn, event)
            case events.AddressAnnounced():
                self._announced(conn, event)
            case events.AddressWithdrawn():
                _withdrawn(conn, event)
            case KernelRefusal():
                return self._refused(conn, event)
        return ()

    def _job(self, conn: MptcpConnection, event: events.JobFound) -> None:
        managed = event.job and is_named(event.job, self._policy.jobs)
        # A connection that began on another network (front end, loopback) stays there.
        ours = any(subflow.nic is not None for subflow in conn.subflows.values())
        conn.job = event.job if managed and ours else ""

    def _announced(self, conn: MptcpConnection, event: events.AddressAnnounced) -> None:
        rail = self._rail(event.address, event.remote_id)
        port = event.port or next((flow.remote_port for flow in conn.subflows), 0)
        # Joins to this address were refused because this announcement was missing.
        for pair, tries in conn.attempts.items():
            if pair[1] == event.address:
                tries.restart()
        conn.forget_remote(event.address)
        conn.remotes[event.remote_id] = RemoteAddress(event.address, port, rail)

    def _subflow_up(self, conn: MptcpConnection, event: events.SubflowUp) -> Sequence[Instruction]:
        subflow = conn.subflows.get(event.flow)
        if subflow is None:
            if event.flow not in conn.ended:  # just ended: the kernel closes it
                self._add(conn, event.flow, event.at_ns, event.local_id)
            return ()
        subflow.state = SubflowState.UP
        subflow.since_ns = subflow.acked_ns = subflow.seen_ns = event.at_ns
        conn.tries(*subflow.pair).succeeded()
        conn.lost.pop(subflow.pair, None)
        conn.joined(event.flow.remote, event.remote_id)
        return join_succeeded(subflow)

    def _subflow_down(
        self, conn: MptcpConnection, event: events.SubflowDown
    ) -> Sequence[Instruction]:
        subflow = conn.subflows.pop(event.flow, None)
        if subflow is None:
            return ()
        pair = subflow.pair
        tries = conn.tries(*pair)
        began_ns = subflow.since_ns if subflow.state is SubflowState.COMING else None
        tries.failed(event.at_ns, self._policy, began_ns=began_ns)
        if subflow.state is SubflowState.UP and not conn.uses(pair):
            evidence = "ended by the peer or the kernel"
            conn.lost[pair] = Reason(Cause.PEER, evidence, event.at_ns, subflow.acked_ns)
        # The whole connection may be closing: its other subflows go within a moment.
        tries.next_ns = max(tries.next_ns, event.at_ns + self._policy.join_ns)
        name = errno.errorcode.get(event.error, "closed")
        return join_failed(conn, subflow, f"ended by the peer or the kernel: {name}", event.at_ns)

    # --- refusals ---

    def _refused(self, conn: MptcpConnection, event: KernelRefusal) -> Sequence[Instruction]:
        """Undo the state of an order that the kernel refused, so that it is ordered again."""
        order = event.instruction
        if isinstance(order, Create):
            return self._create_refused(conn, order, event)
        if isinstance(order, Announce):
            conn.announced = {nic: at for nic, at in conn.announced.items() if at != order.local_id}
        elif isinstance(order, Destroy) and order.flow in conn.ended:
            conn.ended.remove(order.flow)  # if it is listed again, it is ended again
        elif isinstance(order, Retire) and order.flow in conn.subflows:
            refused_standby(conn.subflows[order.flow], order)
        retry = conn.refusals(order)
        retry.failed(event.at_ns, self._policy, at_once=0)
        gone = event.errno in _CONNECTION_GONE  # its end will be reported, or the listing shows it
        return () if gone or not retry.reported else [_refusal(conn, order, event, retry.count)]

    def _create_refused(
        self, conn: MptcpConnection, order: Create, event: KernelRefusal
    ) -> Sequence[Instruction]:
        subflow, flow = conn.subflows.pop(order.flow, None), order.flow
        self._ports.avoid(flow.local, flow.remote, flow.local_port)
        if subflow is None:
            return ()
        tries = conn.tries(*subflow.pair)
        taken = event.errno == errno.EADDRINUSE
        (tries.port_taken if taken else tries.failed)(event.at_ns, self._policy)
        why = f"refused by this kernel: {event.text}"
        return join_failed(conn, subflow, why, event.at_ns)

    # --- within ---

    def _add(self, conn: MptcpConnection, flow: FourTuple, now_ns: int, local_id: int) -> Subflow:
        subflow = Subflow(flow, self._health.nic_of(flow.local), SubflowState.UP, now_ns)
        subflow.local_id = local_id
        conn.subflows[flow] = subflow
        if not conn.local:
            conn.local, conn.local_port = flow.local, flow.local_port
        for remote in conn.remotes.values():
            if remote.address == flow.remote:
                remote.withdrawn = None  # a join from this address: the peer has it again
        return subflow

    def _rail(self, address: str, remote_id: int) -> int:
        """From the plan if the address is of it, else by the agents' convention; -1: unknown."""
        known = self._health.plan.known(address)
        if known is not None:
            return known.remote_rail
        return remote_id - 1 if 1 <= remote_id <= _MAX_RAILS else -1


def _withdrawn(conn: MptcpConnection, event: events.AddressWithdrawn) -> None:
    remote = conn.remotes.get(event.remote_id)
    if remote is not None:
        evidence = "the peer has withdrawn the address"
        remote.withdrawn = Reason(Cause.PEER, evidence, event.at_ns, event.at_ns)


def _refusal(
    conn: MptcpConnection,
    order: Destroy | Retire | Announce | Withdraw,
    event: KernelRefusal,
    count: int,
) -> Note:
    what = type(order).__name__.lower()
    flow = order.flow if isinstance(order, Destroy | Retire) else None
    where = "" if isinstance(order, Destroy | Retire) else f" {order.address}"
    reason = Reason(
        Cause.REFUSED, f"{what}{where}: {event.text}; {count} in a row", event.at_ns, event.at_ns
    )
    return Note(
        token=conn.token, job=conn.job or "", action=f"{what}-refused", reason=reason, old=flow
    )
