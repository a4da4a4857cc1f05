"""RDMA queue pairs of a job: from rows as the controller stores them to verdicts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.store.rows import rows_of
from tests.workload.stored_rows import T0, arrow, columns, flow, process

from syntony.io.bundle_files import bundle_from_tables, read_bundle, write_bundle
from syntony.model import S
from syntony.store import open_store
from syntony.wire.tables import CLOCK, JOB_FLOW, JOB_PROCESS, LINK_PORT, PROBE, QUEUE_PAIR, TABLES
from syntony.workload import FaultClass, diagnose
from syntony.workload.recorded import SETTLE_NS, RecordedBundle, recorded

SEED = random.randrange(1 << 32)
SECONDS = 60
Row = dict[str, Any]


def pair(src: int, dst: int, second: int, **fields: Any) -> Row:
    """A second of the queue pair of two hosts, as `QueuePairService` stores it."""
    sent = 100 * (second + 1)
    return {
        "ts_ns": T0 + second * S, "src": f"h{src}", "dst": f"h{dst}", "job": "night",
        "device": f"mlx5_{src}", "local": f"10.0.0.{src}", "number": 100 + dst,
        "remote": f"10.0.0.{dst}", "peer_number": 100 + src, "count": 16, "owd_min_ns": 4_000,
        "owd_p50_ns": 5_000, "owd_max_ns": 9_000, "sent": sent, "bytes_posted": sent * 1_000_000,
        "errors": 0, **fields,
    }  # fmt: skip


def job(draw: random.Random, hosts: int, slow: tuple[int, int] | None = None) -> dict[str, Any]:
    """All to all; the queue pair `slow` waits 100 µs and more from the middle on."""
    seconds, onset = range(SECONDS), SECONDS // 2
    late_ns = draw.randrange(100_000, 500_000)
    return {
        JOB_PROCESS.name: [process(f"h{host}", host, second) for host in range(hosts)
                           for second in seconds],
        QUEUE_PAIR.name: [
            pair(src, dst, second, owd_p50_ns=round(draw.gauss(5_000, 100))
                 + (late_ns if (src, dst) == slow and second >= onset else 0))
            for src in range(hosts) for dst in range(hosts) if src != dst for second in seconds],
        LINK_PORT.name: [
            {"ts_ns": T0 + S, "nic": f"h{host}/roce0", "rdma": f"mlx5_{host}:1", "state": "active"}
            for host in range(hosts)],
    }  # fmt: skip


def record(rows: dict[str, Any]) -> RecordedBundle:
    last_ns = T0 + SECONDS * S
    return recorded("night", columns(rows), T0, last_ns, last_ns + 2 * SETTLE_NS)


def named(found: RecordedBundle) -> list[tuple[str, tuple[str, ...]]]:
    verdicts = diagnose(bundle_from_tables(arrow(found), found.manifest)).verdicts
    return [(each.fault, each.subjects) for each in verdicts]


@pytest.mark.parametrize("faulty", [True, False])
def test_a_slow_queue_pair_is_named_by_a_recording_of_the_store(
    tmp_path: Path, faulty: bool
) -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    hosts = draw.randrange(4, 8)
    src, dst = draw.sample(range(hosts), 2)
    rows = job(draw, hosts, (src, dst) if faulty else None)
    other = pair(0, 1, 3) | {"job": "day", "device": "mlx5_9", "number": 7}
    unused = [
        {"ts_ns": T0 + S, "nic": nic, "rdma": rdma}
        for nic, rdma in (("h0/roce9", "mlx5_9:1"), ("h99/roce0", "mlx5_0:1"))
    ]
    store = open_store(str(tmp_path / "store"))
    try:
        for name, some in rows.items():
            more = {QUEUE_PAIR.name: [other], LINK_PORT.name: unused}.get(name, [])
            store.insert(TABLES[name], rows_of(TABLES[name], some + more))
        last_ns = T0 + SECONDS * S
        stored = store.jobs.recording("night", T0, last_ns)
    finally:
        store.close()
    assert sorted(stored[LINK_PORT.name]["nic"]) == [f"h{each}/roce0" for each in range(hosts)]
    found = recorded("night", stored, T0, last_ns, last_ns + 2 * SETTLE_NS)
    assert set(found.tables["flows"]["proto"]) == {"rc"}
    write_bundle(tmp_path / "bundle", arrow(found), found.manifest)
    verdicts = diagnose(read_bundle(tmp_path / "bundle")).verdicts
    name = f"h{src}/roce0:{100 + dst}>h{dst}/roce0:{100 + src}"
    wanted = [(FaultClass.SLOW_FLOW, (name,))] if faulty else []
    assert [(each.fault, each.subjects) for each in verdicts] == wanted


def test_what_a_second_sent_is_the_difference_to_the_row_before() -> None:
    rows = [pair(0, 1, 0), pair(0, 1, 1), pair(0, 1, 5, errors=2),
            pair(0, 1, 6, sent=1, bytes_posted=8, errors=0), pair(0, 1, 7)]  # fmt: skip
    found = record({QUEUE_PAIR.name: rows}).tables["flows"]
    assert found["rate_bps"] == [None, 8e8, 8e8, None, pytest.approx(8 * (8e8 - 8))]
    assert found["bytes"][:3] == [None, 1e8, 1e8]
    assert found["cqe_errors"] == [None, 0, 2, None, 0]
    assert set(found["window_ns"]) == {S}
    assert found["owd_p50_ns"] == [5_000] * 5


def test_a_device_without_a_port_and_an_end_that_sends_nothing() -> None:
    """A device with two ports, and one of which no port is known, keep the device's name."""
    ports = [{"ts_ns": T0, "nic": f"h0/ib{each}", "rdma": f"mlx5_0:{each}"} for each in (1, 2)]
    rows = [pair(0, 1, second) for second in (1, 2)] + [pair(2, 3, second) for second in (1, 2)]
    found = record({QUEUE_PAIR.name: rows, LINK_PORT.name: ports}).tables["flows"]
    assert set(found["src"]) == {"h0/mlx5_0", "h2/mlx5_2"}
    assert set(found["dst"]) == {"h1/10.0.0.1", "h3/10.0.0.3"}


def test_clocks_of_both_ends_are_behind_a_delay() -> None:
    clocks = [{"ts_ns": T0, "node": f"h{host}", "state": "SYNCHRONIZED", "sigma_ns": sigma_ns}
              for host, sigma_ns in ((0, 300.0), (1, 400.0))]  # fmt: skip
    rows = {QUEUE_PAIR.name: [pair(0, 1, 1), pair(2, 1, 1)], CLOCK.name: clocks}
    found = record(rows).tables["flows"]
    assert found["clk_err_ns"] == [pytest.approx(500 / 2**0.5), None]


def test_connections_that_only_control_a_job_over_queue_pairs_are_left_out() -> None:
    rows = {
        QUEUE_PAIR.name: [pair(0, 1, second) for second in range(5)]
        + [pair(1, 0, second, bytes_posted=second) for second in range(5)],
        JOB_FLOW.name: [flow("h0/eth0", "h1/eth0", second, tx_bps=1e5) for second in range(5)],
    }
    found = record(rows).tables["flows"]
    assert set(found["src"]) == {"h0/mlx5_0"}
    assert set(found["proto"]) == {"rc"}


def test_delays_of_messages_prove_no_other_class_of_traffic() -> None:
    """A message takes longer than a probe: it is longer, and its class is not known."""
    rows = job(random.Random(1), 3)
    probe = {"sent": 40, "count": 40, "owd_p50_ns": 300, "owd_p99_ns": 400, "dscp": 26}
    rows[PROBE.name] = [
        {"ts_ns": T0 + second * S, "src": f"h{src}/roce0", "dst": f"h{dst}/roce0"} | probe
        for src in range(3) for dst in range(3) if src != dst for second in range(SECONDS)
    ]  # fmt: skip
    assert named(record(rows)) == []
