"""The report: errors against truth, raw stamps, pictures, and a page that needs nothing else."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.view.fleets import T0, point, reported, sample, truth

from syntony.model import ClockState, S
from syntony.view.clock_page import page
from syntony.view.clock_plots import make_plots
from syntony.view.clock_summary import (
    ClockReport,
    clock_figures,
    errors_ns,
    most_asymmetric_pair,
    summarize_clocks,
)
from syntony.wire.clocks import ClockSample
from syntony.wire.probes import MatrixCell

AHEAD = {"h0": 0, "h1": 5_000_000, "h2": -7_000_000}
ERRORS = {"h0": 0, "h1": 30, "h2": -20}
TRUTH = {node: truth(ahead) for node, ahead in AHEAD.items()}
FORWARD, REVERSE = 40_000, 4_000


def samples(seconds: int = 20) -> list[ClockSample]:
    return [each for node in AHEAD for each in reported(node, AHEAD[node], ERRORS[node], seconds)]


def report(seconds: int = 20) -> ClockReport:
    points = [
        point(*way, second, p50)
        for second in range(seconds)
        for way, p50 in ((("h0/rail0", "h1/rail0"), FORWARD), (("h1/rail0", "h0/rail0"), REVERSE))
    ]
    return summarize_clocks("lab <x>", samples(seconds), S, points, TRUTH)


def test_errors_are_told_against_the_truth_without_the_gauge() -> None:
    errors = errors_ns(samples(2), TRUTH)
    # The middle one is the gauge.
    assert {key: errors[key, T0] for key in ERRORS} == {"h0": 0, "h1": -30, "h2": 20}


@given(
    gauge_ns=st.integers(-(10**15), 10**15),
    wrong=st.dictionaries(st.sampled_from(["h0", "h1", "h2"]), st.integers(-1000, 1000)),
)
def test_errors_do_not_depend_on_where_fleet_time_is(gauge_ns: int, wrong: dict[str, int]) -> None:
    def solved(shift_ns: int) -> dict[tuple[str, int], float]:
        rows = [
            sample(node, ref_ns=T0 - shift_ns + ahead,
                   offset_ns=float(shift_ns - ahead - wrong.get(node, 0)))
            for node, ahead in AHEAD.items()
        ]  # fmt: skip
        return errors_ns(rows, TRUTH)

    assert solved(gauge_ns) == pytest.approx(solved(0), abs=1.5)


def test_clocks_that_are_not_synchronized_do_not_make_the_gauge() -> None:
    rows = [
        *(sample(node, ref_ns=T0) for node in ("h0", "h1")),
        sample("h2", ref_ns=T0, offset_ns=9000.0, state=ClockState.DISRUPTED),
        sample("h3", ref_ns=T0, state=ClockState.UNKNOWN),
    ]
    same = {node: truth(0) for node in ("h0", "h1", "h2", "h3")}
    errors = errors_ns(rows, same)
    assert errors == {("h0", T0): 0, ("h1", T0): 0, ("h2", T0): 9000}
    assert errors_ns(rows[1:], same) == {}, "one clock alone has nothing to be compared with"


def test_raw_stamps_are_off_by_what_the_clocks_are_apart() -> None:
    delays = report().delays
    assert delays is not None
    assert delays.half_rtt_ns[0] == (FORWARD + REVERSE) / 2
    assert delays.raw_forward_ns[0] == FORWARD + AHEAD["h1"] + ERRORS["h1"]
    assert delays.raw_forward_ns[0] + delays.raw_reverse_ns[0] == FORWARD + REVERSE
    assert delays.clock_error_ns[0] == -30


def test_seconds_without_both_directions_are_left_out() -> None:
    points = [point("h0/rail0", "h1/rail0", 0, 5), point("h1/rail0", "h0/rail0", 0, None)]
    assert summarize_clocks("x", samples(), S, points).delays is None
    assert summarize_clocks("x", samples(), S, [point("h8/n", "h9/n", 0, 5)]).delays is None


def test_delays_that_no_clock_sample_explains_are_left_out() -> None:
    points = [
        point(*way, second, 5)
        for second in (0, 1000)
        for way in (("h0/rail0", "h1/rail0"), ("h1/rail0", "h0/rail0"))
    ]
    delays = summarize_clocks("x", samples(1), S, points).delays
    assert delays is not None
    assert delays.at_s == [0.0]


def test_facts_count_violations() -> None:
    known = clock_figures(report())
    assert (known.clocks, known.samples, known.violations) == (3, 60, 0)
    assert known.error_max_ns == 30
    liar = [msg for msg in samples(1) if msg.node != "h1"]
    liar += [sample("h1", ref_ns=T0 + AHEAD["h1"], offset_ns=-5_000_900.0, bound_ns=100.0)]
    assert clock_figures(summarize_clocks("x", liar, S, truth=TRUTH)).violations == 1


def test_the_most_lopsided_pair_is_told_from_its_slow_end() -> None:
    def cell(src: str, dst: str, p50: int | None) -> MatrixCell:
        return MatrixCell(
            src=src, dst=dst, paths=1, sent=1, lost=0, owd_min_ns=p50, owd_p50_ns=p50,
            owd_p99_ns=p50, clk_err_ns=1, dropped=0,
        )  # fmt: skip

    cells = [
        cell("a/n", "b/n", 5), cell("b/n", "a/n", 4),
        cell("a/n", "c/n", 5), cell("c/n", "a/n", 90),
        cell("b/n", "c/n", 500), cell("c/n", "b/n", None),
    ]  # fmt: skip
    assert most_asymmetric_pair(cells) == ("c/n", "a/n")
    assert most_asymmetric_pair([]) is None


def test_the_page_needs_nothing_else_and_says_what_was_measured() -> None:
    told_story = report()
    drawn = make_plots(told_story)
    assert set(drawn) == {"one-way-delay", "error", "clocks"}
    for svg in drawn.values():
        ET.fromstring(svg)  # noqa: S314 - our own
    text = page(told_story, drawn, "syntony clock report --since 10m")
    assert not re.search(r"<script|<link|<img|@import|src=|url\((?!#)|href=\"(?!#)", text)
    assert "lab &lt;x&gt;" in text
    assert "<x>" not in text
    assert text.count("<svg") == 3
    for said in ("30 ns", "of 60 beyond bound", "100.0%", "syntony clock report --since 10m"):
        assert said in text


def bad_tiles(of: ClockReport) -> list[str]:
    text = page(of, {}, "c")
    return re.findall(r'<div class="fact bad"><b>[^<]*</b><span>([^<]*)</span>', text)


def test_what_is_wrong_is_marked_and_nothing_else() -> None:
    assert bad_tiles(report()) == []
    rows = samples(4)
    lapsed = [*rows[:-1], sample("h2", 3, state=ClockState.HOLDOVER)]
    assert bad_tiles(summarize_clocks("x", lapsed, S)) == ["of samples synchronized"]
    liar = [sample("h1", ref_ns=T0 + AHEAD["h1"], offset_ns=-5_000_900.0, bound_ns=100.0)]
    liar += [each for each in samples(1) if each.node != "h1"]
    assert bad_tiles(summarize_clocks("x", liar, S, truth=TRUTH)) == ["of 3 beyond bound"]
    text = page(report(), {}, "c")
    tiles = re.findall(r'<div class="fact"><b>([^<]*)</b><span>([^<]*)</span>', text)
    assert [what for _, what in tiles] == [
        "of samples synchronized", "median bound", "95 % of bounds below",
        "95 % of errors below", "worst error", "of 60 beyond bound",
    ]  # fmt: skip


def test_the_table_has_a_row_for_each_clock_and_a_cell_for_each_heading() -> None:
    for of, columns in ((report(), 8), (summarize_clocks("x", samples(), S), 5)):
        text = page(of, {}, "c")
        assert text.count("<th>") == columns
        rows = re.findall(r"<tr>(<td>.*?)</tr>", text)
        assert [row.count("<td>") for row in rows] == [columns] * 3
        assert re.findall(r"<td>(\d+ of \d+)</td>", text) == ["0 of 20"] * 3
    assert "3 clocks over 19 s, one sample per clock and second at most" in page(report(), {}, "c")


def test_without_a_truth_no_error_is_claimed() -> None:
    blind = summarize_clocks("fleet", samples(), S)
    assert not blind.known_truth
    assert clock_figures(blind).error_max_ns is None
    drawn = make_plots(blind)
    assert set(drawn) == {"clocks"}
    text = page(blind, drawn, "c")
    assert "No error against truth" in text
    assert "beyond bound" not in text


def test_the_same_data_give_the_same_pictures() -> None:
    alone = summarize_clocks("x", samples(3)[:3], S)
    assert make_plots(alone) == make_plots(alone)
    assert make_plots(alone, "png")["clocks"].startswith(b"\x89PNG")


def test_many_clocks_are_drawn_without_names() -> None:
    many = summarize_clocks(
        "x", [sample(f"h{n}", second) for n in range(13) for second in range(2)], S
    )
    assert len(make_plots(many)["clocks"]) < 200_000


def test_the_history_of_a_fleet_without_samples_has_no_clocks() -> None:
    nothing = summarize_clocks("x", [], S)
    assert (nothing.clocks, nothing.delays, nothing.newest_ns) == ([], None, 0)


def test_of_a_clock_that_was_compared_now_and_then_the_errors_are_told_that_there_are() -> None:
    rows = [*samples(2), sample("h3", 0, state=ClockState.UNKNOWN, bound_ns=None)]
    rows += [sample("h2", 9, state=ClockState.UNKNOWN, bound_ns=None)]
    text = page(summarize_clocks("x", rows, S, truth=TRUTH), {}, "c")
    reported_of = {
        row[0]: row[5:]
        for row in (re.findall(r"<td>(.*?)</td>", each) for each in text.split("<tr>"))
        if row
    }
    assert reported_of["h1"] == ["30 ns"] * 3
    assert reported_of["h2"] == ["20 ns"] * 3
    assert reported_of["h3"] == ["–"] * 3
