"""Estimates against the truth: the gauge is free, everything else is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syntony.clock.truth import TrueClock, compare
from syntony.model import ClockState, Timeline

AT_NS = 1_700_000_000_000_000_000
HOSTS = ("h0", "h1", "h2")


def clock(host: str, offset_ns: int, drift_ppb: float = 0.0) -> TrueClock:
    return TrueClock(host=host, at_ns=AT_NS, offset_ns=offset_ns, drift_ppb=drift_ppb)


def estimate(true: TrueClock, gauge_ns: int, error_ns: int = 0, part: str = "h0") -> Timeline:
    """The timeline of someone who knows `true`, but for `error_ns`, on a shifted fleet time."""
    return Timeline(
        node=true.host,
        ref_ns=true.at_ns + true.offset_ns,
        offset_ns=float(-(true.offset_ns + gauge_ns + error_ns)),
        drift_ppb=-true.drift_ppb,
        sigma_ns=20.0,
        state=ClockState.SYNCHRONIZED,
        component=part,
    )


@given(
    st.lists(st.integers(-50_000_000, 50_000_000), min_size=3, max_size=3),
    st.integers(-(10**9), 10**9),
)
def test_a_perfect_estimate_has_no_error_whatever_the_gauge(
    offsets: list[int], gauge_ns: int
) -> None:
    clocks = [clock(host, offset) for host, offset in zip(HOSTS, offsets, strict=True)]
    found = compare(clocks, [estimate(c, gauge_ns) for c in clocks])
    assert [t.error_ns for t in found] == [0, 0, 0]
    assert [t.est_offset_ns for t in found] == [offset + gauge_ns for offset in offsets]


def test_the_error_is_the_deviation_from_the_components_median() -> None:
    clocks = [clock(host, 1000) for host in HOSTS]
    lines = [estimate(c, 77, e) for c, e in zip(clocks, (0, 5, -30), strict=True)]
    assert [t.error_ns for t in compare(clocks, lines)] == [0, 5, -30]


def test_components_have_their_own_gauge() -> None:
    clocks = [clock(host, 0) for host in ("h0", "h1", "h2", "h3")]
    lines = [
        estimate(c, gauge, part=part)
        for c, gauge, part in zip(clocks, (0, 0, 10**9, 10**9), "aabb", strict=True)
    ]
    assert [t.error_ns for t in compare(clocks, lines)] == [0, 0, 0, 0]


def test_no_estimate_is_null_and_not_zero() -> None:
    clocks = [clock("h0", 5), clock("h1", 6)]
    lost = Timeline(node="h1", ref_ns=0, offset_ns=0.0, drift_ppb=0.0, sigma_ns=1.0)
    bare, unknown = compare(clocks, [lost])
    assert (bare.offset_ns, bare.error_ns, bare.state) == (5, None, None)
    assert (unknown.error_ns, unknown.est_offset_ns) == (None, None)
    assert unknown.state is ClockState.UNKNOWN


def test_the_claimed_error_grows_with_the_age_of_the_estimate() -> None:
    true = clock("h0", 0)
    line = Timeline(
        node="h0", ref_ns=AT_NS - 10**9, offset_ns=0.0, drift_ppb=0.0, sigma_ns=30.0,
        drift_sigma_ppb=40.0, state=ClockState.HOLDOVER,
    )  # fmt: skip
    assert compare([true], [line])[0].clk_err_ns == 50
