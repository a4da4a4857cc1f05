"""The first sign of losses: soon, and not where a host or a link is only late."""

from __future__ import annotations

import asyncio
from random import Random
from statistics import median
from types import SimpleNamespace
from typing import Any, cast
from zlib import crc32

import pytest
from tests.controller.judged import finding
from tests.controller.test_sessions import CERTIFICATE
from tests.link import hello
from tests.mesh.engines import T0, Fleet, Physics, Trip, reports

from syntony.controller.agent_hub import AgentHub
from syntony.controller.fresh_losses import KEPT_NS, MAX_REPORTS, FreshLosses
from syntony.controller.service import FleetService
from syntony.controller.sessions import AgentSession
from syntony.mesh.fresh_losses import STEP_NS
from syntony.model import MS, S
from syntony.wire.coding import encode
from syntony.wire.messages import decode_agent
from syntony.wire.probes import LossReport, PairLosses

LOOK_NS = 100 * MS
KINDS = ("short of CPU", "bufferbloat", "wide area", "late reports")


class Healthy(Physics):
    """Hosts and links that are late, by kind. Nothing is lost between them."""

    def __init__(self, kind: str, rng: Random, hosts: list[str], until_ns: int) -> None:
        super().__init__(rng, hosts)
        self.kind = kind
        if kind == "short of CPU":
            for host in rng.sample(hosts, rng.randint(1, len(hosts) - 1)):
                at_ns = rng.randrange(S)
                while at_ns < until_ns:
                    end_ns = at_ns + rng.randrange(200 * MS, 3 * S)
                    self.pauses[host].append((at_ns, end_ns))
                    at_ns = end_ns + rng.randrange(5 * MS, S)
        elif kind == "late reports":
            self.report_late_ns = lambda: rng.randrange(500 * MS)
            self.pauses[hosts[0]].append((2 * S, 2 * S + rng.randrange(3 * S)))
        self.bloated = (rng.randrange(S), rng.randrange(2 * S, until_ns))

    def delay_ns(self, trip: Trip, at_ns: int) -> int:
        near = super().delay_ns(trip, at_ns)
        if self.kind == "bufferbloat" and self.bloated[0] <= at_ns < self.bloated[1]:
            return near + (trip.port % 2) * self.rng.randrange(150 * MS, 200 * MS)
        if self.kind == "wide area":
            return near + 40 * MS + round(self.rng.expovariate(1 / (10 * MS)))
        return near


class Faulty(Physics):
    """Something loses packets from an instant on."""

    def __init__(self, kind: str, rng: Random, hosts: list[str]) -> None:
        super().__init__(rng, hosts)
        self.kind, self.since_ns = kind, 3 * S + rng.randrange(S)
        self.report_late_ns = lambda: rng.randrange(20 * MS)

    def lost(self, trip: Trip, at_ns: int, back: bool) -> bool:
        if at_ns < self.since_ns:
            return False
        own = "h0" in {trip.src, trip.dst}
        if self.kind == "cable black":
            return crc32(repr((trip.src, trip.dst, trip.port, back)).encode()) % 4 == 0
        if self.kind == "NIC black":
            return own
        return own and self.rng.random() < 0.05


def first_sign_ns(fleet: Fleet, physics: Physics, until_ns: int) -> int | None:
    """When losses are told, from the beginning; None: never."""
    fresh, waiting = FreshLosses(), reports(fleet, physics, until_ns)
    for now_ns in range(0, until_ns, LOOK_NS):
        while waiting and waiting[0][0] <= now_ns:
            _, host, report = waiting.pop(0)
            fresh.take(host, report, T0 + now_ns, fleet.planned)
        fresh.look(T0 + now_ns, ())
        if fresh.losing is not None:
            return now_ns
    return None


@pytest.mark.parametrize(
    ("seeds", "kind"), [(seeds, kind) for seeds in (range(3), range(3, 203)) for kind in KINDS]
)
def test_what_is_only_late_is_no_loss(seeds: range, kind: str) -> None:
    fleet, told = Fleet(4), []
    for seed in seeds:
        physics = Healthy(kind, Random(seed), fleet.names, 6 * S)
        if first_sign_ns(fleet, physics, 6 * S) is not None:
            told.append(seed)
    assert told == [], f"{kind}: losses told with seeds {told}"


@pytest.mark.parametrize(
    ("kind", "half_ns", "all_ns"),
    [("cable black", 1_700 * MS, 2 * S), ("NIC black", 1_700 * MS, 2 * S), ("5 %", 2 * S, 4 * S)],
)
def test_losses_are_told_within_two_seconds(kind: str, half_ns: int, all_ns: int) -> None:
    fleet, took = Fleet(5), []
    for seed in range(20):
        physics = Faulty(kind, Random(seed), fleet.names)
        found_ns = first_sign_ns(fleet, physics, 9 * S)
        assert found_ns is not None, seed
        took.append(found_ns - physics.since_ns)
    assert min(took) > 0
    assert median(took) <= half_ns
    assert max(took) <= all_ns, took


def test_losses_that_last_are_reported_once_a_second() -> None:
    fleet = Fleet(3)
    physics = Faulty("NIC black", Random(1), fleet.names)
    told = [each.at_ns for _, host, each in reports(fleet, physics, 12 * S) if host == "h1"]
    seconds = [
        sum(T0 + at_ns <= each < T0 + at_ns + S for each in told) for at_ns in range(0, 12 * S, S)
    ]
    assert seconds[:4] == [0, 0, 0, 0]
    assert max(seconds[4:8]) == 4
    assert seconds[9:] == [1, 1, 1]


def report(host: str, *, lost: int, paths: int, prompt: tuple[str, ...], at_ns: int) -> LossReport:
    pairs = tuple(
        PairLosses(src=f"{host}/rail0", dst=f"{other}/rail0", lost=lost, paths=paths)
        for other in ("h0", "h1", "h2") if other != host
    )  # fmt: skip
    return LossReport(at_ns=at_ns, pairs=pairs, prompt=prompt)


def losing(*reports: tuple[str, LossReport], now_ns: int = T0, **named: float) -> FreshLosses:
    fresh, planned = FreshLosses(), Fleet(3).planned
    for host, each in reports:
        fresh.take(host, each, now_ns, planned)
    found = [finding("leaf0--spine0", "cable", **named)] if named else []
    fresh.look(now_ns, found)
    return fresh


def test_losses_count_at_targets_that_answer_anybody() -> None:
    alone = report("h0", lost=4, paths=4, prompt=(), at_ns=T0)
    other = report("h1", lost=1, paths=1, prompt=("h2",), at_ns=T0)
    assert losing(("h0", alone)).losing is None
    found = losing(("h0", alone), ("h1", other)).losing
    assert found is not None
    assert (found.lost, found.paths, found.nics) == (5, 5, ("h2/rail0",))


def test_one_second_counts_once_and_two_seconds_together() -> None:
    """Each report of a second repeats what the one before has said."""
    few = [
        ("h0", report("h0", lost=1, paths=2, prompt=("h1", "h2"), at_ns=T0 + step * STEP_NS))
        for step in range(-3, 1)
    ]
    assert losing(*few).losing is None
    before = report("h0", lost=2, paths=2, prompt=("h1", "h2"), at_ns=T0 - S)
    found = losing(*few, ("h0", before)).losing
    assert found is not None
    assert found.lost == 6


def test_a_name_takes_the_place_of_the_first_sign() -> None:
    each = ("h0", report("h0", lost=9, paths=3, prompt=("h1", "h2"), at_ns=T0))
    assert losing(each).losing is not None
    assert losing(each, loss=0.05).losing is None
    assert losing(each, loss=0.0, delay_ns=50_000.0).losing is not None


def test_what_is_not_of_now_or_not_planned_is_ignored() -> None:
    good = report("h0", lost=9, paths=3, prompt=("h1", "h2"), at_ns=T0)
    assert losing(("h0", good), now_ns=T0 + KEPT_NS - 1).losing is not None
    assert losing(("h0", good), now_ns=T0 + KEPT_NS).losing is None
    assert losing(("h1", good)).losing is None
    odd = report("h0", lost=9, paths=3, prompt=("h1", "h2"), at_ns=T0 + 1)
    assert losing(("h0", odd), now_ns=T0 + 2).losing is None
    strange = report("h9", lost=9, paths=3, prompt=("h1", "h2"), at_ns=T0)
    assert losing(("h9", strange)).losing is None


def test_after_fleet_time_has_stepped_back_reports_of_before_are_dropped() -> None:
    fresh = losing(("h0", report("h0", lost=9, paths=3, prompt=("h1", "h2"), at_ns=T0)))
    assert fresh.losing is not None
    fresh.look(T0 - KEPT_NS, ())
    assert fresh.losing is None


def test_reports_that_are_too_many_or_refused_cost_nothing() -> None:
    class Planned:
        asked = 0

        def __contains__(self, pair: object) -> bool:
            Planned.asked += 1
            return True

    fresh = FreshLosses()
    fresh.take("h0", report("h1", lost=1, paths=1, prompt=(), at_ns=T0), T0, Planned())
    assert fresh._reports == {}
    for number in range(MAX_REPORTS):
        fresh.take(str(number), report(str(number), lost=1, paths=1, prompt=(), at_ns=T0), T0,
                   Planned())  # fmt: skip
    asked = Planned.asked
    fresh.take("more", report("more", lost=1, paths=1, prompt=(), at_ns=T0), T0, Planned())
    assert Planned.asked == asked > 0


def test_an_agents_report_reaches_the_leader_from_its_newest_stream_only() -> None:
    fresh, parts = FreshLosses(), cast("Any", SimpleNamespace(carry_out=None))
    services = cast("Any", SimpleNamespace(
        leadership=SimpleNamespace(seal=None),
        membership=SimpleNamespace(enrolment=SimpleNamespace(admit=None)),
        fleet=SimpleNamespace(probe_ports=lambda: Fleet(3).planned),
        locating=SimpleNamespace(fresh=fresh),
    ))  # fmt: skip
    old, new = (AgentSession(hello("h0", "s"), CERTIFICATE) for _ in range(2))
    hub = AgentHub(
        services=services, sessions={"h0": new}, ingest=parts, last_reports=parts, job_flows=parts,
        segments=parts, dispatcher=parts, fleet_now=lambda: T0,
    )  # fmt: skip
    each = report("h0", lost=9, paths=3, prompt=("h1", "h2"), at_ns=T0)
    for session, reached in ((old, False), (new, True)):
        asyncio.run(FleetService(hub)._take(session, decode_agent(encode(each))))
        fresh.look(T0, ())
        assert (fresh.losing is not None) is reached
