"""What localisation blames, queues and broken objectives as incidents."""

from __future__ import annotations

import msgspec
import pytest
from tests.controller.judged import CROSSING, T0, Control, finding

from syntony.controller.observe import APART, BURSTS
from syntony.model import S
from syntony.model.findings import Finding, Queue, QueueFlow
from syntony.model.sla import Latency, SlaRow, SlaStatus
from syntony.wire.incidents import IncidentsQuery


def test_what_is_inferred_explains_no_suspect_of_another(control: Control) -> None:
    """A second fault beside one that localisation named is a fault of its own."""
    control.findings = (
        finding("leaf0", "leaf"),
        finding("leaf0->spine0", "link", alternatives=("spine0->leaf1",), twins=1),
    )
    control.tick(9)
    assert sorted(control.pages()) == [
        "ambiguous-loss leaf0->spine0 or spine0->leaf1", "switch-loss leaf0",
    ]  # fmt: skip


def test_parts_that_are_not_known_one_by_one_are_one_page_for_both_directions(
    control: Control,
) -> None:
    control.findings = (finding("leaf0..*", "group"), finding("*..leaf0", "group"))
    control.tick(9)
    assert control.pages() == ["ambiguous-loss *..leaf0"]
    assert set(control.live()) == {"leaf0..*", "*..leaf0"}
    narrower = (finding("leaf0..leaf1", "group"), finding("leaf0->spine1", "link"))
    control.findings = (*control.findings, *narrower)
    control.tick(9)
    assert control.pages() == ["ambiguous-loss *..leaf0"], "known better, paged once"
    control.findings = (*control.findings, finding("leaf2->spine1", "link"))
    control.tick(9)
    assert control.pages()[1:] == ["link-loss leaf2->spine1"], "elsewhere"
    control.findings = (*control.findings[:2], finding("leaf0", "leaf"))
    control.tick(9)
    assert control.pages()[2:] == ["switch-loss leaf0"]
    number = {each.subject: each.number for each in control.service.live()}["leaf0"]
    reply = control.service.incidents(IncidentsQuery(number=number))
    assert {"leaf0", "leaf0..*", "*..leaf0"} <= {each["subject"] for each in reply.incidents}


def test_what_nothing_lists_is_one_page(control: Control) -> None:
    """Its words were looked for at its ends, of which neither is known: an exception."""
    control.findings = (finding("*..*", "group"),)
    control.tick(9)
    assert control.pages() == ["ambiguous-loss *..*"]


GROUP = finding("leaf0..leaf1", "group")
SPINE = finding(
    "spine0", "spine", alternatives=("leaf0--spine0", "leaf1--spine0"),
    probabilities=(0.3, 0.3), twins=2,
)  # fmt: skip
SUSPECTS = "leaf0--spine0 or leaf1--spine0 or spine0"


def test_suspects_and_a_group_that_they_may_be_in_are_one_page(control: Control) -> None:
    """Some paths over the spine are known, others list the group."""
    control.findings = (GROUP, SPINE)
    control.tick(20)
    assert control.pages() == [f"ambiguous-loss {SUSPECTS}"]
    control.findings = (GROUP,)
    control.tick(40)
    assert set(control.live()) == {SUSPECTS, "leaf0..leaf1"}, "not over yet"
    control.findings = ()
    control.tick(40)
    assert control.live() == {}
    assert control.pages() == [f"ambiguous-loss {SUSPECTS}"]


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (GROUP, SPINE), (SPINE, GROUP), (GROUP, finding("leaf0->spine0", "link")),
        (finding("leaf0->spine0", "link"), GROUP), (GROUP, finding("spine0", "spine")),
        (finding("spine0", "spine"), GROUP), (finding("leaf0..*", "group"), SPINE),
        (finding("leaf0->spine0", "link"), finding("leaf0..*", "group")),
        (finding("leaf0..*", "group"), finding("*..*", "group")),
        (finding("*..*", "group"), finding("leaf0..*", "group")),
        (finding("*..*", "group"), SPINE), (SPINE, finding("*..*", "group")),
    ],
)  # fmt: skip
def test_the_later_of_a_part_and_its_group_joins_the_page(
    control: Control, first: Finding, later: Finding
) -> None:
    control.findings = (first,)
    control.tick(9)
    (page,) = control.pages()
    control.findings = (first, later)
    control.tick(30)
    control.findings = (later,)
    control.tick(30)
    assert control.pages() == [page]


@pytest.mark.parametrize(
    "other",
    [
        finding("h1/rail0", "nic"), finding("leaf0->h1/rail0", "link"),
        finding("leaf2--spine0", "cable"), finding("leaf2..leaf3", "group"),
        finding("leaf0..leaf2", "group"), finding("spine9", "spine"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("together", [True, False])
def test_a_fault_outside_of_a_group_is_another_page(
    control: Control, other: Finding, together: bool
) -> None:
    control.findings = (GROUP, other) if together else (GROUP,)
    control.tick(9)
    control.findings = (GROUP, other)
    control.tick(9)
    assert len(control.pages()) == 2


NIC_LINKS = [finding("h1/rail0--leaf1", "cable"), finding("leaf1->h1/rail0", "link")]


@pytest.mark.parametrize("group", ["leaf1..*", "*..leaf1"])
@pytest.mark.parametrize("link", NIC_LINKS)
@pytest.mark.parametrize("link_first", [True, False])
@pytest.mark.parametrize("gap", [None, 0, 5])
def test_the_link_of_a_nic_is_not_of_the_group_at_its_leaf(
    control: Control, group: str, link: Finding, link_first: bool, gap: int | None
) -> None:
    """Another cause, whether the first is over for so many evaluations or (None) lasts."""
    faults = [link, finding(group, "group")]
    first, later = faults if link_first else faults[::-1]
    control.findings = (first,)
    control.tick(9)
    control.findings = ()
    control.tick(gap or 0)
    control.findings = (first, later) if gap is None else (later,)
    control.tick(9)
    assert len(control.pages()) == 2


def test_a_critical_part_does_not_join_the_warning_of_its_group(control: Control) -> None:
    crossing = CROSSING | {"h1/rail0->h2/rail0": frozenset({GROUP.component})}
    control.slas = control.slas._replace(crossing=crossing, jobs={})
    control.findings = (msgspec.structs.replace(GROUP, loss=1e-4),)
    control.tick(9)
    control.findings = (*control.findings, SPINE)
    control.tick(9)
    assert [each["severity"] for each in control.live_incidents()] == ["critical", "warning"]
    assert len(control.pages()) == 2


def test_a_part_that_loses_far_more_than_its_group_is_another_fault(control: Control) -> None:
    link = finding("leaf0->spine0", "link", loss=0.2)
    control.findings = (finding("leaf0..*", "group"), link)
    control.tick(9)
    assert len(control.pages()) == 2


@pytest.mark.parametrize("group", ["leaf0..leaf1", "*..*"])
def test_a_page_of_a_group_is_renamed_after_the_part_at_fault(control: Control, group: str) -> None:
    control.findings = (finding(group, "group"),)
    control.tick(9)
    control.findings = (*control.findings, SPINE)
    control.tick(9)
    (page,) = (each for each in control.live_incidents() if not each["cause"])
    assert page["subject"] == group
    assert page["summary"].startswith(f"{SUSPECTS}: loses")
    assert control.pages() == [f"ambiguous-loss {group}"]


@pytest.mark.parametrize(
    "anything",
    [
        finding("*..*", "group"),
        finding("leaf1..*", "group", alternatives=("*..*",), probabilities=(0.5,), twins=1),
    ],
)
@pytest.mark.parametrize("part", [finding("leaf0->spine0", "link"), SPINE])
def test_a_part_that_fails_long_after_what_may_be_anything_is_another_page(
    control: Control, anything: Finding, part: Finding
) -> None:
    """Else no fault between switches would page while it is there."""
    control.findings = (anything,)
    control.tick(30)
    control.findings = (anything, part)
    control.tick(9)
    assert len(control.pages()) == 2


def test_a_delay_that_begins_after_another_fault_was_over_is_not_its_evidence(
    control: Control,
) -> None:
    control.slas = control.slas._replace(jobs={})
    control.findings = (finding("leaf0->spine0", "link"),)
    control.tick(5)
    control.findings = ()
    control.tick(23)
    assert control.live() == {}
    control.findings = (finding("leaf0->spine0", "link", fault="delay", loss=0.0, delay_ns=1e6),)
    control.tick(4)
    assert control.pages() == ["link-loss leaf0->spine0", "component-delay leaf0->spine0"]


def test_a_fault_of_some_flows_has_the_loss_of_all_that_cross_it(control: Control) -> None:
    some = finding("leaf0->spine0", "link")
    control.findings = (msgspec.structs.replace(some, loss=1.0, flows=0.4),)
    control.tick(9)
    (incident,) = control.service.live()
    assert incident.value == pytest.approx(0.4)


def test_a_clocks_jump_is_no_fault_of_the_fabric(control: Control) -> None:
    control.findings = (finding("h0", "clock", fault="clock"),)
    control.tick(5)
    assert control.live() == {}


def test_delay_is_an_incident_of_its_own(control: Control) -> None:
    control.findings = (finding("leaf0-0->spine1", "link", fault="delay", delay_ns=30_000.0),)
    control.tick(3)
    assert control.live() == {"leaf0-0->spine1": "component-delay"}


def sla(pair: str, status: SlaStatus) -> SlaRow:
    return SlaRow(
        subject=pair, path_class="leaf", now=Latency(sent=9, lost=0, measured=9), usual=None,
        peers=None, status=status, reasons=("p99 1 ms, promised 50 µs",),
    )  # fmt: skip


def test_a_broken_objective_is_explained_by_the_part_its_path_crosses(control: Control) -> None:
    rows = (
        sla("h0/rail0->h2/rail0", SlaStatus.BREACH), sla("h0/rail0->h1/rail0", SlaStatus.OK),
        sla("h0/rail0->h3/rail0", SlaStatus.OK), sla("h2/rail0->h1/rail0", SlaStatus.OK),
        sla("h2/rail0->h3/rail0", SlaStatus.OK),
    )  # fmt: skip
    control.slas = control.slas._replace(rows=rows)
    control.tick(2)
    assert control.live() == {"h0/rail0->h2/rail0": "latency-sla"}
    control.findings = (finding("leaf0->spine0", "link"),)
    control.tick(2)
    by_rule = {each["rule"]: each for each in control.service.incidents(IncidentsQuery()).incidents}
    assert by_rule["latency-sla"]["cause"] == by_rule["link-loss"]["number"]
    assert by_rule["latency-sla"]["evidence"] == ["h0/rail0->h2/rail0: p99 1 ms, promised 50 µs"]


def test_an_incident_names_the_jobs_it_hits(control: Control) -> None:
    control.findings = (finding("leaf0->spine0", "link"), finding("h1/rail0", "nic"))
    control.tick()
    jobs = {
        each["subject"]: each["jobs"]
        for each in control.service.incidents(IncidentsQuery()).incidents
    }
    assert jobs == {"leaf0->spine0": ["far"], "h1/rail0": ["near"]}


def test_a_queue_is_one_incident_with_who_shares_it(control: Control) -> None:
    queue = Queue(
        component="leaf0->spine0", delay_ns=300_000.0, since_ns=T0, confidence=1.0,
        alternatives=(), pairs=("h0/rail0->h2/rail0",),
        flows=(QueueFlow(job="far", pair="h0/rail0->h2/rail0", rate_bps=10**9),),
    )  # fmt: skip
    control.slas = control.slas._replace(queues=(queue,))
    control.findings = (finding("leaf0->spine0", "link"),)
    control.tick(2)
    assert control.live() == {"leaf0->spine0": "link-loss"}
    control.tick()
    (incident, loss) = control.service.incidents(IncidentsQuery()).incidents
    assert (incident["rule"], incident["jobs"]) == ("congestion", ["far"])
    assert incident["evidence"] == [
        "shared by h0/rail0->h2/rail0", "job far: h0/rail0->h2/rail0",
    ]  # fmt: skip
    assert loss["cause"] == incident["number"], "a queue that overflows loses packets"
    control.slas = control.slas._replace(queues=())
    control.findings = ()
    control.tick(20)
    assert control.live() == {}


def test_a_queue_at_one_of_two_links_names_both(control: Control) -> None:
    flow = QueueFlow(job="far", pair="h0/rail0->h2/rail0", rate_bps=10**9)
    one, other = "leaf0->spine0", "spine0->leaf1"
    queue = Queue(
        component=one, delay_ns=300_000.0, since_ns=T0, confidence=0.5, alternatives=(other,),
        suspects=(one, other), pairs=(flow.pair,), flows=(flow,),
    )  # fmt: skip
    control.slas = control.slas._replace(queues=(queue,))
    control.tick(4)
    control.slas = control.slas._replace(queues=(msgspec.structs.replace(queue, suspects=()),))
    control.tick(4)
    assert control.pages() == [f"congestion {one} or {other}"]
    reported = next(each for each in control.live_incidents() if not each["cause"])
    assert APART in reported["evidence"]
    control.slas = control.slas._replace(queues=())
    control.tick(40)
    assert control.live() == {}


@pytest.mark.parametrize("bursts", [True, False])
@pytest.mark.parametrize("sends", [True, False])
def test_a_queue_that_is_full_in_bursts_is_congestion_only_where_a_job_sends(
    control: Control, sends: bool, bursts: bool
) -> None:
    flow = QueueFlow(job="far", pair="h0/rail0->h2/rail0", rate_bps=10**9)
    queue = Queue(
        component="leaf0->spine0", delay_ns=640_000.0, since_ns=T0, confidence=1.0,
        alternatives=(), bursts=bursts, pairs=(flow.pair,), flows=(flow,) if sends else (),
    )  # fmt: skip
    control.slas = control.slas._replace(queues=(queue,))
    control.findings = (finding("leaf0->spine0", "link", overflow="all"),)
    control.tick(5)
    found = {each["rule"]: each for each in control.live_incidents()}
    waits = "congestion" if sends else "component-delay"
    assert set(found) == ({"link-loss"} if bursts and not sends else {"link-loss", waits})
    if sends:
        assert (BURSTS in found["congestion"]["evidence"]) is bursts
        assert found["congestion"]["summary"] == ("leaf0->spine0: queueing delay 640 µs, sustained")


@pytest.mark.parametrize("rate_bps", [None, 1_000])
def test_a_delay_without_traffic_is_no_congestion(control: Control, rate_bps: int | None) -> None:
    """… and has one name, whether the change of delay or the queue tells of it."""
    flows = () if rate_bps is None else (
        QueueFlow(job="far", pair="h0/rail0->h2/rail0", rate_bps=rate_bps),
    )  # fmt: skip
    queue = Queue(
        component="leaf0->spine0", delay_ns=300_000.0, since_ns=T0, confidence=1.0,
        alternatives=(), pairs=("h0/rail0->h2/rail0",), flows=flows,
    )  # fmt: skip
    slow = finding("leaf0--spine0", "cable", fault="delay", loss=0.0, delay_ns=300_000.0)
    control.slas = control.slas._replace(queues=(queue,))
    control.findings = (slow,)
    control.tick(5)
    assert control.live() == {"leaf0--spine0": "component-delay"}
    # A minute later the change is the rule, and no finding any more; the delay is still there.
    control.findings = ()
    control.tick(100)
    assert control.live() == {"leaf0--spine0": "component-delay"}


def test_a_delay_without_traffic_names_all_places_that_it_may_be_at(control: Control) -> None:
    suspects = ("leaf0--spine0", "spine0")
    queue = Queue(
        component="spine0", delay_ns=300_000.0, since_ns=T0, confidence=0.5, suspects=suspects,
        alternatives=("leaf0--spine0",), pairs=("h0/rail0->h2/rail0",),
    )  # fmt: skip
    control.slas = control.slas._replace(queues=(queue,))
    control.tick(5)
    assert control.live() == {"leaf0--spine0 or spine0": "component-delay"}
    (found,) = control.live_incidents()
    assert APART in found["evidence"]
    control.tick(20)
    assert control.live() == {"leaf0--spine0 or spine0": "component-delay"}


def test_twins_are_one_incident_that_names_both_and_condemns_neither(control: Control) -> None:
    twins = finding(
        "leaf0->spine0", "link", confidence=0.5, alternatives=("spine0->leaf1", "leaf0"),
        probabilities=(0.49, 0.01), twins=1,
    )  # fmt: skip
    control.findings = (twins,)
    control.tick()
    (incident,) = control.service.incidents(IncidentsQuery()).incidents
    assert incident["rule"] == "ambiguous-loss"
    assert incident["subject"] == "leaf0->spine0 or spine0->leaf1"
    assert incident["evidence"][1:] == [
        "leaf0->spine0 50%, spine0->leaf1 49%, leaf0 1%", "no path tells these apart",
        "crossed by 1 of 3 pairs of NICs (33%), of 2 hosts",
    ]  # fmt: skip
    rule = next(rule for rule in control.service.rules if rule.name == "ambiguous-loss")
    assert rule.remedy.startswith("check")


def test_a_nic_and_its_own_cable_are_one_place(control: Control) -> None:
    others = ("h0/rail0--leaf0", "h0")
    control.findings = (
        finding("h0/rail0", "nic", alternatives=others, probabilities=(0.2, 0.2), twins=2),
        finding("leaf1->spine0", "link", alternatives=("leaf1--spine0",), twins=1),
    )
    control.tick()
    assert control.live() == {"h0/rail0": "nic-loss", "leaf1->spine0": "link-loss"}


@pytest.mark.parametrize(("lost", "paths"), [(3.0, 3), (9.0, 4), (50.0, 1)])
def test_a_few_lost_probes_page_nobody(control: Control, lost: float, paths: int) -> None:
    weak = finding("leaf0->spine0", "link", loss=0.001, explains=lost, paths=paths)
    control.findings = (weak,)
    control.tick(30)
    assert control.live() == {}
    control.findings = (finding("leaf0->spine0", "link", explains=10.0, paths=2),)
    control.tick(10)
    assert control.live() == {"leaf0->spine0": "link-loss"}
    # Few losses do not end it either: they show neither that it is over nor that it goes on.
    control.findings = (weak,)
    control.tick(100)
    assert control.live() == {"leaf0->spine0": "link-loss"}


def test_a_dark_cable_is_one_incident_however_it_was_found(control: Control) -> None:
    """Its directions may be named before the seconds suffice for the cable."""
    ways = (finding("leaf0->spine0", "link"), finding("spine0->leaf0", "link"))
    control.findings = ways
    control.tick()
    control.findings = (finding("leaf0--spine0", "cable"),)
    control.tick(2)
    incidents = control.service.incidents(IncidentsQuery()).incidents
    (cable,) = [each for each in incidents if not each["cause"]]
    assert cable["subject"] == "leaf0--spine0"
    assert {each["cause"] for each in incidents} == {None, cable["number"]}


def test_findings_that_nothing_confirms_neither_page_nor_clear(control: Control) -> None:
    """Localisation takes half a minute for one second, of which all is over by then."""
    control.findings = (finding("leaf0->spine0", "link"),)
    control.findings_ns = control.now_ns
    control.tick()
    control.located = False
    control.tick(20)
    assert set(control.live()) == {"leaf0->spine0"}
    control.findings_ns, control.located = control.findings_ns + S, True
    control.tick()
    assert set(control.live()) == {"leaf0->spine0"}
    control.findings = ()
    control.tick(9)
    assert (control.pages(), control.live()) == ([], {})
