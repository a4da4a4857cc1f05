"""A host whose clock is UNKNOWN: the answer says so, and what compares its instants with those of
other hosts proves nothing."""

from __future__ import annotations

import numpy as np
import pytest
from tests.workload.made import MS, T0, Columns, bundle
from tests.workload.test_exceptions import MESH, WINDOWS, star

from syntony.workload import FaultClass, diagnose
from syntony.workload.facts import AROUND_NS, BundleFacts

RANKS, STEPS = 4, 40
BOTH_WAYS = sorted({*MESH, *((dst, src) for src, dst in MESH)})
OFF = 8 * MS


def hosts(state: str) -> Columns:
    """A second's state of the clocks, of which that of the second host is as given."""
    names = [f"h{each}" for each in range(RANKS)]
    return {"hosts": {
        "at_ns": [T0] * RANKS, "window_ns": [1000 * MS] * RANKS, "host": names,
        "clk_state": [state if name == "h1" else "SYNCHRONIZED" for name in names],
    }}  # fmt: skip


def operations() -> Columns:
    """Of a program that does not say when operations end; the second rank seems to come late."""
    draw = np.random.default_rng(5)
    rank, seq = np.tile(np.arange(RANKS), STEPS), np.repeat(np.arange(STEPS), RANKS)
    enqueue = T0 + seq * 100 * MS + draw.integers(0, MS, RANKS * STEPS) + OFF * (rank == 1)
    return {"collectives": {
        "comm": ["c"] * len(rank), "seq": seq, "op": ["all_reduce"] * len(rank), "rank": rank,
        "host": [f"h{each}" for each in rank], "enqueue_ns": enqueue,
    }}  # fmt: skip


def flows() -> Columns:
    """Packets to the second host seem to need longer by what those from it need less."""
    made = star(BOTH_WAYS)
    draw = np.random.default_rng(6)
    off = np.array([float(dst.startswith("h1/")) - src.startswith("h1/")
                    for src, dst in zip(*(made["flows"][end] for end in ("src", "dst")),
                                        strict=True)])  # fmt: skip
    made["flows"]["owd_p50_ns"] = 4_000 * draw.normal(1, 0.02, len(off)) + off * OFF
    return made


@pytest.mark.parametrize(
    ("made", "known"), [(operations(), FaultClass.STRAGGLER), (flows(), FaultClass.CLOCK_FAULT)]
)
def test_nothing_is_named_of_what_a_wrong_clock_makes_up(made: Columns, known: FaultClass) -> None:
    unknown = diagnose(bundle(made | hosts("UNKNOWN")))
    assert unknown.verdicts == ()
    assert "clock UNKNOWN on h1" in [each.reason for each in unknown.gaps]
    # Were the clock known, this would prove something.
    assert {each.fault for each in diagnose(bundle(made | hosts("SYNCHRONIZED"))).verdicts} == {
        known
    }


def test_a_clock_that_was_in_doubt_for_a_while_is_believed_before_and_after() -> None:
    """It stepped, and was known again within a window; something else is wrong with a flow."""
    made = flows()
    at_ns = np.asarray(made["flows"]["at_ns"])
    width_ns = int(made["flows"]["window_ns"][0])
    made["flows"]["at_ns"] = T0 + (at_ns - T0) * 1000 * MS // width_ns
    made["flows"]["window_ns"] = [1000 * MS] * len(at_ns)
    seconds = (made["flows"]["at_ns"] - T0) // (1000 * MS)
    right = 4_000 * np.random.default_rng(7).normal(1, 0.02, len(at_ns))
    stepped = np.isin(seconds, (9, 10, 11))
    delays = np.where(stepped, made["flows"]["owd_p50_ns"], right)
    slow = next(name for name, dst in zip(made["flows"]["flow"], made["flows"]["dst"], strict=True)
                if dst.startswith("h1/"))  # fmt: skip
    late = (np.array(made["flows"]["flow"]) == slow) & (seconds >= 20)
    made["flows"]["owd_p50_ns"] = np.where(late, 94_000, delays)
    rows = [(host, second) for host in ("h0", "h1") for second in range(WINDOWS)]
    states = {"hosts": {
        "at_ns": [T0 + second * 1000 * MS for _, second in rows],
        "window_ns": [1000 * MS] * len(rows), "host": [host for host, _ in rows],
        "clk_state": ["DISRUPTED" if each == ("h1", 10) else "SYNCHRONIZED" for each in rows],
    }}  # fmt: skip
    found = diagnose(bundle(made | states))
    assert [(each.fault, each.subjects) for each in found.verdicts] == [
        (FaultClass.SLOW_FLOW, (slow,))
    ]
    assert "clock UNKNOWN on h1 (for 1 s)" in [each.reason for each in found.gaps]
    facts = BundleFacts(bundle(made | states))
    assert facts.flows is not None
    untrusted = np.flatnonzero(facts.flows.untrusted.any(axis=0))
    around = AROUND_NS // (1000 * MS)
    assert untrusted.tolist() == [*range(10 - around, 11 + around)]
