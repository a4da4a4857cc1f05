"""Which of an agent's rows it tells at once: its own direction, known peers, what was measured."""

from __future__ import annotations

import numpy as np

from syntony.agent.delays import recent_delays
from syntony.mesh.stats import Columns
from syntony.model import S

ROWS = [
    # ts, src, dst, prober, sport, count
    (2, "h0/rail0", "h2/rail0", "h0/rail0", 61_000, 2),
    (2, "h0/rail0", "h2/rail0", "h0/rail0", 61_001, 0),
    (2, "h2/rail0", "h0/rail0", "h0/rail0", 61_000, 2),
    (2, "h0/rail1", "h2/rail1", "h0/rail1", 61_000, 2),
    (2, "h0/rail0", "h9/rail0", "h0/rail0", 61_000, 2),
]


def columns() -> Columns:
    ts, src, dst, prober, sport, count = zip(*ROWS, strict=True)
    number = np.arange(len(ROWS))
    return {
        "ts_ns": np.array(ts) * S, "src": src, "dst": dst, "prober": prober,
        "sport": np.array(sport), "count": np.array(count), "owd_min_ns": 10 + number,
        "owd_p50_ns": 20 + number, "owd_p99_ns": 30 + number,
    }  # fmt: skip


def test_what_we_send_to_known_peers() -> None:
    found = recent_delays(columns(), "h0", {"h2/rail0", "h2/rail1"}, 3 * S)
    reported = [(each.nic, each.dst, each.sport, each.at_ns // S) for each in found]
    assert reported == [("rail0", "h2/rail0", 61_000, 3), ("rail1", "h2/rail1", 61_000, 3)]
    assert (found[0].least_ns, found[0].p50_ns, found[0].p99_ns) == (10, 20, 30)
    assert not recent_delays(columns(), "h2", {"h0/rail0"}, 3 * S)
    assert not recent_delays(columns(), "h0", (), 3 * S)
