"""The fabric's control plane: turns link changes into route changes after a convergence time. Pure.

Events in (`observe`), instructions out (`advance`); time is an argument.
"""

from __future__ import annotations

from typing import NamedTuple

from syntony.lab.plan import LabPlan, LinkKind
from syntony.lab.routes import NamespaceRoute, routes


class RouteUpdate(NamedTuple):
    """What one switch must change: remove, then install (again)."""

    node: str
    withdraw: tuple[NamespaceRoute, ...]
    install: tuple[NamespaceRoute, ...]


class ControlPlane:
    """Tracks which fabric links are up, and which the installed routes assume to be up."""

    def __init__(self, plan: LabPlan) -> None:
        self._plan = plan
        self._links = {
            (port.node, port.name): link
            for link in plan.of_kind(LinkKind.FABRIC)
            for port in (link.a, link.b)
        }
        self._ports_down: set[tuple[str, str]] = set()
        self._due_ns: dict[str, int] = {}
        self._failed: frozenset[str] = frozenset()
        self._installed = routes(plan)

    @property
    def failed(self) -> frozenset[str]:
        """Fabric links that the installed routes avoid."""
        return self._failed

    def is_up(self, node: str, port: str) -> bool:
        """Whether a switch port was last seen up with carrier."""
        return (node, port) not in self._ports_down

    def observe(self, node: str, port: str, up: bool, now_ns: int) -> bool:
        """Record that a switch port has (or lost) carrier; return whether its state changed."""
        if up == self.is_up(node, port):
            return False
        self._ports_down.symmetric_difference_update({(node, port)})
        link = self._links.get((node, port))
        if link is not None:
            self._due_ns.setdefault(link.name, now_ns + self._plan.spec.convergence_ns)
        return True

    def next_due_ns(self) -> int | None:
        """When `advance` has something to do; None: nothing pending."""
        return min(self._due_ns.values(), default=None)

    def advance(self, now_ns: int) -> tuple[RouteUpdate, ...]:
        """Routes to change by now.

        Both switches of a link that changed get all their routes again even if the link is back as
        it was: a port that went down took its routes with it.
        """
        due = {name for name, at_ns in self._due_ns.items() if at_ns <= now_ns}
        if not due:
            return ()
        for name in due:
            del self._due_ns[name]
        touched = {node for (node, _), link in self._links.items() if link.name in due}
        down = {self._links[port].name for port in self._ports_down if port in self._links}
        self._failed = frozenset((self._failed - due) | (due & down))
        wanted = routes(self._plan, self._failed)
        updates = tuple(
            self._update(node, wanted[node], node in touched) for node in self._plan.switches
        )
        self._installed = wanted
        return tuple(update for update in updates if update.withdraw or update.install)

    def _update(self, node: str, wanted: tuple[NamespaceRoute, ...], touched: bool) -> RouteUpdate:
        before = set(self._installed[node])
        keys = {(route.table, route.prefix) for route in wanted}
        gone = tuple(r for r in self._installed[node] if (r.table, r.prefix) not in keys)
        install = wanted if touched else tuple(r for r in wanted if r not in before)
        return RouteUpdate(node, gone, install)
