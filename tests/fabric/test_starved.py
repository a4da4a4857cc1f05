"""A host that is late against a link that loses, on counts that are written down by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from syntony.fabric import history
from syntony.fabric.book import Way
from syntony.fabric.history import HistoryWindow
from syntony.fabric.names import hosts_at
from syntony.fabric.starved import (
    FlowEnds,
    Recent,
    Stopped,
    how_stopped,
    reclassify_slow_hosts,
)
from syntony.fabric.tally import Index, Ints
from syntony.model.findings import Finding

LATE, OTHER = "h3/rail0", "h5/rail0"
FLOWS = [
    Way(LATE, "h0/rail0", 1, 1), Way(LATE, "h1/rail0", 1, 1),
    Way("h0/rail0", LATE, 1, 1), Way("h1/rail0", LATE, 1, 1), Way("h0/rail0", OTHER, 1, 1),
]  # fmt: skip


def finding(component: str = LATE, kind: str = "nic", **changes: object) -> Finding:
    fields: dict[str, object] = {
        "component": component, "kind": kind, "fault": "loss", "loss": 0.05, "delay_ns": 0.0,
        "confidence": 1.0, "window": "10s", "explains": 1.0, "paths": 1, "alternatives": ("x",),
    }  # fmt: skip
    return Finding(**(fields | changes))  # type: ignore[arg-type]


def window(
    own: tuple[int, int], requested: tuple[int, int], field: int = history.LOST, name: str = "10s"
) -> HistoryWindow:
    """(sent, not answered) of each of the late host's two flows, and of each towards it."""
    counts = np.zeros((history.FIELDS, len(FLOWS)), dtype=np.int64)
    for flow, (sent, lost) in enumerate([own, own, requested, requested, (10_000, 0)]):
        counts[history.SENT, flow], counts[field, flow] = sent, lost
    return HistoryWindow(name, 10, counts)


def at_once(seen: HistoryWindow, flows: list[Way] = FLOWS) -> Recent:
    """The same counts, all within one second."""

    def recent(chosen: Index) -> Ints:
        assert seen.counts.shape[1] == len(flows)
        return seen.counts[None][:, :, chosen]

    return recent


def kind(found: Finding, seen: HistoryWindow) -> str:
    (reported,) = reclassify_slow_hosts((found,), FlowEnds.of(FLOWS), [seen], at_once(seen))
    assert reported.component == (
        f"replies of {LATE}" if reported.kind == "replies" else found.component
    )
    assert reported.alternatives == (() if reported.kind == "replies" else found.alternatives)
    return reported.kind


@pytest.mark.parametrize("field", [history.LOST, history.LOST_BACK, history.UNRESOLVED])
@pytest.mark.parametrize(
    ("own", "requested", "late"),
    [
        ((1000, 0), (1000, 50), True),  # its own probes come through
        ((1000, 50), (1000, 50), False),  # they fare no better: a part that loses
        ((1000, 25), (1000, 50), True),  # half as often
        ((1000, 26), (1000, 50), False),  # not by a factor of two
        ((0, 0), (1000, 50), True),  # it asks nothing at all
        ((1000, 0), (1000, 0), False),
        ((20, 0), (1000, 50), False),  # too few to say that they fare better
        ((1000, 0), (1000, 1000), True),
    ],
)
def test_who_fares_better(
    own: tuple[int, int], requested: tuple[int, int], late: bool, field: int
) -> None:
    assert (kind(finding(), window(own, requested, field)) == "replies") == late


@pytest.mark.parametrize(
    ("component", "of", "late"),
    [
        (LATE, "nic", True), ("h3", "host", False), (f"leaf1->{LATE}", "link", True),
        (f"{LATE}->leaf1", "link", True), (f"leaf1--{LATE}", "cable", True),
        ("leaf1->spine0", "link", False), ("leaf1", "leaf", False), (OTHER, "nic", False),
        (LATE, "clock", False),
    ],
)  # fmt: skip
def test_only_what_is_at_a_hosts_edge_can_be_its_lateness(
    component: str, of: str, late: bool
) -> None:
    seen = window((1000, 0), (1000, 50))
    (reported,) = reclassify_slow_hosts(
        (finding(component, of),), FlowEnds.of(FLOWS), [seen], at_once(seen)
    )
    if component == "h3":
        assert reported.component == "replies of h3"
    else:
        assert (reported.kind == "replies") == late


def test_delays_and_windows_that_nobody_counted_stay_as_they_are() -> None:
    seen = window((1000, 0), (1000, 50))
    assert kind(finding(loss=0.0), seen) == "nic"
    assert kind(finding(window="60s"), seen) == "nic"
    two = finding(), finding(OTHER)
    both = reclassify_slow_hosts(two, FlowEnds.of(FLOWS), [seen], at_once(seen))
    assert [each.kind for each in both] == ["replies", "nic"]


RAILS = [
    Way("h3/rail0", "h0/rail0", 1, 1), Way("h0/rail0", "h3/rail0", 1, 1),
    Way("h3/rail1", "h0/rail1", 1, 1), Way("h0/rail1", "h3/rail1", 1, 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("own", "elsewhere", "component"),
    [
        # What the NIC sends is not reported since others' probes to it are lost.
        ((0, 0), (10, 0), "h3/rail0"),
        ((0, 0), (10, 8), "replies of h3/rail0"),  # the other NIC answers hardly better
        ((0, 0), (10, 10), "replies of h3/rail0"),  # the host stands still
        ((0, 0), (0, 0), "replies of h3/rail0"),  # nobody asks the other NIC
        # Reported, and answered: the host is late.
        ((10, 0), (10, 0), "replies of h3/rail0"),
    ],
)
def test_a_dark_nic_of_a_host_whose_rows_are_late_is_no_late_host(
    own: tuple[int, int], elsewhere: tuple[int, int], component: str
) -> None:
    """Its own probes of before the fault fare better than those of others since."""
    seconds = np.zeros((30, history.FIELDS, len(RAILS)), dtype=np.int64)
    seconds[:, history.SENT] = 10
    for flow, (sent, lost) in enumerate((own, (10, 10), own, elsewhere)):
        seconds[20:, history.SENT, flow], seconds[20:, history.UNRESOLVED, flow] = sent, lost
    for link in ("leaf1->h3/rail0", "leaf1--h3/rail0", "h3/rail0"):
        of = {">": "link", "-": "cable"}.get(link[6], "nic")
        (found,) = reclassify_slow_hosts(
            (finding(link, of, window="30s"),), FlowEnds.of(RAILS),
            [HistoryWindow("30s", 30, seconds.sum(axis=0))], lambda flows: seconds[:, :, flows],
        )  # fmt: skip
        assert found.component == component
        if component == "h3/rail0" and link != component:
            assert (found.kind, found.confidence, found.twins) == ("nic", 0.5, 1)
            assert found.odds()[:2] == ("h3/rail0 50%", f"{link} 50%")


def test_a_late_host_is_named_once() -> None:
    seen = window((1000, 0), (1000, 50))
    links = finding(f"leaf1->{LATE}", "link"), finding(f"{LATE}->leaf1", "link")
    slow = finding(f"leaf1->{LATE}", "link", loss=0.0, delay_ns=5e6)
    found = reclassify_slow_hosts((*links, slow), FlowEnds.of(FLOWS), [seen], at_once(seen))
    assert [each.component for each in found] == [f"replies of {LATE}", slow.component]


@pytest.mark.parametrize(
    ("last", "how"),
    [
        # Seconds ago that each of the NICs sent last.
        ((9, 3), Stopped.APART),
        ((60, 3), Stopped.APART),
        ((6, 3), Stopped.APART),
        ((5, 3), Stopped.TOGETHER),
        ((60, 9, 3), Stopped.APART),
        ((60, 3, 3), Stopped.TOGETHER),
        ((3, 3), Stopped.TOGETHER),
        ((1, 1), Stopped.TOGETHER),
        ((9,), Stopped.NO),
        ((9, 0), Stopped.NO),
        ((0, 0), Stopped.NO),
        ((), Stopped.NO),
    ],
)
def test_hosts_that_stop_one_after_the_other_did_not_lose_their_switch(
    last: tuple[int, ...], how: Stopped
) -> None:
    seconds = 60
    sent = np.array([[8 * (age >= ago) for ago in last] for age in range(seconds - 1, -1, -1)])
    sent = np.repeat(sent.reshape(seconds, len(last)), 2, axis=1)
    sent[:, 1::2] = 0
    nics = np.repeat(np.arange(len(last)), 2)
    assert how_stopped(sent, nics) is how


def test_hosts_share_what_is_known_of_a_switch_that_they_cannot_be_told_from() -> None:
    switch = finding("leaf1", "leaf")
    switch = msgspec.structs.replace(
        switch, confidence=0.9, alternatives=("spine0",), probabilities=(0.08,)
    )
    either = switch.with_twin(hosts_at(switch.component))
    assert (either.component, either.confidence, either.twins) == ("leaf1", 0.45, 1)
    assert either.odds() == ("leaf1 45%", "hosts at leaf1 45%", "spine0 4%")
    assert either.with_twin("spine0") == either
    alone = either.without_twin()
    assert (alone.confidence, alone.alternatives, alone.twins) == (0.9, ("spine0",), 0)
