"""Notify jobs' processes about paths whose flows no agent can move (queue pairs, say). Pure.

The process gets a notice when one of its paths is dead and when it may be used again; it moves its
own flows. A path is a pair of addresses, for all flows between them.
"""

from __future__ import annotations

from syntony.model import S
from syntony.traffic.health import Health
from syntony.traffic.instructions import Cause, Notice, Reason
from syntony.traffic.pairs import Pair

EXPIRES_NS = 30 * S
"""A notice that is not renewed expires: its agent may hang."""
RENEW_NS = 10 * S

ProcessPath = tuple[str, str]
"""Local and remote address."""


class PathNotices:
    def __init__(self, health: Health) -> None:
        self._health = health
        self._paths: frozenset[ProcessPath] = frozenset()
        self._dead: dict[ProcessPath, int] = {}
        """Paths reported dead → when to renew or withdraw the notice."""

    def use(self, paths: frozenset[ProcessPath]) -> bool:
        """Set the paths that processes use; returns whether they changed. Paths that do not begin
        at a local NIC are ignored."""
        if paths == self._paths:
            return False
        self._paths = paths
        self._dead = {path: due_ns for path, due_ns in self._dead.items() if path in paths}
        return True

    def pairs(self) -> set[Pair]:
        """Pairs to probe fast for these paths."""
        found = ((self._health.nic_of(local), remote) for local, remote in self._paths)
        return {(nic, remote) for nic, remote in found if nic is not None}

    def due_ns(self) -> int | None:
        """When to `look`, if nothing happens before."""
        return min(self._dead.values(), default=None)

    def look(self, now_ns: int, *, acting: bool) -> list[Notice]:
        """Notices to send now.

        Args:
            now_ns: CLOCK_MONOTONIC.
            acting: whether anything may be done at all. Otherwise processes know of no dead path.
        """
        if not acting:
            self._dead.clear()
            return []
        found = (self._look_at(path, now_ns) for path in sorted(self._paths))
        return [notice for notice in found if notice is not None]

    def _look_at(self, path: ProcessPath, now_ns: int) -> Notice | None:
        local, remote = path
        nic = self._health.nic_of(local)
        if nic is None:
            return None
        reason = self._health.dead(nic, remote)
        if reason is not None:
            if self._dead.get(path, now_ns) > now_ns:
                return None
            self._dead[path] = now_ns + RENEW_NS
            expires_ns = now_ns + EXPIRES_NS
            return Notice(path=path, usable=False, reason=reason, expires_ns=expires_ns)
        if path not in self._dead:
            return None
        usable_ns = self._health.usable_from_ns(nic, remote)
        if usable_ns > now_ns:
            self._dead[path] = usable_ns
            return None
        del self._dead[path]
        reason = Reason(Cause.RETURN, "it lives, its hold-down is over", now_ns, usable_ns)
        return Notice(path=path, usable=True, reason=reason)
