"""What localisation reads and writes: flows' seconds, learnt paths, findings."""

from __future__ import annotations

import pytest
from tests.store.rows import T0, fill, heard, probed, rows_of

from syntony.model import S
from syntony.store import Store
from syntony.wire.tables import FINDING, PATH

FOUND = {
    "ts_ns": T0,
    "component": "leaf0->spine1",
    "kind": "link",
    "fault": "loss",
    "loss": 0.02,
    "confidence": 0.97,
    "span": "10s",
    "explains": 12.0,
    "paths": 7,
    "alternatives": "leaf0--spine1, clock of h3",
}


def test_flows_come_by_direction_port_and_second(store: Store) -> None:
    reply = {**probed("b/n", "a/n", 1), "prober": "a/n", "lost": 3}
    fill(store, [probed("a/n", "b/n", 1), reply], [heard("a/n", "b/n", 1, 38)])
    rows = {(row.src, row.dst): row for row in store.fabric.flow_seconds(T0, T0 + 2 * S)}
    assert rows["a/n", "b/n"].prober == "a/n"
    assert (rows["b/n", "a/n"].sent, rows["b/n", "a/n"].lost) == (40, 3)
    assert {row.second for row in rows.values()} == {T0 // S + 1}
    assert rows["a/n", "b/n"].owd_p50_ns == 2000
    assert store.fabric.heard(T0, T0 + 2 * S) == {("a/n", "b/n", T0 // S + 1): 38}
    assert store.fabric.flow_seconds(T0, T0 + S) == ()


def test_paths_come_oldest_first(store: Store) -> None:
    rows = [
        {"ts_ns": T0 + at, "src": "a/n", "dst": "b/n", "sport": 61000, "dport": 8620, "hops": hops}
        for at, hops in ((2, "x * z"), (1, "x"))
    ]
    store.insert(PATH, rows_of(PATH, rows))
    assert [row.hops for row in store.fabric.learnt_paths(T0, T0 + S)] == ["x", "x * z"]


def test_a_finding_comes_back_as_it_was(store: Store) -> None:
    store.insert(FINDING, rows_of(FINDING, [FOUND]))
    ((at_ns, found),) = store.fabric.findings(T0, T0 + S)
    assert at_ns == T0
    assert found.component == "leaf0->spine1"
    assert found.loss == pytest.approx(0.02)
    assert found.alternatives == ("leaf0--spine1", "clock of h3")
    assert (found.window, found.paths) == ("10s", 7)
