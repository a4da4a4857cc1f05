"""From verdicts on running jobs to incidents: one cause is one page, however many jobs suffer."""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.controller.judged import CROSSING, JOBS, Control, finding

from syntony.alerts.observations import Observation
from syntony.controller.containment import PathContainment
from syntony.controller.incident_inputs import LatencyInputs
from syntony.controller.job_verdicts import (
    DATA,
    HANG,
    METRIC_OF,
    NETWORK,
    RANK,
    TOGETHER_NS,
    observations,
)
from syntony.model import S
from syntony.wire.incidents import IncidentsQuery
from syntony.wire.job_diagnosis import JobFlow, JobResult, JobVerdict
from syntony.workload.verdict import FaultClass

SEED = random.randrange(1 << 32)


def verdict(
    fault: str, *subjects: str, hosts: tuple[str, ...] = (), sure: float = 0.9, onset_ns: int = 0
) -> JobVerdict:
    return JobVerdict(
        fault=fault, subjects=subjects, hosts=hosts, confidence=sure, onset_ns=onset_ns,
        text="94 µs", action="move it",
    )  # fmt: skip


def job(name: str, *verdicts: JobVerdict, flows: tuple[JobFlow, ...] = ()) -> JobResult:
    return JobResult(job=name, verdicts=verdicts, flows=flows)


def flow(src: str, dst: str, *hops: str, port: int = 1) -> JobFlow:
    return JobFlow(flow=f"{src}:{port}>{dst}:2", src=src, dst=dst, hops=hops)


def slow(name: str, *flows: JobFlow, beside: tuple[JobFlow, ...] = ()) -> JobResult:
    found = tuple(verdict("slow-flow", each.flow) for each in flows)
    return job(name, *found, flows=(*flows, *beside))


def named(found: list[Observation]) -> dict[str, tuple[str, ...]]:
    return {each.subject: each.jobs for each in found}


def test_both_directions_of_a_slow_connection_are_one_cause() -> None:
    there, back = flow("h0/rail0", "h1/rail0", "a->b"), flow("h1/rail0", "h0/rail0", "b->a")
    (found,) = observations([slow("night", there, back)])
    assert (found.metric, found.subject, found.jobs) == (
        NETWORK, "h0/rail0<->h1/rail0", ("night",)
    )  # fmt: skip
    assert found.value == 0.9
    assert found.evidence[0] == f"night: slow-flow {there.flow}: 94 µs"
    assert found.evidence[1] == "to do: move it"


def test_slow_flows_of_several_jobs_are_the_link_that_they_share() -> None:
    """Of every job one, over one spine; which other flows of theirs do not cross."""
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    for _ in range(30):
        spines, count = draw.randint(2, 6), draw.randint(2, 10)
        bad = draw.randrange(spines)
        jobs = []
        for number in range(count):
            src, dst = f"h{2 * number}/rail0", f"h{2 * number + 1}/rail0"

            def over(spine: int, src: str = src, dst: str = dst, port: int = 1) -> JobFlow:
                hops = (f"{src}->leaf0", f"leaf0->spine{spine}", f"spine{spine}->leaf1",
                        f"leaf1->{dst}")  # fmt: skip
                return flow(src, dst, *hops, port=port)

            others = [
                over(spine, port=2 + place)
                for place, spine in enumerate(draw.choices(range(spines), k=draw.randint(3, 9)))
                if spine != bad
            ]
            jobs.append(slow(f"job{number}", over(bad), beside=tuple(others)))
        found = observations(jobs)
        link = f"leaf0->spine{bad} or spine{bad}->leaf1"
        assert named(found) == {link: tuple(sorted(each.job for each in jobs))}


def test_slow_flows_of_one_job_or_of_one_pair_of_nics_are_no_link() -> None:
    """What they share within a job its own rules have seen; on one connection nothing is apart."""
    one, two = (flow(f"h{2 * n}/rail0", f"h{2 * n + 1}/rail0", "leaf0->spine0") for n in range(2))
    pairs = {"h0/rail0<->h1/rail0", "h2/rail0<->h3/rail0"}
    assert set(named(observations([slow("a", one, two)]))) == pairs
    again = flow("h0/rail0", "h1/rail0", "leaf0->spine0", port=9)
    assert named(observations([slow("a", one), slow("b", again)])) == {
        "h0/rail0<->h1/rail0": ("a", "b")
    }


def test_a_link_that_most_flows_cross_unharmed_is_not_to_blame() -> None:
    well = tuple(flow("h8/rail0", "h9/rail0", "leaf0->spine0", port=port) for port in range(9))
    jobs = [
        slow("a", flow("h0/rail0", "h1/rail0", "leaf0->spine0"), beside=well),
        slow("b", flow("h2/rail0", "h3/rail0", "leaf0->spine0")),
    ]
    assert set(named(observations(jobs))) == {"h0/rail0<->h1/rail0", "h2/rail0<->h3/rail0"}


def test_what_a_host_does_to_several_jobs_is_the_host() -> None:
    found = observations(
        [
            job("a", verdict("straggler", "rank 2", hosts=("h2",))),
            job("b", verdict("host-jitter", "h2", hosts=("h2",), sure=0.7)),
        ]
    )
    assert [(each.metric, each.subject, each.value, each.jobs) for each in found] == [
        (RANK, "h2", 0.9, ("a", "b"))
    ]


@pytest.mark.parametrize(
    ("given", "subject"),
    [
        (verdict("hang", "rank 1", hosts=("h1",)), "h1"),
        (verdict("hang", "rank 1", "rank 3", hosts=("h1", "h3")), "job night"),
        (verdict("hang", "communicator 0", hosts=()), "job night"),
    ],
)
def test_a_hang_is_of_the_host_that_it_waits_for_or_of_the_job(
    given: JobVerdict, subject: str
) -> None:
    (found,) = observations([job("night", given)])
    assert (found.metric, found.subject) == (HANG, subject)


def test_clock_faults_and_what_is_undetermined_are_no_incident() -> None:
    given = job("a", verdict("clock-fault", "h0"), verdict("undetermined", "h0/rail0"))
    assert observations([given]) == []
    assert set(FaultClass) - set(METRIC_OF) == {FaultClass.CLOCK_FAULT, FaultClass.UNDETERMINED}


def test_a_job_that_cannot_be_judged_neither_opens_nor_clears(control: Control) -> None:
    well, ill = job("a"), job("a", verdict("contention", "leaf0->spine0"))
    unknown = msgspec.structs.replace(ill, error="too-slow")
    judge(control, unknown)
    control.tick(40)
    assert control.live() == {}
    judge(control, ill)
    control.tick(40)
    assert control.pages() == ["job-slow-network leaf0->spine0"]
    judge(control, unknown)
    control.tick(40)
    assert control.live() == {"leaf0->spine0": "job-slow-network"}
    judge(control, well)
    control.tick(40)
    assert control.live() == {}
    assert len(control.pages()) == 1


def judge(control: Control, *jobs: JobResult) -> None:
    control.slas = LatencyInputs(None, None, CROSSING, JOBS, job_results=jobs)


def test_ten_jobs_on_one_bad_link_are_one_page_that_names_them(control: Control) -> None:
    names = [f"job{number}" for number in range(10)]
    order = random.Random(SEED).sample(names, 10)
    for known in range(1, 11):
        judge(control, *(job(each, verdict("bad-link", "leaf0->spine0")) for each in order[:known]))
        control.tick(3)
    control.tick(20)
    assert control.pages() == ["job-slow-network leaf0->spine0"]
    (incident,) = control.live_incidents()
    assert incident["jobs"] == names
    assert any("to do: move it" in line for line in incident["evidence"])


def test_jobs_that_began_to_wait_for_data_together_wait_for_the_same() -> None:
    """Stores become slow minutes apart; each has its jobs, which notice within seconds."""
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    for _ in range(100):
        wanted: dict[str, tuple[str, ...]] = {}
        jobs, at_ns = [], 0
        for store in range(draw.randint(1, 4)):
            at_ns += draw.randint(TOGETHER_NS + S, 600 * S)
            begun = sorted(draw.randrange(TOGETHER_NS) for _ in range(draw.randint(1, 10)))
            names = [f"s{store}-{place}" for place in range(len(begun))]
            wanted[f"job {names[0]}"] = tuple(sorted(names))
            jobs += [
                job(name, verdict("data-stall", name, onset_ns=at_ns + after_ns))
                for name, after_ns in zip(names, begun, strict=True)
            ]
            at_ns += begun[-1]
        draw.shuffle(jobs)
        found = observations([*jobs, job("well")])
        assert {each.metric for each in found} == {DATA}
        assert named(found) == wanted
        for each in found:
            several = f"{len(each.jobs)} jobs began to wait for data within"
            assert each.evidence[0].startswith(several) == (len(each.jobs) > 1)


def test_ten_jobs_that_wait_for_one_slow_store_are_one_page_that_names_them(
    control: Control,
) -> None:
    names = [f"job{number}" for number in range(10)]
    draw = random.Random(SEED)
    begun = dict(zip(names, sorted(draw.sample(range(10), 10)), strict=True))
    for known in range(1, 11):  # the first is found first
        judge(control, *(
            job(each, verdict("data-stall", each, onset_ns=begun[each] * S))
            for each in names[:known]
        ))  # fmt: skip
        control.tick(1)
    control.tick(30)
    assert control.pages() == ["job-slow-data job job0"]
    (incident,) = control.live_incidents()
    assert incident["jobs"] == names
    judge(control, *(job(each) for each in names))
    control.tick(40)
    assert control.live() == {}


@pytest.mark.parametrize("late", [False, True])
def test_a_verdict_that_the_fabric_explains_is_its_effect(control: Control, late: bool) -> None:
    """Whichever is found first: one page, which says what it hurts."""
    suffering = (
        slow("near", flow("h0/rail0", "h2/rail0", "leaf0->spine0")),
        slow("far", flow("h2/rail0", "h0/rail0", "spine0->leaf0")),
    )
    broken = (finding("leaf0->spine0", "link"),)
    control.findings = () if late else broken
    judge(control, *suffering)
    control.tick(5)
    control.findings = broken
    control.tick(40)
    assert control.pages() == ["link-loss leaf0->spine0"]
    by_rule = {each["rule"]: each for each in control.live_incidents()}
    assert by_rule["job-slow-network"]["cause"] == by_rule["link-loss"]["number"]
    assert set(by_rule["link-loss"]["jobs"]) == {"near", "far"}
    (line,) = (each for each in by_rule["link-loss"]["evidence"] if each.startswith("hurts"))
    assert line == "hurts far, near: job-slow-network h0/rail0<->h2/rail0"
    shown = control.service.incidents(IncidentsQuery(number=by_rule["link-loss"]["number"]))
    assert len(shown.incidents) == 2


def test_the_link_of_more_jobs_continues_the_page_of_the_first_ones_connection(
    control: Control,
) -> None:
    first = slow("near", flow("h0/rail0", "h2/rail0", "leaf0->spine0"))
    second = slow("far", flow("h3/rail0", "h4/rail0", "leaf0->spine0"))
    judge(control, first)
    control.tick(40)
    judge(control, first, second)
    control.tick(60)
    assert control.pages() == ["job-slow-network h0/rail0<->h2/rail0"]
    judge(control, job("near"), job("far"))
    control.tick(40)
    assert control.live() == {}


def test_a_connection_suffers_with_what_either_direction_crosses() -> None:
    places = PathContainment(CROSSING)
    for wider in ("leaf0->spine0", "spine0->leaf0", "spine0", "h2", "h0/rail0"):
        assert places.holds(wider, "h0/rail0<->h2/rail0"), wider
    assert not places.holds("leaf0->h1/rail0", "h0/rail0<->h2/rail0")
    assert not places.holds("h0/rail0<->h2/rail0", "h0/rail0<->h2/rail0")
