"""The links that recorded probes crossed."""

from __future__ import annotations

from typing import Any

from syntony.controller.recorded_paths import RecordedPaths
from syntony.fabric.book import Way
from syntony.wire.tables import JOB_FLOW, PROBE

PORTS = {("h0/n", "h1/n"): 7_000}
LINKS = {
    Way("h0/n", "h1/n", 40_001, 7_000): ("h0/n->l0", "l0->h1/n"),
    Way("h1/n", "h0/n", 7_000, 40_001): ("h1/n->l1", "l1->h0/n"),
}


def probes(*rows: tuple[str, str, str, int]) -> dict[str, list[Any]]:
    names = ("src", "dst", "prober", "sport")
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def test_requests_and_replies_get_the_links_of_their_own_way() -> None:
    asked: list[Way] = []

    def links(way: Way) -> tuple[str, ...]:
        asked.append(way)
        return LINKS.get(way, ())

    request, reply = ("h0/n", "h1/n", "h0/n", 40_001), ("h1/n", "h0/n", "h0/n", 40_001)
    unknown, unplanned = ("h0/n", "h1/n", "h0/n", 40_002), ("h0/n", "h9/n", "h0/n", 40_001)
    of_flows: dict[str, list[Any]] = {"src": ["h0/n"]}
    rows = {PROBE.name: probes(request, reply, unknown, unplanned, request),
            JOB_FLOW.name: of_flows}  # fmt: skip
    found = RecordedPaths(lambda: PORTS, links).added(rows)
    forward, back = "h0/n->l0 l0->h1/n", "h1/n->l1 l1->h0/n"
    assert found[PROBE.name]["hops"] == [forward, back, "", "", forward]
    assert found[PROBE.name]["src"] == rows[PROBE.name]["src"]
    assert found[JOB_FLOW.name] is of_flows
    assert "hops" not in rows[PROBE.name]
    assert len(asked) == 3, "each flow is looked up once"


def test_a_recording_without_probes_stays_as_it_is() -> None:
    assert RecordedPaths(dict, lambda _way: ()).added({}) == {}
