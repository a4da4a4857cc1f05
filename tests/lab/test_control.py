"""The control plane: when routes change, and which."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.lab.control import ControlPlane
from syntony.lab.plan import FabricSpec, Link, LinkKind, make_plan
from syntony.lab.routes import NamespaceRoute, routes
from syntony.model import MS, S

PLAN = make_plan(FabricSpec(convergence_ns=1 * S))
FABRIC = PLAN.of_kind(LinkKind.FABRIC)


def test_a_failure_is_routed_around_after_the_convergence_time_and_not_before() -> None:
    control = ControlPlane(PLAN)
    assert control.observe("spine0", "leaf0-0", False, 5 * S)
    assert control.next_due_ns() == 6 * S
    assert control.advance(6 * S - 1) == ()
    updates = {update.node: update for update in control.advance(6 * S)}
    assert control.failed == {"leaf0-0/spine0"}
    assert {"leaf0-0", "spine0", "leaf0-1", "leaf1-0", "leaf1-1"} == set(updates)
    assert [r.prefix.split("/")[0] for r in updates["spine0"].withdraw] == [
        "10.10.0.0", "fd73:796e:746f:1000::",
    ]  # fmt: skip
    assert control.next_due_ns() is None


def test_both_ends_reporting_is_one_failure() -> None:
    control = ControlPlane(PLAN)
    assert control.observe("spine0", "leaf0-0", False, 0)
    assert control.observe("leaf0-0", "spine0", False, 300 * MS)
    assert not control.observe("leaf0-0", "spine0", False, 400 * MS)
    assert control.next_due_ns() == S


def test_a_flap_within_the_convergence_time_reinstalls_what_the_kernel_dropped() -> None:
    control = ControlPlane(PLAN)
    control.observe("leaf0-0", "spine0", False, 0)
    control.observe("leaf0-0", "spine0", True, 100 * MS)
    updates = control.advance(S)
    assert {update.node for update in updates} == {"leaf0-0", "spine0"}
    assert all(update.install == routes(PLAN)[update.node] for update in updates)
    assert not any(update.withdraw for update in updates)
    assert control.failed == frozenset()


def test_host_links_change_no_routes() -> None:
    control = ControlPlane(PLAN)
    assert control.observe("leaf0-0", "h0", False, 0)
    assert control.next_due_ns() is None
    assert not control.is_up("leaf0-0", "h0")


@given(
    st.lists(
        st.tuples(st.sampled_from(FABRIC), st.booleans(), st.booleans(), st.integers(0, 3 * S)),
        max_size=30,
    )
)
@settings(deadline=None)
def test_applying_every_update_always_ends_in_the_routes_of_the_final_state(
    events: list[tuple[Link, bool, bool, int]],
) -> None:
    control = ControlPlane(PLAN)
    held = {node: dict(_keyed(table)) for node, table in routes(PLAN).items()}
    down: set[tuple[str, str]] = set()
    now_ns = 0
    for link, near, up, gap_ns in events:
        now_ns += gap_ns
        _apply(control, held, now_ns)
        port = link.a if near else link.b
        control.observe(port.node, port.name, up, now_ns)
        (down.discard if up else down.add)((port.node, port.name))
    _apply(control, held, now_ns + S)
    failed = {x.name for x in FABRIC if {(x.a.node, x.a.name), (x.b.node, x.b.name)} & down}
    assert control.failed == failed
    wanted = routes(PLAN, failed)
    assert all(held[node] == dict(_keyed(wanted[node])) for node in PLAN.switches)


def _keyed(table: tuple[NamespaceRoute, ...]) -> list[tuple[tuple[str, str], NamespaceRoute]]:
    return [((route.table, route.prefix), route) for route in table]


def _apply(
    control: ControlPlane, held: dict[str, dict[tuple[str, str], NamespaceRoute]], now_ns: int
) -> None:
    for update in control.advance(now_ns):
        for key, _ in _keyed(update.withdraw):
            held[update.node].pop(key)
        held[update.node].update(_keyed(update.install))


@pytest.mark.parametrize("convergence_ns", [0, 250 * MS, 60 * S])
def test_convergence_time_is_configurable(convergence_ns: int) -> None:
    control = ControlPlane(make_plan(FabricSpec(convergence_ns=convergence_ns)))
    control.observe("leaf0-0", "spine0", False, 7)
    assert control.next_due_ns() == 7 + convergence_ns
