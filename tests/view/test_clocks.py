"""Clocks on a screen: order, verdicts, pairs, histories."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from tests.view.fleets import T0, line, sample

from syntony.model import US, ClockState, S, Timeline
from syntony.view.clock_history import by_clock, history_table, moved_ns, summary_table
from syntony.view.clock_matrix import clock_matrix, clock_pairs
from syntony.view.clocks import plain_line, readings, status_table, verdict

SYNCHRONIZED, HOLDOVER = ClockState.SYNCHRONIZED, ClockState.HOLDOVER
DISRUPTED, UNKNOWN = ClockState.DISRUPTED, ClockState.UNKNOWN


def shown(what: RenderableType, width: int = 120) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def test_the_worst_clock_comes_first_and_names_run_as_people_count() -> None:
    lines = [
        line("h10"),
        line("h2"),
        line("h3", sigma_ns=500.0),
        line("h4", state=HOLDOVER),
        line("h5", state=DISRUPTED),
        line("h6", state=UNKNOWN),
    ]
    found = readings(lines, {"h2", "h7"})
    assert [each.node for each in found] == ["h6", "h7", "h5", "h4", "h3", "h2", "h10"]
    assert found[1].reason == "no peer has measured it yet"
    assert found[0].bound_ns is None
    assert found[0].offset_ns is None


def test_offset_and_bound_are_those_of_the_newest_instant_measured() -> None:
    old = line("h0", drift_ppb=1000.0, drift_sigma_ppb=100.0)
    new = line("h1", ref_ns=T0 + 10 * S)
    reading = {each.node: each for each in readings([old, new])}
    assert reading["h0"].offset_ns == pytest.approx(-1e6 + 10_000, abs=1)
    bounds = [reading[node].bound_ns for node in ("h0", "h1")]
    assert bounds[0] is not None
    assert bounds[1] is not None
    assert bounds[0] > 4 * 100.0 * 10 > bounds[1]


@pytest.mark.parametrize(
    ("states", "limits", "code", "word"),
    [
        ([SYNCHRONIZED] * 3, (math.inf, math.inf), 0, "OK"),
        ([SYNCHRONIZED, HOLDOVER], (math.inf, math.inf), 1, "WARNING"),
        ([SYNCHRONIZED], (30.0, math.inf), 1, "WARNING"),
        ([SYNCHRONIZED], (20.0, 30.0), 2, "CRITICAL"),
        ([DISRUPTED, UNKNOWN], (math.inf, math.inf), 2, "CRITICAL"),
        ([SYNCHRONIZED, UNKNOWN], (math.inf, math.inf), 3, "UNKNOWN"),
        ([HOLDOVER, UNKNOWN], (math.inf, math.inf), 3, "UNKNOWN"),
        ([], (math.inf, math.inf), 3, "UNKNOWN"),
    ],
)
def test_verdicts(
    states: list[ClockState], limits: tuple[float, float], code: int, word: str
) -> None:
    lines = [line(f"h{number}", state=state) for number, state in enumerate(states)]
    result = verdict(readings(lines), *limits)
    assert result.code == code
    assert result.text.startswith(f"CLOCK {word} - ")
    assert "\n" not in result.text


def test_several_islands_are_a_warning_and_shown() -> None:
    found = readings([line("h0"), line("h1", component="h1")])
    assert verdict(found).code == 1
    assert "2 islands" in verdict(found).text
    assert "island" in shown(status_table(found))
    assert "island" not in shown(status_table(readings([line("h0")])))


def test_a_plain_line_says_why() -> None:
    (reading,) = readings([line("h0", state=DISRUPTED, reason="stepped by 1 ms")])
    text = plain_line(reading, "12.5")
    assert text.startswith("12.5 h0 DISRUPTED bound ±40 ns offset -1 ms")
    assert text.endswith("stepped by 1 ms")


def test_pairs_are_compared_on_one_island_only() -> None:
    lines = [
        line("h0"),
        line("h1", offset_ns=-3e6),
        line("h2", component="h2"),
        line("h3", state=UNKNOWN),
    ]
    pairs = {(pair.a, pair.b): pair for pair in clock_pairs(lines)}
    assert len(pairs) == 6
    assert pairs["h0", "h1"].offset_ns == 2_000_000
    assert pairs["h0", "h1"].bound_ns == pytest.approx(80.0)
    others = [pair for ends, pair in pairs.items() if ends != ("h0", "h1")]
    assert all(pair.offset_ns is None and pair.bound_ns is None for pair in others)


@given(
    st.lists(
        st.tuples(st.integers(-(10**9), 10**9), st.floats(-1e5, 1e5), st.integers(-S, S)),
        min_size=3,
        max_size=3,
    )
)
def test_offsets_of_pairs_add_up(clocks: list[tuple[int, float, int]]) -> None:
    lines: list[Timeline] = [
        line(f"h{number}", offset_ns=float(offset), drift_ppb=drift, ref_ns=T0 + shift)
        for number, (offset, drift, shift) in enumerate(clocks)
    ]
    at = {(pair.a, pair.b): pair.offset_ns for pair in clock_pairs(lines)}
    first, second, both = at["h0", "h1"], at["h1", "h2"], at["h0", "h2"]
    assert first is not None
    assert second is not None
    assert first + second == both


def test_a_matrix_that_does_not_fit_is_summarised() -> None:
    lines = [line(f"h{number}", sigma_ns=10.0 + number) for number in range(40)]
    pairs = clock_pairs(lines)
    wide, narrow = (
        shown(clock_matrix(pairs, width=1000), 1000),
        shown(clock_matrix(pairs, width=80)),
    )
    assert "above the diagonal" in wide
    assert "40 clocks, 780 pairs, 780 of them comparable" in narrow
    assert "h38" in narrow
    assert len(narrow.splitlines()) < 30
    assert "fewer than two" in shown(clock_matrix([], width=80))


def test_a_move_is_what_drift_does_not_explain() -> None:
    one = sample("h0", 0, drift_ppb=1000.0)
    two = sample("h0", 2, offset_ns=2_050.0)
    assert moved_ns(one, two) == pytest.approx(50.0)


def test_histories_show_moves_and_lapses() -> None:
    samples = [
        sample("h0", 0),
        sample("h0", 1, offset_ns=5.0 * US, state=DISRUPTED, reason="stepped", bound_ns=None),
        sample("h1", 0),
    ]
    clocks = by_clock(samples)
    assert list(clocks) == ["h0", "h1"]
    lines = shown(history_table(clocks["h0"])).splitlines()
    assert "5 µs" in lines[2]
    assert "stepped" in lines[2]
    assert "-1 s" in lines[1]
    summary = shown(summary_table(clocks)).splitlines()
    assert "1 DISRUPTED" in summary[1]
    assert "none" in summary[2]
