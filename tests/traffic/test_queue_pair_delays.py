"""Which generations of queue pairs belong together, and what is said where none do."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from syntony.model import MS, US, S
from syntony.traffic.queue_pair_delays import QueuePairDelays
from syntony.traffic.queue_pair_page import STAMP_RECORD
from syntony.wire.queue_pairs import (
    MAX_STAMPS,
    OneWay,
    QueuePairFigures,
    QueuePairsReport,
)

NOW_NS = 10_000 * S
SENT = range(5)
A, B = ("10.0.0.1", 17), ("10.0.0.2", 18)
"""Address and number of the two ends."""


def stamps(first_ns: int, numbers: range = SENT, length: int = 64) -> bytes:
    """Of messages 1 ms apart, message 0 at `first_ns`."""
    reported = np.zeros(len(numbers), STAMP_RECORD)
    reported["number"] = np.array(numbers)
    reported["at_ns"] = first_ns + np.array(numbers) * MS
    reported["value"] = length
    return reported.tobytes()


def end(of: tuple[str, int] = A, to: tuple[str, int] = B, **changed: Any) -> QueuePairFigures:
    figures = QueuePairFigures(
        job="night", program="train", pid=7, uid=1000, key="7:1:1", device="mlx5_0", type="rc",
        failed=False, number=of[1], peer_number=to[1], local=of[0], remote=to[0], send_psn=0,
        receive_psn=0, flags=0, began_ns=NOW_NS - S, first_sent_ns=0, sent=0, unannounced=0,
        bytes_posted=0, signaled=0, completed=0, received=0, bytes_received=0, receives_posted=0,
        errors=0, first_error=0,
    )  # fmt: skip
    return msgspec.structs.replace(figures, **changed)


def sender(**changed: Any) -> QueuePairFigures:
    fields: dict[str, Any] = {
        "first_sent_ns": NOW_NS,
        "sent": 5,
        "sent_stamps": stamps(NOW_NS),
    } | changed
    return end(**fields)


def receiver(late_ns: int = 300 * US, **changed: Any) -> QueuePairFigures:
    return end(B, A, **{"received_stamps": stamps(NOW_NS + late_ns)} | changed)


def report(
    *each: QueuePairFigures, at_ns: int = NOW_NS + S, bound_ns: int = 20 * US
) -> QueuePairsReport:
    return QueuePairsReport(at_ns=at_ns, queue_pairs=each, bound_ns=bound_ns)


def paired(*reported: tuple[str, QueuePairsReport]) -> QueuePairDelays:
    delays = QueuePairDelays()
    for host, each in reported:
        delays.take(host, each)
    delays.step(NOW_NS + S)
    return delays


def said(delays: QueuePairDelays, figures: QueuePairFigures, host: str = "h0") -> OneWay | str:
    return delays.delay(host, figures, NOW_NS + S)[0]


def test_messages_of_both_ends_are_paired() -> None:
    delays = paired(("h0", report(sender())), ("h1", report(receiver())))
    found, peer = delays.delay("h0", sender(), NOW_NS + S)
    assert isinstance(found, OneWay)
    assert (found.count, found.min_ns, found.p50_ns, found.max_ns) == (5, *(300 * US,) * 3)
    assert peer == "h1"
    assert said(delays, end(B, A), "h1") == "it sent nothing that takes a receive"


def test_a_delay_grows_old() -> None:
    delays = paired(("h0", report(sender())), ("h1", report(receiver())))
    found, _ = delays.delay("h0", sender(), NOW_NS + 20 * S)
    assert found == "nothing was paired recently"


@pytest.mark.parametrize(
    ("mine", "peers", "why"),
    [
        ({"type": "ud"}, {}, "only reliable connections are paired"),
        ({"local": ""}, {}, "it has no global route"),
        ({"flags": 1}, {}, "several threads post to it at once"),
        ({}, {"flags": 2}, "several threads poll its peer's completion queue at once"),
        ({}, {"receive_psn": 9}, "nothing is known of the other end"),
        ({}, {"number": 19}, "nothing is known of the other end"),
        ({}, {"remote": "10.0.0.9"}, "nothing is known of the other end"),
        ({"sent": 0, "first_sent_ns": 0}, {}, "it sent nothing that takes a receive"),
    ],
)
def test_what_must_not_be_paired_is_not(
    mine: dict[str, Any], peers: dict[str, Any], why: str
) -> None:
    delays = paired(("h0", report(sender(**mine))), ("h1", report(receiver(**peers))))
    assert said(delays, sender(**mine)) == why
    assert delays.mismatches == 0


@pytest.mark.parametrize("wrong", [{"received_stamps": stamps(NOW_NS + MS, length=65)},
                                   {"late_ns": -2 * MS}])  # fmt: skip
def test_a_contradiction_ends_the_pairing_of_two_generations(wrong: dict[str, Any]) -> None:
    delays = paired(("h0", report(sender())), ("h1", report(receiver(**wrong))))
    assert delays.mismatches == 1
    assert said(delays, sender()) == "its messages do not match its peer's"
    later: dict[str, Any] = {"sent_stamps": stamps(NOW_NS, range(5, 9))}
    delays.take("h0", report(sender(**later)))
    delays.take("h1", report(receiver(received_stamps=stamps(NOW_NS + MS, range(5, 9)))))
    assert delays.step(NOW_NS + S) == []
    assert delays.mismatches == 1
    # A new generation is another one.
    fresh: dict[str, Any] = {
        "key": "7:2:2",
        "began_ns": NOW_NS + S,
        "first_sent_ns": NOW_NS + 2 * S,
    }
    delays.take(
        "h0", report(sender(sent_stamps=stamps(NOW_NS + 2 * S), **fresh), at_ns=NOW_NS + 3 * S)
    )
    fresh |= {"first_sent_ns": 0, "received_stamps": stamps(NOW_NS + 2 * S + MS)}
    delays.take("h1", report(receiver(**fresh), at_ns=NOW_NS + 3 * S))
    assert len(delays.step(NOW_NS + 3 * S)) == 1
    assert delays.mismatches == 1


@pytest.mark.parametrize("bounds", [(2 * MS, 800 * US), (800 * US, 2 * MS)])
@pytest.mark.parametrize(("early_ns", "mismatches"), [(2_800_000, 0), (2_800_001, 1)])
def test_messages_seem_early_by_what_both_clocks_may_be_off(
    bounds: tuple[int, int], early_ns: int, mismatches: int
) -> None:
    delays = paired(
        ("h0", report(sender(), bound_ns=bounds[0])),
        ("h1", report(receiver(late_ns=-early_ns), bound_ns=bounds[1])),
    )
    assert delays.mismatches == mismatches
    assert isinstance(said(delays, sender()), OneWay) == (not mismatches)


def test_each_stamp_has_the_bound_of_its_report() -> None:
    """The clocks were not known well when the messages were sent and received; now they are."""
    delays = QueuePairDelays()
    delays.take("h0", report(sender(), bound_ns=3 * MS))
    delays.take("h0", report(sender(sent_stamps=b""), bound_ns=5 * US))
    delays.take("h1", report(receiver(late_ns=-2 * MS), bound_ns=5 * US))
    delays.step(NOW_NS + S)
    assert delays.mismatches == 0
    assert isinstance(said(delays, sender()), OneWay)


@pytest.mark.parametrize(("bound_ns", "key"), [(2 * MS, "7:2:2"), (400 * US, "7:1:1")])
def test_a_receiver_may_seem_ready_late_by_what_both_clocks_may_be_off(
    bound_ns: int, key: str
) -> None:
    """Of two generations of the receiver the newer seems ready 1 ms after the first message."""
    newer = receiver(key="7:2:2", began_ns=NOW_NS + MS)
    delays = QueuePairDelays()
    delays.take("h0", report(sender(), bound_ns=bound_ns))
    delays.take("h1", report(receiver(), newer, bound_ns=bound_ns))
    (end,) = delays._sending[(*A, *B, 0)].values()
    assert delays._receiver(end, delays._receiving[(*A, *B, 0)]) == ("h1", key)


def test_lengths_that_a_provider_does_not_tell_are_no_contradiction() -> None:
    unknown = receiver(flags=8, received_stamps=stamps(NOW_NS + MS, length=0))
    assert isinstance(
        said(paired(("h0", report(sender())), ("h1", report(unknown))), sender()), OneWay
    )


def test_who_claims_another_ones_numbers_spoils_only_them() -> None:
    delays = paired(
        ("h0", report(sender())),
        ("h2", report(sender(key="9:1:1", pid=9))),
        ("h1", report(receiver())),
    )
    assert said(delays, sender()) == "several queue pairs say that they are this one"
    assert delays.mismatches == 0


def test_of_generations_with_the_same_numbers_the_one_of_the_time_is_taken() -> None:
    """The receiver's second generation is reported before the sender's."""
    again: dict[str, Any] = {"key": "7:2:2", "began_ns": NOW_NS + 10 * MS, "received_stamps": b""}
    delays = paired(("h0", report(sender())), ("h1", report(receiver(), receiver(**again))))
    assert isinstance(said(delays, sender()), OneWay)
    assert delays.mismatches == 0


def test_of_generations_that_were_ready_the_newest_is_taken() -> None:
    """The receiver's generation before is still remembered, and so are its stamps."""
    old = receiver(key="7:0:0", began_ns=NOW_NS - 5 * S, received_stamps=stamps(NOW_NS - 4 * S))
    delays = paired(("h0", report(sender())), ("h1", report(old, receiver())))
    assert isinstance(said(delays, sender()), OneWay)
    assert delays.mismatches == 0


def test_a_generation_waits_for_its_peers_report() -> None:
    """The receiver's new generation has not been reported yet: only the old one is known."""
    later: dict[str, Any] = {
        "key": "7:2:2",
        "began_ns": NOW_NS + S,
        "first_sent_ns": NOW_NS + 2 * S,
    }
    fresh = sender(sent_stamps=stamps(NOW_NS + 2 * S), **later)
    delays = paired(
        ("h1", report(receiver(), at_ns=NOW_NS + S)),
        ("h0", report(fresh, at_ns=NOW_NS + 3 * S)),
    )
    assert said(delays, fresh) == "its peer has not reported since"
    assert delays.mismatches == 0


def test_stamps_that_nobody_matches_are_forgotten() -> None:
    delays = QueuePairDelays()
    for second in range(100):
        at_ns = NOW_NS + second * S
        numbers = range(1000 * second, 1000 * second + 16)
        reported = np.frombuffer(stamps(0, numbers), STAMP_RECORD).copy()
        reported["at_ns"] = at_ns
        delays.take("h0", report(sender(sent_stamps=reported.tobytes()), at_ns=at_ns))
        delays.step(at_ns)
    held = [len(each.stamps) for by_key in delays._sending.values() for each in by_key.values()]
    assert sum(held) <= 11 * MAX_STAMPS
    delays.step(NOW_NS + 200 * S)
    assert not delays._sending
