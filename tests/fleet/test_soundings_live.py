"""A live lab whose mesh leaves twins: further pairs are probed, and the page names the part."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from tests.fleet import waiting
from tests.live import LiveLab, live

from syntony.controller.client import ask
from syntony.errors import MissingError
from syntony.fabric.names import OR, link_name
from syntony.lab.plan import LinkKind, make_plan
from syntony.lab.world import unshare_argv
from syntony.mesh.plan import mesh
from syntony.model import NicRef
from syntony.wire.fabric import FindingsQuery, PathsQuery
from syntony.wire.incidents import IncidentsQuery

pytestmark = pytest.mark.lab
SEED, PORTS = 21, 8
NEAR, FAR = "leaf0-0", "leaf0-1"
"""With this seed the NICs at each are probed with those at the other alone."""
await_true = partial(waiting.await_true, patience_s=180.0, pause_s=0.3)


@pytest.fixture
def lab() -> Iterator[LiveLab]:
    try:
        unshare_argv()
    except MissingError as error:
        pytest.skip(f"no lab here: {error}: extra probes of a live fleet are NOT tested")
    options = ("--hosts", "4", "--seed", str(SEED), "--mesh-peers", "1")
    with live("t-sounding", *options, agents=True) as made:
        yield made


def test_twins_are_told_apart_by_pairs_that_the_mesh_lacks(lab: LiveLab) -> None:
    rails = make_plan(lab.file().spec).of_kind(LinkKind.RAIL)
    homes = {link.name: link.b.node for link in rails}
    adjacent = mesh([NicRef(*nic.split("/")) for nic in homes], peers=1, seed=SEED)
    planned = {(homes[str(a)], homes[str(b)]) for a, others in adjacent.items() for b in others}
    assert {pair for pair in planned if NEAR in pair} == {(NEAR, FAR), (FAR, NEAR)}, "twins"
    target = f"unix:{lab.controller_socket}"
    wanted = 2 * len(homes) * PORTS
    await_true(lambda: len(ask(target, PathsQuery()).paths) >= wanted, "paths learnt")
    await_true(lambda: ask(target, FindingsQuery()).ts_ns > 0, "something measured")

    lab.inject("loss", f"{NEAR}/spine0", {"percent": "30", "direction": "from"})
    broken, twin = link_name(NEAR, "spine0"), link_name("spine0", FAR)
    log = lab.directory / "logs" / "controller.log"

    def sounded() -> bool:
        lines = log.read_text(encoding="utf-8").splitlines()
        requested = [line for line in lines if "probing to distinguish suspects" in line]
        return any(broken in line and twin in line and "/rail" in line for line in requested)

    await_true(sounded, "further pairs asked for")

    def paged() -> dict[str, str]:
        found = ask(target, IncidentsQuery(resolved=True)).incidents
        return {each["subject"]: each["rule"] for each in found if each["pages"]}

    await_true(lambda: bool(paged()), "a page")
    reported = paged()
    assert reported == {broken: "link-loss"} or all(
        # On a machine that is too slow for the answer both are named, and never the twin alone.
        broken in subject.split(OR)
        for subject in reported
    ), reported
    await_true(
        lambda: [each.component for each in ask(target, FindingsQuery()).findings] == [broken],
        "distinguished",
    )
