"""Clock evidence of a hostile or broken agent never reaches the solve."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.clock.anchored import AnchoredSolver
from syntony.controller.clock_evidence import MAX_EDGES, MAX_INSTANT_NS, check_edges
from syntony.model import Edge, S, UtcReading
from syntony.wire.clocks import Edges

CLOCKS = {"h0", "h0/nic", "h1", "h2"}
GOOD = Edge(
    a="h0", b="h1", ref_ns=10 * S, theta_ns=5e6, drift_ppb=3.0, sigma_ns=20.0, drift_sigma_ppb=5.0,
    rtt_floor_ns=9_000.0, probes=100,
)  # fmt: skip


def kept(*edges: Edge) -> tuple[Edge, ...]:
    return check_edges("h0", Edges(edges=edges), CLOCKS.__contains__)[0].edges


@pytest.mark.parametrize(
    "changes",
    [
        {"a": "h1", "b": "h0"},
        {"a": "h0x"},
        {"b": "invented"},
        {"a": "h0/invented"},
        {"b": "h0"},
        {"theta_ns": math.nan},
        {"theta_ns": math.inf},
        {"theta_ns": 1e300},
        {"drift_ppb": -1e30},
        {"drift_ppb": math.nan},
        {"sigma_ns": 0.0},
        {"sigma_ns": 5e-324},
        {"drift_sigma_ppb": 0.0},
        {"sigma_ns": -1.0},
        {"sigma_ns": math.inf},
        {"drift_sigma_ppb": math.nan},
        {"ref_ns": 1 << 63},
        {"rtt_floor_ns": -math.inf},
        {"path_spread_ns": math.nan},
        {"probes": -1},
    ],
)
def test_an_impossible_edge_is_left_out_alone(changes: dict[str, object]) -> None:
    bad = msgspec.structs.replace(GOOD, **changes)
    other = msgspec.structs.replace(GOOD, b="h2")
    said = Edges(edges=(bad, other))
    assert check_edges("h0", said, CLOCKS.__contains__) == (Edges(edges=(other,)), 1)


def test_several_pairs_of_nics_measure_the_same_two_clocks() -> None:
    again = msgspec.structs.replace(GOOD, theta_ns=6e6)
    assert kept(GOOD, again) == (GOOD, again)
    assert len(kept(*[GOOD] * (MAX_EDGES + 1))) == MAX_EDGES


def test_good_evidence_is_untouched() -> None:
    own = msgspec.structs.replace(GOOD, a="h0/nic", b="h0")
    assert kept(GOOD, own) == (GOOD, own)


@pytest.mark.parametrize(
    "changes",
    [{"node": "h1"}, {"bound_ns": math.nan}, {"bound_ns": -1.0}, {"local_ns": 1 << 70}],
)
def test_an_impossible_reading_of_utc_is_left_out(changes: dict[str, object]) -> None:
    good = UtcReading(node="h0", local_ns=S, utc_minus_ns=-5, bound_ns=1e5)
    said = Edges(edges=(), utc=(msgspec.structs.replace(good, **changes),))
    assert check_edges("h0", said, CLOCKS.__contains__) == (Edges(edges=()), 1)
    assert check_edges("h0", Edges(edges=(), utc=(good,)), CLOCKS.__contains__)[1] == 0


NUMBERS = st.floats() | st.sampled_from([0.0, -0.0, 1e308, 5e-324, 1e18, 1e6])


@given(
    st.lists(
        st.builds(
            Edge, a=st.just("h0"), b=st.sampled_from(["h1", "h2", "h0/nic"]),
            ref_ns=st.integers(-(1 << 64), 1 << 64), theta_ns=NUMBERS, drift_ppb=NUMBERS,
            sigma_ns=NUMBERS, drift_sigma_ppb=NUMBERS, rtt_floor_ns=NUMBERS, probes=st.integers(),
        ),
        max_size=3,
    )
)  # fmt: skip
def test_whatever_is_kept_solves_to_finite_times(edges: list[Edge]) -> None:
    """The honest pair h3, h4 is solved whatever h0 says."""
    honest = [
        msgspec.structs.replace(GOOD, a=a, b=b, theta_ns=theta)
        for a, b, theta in (("h3", "h4", 1e3), ("h4", "h3", -1e3))
    ]
    solver = AnchoredSolver([], 0)
    for second in range(3):
        solver.update([*kept(*edges), *honest], second * S)
        lines = {line.node: line for line in solver.solve(second * S)}
    assert all(math.isfinite(line.offset_ns) for line in lines.values())
    apart = lines["h4"].offset_ns - lines["h3"].offset_ns
    assert abs(abs(apart) - 1e3) < 500


def test_a_host_names_the_epochs_of_its_own_clocks_only() -> None:
    """Else one agent could have every other's edges forgotten."""
    said = {"h0": 7, "h0/nic": 8, "h1": 9, "h0/invented": 10}
    found, left_out = check_edges("h0", Edges(edges=(), epochs=said), CLOCKS.__contains__)
    assert (found.epochs, left_out) == ({"h0": 7, "h0/nic": 8}, 2)
    for none in (-1, 0, MAX_INSTANT_NS + 1):
        found, left_out = check_edges(
            "h0", Edges(edges=(), epochs={"h0": none}), CLOCKS.__contains__
        )
        assert (found.epochs, left_out) == ({}, 1)
