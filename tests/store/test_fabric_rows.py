"""What localisation reads and writes: learnt paths, findings."""

from __future__ import annotations

import pytest
from tests.store.rows import T0, rows_of

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
    "probabilities": "0.25, 0.01",
    "twins": 1,
}


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
    assert (found.probabilities, found.twins) == ((0.25, 0.01), 1)
    assert (found.window, found.paths) == ("10s", 7)
