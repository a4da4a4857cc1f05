"""Announces to a connection's peer the addresses that it may join. Pure."""

from __future__ import annotations

from syntony.traffic.connection import MptcpConnection
from syntony.traffic.health import Health
from syntony.traffic.instructions import Announce
from syntony.traffic.pairs import LocalNic
from syntony.traffic.peers import join_port, of_family
from syntony.traffic.policy import Policy
from syntony.traffic.turn import Turn


class Announcer:
    """For one connection at a time; what was announced is kept in the connection."""

    def __init__(self, policy: Policy, health: Health) -> None:
        self._policy = policy
        self._health = health

    def announce(self, turn: Turn, family: int, *, call: bool) -> None:
        """Tell the peer of every NIC that is fit, when its hold-down is over.

        Or, where there is no living path (`call`), of all that have a carrier: a kernel refuses
        joins to what it has not announced, and the peer may try to come across rails, or know a
        path that we do not."""
        conn = turn.conn
        if call and not conn.called:
            conn.called = True
            conn.announced.clear()
        self._repeat(turn)
        for nic in self._health.nics():
            address = of_family(nic, family)
            if nic.name in conn.announced or address is None:
                continue
            from_ns = self._from_ns(conn, nic, call=call)
            if from_ns is None:
                continue
            order = self._order(conn, nic, address)
            from_ns = max(from_ns, conn.refusals(order).next_ns)
            if turn.now_ns < from_ns:
                turn.dues.append(from_ns)
                continue
            conn.announced[nic.name] = order.local_id
            conn.announced_ns = turn.now_ns
            turn.out.append(order)

    def _repeat(self, turn: Turn) -> None:
        """Announced and never joined: the peer's agent may have missed it."""
        conn = turn.conn
        used = {subflow.nic for subflow in conn.subflows.values()}
        again_ns = conn.announced_ns + self._policy.hold_down_max_ns
        if conn.announced.keys() <= used:
            return
        if turn.now_ns >= again_ns:
            conn.announced = {nic: at for nic, at in conn.announced.items() if nic in used}
        else:
            turn.dues.append(again_ns)

    def _from_ns(self, conn: MptcpConnection, nic: LocalNic, *, call: bool) -> int | None:
        """When a NIC may be announced; None: not while things are as they are."""
        if self._health.dead(nic.name, "") is not None:
            return None
        if call:
            return 0
        remotes = [each.address for each in conn.remotes.values() if each.rail == nic.rail]
        left = {pair for pair in conn.lost if pair[0] == nic.name}
        pairs = left | {(nic.name, remote) for remote in remotes or [""]}
        if any(self._health.dead(*pair) is not None for pair in pairs):
            return None
        return max(self._health.usable_from_ns(*pair) for pair in pairs) if left else 0

    def _order(self, conn: MptcpConnection, nic: LocalNic, address: str) -> Announce:
        port = join_port(self._policy, address)
        joined_at = address, port or conn.local_port
        return Announce(
            token=conn.token,
            address=address,
            port=port,
            local_id=nic.rail + 1,
            listen_port=0 if port or not conn.accepted else conn.local_port,
            joined=any(joined_at == each.flow[:2] for each in conn.up()),
        )
