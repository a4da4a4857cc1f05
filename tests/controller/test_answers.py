"""Questions of clocks: what the store is asked for them, what is refused, errors in a lab."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from tests.controller.asking import NOBODY, answer, services_with
from tests.view.fleets import T0, line, sample

from syntony.controller.answers import CLOCK_SAMPLES, MAX_HISTORY_NS
from syntony.controller.solve import SolveLoop
from syntony.errors import UsageError
from syntony.io.clocks import SyntheticClock
from syntony.model import MS, S, SyntheticClockSpec
from syntony.wire.clocks import ClockHistory, ClockHistoryQuery, ClockTruthQuery, ClockTruths
from syntony.wire.tables import CLOCK, Table


class RecordingStore:
    """Has one sample, and remembers the question."""

    def __init__(self) -> None:
        self.requested: tuple[int, int, str, int] | None = None

    def clock_history(self, *requested: Any) -> tuple[object, ...]:
        self.requested = requested
        return (sample("h0"),)

    def first_ns(self, table: Table, first_ns: int, last_ns: int, node: str) -> int:
        assert self.requested is not None
        assert (table, first_ns, last_ns, node) == (CLOCK, *self.requested[:3])
        return T0 - 7 * S


def ask(
    query: ClockHistoryQuery, *, clocks: int = 1, now_ns: int | None = T0
) -> tuple[ClockHistory, RecordingStore]:
    solving = SolveLoop(None, bool)  # type: ignore[arg-type]  # never asked to solve
    solving.timelines = tuple(line(f"h{number}") for number in range(clocks))
    store = RecordingStore()
    found = answer(services_with(store=store, solving=solving), query, NOBODY, fleet_ns=now_ns)
    return found, store


def test_the_store_is_asked_for_the_window_that_ends_now() -> None:
    answer, store = ask(ClockHistoryQuery(node="h0", window_ns=60 * S, step_ns=2 * S))
    assert store.requested == (T0 - 60 * S, T0 + S, "h0", 2 * S)
    assert answer.samples == (sample("h0"),)
    assert answer.first_ns == T0 - 7 * S


def test_steps_are_as_long_as_an_answer_needs() -> None:
    assert ask(ClockHistoryQuery(window_ns=60 * S))[0].step_ns == MS
    day_ns = 24 * 3600 * S
    answer, _ = ask(ClockHistoryQuery(window_ns=day_ns, step_ns=S), clocks=1000)
    assert answer.step_ns * CLOCK_SAMPLES >= 1000 * day_ns
    assert ask(ClockHistoryQuery(node="h0", window_ns=day_ns), clocks=1000)[0].step_ns < 2 * S


def test_before_any_fleet_time_the_window_is_before_all_rows() -> None:
    _, store = ask(ClockHistoryQuery(window_ns=60 * S), now_ns=None)
    assert store.requested is not None
    assert store.requested[:2] == (-60 * S, S)


@pytest.mark.parametrize(
    "query",
    [
        ClockHistoryQuery(window_ns=0),
        ClockHistoryQuery(window_ns=MAX_HISTORY_NS + 1),
        ClockHistoryQuery(step_ns=-1),
    ],
)
def test_windows_and_steps_that_cannot_be_are_refused(query: ClockHistoryQuery) -> None:
    with pytest.raises(UsageError):
        ask(query)


def test_errors_against_the_truth_where_it_is_known() -> None:
    """A lab's clocks, and timelines that are right but for 700 ns of one of three."""
    spec = SyntheticClockSpec(base_ns=time.time_ns() - S, offset_ns=5 * MS)  # noqa: TID251
    hosts = ("h0", "h1", "h2")
    solving = SolveLoop(None, bool, [SyntheticClock(host, spec) for host in hosts])  # type: ignore[arg-type]
    solving.timelines = tuple(
        msgspec.structs.replace(
            line(host), ref_ns=spec.base_ns, offset_ns=-5.0 * MS - (700 if host == "h1" else 0),
            drift_ppb=0.0,
        )
        for host in hosts
    )  # fmt: skip
    services = services_with(solving=solving)
    found = answer(services, ClockTruthQuery(), NOBODY, fleet_ns=T0)
    assert {each.host: each.error_ns for each in found.clocks} == {"h0": 0, "h1": 700, "h2": 0}
    solving.true = ()
    assert answer(services, ClockTruthQuery(), NOBODY, fleet_ns=T0) == ClockTruths(clocks=())
