import msgspec
import pytest

from syntony.demo.claims import (
    ClockError,
    clock_claims,
    converged,
    coverage_claim,
    darkness,
    darkness_claims,
)
from syntony.model import ClockState, S, Timeline
from syntony.wire.probes import MatrixCell, SeriesPoint

T0 = 1_700_000_000 * S


def line(node: str, **changes: object) -> Timeline:
    values: dict[str, object] = {
        "sigma_ns": 50.0,
        "state": ClockState.SYNCHRONIZED,
        "component": "h0",
    }
    return Timeline(node=node, ref_ns=T0, offset_ns=0.0, drift_ppb=0.0, **values | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lines", "yes"),
    [
        ([line("h0"), line("h1")], True),
        ([line("h0"), line("h1"), line("h2", state=ClockState.HOLDOVER)], True),
        ([line("h0")], False),
        ([line("h0"), line("h1", component="h1")], False),
        ([line("h0"), line("h1", state=ClockState.HOLDOVER)], False),
        ([line("h0"), line("h1", sigma_ns=1e6)], False),
        ([line("h0"), line("h1", drift_sigma_ppb=600.0)], True),
        ([line("h0"), line("h1", drift_sigma_ppb=700.0)], False),
        ([], False),
    ],
)
def test_convergence_needs_every_host_on_one_timeline(lines: list[Timeline], yes: bool) -> None:
    assert converged(lines, ["h0", "h1"]) is yes


@pytest.mark.parametrize(
    ("error_ns", "sigma_ns", "held"),
    [(100.0, 50.0, [True, True]), (9_000.0, 3_000.0, [False, True]), (400.0, 40.0, [True, False])],
)
def test_clock_claims_fail_on_error_and_on_a_sigma_that_lies(
    error_ns: float, sigma_ns: float, held: list[bool]
) -> None:
    sample = [ClockError(host="h0", error_ns=-error_ns, clk_err_ns=sigma_ns)]
    assert [claim.held for claim in clock_claims([sample])] == held


def test_no_sample_is_no_success() -> None:
    assert not any(claim.held for claim in clock_claims([]))


def cell(src: str, dst: str, *, owd_ns: int | None = 9_000, lost: int = 0) -> MatrixCell:
    return MatrixCell(
        src=src,
        dst=dst,
        paths=8,
        sent=10,
        lost=lost,
        owd_min_ns=owd_ns,
        owd_p50_ns=owd_ns,
        owd_p99_ns=owd_ns,
        clk_err_ns=40,
        dropped=0,
    )


@pytest.mark.parametrize(
    ("cells", "held"),
    [
        ([cell("a/0", "b/0"), cell("b/0", "a/0")], True),
        ([cell("a/0", "b/0")], False),
        ([cell("a/0", "b/0", owd_ns=None), cell("b/0", "a/0")], False),
        ([cell("a/0", "b/0", lost=1), cell("b/0", "a/0")], False),
        ([], False),
    ],
)
def test_coverage_fails_on_a_blind_lossy_or_missing_direction(
    cells: list[MatrixCell], held: bool
) -> None:
    assert coverage_claim(cells, nics=2).held is held


VICTIM = "b/0"
PAIRS = [("a/0", "b/0"), ("b/0", "a/0"), ("a/0", "c/0"), ("c/0", "a/0")]
FAULT = (T0 + 5 * S + 300_000_000, T0 + 15 * S + 300_000_000)


def series(dark_seconds: dict[tuple[str, str], range], *, seconds: int = 25) -> list[SeriesPoint]:
    return [
        SeriesPoint(
            ts_ns=T0 + second * S,
            src=src,
            dst=dst,
            sent=16,
            lost=16 if second in dark_seconds.get((src, dst), range(0)) else 0,
            owd_min_ns=None,
            owd_p50_ns=None,
            owd_p99_ns=None,
        )
        for second in range(seconds)
        for src, dst in PAIRS
    ]


def test_a_clean_black_hole() -> None:
    both = {pair: range(6, 15) for pair in PAIRS[:2]}
    report = darkness(series(both), VICTIM, *FAULT)
    assert report.dark == ("a/0 → b/0", "b/0 → a/0")
    assert (report.wrongly_dark, report.still_lit, report.still_dark) == ((), (), ())
    assert report.first_dark_after_ns == 700_000_000
    assert report.lit_again_after_ns == -300_000_000
    assert all(claim.held for claim in darkness_claims(report, VICTIM, expected=2))


@pytest.mark.parametrize(
    ("dark", "held"),
    [
        ({PAIRS[0]: range(6, 15)}, [False, True]),  # the other direction never went dark
        ({pair: range(6, 15) for pair in PAIRS[:3]}, [False, True]),  # one too many
        ({pair: range(6, 25) for pair in PAIRS[:2]}, [True, False]),  # never came back
        ({}, [False, False]),  # nothing happened at all
    ],
)
def test_what_must_fail_fails(dark: dict[tuple[str, str], range], held: list[bool]) -> None:
    report = darkness(series(dark), VICTIM, *FAULT)
    assert [claim.held for claim in darkness_claims(report, VICTIM, expected=2)] == held


def test_seconds_without_a_probe_show_neither() -> None:
    """A machine that stood still sends nothing; a direction that nobody probed is not dark."""
    still = [
        msgspec.structs.replace(point, sent=0, lost=0)
        if (point.ts_ns - T0) // S in {9, 10, 11} else point
        for point in series({pair: range(6, 15) for pair in PAIRS[:2]})
    ]  # fmt: skip
    report = darkness(still, VICTIM, *FAULT)
    assert all(claim.held for claim in darkness_claims(report, VICTIM, expected=2))
    unrequested = [msgspec.structs.replace(point, sent=0, lost=0) for point in series({})]
    report = darkness(unrequested, VICTIM, *FAULT)
    assert not any(claim.held for claim in darkness_claims(report, VICTIM, expected=2))
