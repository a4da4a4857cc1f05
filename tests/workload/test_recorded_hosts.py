"""From rows of the store to bundles: hosts, clocks, ports, probes and slots."""

from __future__ import annotations

import math
import random

from tests.workload.stored_rows import SEED, T0, Rows, bundle, flow, process, record

from syntony.model import MS, S
from syntony.wire.tables import CLOCK, JOB_FLOW, JOB_PROCESS, LINK_EVENT, LINK_PORT, PROBE, STEP
from syntony.workload import FaultClass, diagnose
from syntony.workload.gpu_rows import SLOT


def test_hosts_wait_for_all_their_processes_and_know_their_clock() -> None:
    rows = {
        JOB_PROCESS.name: [
            process("h0", 0, 10, runq_ns=5 * MS, cpu_ns=30 * MS),
            process("h0", 1, 10, runq_ns=7 * MS, cpu_ns=20 * MS),
            process("h1", 2, 11, runq_ns=1 * MS),
        ],
        CLOCK.name: [
            {"ts_ns": T0 + 5 * S, "node": "h0", "state": "SYNCHRONIZED", "sigma_ns": 40.0},
            {"ts_ns": T0 + 20 * S, "node": "h0", "state": "UNKNOWN", "sigma_ns": 9.0},
        ],
    }
    # It was in doubt for a moment, and what the solution before the window said is over.
    for second, state in ((9, "UNKNOWN"), (11, "SYNCHRONIZED"), (12, "HOLDOVER")):
        moment = {"ts_ns": T0 + second * S, "node": "h0", "state": state, "sigma_ns": 1.0}
        during = rows | {CLOCK.name: [*rows[CLOCK.name], moment]}
        during[JOB_PROCESS.name] = [process("h0", 0, each) for each in (8, 10, 12)]
        states = record(during).tables["hosts"]["clk_state"]
        assert (states[0] == "UNKNOWN") == (second == 9)
        assert states[2] == {9: "UNKNOWN"}.get(second, state)
    hosts = record(rows).tables["hosts"]
    assert hosts["runq_ns"] == [12 * MS, 1 * MS]
    assert hosts["cpu_ns"] == [50 * MS, 0]
    assert hosts["clk_state"] == ["SYNCHRONIZED", None]
    assert hosts["clk_err_ns"] == [40.0, None]


def test_ports_steps_and_probes() -> None:
    rows: Rows = {
        LINK_PORT.name: [{"ts_ns": T0, "nic": "h0/rail0", "state": "active", "gbps": 100.0,
                          **dict.fromkeys(SLOT, math.nan)}],
        LINK_EVENT.name: [
            {"ts_ns": T0 + S, "nic": "h0/rail0", "kind": "carrier", "losses": 2},
            {"ts_ns": T0 + S, "nic": "h0/rail0", "kind": "module"},
        ],
        STEP.name: [{"ts_ns": T0, "rank": 1, "step": 3, "end_ns": T0 + 5, "data_ns": 2}],
        PROBE.name: [
            {"ts_ns": T0, "src": "h0/rail0", "dst": "h1/rail0", "sent": 40, "count": 40,
             "owd_p50_ns": 900, "owd_p99_ns": 1900},
            {"ts_ns": T0, "src": "h1/rail0", "dst": "h0/rail0", "sent": 40, "owd_p50_ns": 7},
        ],
    }  # fmt: skip
    tables = record(rows).tables
    assert tables["links"]["downs"] == [0, 2]
    assert (tables["links"]["up"], tables["links"]["speed_bps"]) == ([True, None], [1e11, None])
    assert (tables["steps"]["step"], tables["steps"]["data_ns"]) == ([3], [2])
    assert tables["probes"]["owd_p50_ns"] == [900, None]  # nothing was measured


def test_a_slot_is_as_it_was_at_the_last_look() -> None:
    slow = {"pcie_gts": 16.0, "pcie_max_gts": 32.0, "pcie_width": 16.0, "pcie_max_width": math.nan}
    looks = [
        (0, "h0/rail0", {}),
        (25, "h0/rail0", slow),
        (0, "h0/lo", dict.fromkeys(SLOT, math.nan)),
    ]
    usual = dict.fromkeys(SLOT, 8.0)
    rows = [{"ts_ns": T0 + at * S, "nic": nic, "state": "active", **(fields or usual)}
            for at, nic, fields in looks]  # fmt: skip
    links = record({LINK_PORT.name: rows}, seconds=60).tables["links"]
    found = [(link, (at_ns - T0) // S, gts, width) for link, at_ns, gts, width in zip(
        links["link"], links["at_ns"], links["pcie_gts"], links["pcie_width"], strict=True)
        if gts is not None]  # fmt: skip
    assert found == [
        *(("h0/rail0", at, 8.0, 8.0) for at in (0, 10, 20)),
        *(("h0/rail0", at, 16.0, 16.0) for at in (25, 35, 45, 55)),
    ]
    assert links["pcie_max_width"].count(None) == len(looks) + 4


def test_a_narrow_slot_of_a_running_job_is_named() -> None:
    """Both ways slow, a slot at half of what it could."""
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    nics = [f"h{each}/rail0" for each in range(6)]
    full = {"pcie_gts": 32.0, "pcie_max_gts": 32.0, "pcie_width": 16.0, "pcie_max_width": 16.0}
    ports = [{"ts_ns": T0 + at * S, "nic": nic, "state": "active", "gbps": 400.0, **full,
              "pcie_width": 8.0 if nic == nics[2] else 16.0}
             for at in (0, 60) for nic in nics]  # fmt: skip

    def rate_bps(*ends: str) -> float:
        return (1e8 if nics[2] in ends else 2e8) * draw.uniform(0.98, 1.02)

    flows = [flow(src, dst, at, tx_bps=rate_bps(src, dst))
             for at in range(100) for src in nics for dst in nics if src != dst]  # fmt: skip
    found = record({LINK_PORT.name: ports, JOB_FLOW.name: flows}, seconds=100)
    verdicts = diagnose(bundle(found)).verdicts
    assert [(each.fault, each.subjects) for each in verdicts] == [(FaultClass.PCIE, (nics[2],))]
