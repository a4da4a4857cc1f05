"""Lost ranks of the past hour: what the store has is read once, then rows as they come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from tests.controller.judged import T0, Control

from syntony.alerts.observations import Observation
from syntony.controller.batches import BatchPiece
from syntony.controller.job_takeovers import LostRanks, observations
from syntony.errors import StoreError
from syntony.model import HOUR_NS, S
from syntony.wire.tables import STEP, TAKEOVER, Table


def row(at_ns: int, **values: Any) -> dict[str, Any]:
    blank = {
        "ts_ns": at_ns, "host": "h0", "job": "night", "what": "replaced", "rank": 1, "at": "h3",
        "step": 4, "generation": 1, "reason": "stopped", "worker": "w1", "stall_ns": 1,
        "sha256_before": "", "sha256": "", "spares": -1,
    }  # fmt: skip
    return blank | values


class FakeStore:
    def __init__(self, *rows: dict[str, Any]) -> None:
        self.jobs = self
        self.rows = rows
        self.asked: list[tuple[int, int]] = []
        self.fails = False

    def takeovers(self, first_ns: int, last_ns: int) -> dict[str, list[Any]]:
        self.asked.append((first_ns, last_ns))
        if self.fails:
            raise StoreError("gone")
        return {column.name: [r[column.name] for r in self.rows] for column in TAKEOVER.columns}


def lost_ranks(store: FakeStore) -> LostRanks:
    return LostRanks(store)  # type: ignore[arg-type]  # what it asks for is there


def seen(lost: LostRanks, now_ns: int) -> list[Observation]:
    found = lost.observations(now_ns)
    assert found is not None
    return found


def piece(rows: list[dict[str, Any]], table: Table = TAKEOVER) -> BatchPiece:
    batch = pa.RecordBatch.from_pylist(rows)
    return SimpleNamespace(table=table, rows=batch)  # type: ignore[return-value]


def test_the_store_is_asked_once_and_what_comes_twice_counts_once() -> None:
    store = FakeStore(row(T0, rank=1), row(T0 - S, rank=2))
    lost = lost_ranks(store)
    lost.put([piece([row(T0, rank=1), row(T0 + S, rank=3)])])
    for _ in range(3):
        (found,) = seen(lost, T0 + 2 * S)
        assert (found.subject, found.value) == ("h3", 3.0)
        assert [line.split(",")[0] for line in found.evidence] == [
            "night: rank 3", "night: rank 1", "night: rank 2",
        ]  # fmt: skip
    assert store.asked == [(T0 + 2 * S - HOUR_NS, T0 + 3 * S)]


def test_rows_are_forgotten_after_an_hour() -> None:
    lost = lost_ranks(FakeStore())
    lost.put([piece([row(T0)]), piece([row(T0 + 60 * S)])])
    assert [each.value for each in seen(lost, T0 + HOUR_NS)] == [2.0]
    assert [each.value for each in seen(lost, T0 + HOUR_NS + S)] == [1.0]
    assert seen(lost, T0 + HOUR_NS + 61 * S) == []


def test_a_store_that_fails_is_asked_again() -> None:
    store = FakeStore(row(T0))
    store.fails = True
    lost = lost_ranks(store)
    assert lost.observations(T0) is None
    store.fails = False
    assert [each.value for each in seen(lost, T0)] == [1.0]


def test_other_tables_are_nothing_of_it() -> None:
    lost = lost_ranks(FakeStore())
    lost.put([piece([row(T0)], STEP)])
    assert seen(lost, T0) == []


LATE_ROW = {"what": "straggler", "reason": "all others wait for rank 1 30% of the time, for 60 s"}


def test_late_ranks_are_an_incident_of_their_host_until_they_no_longer_are(
    control: Control,
) -> None:
    told = [row(T0 + 3 * S, **LATE_ROW), row(T0 + 2 * S, rank=2, **LATE_ROW), row(T0, **LATE_ROW)]
    (found,) = observations(told)
    assert (found.metric, found.subject, found.value) == ("ranks_late", "h3", 2.0)
    assert found.evidence[0] == "night: all others wait for rank 1 30% of the time, for 60 s"
    control.slas = control.slas._replace(lost_ranks=[found])
    control.tick(9)
    assert [subject for subject in control.live() if "h3" in subject]
    for end in ("no-straggler", "ended", "checkpoint"):
        over = observations([row(T0 + 4 * S, what=end), *told])
        assert "ranks_late" not in [each.metric for each in over]
        (other,) = observations([row(T0 + 4 * S, what="no-straggler", job="day"), *told])
        assert other.value == 2.0


def test_a_rank_that_could_not_be_replaced_is_an_incident(control: Control) -> None:
    ended = observations([row(T0, what="ended", reason="no spare is left")])
    control.slas = control.slas._replace(lost_ranks=ended)
    control.tick(9)
    assert [page for page in control.pages() if "night" in page]
    control.slas = control.slas._replace(lost_ranks=[])
    control.tick(60)
    assert not [subject for subject in control.live() if "night" in subject]
