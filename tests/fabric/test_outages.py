"""The death of a switch that lost packets and has answered nobody since."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import pytest

from syntony.fabric.book import Way
from syntony.fabric.departures import ENOUGH, RECENT_NS
from syntony.fabric.outages import KEPT_NS, LOST_SHARE, Outages, losing
from syntony.model import S
from syntony.model.findings import Finding

LOST_NS, OVER_NS = 1_000 * S, 1_001 * S
SILENT_NS, NOW_NS = OVER_NS + S, OVER_NS + 5 * S
WAYS = [
    Way(f"h{a}/rail0", f"h{b}/rail0", 61_000 + port, 8620)
    for a, b in itertools.permutations(range(3), 2)
    for port in range(ENOUGH // 3)
]
OTHER = ("leaf0", None, "leaf1")


def outage(suspects: Sequence[str] = ("spine0",)) -> Outages:
    outages = Outages()
    outages.found(suspects, LOST_NS, OVER_NS)
    return outages


def traced(
    outages: Outages,
    ways: Iterable[Way],
    hops: Sequence[str | None] = OTHER,
    at_ns: int = SILENT_NS,
) -> None:
    for way in ways:
        outages.traced(way, (way.src, "leaf0", "spine0", "leaf1"), (way.src, *hops), at_ns)


def down(
    outages: Outages, answered_ns: int = LOST_NS - S, now_ns: int = NOW_NS
) -> dict[str, tuple[str, ...]]:
    return outages.down({"spine0": answered_ns, "spine1": NOW_NS}, now_ns)


@pytest.mark.parametrize("hops", [OTHER, ("leaf0", "spine1", "leaf1")])
def test_a_switch_that_lost_packets_and_answers_nobody_since_is_down(
    hops: Sequence[str | None],
) -> None:
    """Whether its paths are traced elsewhere, or are silent."""
    outages = outage()
    traced(outages, WAYS[:ENOUGH], hops)
    assert down(outages) == {"spine0": ()}
    assert down(outages, SILENT_NS) == {}, "it answered since"
    assert down(outages, OVER_NS + 1) == {}, "it fell silent later"
    assert down(outages, OVER_NS) == {"spine0": ()}


def test_the_cables_that_may_be_the_cause_are_named_with_it() -> None:
    outages = outage(("leaf1--spine0", "leaf0--spine0", "spine0", "spine1", "leaf0--spine1"))
    traced(outages, WAYS)
    assert down(outages) == {"spine0": ("leaf0--spine0", "leaf1--spine0")}


def test_silence_without_losses_or_long_before_them_is_no_death() -> None:
    outages = Outages()
    traced(outages, WAYS)
    outages.found(("leaf0--spine0",), LOST_NS, OVER_NS)
    traced(outages, WAYS)
    assert down(outages) == {}
    outages = outage()
    traced(outages, WAYS)
    assert down(outages, LOST_NS - RECENT_NS - 1) == {}
    assert down(outages, LOST_NS - RECENT_NS) == {"spine0": ()}


def test_few_paths_or_one_sender_show_nothing() -> None:
    outages = outage()
    traced(outages, WAYS[: ENOUGH - 1])
    assert down(outages) == {}
    outages = outage()
    alone = [way._replace(src="h0/rail0", sport=61_000 + n) for n, way in enumerate(WAYS)]
    traced(outages, alone)
    assert down(outages) == {}
    traced(outages, WAYS[-1:])
    assert down(outages) == {"spine0": ()}


def test_traces_that_end_before_it_or_began_before_its_losses_do_not_count() -> None:
    outages = outage()
    traced(outages, WAYS, at_ns=LOST_NS)
    assert down(outages) == {}
    traced(outages, WAYS, ("leaf0", None, None))
    traced(outages, WAYS, ("leaf0",))
    assert down(outages) == {}
    traced(outages, WAYS)
    assert down(outages) == {"spine0": ()}


def test_losses_count_while_the_silence_may_be_of_the_same_cause() -> None:
    outages = outage()
    traced(outages, WAYS)
    assert down(outages, now_ns=OVER_NS + KEPT_NS - 1) == {"spine0": ()}
    assert down(outages, now_ns=OVER_NS + KEPT_NS) == {}
    assert down(outages) == {}, "forgotten"


def test_losses_that_last_move_with_time() -> None:
    outages = outage()
    later_ns = OVER_NS + 40 * S
    outages.found(("spine0",), later_ns - S, later_ns)
    traced(outages, WAYS, at_ns=later_ns + S)
    assert down(outages, later_ns - S, later_ns + KEPT_NS - 1) == {"spine0": ()}


def test_what_loses_little_or_is_found_over_long_windows_only_is_not_dying() -> None:
    def finding(loss: float, window: str) -> Finding:
        return Finding(
            component="spine0", kind="spine", fault="loss", loss=loss, delay_ns=0.0, confidence=1.0,
            window=window, explains=90.0, paths=4, alternatives=(),
        )  # fmt: skip

    short, long = finding(LOST_SHARE, "3s"), finding(1.0, "60s")
    assert [*losing((short, long, finding(LOST_SHARE / 2, "1s")))] == [(short, 3 * S)]
    outages = Outages()
    outages.found(("spine9",), 0, S)
    assert outages.down({}, 2 * S) == {}, "one that no path is known to cross"
