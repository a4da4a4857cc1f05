"""Whether a connection has a living path on every rail that both hosts have. Pure.

A connection that lacks one for `DEGRADED_NS` is degraded: it works, but it may not survive the
next failure, or gets less than its share. That is reported, with the obstacle of each path.
"""

from __future__ import annotations

from collections.abc import Collection

from syntony.model import S
from syntony.model.paths import ip_version
from syntony.traffic.connection import MptcpConnection, Subflow
from syntony.traffic.health import Health
from syntony.traffic.instructions import Cause, Note, Reason
from syntony.traffic.pairs import LocalNic, Pair
from syntony.traffic.peers import of_family
from syntony.traffic.turn import Turn

DEGRADED_NS = 5 * S
"""Longer than joins take to come up, and than the first hold-downs."""


class Redundancy:
    """Checks one connection at a time; its state is in the connection."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def check(self, turn: Turn, living: Collection[Subflow]) -> None:
        """Check how many rails have a living path now.

        Args:
            turn: takes notes and due times.
            living: subflows that carry data as far as is known.
        """
        conn = turn.conn
        if not conn.local:
            return
        missing = self.missing(conn, living)
        if not missing:
            self._whole(turn)
        elif conn.short_since_ns is None:
            conn.short_since_ns = turn.now_ns
        if conn.short_since_ns is None or conn.degraded is not None:
            return
        due_ns = conn.short_since_ns + DEGRADED_NS
        if turn.now_ns < due_ns:
            turn.dues.append(due_ns)
            return
        paths = len({each.nic for each in living})
        why = "; ".join(self._obstacle(conn, nic, turn.now_ns) for nic in missing)
        evidence = f"{paths} of {paths + len(missing)} paths: {why}"
        conn.degraded = Reason(Cause.DEGRADED, evidence, turn.now_ns, conn.short_since_ns)
        turn.out.append(_note(turn, "degraded", conn.degraded))

    @staticmethod
    def _whole(turn: Turn) -> None:
        conn, since_ns = turn.conn, turn.conn.short_since_ns
        if conn.degraded is not None and since_ns is not None:
            evidence = f"a path on every rail again after {(turn.now_ns - since_ns) / S:.1f} s"
            reason = Reason(Cause.DEGRADED, evidence, turn.now_ns, turn.now_ns)
            turn.out.append(_note(turn, "whole", reason))
        conn.short_since_ns = conn.degraded = None

    def missing(self, conn: MptcpConnection, living: Collection[Subflow]) -> list[LocalNic]:
        """Local NICs that should have a living path and have none. If the peer is not in the plan,
        every rail is expected."""
        family = ip_version(conn.local)
        planned = {
            rail
            for remote in {flow.remote for flow in conn.subflows}
            for address, rail in self._health.plan.addresses_of(remote).items()
            if ip_version(address) == family
        }
        carrying = {each.nic for each in living}
        return [
            nic
            for nic in self._health.nics()
            if nic.name not in carrying
            and (nic.rail in planned or not planned)
            and (of_family(nic, family) is not None or not nic.addresses)
        ]

    def _obstacle(self, conn: MptcpConnection, nic: LocalNic, now_ns: int) -> str:
        """Why a NIC has no path, as far as this host knows."""
        remotes = [each.address for each in conn.remotes.values() if each.rail == nic.rail]
        dead = (self._health.dead(nic.name, at) or conn.withdrawn(at) for at in [*remotes, ""])
        reason = next((each for each in dead if each is not None), None)
        if reason is not None:
            why = reason.evidence
        elif any(each.nic == nic.name and each.stalled for each in conn.subflows.values()):
            why = "its data are not acknowledged"
        elif nic.name not in conn.announced and conn.refused:
            why = f"{sum(each.count for each in conn.refused.values())} orders were refused here"
        elif conn.accepted:
            why = "the peer has not joined"
        else:
            why = self._no_join(conn, [(nic.name, remote) for remote in remotes], now_ns)
        return f"{nic.name}: {why}"

    def _no_join(self, conn: MptcpConnection, pairs: list[Pair], now_ns: int) -> str:
        """Why this host has not joined the peer."""
        if not pairs:
            return "the peer has announced no address of its rail"
        failed = sum(conn.tries(*pair).count for pair in pairs)
        if failed:
            return f"{failed} joins in a row failed"
        pair_ns = max(self._health.usable_from_ns(*pair) for pair in pairs)
        stalled_ns = max(conn.free_from_ns(*pair) for pair in pairs)
        held_ns = max(pair_ns, stalled_ns) - now_ns
        if held_ns <= 0:
            return "not joined yet"
        why = "its data were not acknowledged, " if stalled_ns > pair_ns else ""
        return f"{why}held down for {held_ns / S:.1f} s more"


def _note(turn: Turn, action: str, reason: Reason) -> Note:
    return Note(token=turn.conn.token, job=turn.job, action=action, reason=reason)
