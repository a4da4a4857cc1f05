"""Percentiles by pair, host, rail and job."""

from __future__ import annotations

from typing import Any

from tests.store.rows import T0, fill, probed

from syntony.model import S
from syntony.store import Store


def test_groups(store: Store) -> None:
    slow: dict[str, Any] = {
        "owd_min_ns": 100_000, "owd_p50_ns": 200_000, "owd_p90_ns": 300_000, "owd_p99_ns": 400_000,
        "owd_max_ns": 500_000, "clk_err_ns": 70.0,
    }  # fmt: skip
    fill(
        store,
        [
            probed("h0/r0", "h1/r0"),
            probed("h0/r0", "h1/r0", 1, lost=2, count=38),
            probed("h0/r1", "h1/r1", **slow),
            probed("h1/r1", "h0/r1", count=0, owd_p50_ns=0),
        ],
    )
    window = (T0, T0 + 10 * S)
    pairs = store.pair_latencies(*window)
    assert set(pairs) == {"h0/r0->h1/r0", "h0/r1->h1/r1", "h1/r1->h0/r1"}
    fast = pairs["h0/r0->h1/r0"]
    assert (fast.sent, fast.lost, fast.measured) == (80, 2, 78)
    assert (fast.p50_ns, fast.p90_ns, fast.p99_ns, fast.clk_err_ns) == (2000, 3000, 4000, 50)
    assert pairs["h1/r1->h0/r1"].p50_ns is None
    hosts = store.latency.by("host", *window)
    assert set(hosts) == {"h0->h1", "h1->h0"}
    assert hosts["h0->h1"].measured == 118
    assert hosts["h0->h1"].p99_ns == 400_000
    assert hosts["h0->h1"].clk_err_ns == 70
    assert set(store.latency.by("rail", *window)) == {"r0->r0", "r1->r1"}
    job = store.latency.of_pairs({("h0/r1", "h1/r1"), ("h9/r1", "it's")}, *window)
    assert (job.measured, job.p50_ns) == (40, 200_000)
    assert store.latency.of_pairs((), *window).sent == 0
    assert store.pair_latencies(T0 + 20 * S, T0 + 30 * S) == {}
