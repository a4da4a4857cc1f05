"""How soon somebody must look follows from what a loss hurts: who crosses the part, how much."""

from __future__ import annotations

import random
from collections import UserDict
from collections.abc import ItemsView

import pytest
from tests.controller.judged import Control, finding, port

from syntony.alerts.incidents import ChangeKind
from syntony.alerts.observations import Observation
from syntony.controller.impact import with_impact
from syntony.controller.incident_inputs import LatencyInputs
from syntony.fabric.names import pairs_across

SPINES = 4


def fabric(hosts: int) -> dict[str, frozenset[str]]:
    """Two hosts at each leaf, every leaf at every spine, what the paths of each pair cross."""
    found = {}
    for a in range(hosts):
        for b in range(hosts):
            if a // 2 == b // 2:
                continue
            ways = [
                part
                for spine in range(SPINES)
                for part in (f"leaf{a // 2}->spine{spine}", f"spine{spine}->leaf{b // 2}")
            ]
            ends = [f"h{a}/rail0", f"leaf{a // 2}", f"leaf{b // 2}", f"h{b}/rail0"]
            found[f"h{a}/rail0->h{b}/rail0"] = frozenset((*ways, *ends))
    return found


def severity(
    control: Control, loss: float, jobs: dict[str, frozenset[tuple[str, str]]], hosts: int = 16
) -> str:
    control.slas = LatencyInputs(None, None, fabric(hosts), jobs)
    control.findings = (finding("leaf0->spine0", "link", loss=loss),)
    control.tick(5)
    (found,) = control.live_incidents()
    return str(found["severity"])


USES = {"train": frozenset({("h0/rail0", "h9/rail0")})}
ELSEWHERE = {"train": frozenset({("h8/rail0", "h9/rail0")})}


@pytest.mark.parametrize(
    ("loss", "jobs", "expected"),
    [
        (1.0, {}, "critical"),
        (0.02, {}, "critical"),
        (0.004, {}, "warning"),
        (0.004, USES, "critical"),
        (0.004, ELSEWHERE, "warning"),
        (1.0, ELSEWHERE, "critical"),
        (0.000_02, USES, "critical"),
        (0.000_005, USES, "warning"),
    ],
)
def test_a_link_that_carries_an_eighth(
    control: Control, loss: float, jobs: dict[str, frozenset[tuple[str, str]]], expected: str
) -> None:
    assert severity(control, loss, jobs) == expected


def test_the_same_loss_in_a_larger_fabric_hurts_less(control: Control) -> None:
    assert severity(control, 0.02, {}, hosts=16) == "critical"
    other = Control(control.state.parent / "other")
    try:
        assert severity(other, 0.02, {}, hosts=64) == "warning"
    finally:
        other.close()


def test_it_says_what_it_hurts(control: Control) -> None:
    severity(control, 0.5, ELSEWHERE)
    (found,) = control.live_incidents()
    assert "crossed by 28 of 224 pairs of NICs (12%), of 16 hosts" in found["evidence"]
    assert "no job that tells of its connections uses it" in found["evidence"]


def test_what_becomes_worse_pages_again_and_never_less(control: Control) -> None:
    """A receiver of critical pages alone must hear of it; one who knows is reported once."""
    rng = random.Random(1)
    severity(control, 0.003, {})
    assert len(control.pages()) == 1
    control.findings = (finding("leaf0->spine0", "link", loss=0.9),)
    control.tick(5)
    assert len(control.pages()) == 2
    for _ in range(10):
        control.findings = (finding("leaf0->spine0", "link", loss=rng.choice([0.9, 0.003])),)
        control.tick()
    assert len(control.pages()) == 2
    (found,) = control.live_incidents()
    assert found["severity"] == "critical"
    control.findings = ()
    control.tick(40)
    kinds = [change.kind for change in control.changes]
    assert kinds.count(ChangeKind.CLEAR) == 1
    # It begins again small.
    control.findings = (finding("leaf0->spine0", "link", loss=0.003),)
    control.tick(5)
    assert [each["severity"] for each in control.live_incidents()] == ["warning"]


class _Counted(UserDict[str, frozenset[str]]):
    """A fleet has millions of pairs."""

    scans = 0

    def items(self) -> ItemsView[str, frozenset[str]]:
        self.scans += 1
        return super().items()


@pytest.mark.parametrize("busy", [False, True])
def test_pairs_are_gone_through_once_and_only_if_their_number_counts(
    control: Control, busy: bool
) -> None:
    crossing = _Counted(fabric(8))
    control.slas = LatencyInputs(None, None, crossing, {})
    if busy:
        control.store.links.seen = (port("h0/rail0", tx_bps=3e11),)
    late = {"fault": "delay", "loss": 0.0, "delay_ns": 200_000.0}
    control.findings = (finding("leaf0->spine0", "link", **late),)
    control.tick()
    assert crossing.scans == busy
    more = (finding(f"leaf0->spine{number}", "link", loss=0.3) for number in range(1, 5))
    control.findings += tuple(more)
    control.tick()
    assert crossing.scans == busy + 1


@pytest.mark.parametrize("known", [True, False])
def test_that_no_job_is_hurt_is_said_where_jobs_tell(known: bool) -> None:
    seen = Observation("link_loss", "leaf0->spine0", 0.5)
    (reported,) = with_impact([seen], pairs_across([seen.subject], fabric(8)), 8, jobs_known=known)
    assert any("no job" in line for line in reported.evidence) is known
