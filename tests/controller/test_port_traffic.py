"""Traffic of no known job: which queues it may fill, and what is said of them."""

from __future__ import annotations

import msgspec
import pytest
from tests.controller.judged import CROSSING, Control, finding, port

from syntony.controller import port_traffic
from syntony.controller.incident_inputs import LatencyInputs
from syntony.controller.port_traffic import NO_TRAFFIC, PortTraffic
from syntony.fabric.names import pairs_across
from syntony.model import S
from syntony.model.findings import Queue, QueueFlow

BUSY = PortTraffic({"h0/rail0": 9e10, "h9/rail0": 8e10}, {"h2/rail0": 7e10}, {})
SENDS, RECEIVES = (
    "h0/rail0 sends 90 Gb/s of no known job",
    "h2/rail0 receives 70 Gb/s of no known job",
)


@pytest.mark.parametrize(
    ("subject", "evidence"),
    [
        ("h0/rail0->leaf0", (SENDS,)),
        ("leaf0->h0/rail0", ()),  # it receives nothing
        ("leaf0->h2/rail0", (RECEIVES,)),
        ("h2/rail0->leaf0", ()),
        ("h0/rail0--leaf0", (SENDS,)),
        ("h0/rail0", (SENDS,)),
        ("h2/rail0", (RECEIVES,)),
        ("h1/rail0->leaf0", ()),
        ("h1/rail0->leaf0 or h0/rail0->leaf0", (SENDS,)),
        ("leaf0->spine0", (SENDS, RECEIVES)),
        ("spine0->leaf0", ()),  # only paths from h2, which sends nothing
        ("spine0", (SENDS, RECEIVES)),
        ("spine7", ()),
    ],
)
def test_what_it_may_cross(subject: str, evidence: tuple[str, ...]) -> None:
    assert BUSY.across(subject, pairs_across([subject], CROSSING)[subject]) == evidence
    assert NO_TRAFFIC.across(subject, CROSSING) == ()


def test_the_fastest_is_named_and_others_counted() -> None:
    many = PortTraffic({f"h{n}/rail0": n * 1e9 for n in range(1, 5)}, {"h9/rail0": 1e9}, {})
    pairs = [f"h{n}/rail0->h9/rail0" for n in range(1, 4)]
    assert many.across("spine0", pairs) == (
        "h3/rail0 sends 3 Gb/s of no known job; 2 more NICs do",
        "h9/rail0 receives 1 Gb/s of no known job",
    )
    assert many.across("spine0", ["h1/rail0->h8/rail0"]) == (), "nobody receives it"


def test_others_at_the_same_switches_may_take_the_same_paths() -> None:
    """Few pairs of NICs are probed; cross-rail pairs lead elsewhere."""
    homes = {f"h{n}/rail{rail}": f"leaf{rail}-{n % 2}" for n in range(4) for rail in range(2)}
    busy = PortTraffic({"h0/rail0": 9e10}, {"h3/rail0": 9e10}, homes)
    assert busy.across("leaf0-0->spine0", ["h2/rail0->h1/rail0"])
    assert busy.across("spine0", ["h2/rail1->h1/rail1", "h2/rail0->h1/rail0"])
    # From the switch of the sender, and to that of the receiver, but none from one to the other.
    assert busy.across("leaf1-0->spine0", ["h2/rail0->h1/rail1", "h2/rail1->h1/rail0"]) == ()


def test_nics_of_known_jobs_are_not_among_it() -> None:
    ports = [
        port("h0/rail0", tx_bps=2e11, rx_bps=1e6), port("h1/rail0", tx_bps=2e11, rx_bps=2e11),
        port("h2/rail0"), port("h3/rail0", tx_bps=1e6, rx_bps=2e11),
    ]  # fmt: skip
    jobs = [frozenset({("h9/rail0", "h1/rail0")})]
    found = port_traffic.of_ports(ports, jobs, {})
    assert found == PortTraffic({"h0/rail0": 2e11}, {"h3/rail0": 2e11}, {})


def queue(component: str, *pairs: str) -> Queue:
    return Queue(
        component=component, delay_ns=200_000.0, since_ns=0, confidence=1.0, alternatives=(),
        pairs=pairs,
    )  # fmt: skip


def late(component: str) -> object:
    return finding(component, "link", fault="delay", loss=0.0, delay_ns=200_000.0)


@pytest.mark.parametrize("sending", [True, False])
def test_a_nic_that_sends_waits_for_its_own_packets(control: Control, sending: bool) -> None:
    link = "h0/rail0->leaf0"
    control.store.links.seen = (port("h0/rail0", tx_bps=3e11 if sending else 1e6),)
    control.findings = (late(link),)  # type: ignore[assignment]
    control.slas = LatencyInputs(None, (), CROSSING, {})
    control.tick(5)
    control.findings, control.slas = (), LatencyInputs(None, (queue(link),), CROSSING, {})
    control.tick(30)
    assert control.pages() == ([] if sending else [f"component-delay {link}"])


def test_who_receives_it_is_congested(control: Control) -> None:
    """The delay waits for the queue to be known, which takes ten seconds."""
    link = "leaf0->h1/rail0"
    control.store.links.seen = (port("h1/rail0", rx_bps=3e11),)
    control.findings = (late(link),)  # type: ignore[assignment]
    control.slas = LatencyInputs(None, (), CROSSING, {})
    control.tick(5)
    assert control.pages() == []
    control.slas = LatencyInputs(None, (queue(link),), CROSSING, {})
    control.tick(10)
    assert control.pages() == [f"congestion {link}"]
    (shown,) = [each for each in control.live_incidents() if each["rule"] == "congestion"]
    assert "h1/rail0 receives 300 Gb/s of no known job" in shown["evidence"]


def test_a_delay_that_comes_and_goes_is_its_traffic(control: Control) -> None:
    """TCP fills the queue and backs off."""
    link = "leaf0->h1/rail0"
    control.store.links.seen = (port("h1/rail0", rx_bps=3e11),)
    control.slas = LatencyInputs(None, (), CROSSING, {})
    for _ in range(10):
        control.findings = (late(link),)  # type: ignore[assignment]
        control.tick(4)
        control.findings = ()
        control.tick(3)
    assert control.pages() == []
    control.store.links.seen = (port("h1/rail0", rx_bps=1e6),)
    control.findings = (late(link),)  # type: ignore[assignment]
    control.tick(30)
    assert control.pages() == [f"component-delay {link}"], "without traffic it is the link's own"


def test_a_job_may_outlive_the_agent_of_its_host(control: Control) -> None:
    """For as long as a reading counts."""
    link = "h0/rail0->leaf0"
    control.store.links.seen = (port("h0/rail0", tx_bps=3e11),)
    control.silent = {"h0": 60 * S}
    control.findings = (late(link),)  # type: ignore[assignment]
    control.slas = LatencyInputs(None, (), CROSSING, {})
    for _ in range(60):
        control.now_ns += 2 * S
        control.evaluate()
    assert link not in control.live()
    for _ in range(40):
        control.now_ns += 2 * S
        control.evaluate()
    assert control.live()[link] == "component-delay"


def test_losses_where_it_overflows_wait_for_the_queue(control: Control) -> None:
    link = "leaf0->h1/rail0"
    control.store.links.seen = (port("h1/rail0", rx_bps=3e11),)
    loss = finding(link, "link", loss=0.004)
    control.findings = (loss, late(link))  # type: ignore[assignment]
    control.slas = LatencyInputs(None, (queue(link),), CROSSING, {})
    control.tick(15)
    assert control.pages() == [f"congestion {link}"]


@pytest.mark.parametrize("away", [1, 5])
def test_it_is_known_while_the_store_answers_late(control: Control, away: int) -> None:
    """Every other evaluation is without an answer, or some in a row."""
    link = "h0/rail0->leaf0"
    control.store.links.seen = (port("h0/rail0", tx_bps=3e11),)
    control.findings = (late(link),)  # type: ignore[assignment]
    control.slas = LatencyInputs(None, (), CROSSING, {})
    for _ in range(20):
        control.tick()
        control.store.links.away = True
        control.tick(away)
        control.store.links.away = False
    assert control.changes == []


@pytest.mark.parametrize("crossing", [CROSSING, {}])
def test_flows_are_known_before_the_paths_that_they_may_take(
    control: Control, crossing: dict[str, frozenset[str]]
) -> None:
    pair = "h0/rail0->h2/rail0"
    flow = QueueFlow(job="far", pair=pair, rate_bps=3 * 10**11)
    waits = msgspec.structs.replace(queue("leaf0->spine0", pair), flows=(flow,))
    control.slas = LatencyInputs(None, (waits,), crossing, {})
    control.tick(30)
    assert control.pages() == ["congestion leaf0->spine0"]


CABLE = "leaf0--spine0"
THERE_AND_BACK = ("h0/rail0->h2/rail0", "h2/rail0->h0/rail0")


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("known_by", ["change", "ports", "flows"])
def test_traffic_in_one_direction_explains_no_delay_of_both(
    control: Control, known_by: str, both: bool
) -> None:
    """TCP that fills one direction of a slow cable explains the delay of that one only."""
    little, much = 1_000, 3 * 10**11
    back = much if both else little
    waits = queue(CABLE, *THERE_AND_BACK)
    if known_by == "flows":
        there, replies = THERE_AND_BACK
        flows = (
            QueueFlow(job="far", pair=there, rate_bps=much),
            QueueFlow(job="far", pair=replies, rate_bps=back),
        )
        waits = msgspec.structs.replace(waits, flows=flows)
    else:
        control.store.links.seen = (
            port("h0/rail0", tx_bps=much, rx_bps=back), port("h2/rail0", tx_bps=back, rx_bps=much),
        )  # fmt: skip
    control.slas = LatencyInputs(None, () if known_by == "change" else (waits,), CROSSING, {})
    if known_by == "change":
        control.findings = (late(CABLE),)  # type: ignore[assignment]
    control.tick(30)
    known = {"change": [], "ports": ["congestion"], "flows": ["congestion"]}
    rules = known[known_by] if both else ["component-delay"]
    assert control.pages() == [f"{rule} {CABLE}" for rule in rules]


def test_losses_of_a_cable_may_be_those_of_a_queue_in_one_direction(control: Control) -> None:
    """In which direction a round trip was lost may be unknown."""
    much = 3 * 10**11
    control.store.links.seen = port("h0/rail0", tx_bps=much), port("h2/rail0", rx_bps=much)
    control.findings = (finding(CABLE, "cable", loss=0.004),)
    waits = queue("leaf0->spine0", THERE_AND_BACK[0])
    control.slas = LatencyInputs(None, (waits,), CROSSING, {})
    control.tick(15)
    assert control.pages() == ["congestion leaf0->spine0"]
