"""Stalled queue pairs become incidents of the NIC that they share, or of the pair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.controller.judged import Control
from tests.traffic.test_queue_pair_delays import end
from tests.traffic.test_queue_pair_stalls import NOW_NS, RECEIVED, SENT

from syntony.controller.incident_inputs import LatencyInputs
from syntony.controller.queue_pairs import QueuePairService
from syntony.model import S
from syntony.traffic.queue_pair_stalls import STALL_NS, StallsSeen
from syntony.wire.queue_pairs import QueuePairsReport

HOSTS = ("h0", "h1", "h2", "h3")
NICS = {f"10.0.0.{number}": f"{host}/rail0" for number, host in enumerate(HOSTS)}
ADDRESS = {nic: address for address, nic in NICS.items()}


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    made = Control(tmp_path)
    yield made
    made.close()


def look(bad: set[tuple[str, str]], *, credit: bool = True) -> StallsSeen:
    """What the controller finds where every host sends to every other one."""
    service = QueuePairService()
    for now_ns in (NOW_NS, NOW_NS + STALL_NS):
        pairs: dict[str, list[object]] = {host: [] for host in HOSTS}
        for number, (src, dst) in enumerate((a, b) for a in HOSTS for b in HOSTS if a != b):
            stuck = (src, dst) in bad
            sending = SENT if stuck else {}
            receiving = RECEIVED | ({} if credit else {"receives_posted": 5}) if stuck else {}
            ends = [(ADDRESS[f"{host}/rail0"], number + 1) for host in (src, dst)]
            pairs[src].append(end(*ends, key=f"s{number}", **sending))
            pairs[dst].append(end(*reversed(ends), key=f"r{number}", **receiving))
        for host, figures in pairs.items():
            report = QueuePairsReport(at_ns=now_ns, queue_pairs=tuple(figures))  # type: ignore[arg-type]
            service.take(host, report, now_ns)
        service.step(now_ns)
    assert service.stalls is not None
    return service.stalls


def incidents(control: Control, seen: StallsSeen) -> dict[str, list[str]]:
    """Rule and subject to the jobs of what is open after ten seconds."""
    control.slas = LatencyInputs(None, None, {}, {}, None, seen, NICS)
    control.tick(8)
    return {f"{each['rule']} {each['subject']}": each["jobs"] for each in control.live_incidents()}


@pytest.mark.parametrize(
    ("bad", "credit", "found"),
    [
        (set(), True, set()),
        ({("h0", "h2")}, True, {"queue-pair-stalled h0/rail0->h2/rail0"}),
        ({("h0", "h2")}, False, {"queue-pair-not-ready h0/rail0->h2/rail0"}),
        ({("h1", "h0"), ("h1", "h2"), ("h1", "h3"), ("h0", "h1"), ("h2", "h1"), ("h3", "h1")},
         True, {"queue-pair-stalled h1/rail0"}),
    ],
)  # fmt: skip
def test_what_stalls_is_an_incident_with_its_job(
    control: Control, bad: set[tuple[str, str]], credit: bool, found: set[str]
) -> None:
    reported = incidents(control, look(bad, credit=credit))
    assert set(reported) == found
    assert all(jobs == ["night"] for jobs in reported.values())
    assert control.pages() == list(reported)
    assert incidents(control, look(set())) == {}


def test_a_silent_host_is_told_by_its_own_rule(control: Control) -> None:
    control.silent = {"h0": 20 * S}
    assert set(incidents(control, look({("h0", "h2")}))) == {"host-silent h0"}


def test_addresses_outside_the_fleet_are_left_out(control: Control) -> None:
    seen = look({("h0", "h2")})
    control.slas = LatencyInputs(None, None, {}, {}, None, seen, {})
    control.tick(8)
    assert not control.live_incidents()


def test_the_desk_looks_while_nothing_is_paired() -> None:
    service = QueuePairService()
    assert service.stalls is None
    assert service.step(NOW_NS) is None
    assert service.stalls == StallsSeen(frozenset(), ())
