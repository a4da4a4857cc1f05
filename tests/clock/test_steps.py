"""What counts as a disruption of the local clock."""

from __future__ import annotations

import pytest

from syntony.clock.steps import READING_NS, Disruption, Moment, StepWatch
from syntony.model import MS, S

FIRST = Moment(local_ns=1000 * S, mono_ns=50 * S, boot_ns=60 * S)


def later(gone_ns: int, *, step_ns: int = 0, slept_ns: int = 0, marker: int = 0) -> Moment:
    return Moment(
        FIRST.local_ns + gone_ns + step_ns,
        FIRST.mono_ns + gone_ns,
        FIRST.boot_ns + gone_ns + slept_ns,
        marker,
    )


@pytest.mark.parametrize(
    ("now", "rate_ppb", "what"),
    [
        (later(S), 0, None),
        (later(S, step_ns=READING_NS), 0, None),
        (later(S, step_ns=40_000), 50_000, None),
        (later(S, step_ns=40_000), 0, (FIRST.local_ns + 1, 40_000)),
        (later(S, step_ns=10 * MS), 50_000, (FIRST.local_ns + 1, 10 * MS)),
        (later(S, step_ns=-10 * MS), 0, (FIRST.local_ns + 1 - 10 * MS, -10 * MS)),
        (later(S, slept_ns=S), 0, (FIRST.local_ns + 1, 0)),
        (later(S, step_ns=S, slept_ns=S), 0, (FIRST.local_ns + 1, S)),
        (later(S, marker=1), 0, (FIRST.local_ns + 1, 0)),
    ],
)
def test_disruptions(now: Moment, rate_ppb: float, what: tuple[int, int] | None) -> None:
    watch = StepWatch(rate_ppb)
    assert watch.look(FIRST) is None
    found: Disruption | None = watch.look(now)
    assert (None if found is None else found[:2]) == what
    assert watch.look(now) is None
