"""The links that recorded probes crossed."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.workload.stored_rows import T0, columns, flow, process

from syntony.controller.recorded_paths import MAX_ASKED, LeaderPaths, ProbePaths, RecordedPaths
from syntony.controller.recordings import read_job
from syntony.errors import BusyError
from syntony.fabric.book import Way
from syntony.model import S
from syntony.store import Store
from syntony.wire.gateways import ProbeLinks, ProbeLinksRequest
from syntony.wire.tables import JOB_FLOW, JOB_PROCESS, PROBE

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


def test_a_gateway_asks_its_leader_once_about_each_flow_of_probes() -> None:
    leader = RecordedPaths(lambda: PORTS, lambda way: LINKS.get(way, ()))
    asked: list[ProbeLinksRequest] = []

    def ask(request: ProbeLinksRequest) -> ProbeLinks:
        asked.append(request)
        return ProbeLinks(links=tuple(leader.links(request.probes)))

    request, reply = ("h0/n", "h1/n", "h0/n", 40_001), ("h1/n", "h0/n", "h0/n", 40_001)
    unknown = "h0/n", "h9/n", "h0/n", 40_001
    rows = {PROBE.name: probes(request, reply, unknown, request)}
    assert LeaderPaths(ask).added(rows) == leader.added(rows)
    assert [each.probes for each in asked] == [(request, reply, unknown)]
    assert LeaderPaths(ask).added({}) == {}
    assert len(asked) == 1


def test_a_gateway_asks_about_a_bounded_number_of_flows() -> None:
    many = [("h0/n", "h1/n", "h0/n", port) for port in range(MAX_ASKED + 2)]

    def ask(request: ProbeLinksRequest) -> ProbeLinks:
        return ProbeLinks(links=("a->b",) * len(request.probes))

    hops = LeaderPaths(ask).added({PROBE.name: probes(*many)})[PROBE.name]["hops"]
    assert hops == ["a->b"] * MAX_ASKED + [""] * 2


def test_without_a_leader_a_gateway_records_probes_without_paths() -> None:
    def ask(_: ProbeLinksRequest) -> ProbeLinks:
        raise BusyError("no leader")

    rows = {PROBE.name: probes(("h0/n", "h1/n", "h0/n", 40_001))}
    assert LeaderPaths(ask).added(rows) == rows


class Known(ProbePaths):
    """Knows the links of all probes, or of none."""

    def __init__(self, links: str) -> None:
        self._links = links

    def added(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        table = rows[PROBE.name]
        return {**rows, PROBE.name: {**table, "hops": [self._links] * len(table["src"])}}


@pytest.mark.parametrize(
    ("links", "age_s", "why"),
    [
        ("h0/n->l0 l0->h1/n", 10, None),
        ("", 10, "none is known now"),
        ("h0/n->l0 l0->h1/n", 100, "they are kept for 60 s"),
    ],
)
def test_a_recording_says_that_paths_of_probes_are_not_in_it(
    links: str, age_s: int, why: str | None
) -> None:
    seconds = range(60)
    stored = columns({
        JOB_PROCESS.name: [process(f"h{rank}", rank, each) for rank in (0, 1) for each in seconds],
        JOB_FLOW.name: [flow("h0/n", "h1/n", each) for each in seconds],
        PROBE.name: [{"ts_ns": T0 + each * S, "src": "h0/n", "dst": "h1/n", "prober": "h0/n",
                      "sport": 40_001, "count": 5, "sent": 5} for each in seconds],
    })  # fmt: skip
    jobs = SimpleNamespace(recording=lambda *_words: stored)
    store = cast("Store", SimpleNamespace(jobs=jobs))
    end_ns = T0 + 50 * S
    found = read_job(store, "night", 50 * S, end_ns, end_ns + age_s * S, paths=Known(links))
    notes = [each for each in found.notes if "paths" in each]
    assert notes == ([f"paths of probes are not recorded: {why}"] if why else [])
    assert ("hops" in found.tables["probes"]) is (why is None)
