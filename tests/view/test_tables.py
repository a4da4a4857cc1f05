"""Tables cell by cell: headings, units, order, and what stands where nothing is known."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console, RenderableType
from tests.view.fleets import T0, line, reported, sample, truth

from syntony.model import ClockState, S
from syntony.model.names import natural
from syntony.view.clock_history import by_clock, history_table, summary_table
from syntony.view.clock_matrix import MOST_PAIRS, ClockPair, clock_matrix, clock_pairs, pair_summary
from syntony.view.clock_page import page
from syntony.view.clock_summary import NEAR_NS, clock_figures, local_ns, summarize_clocks
from syntony.view.clocks import plain_line, readings, status_table, verdict
from syntony.view.heatmap import heatmap, listing
from syntony.view.tables import duration
from syntony.wire.probes import MatrixCell, SeriesPoint

SYNCHRONIZED, HOLDOVER = ClockState.SYNCHRONIZED, ClockState.HOLDOVER
DISRUPTED, UNKNOWN = ClockState.DISRUPTED, ClockState.UNKNOWN


def rows(what: RenderableType, width: int = 200) -> list[list[str]]:
    """Cells of each line; columns are two spaces apart, or more."""
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(what)
    lines = out.getvalue().splitlines()
    return [[cell for cell in re.split(r"\s{2,}", each.strip()) if cell] for each in lines]


def styled(what: RenderableType, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system="truecolor").print(what)
    return out.getvalue()


def test_status_has_one_line_a_clock() -> None:
    found = readings(
        [line("h0", drift_ppb=1234.5), line("h1", state=DISRUPTED, reason="stepped"),
         line("h2", state=UNKNOWN)]
    )  # fmt: skip
    table = rows(status_table(found))
    assert table[0] == ["clock", "state", "bound ±", "1-sigma", "offset", "drift ppb", "why"]
    assert table[1] == ["h2", "UNKNOWN", "–", "–", "–", "–"]
    assert table[2] == ["h1", "DISRUPTED", "40 ns", "10 ns", "-1 ms", "+0.0", "stepped"]
    assert table[3] == ["h0", "SYNCHRONIZED", "40 ns", "10 ns", "-1 ms", "+1,234.5"]


def test_islands_have_a_column_when_there_are_two_that_are_synchronized() -> None:
    two = readings([line("h0"), line("h1", component="h1")])
    assert rows(status_table(two))[1][-1] in {"h0", "h1"}
    assert "island" in rows(status_table(two))[0]
    for other in (line("h1", component="h1", state=HOLDOVER), line("h1", component="")):
        found = readings([line("h0"), other])
        assert "island" not in rows(status_table(found))[0]
        assert "islands" not in verdict(found).text


def test_a_verdict_names_the_worst_and_the_limits() -> None:
    found = readings([line("h0", sigma_ns=5.0), line("h1", sigma_ns=20.0)])
    assert verdict(found).text == (
        "CLOCK OK - 2 SYNCHRONIZED; worst bound 80 ns (h1) | bound=80ns;;"
    )
    bound_ns = max(each.bound_ns or 0.0 for each in found)
    assert verdict(found, bound_ns, bound_ns).code == 0, "the limit itself is within"
    assert verdict(found, 79.0, 100.0).text == (
        "CLOCK WARNING - 2 SYNCHRONIZED; worst bound 80 ns (h1) | bound=80ns;79;100"
    )
    assert verdict(found, 10.0, bound_ns).code == 1
    assert verdict([]).text == "CLOCK UNKNOWN - no clock is known"
    assert verdict(readings([line("h0", state=UNKNOWN)])).text == "CLOCK UNKNOWN - 1 UNKNOWN"


def test_a_clock_without_a_drift_is_one_plain_line() -> None:
    (unknown,) = readings([line("h0", state=UNKNOWN, reason="")])
    assert plain_line(unknown, "12.5") == "12.5 h0 UNKNOWN bound ±– offset – drift – ppb"
    assert duration(float("inf")) == duration(float("nan")) == duration(None) == "–"


def test_pairs_are_all_of_them_once_at_the_newest_instant() -> None:
    lines = [
        line("h10"), line("h2", offset_ns=-3e6), line("h1", component="h1"),
        line("h3", state=UNKNOWN, ref_ns=T0 + 100 * S),
    ]  # fmt: skip
    pairs = {(pair.a, pair.b): (pair.offset_ns, pair.bound_ns) for pair in clock_pairs(lines)}
    assert list(pairs) == [
        ("h1", "h2"), ("h1", "h3"), ("h1", "h10"), ("h2", "h3"), ("h2", "h10"), ("h3", "h10")
    ]  # fmt: skip
    known = pairs.pop(("h2", "h10"))
    assert known[0] == -2_000_000
    assert known[1] == pytest.approx(80, abs=4)
    assert set(pairs.values()) == {(None, None)}


def test_a_matrix_has_offsets_above_and_bounds_below_the_diagonal() -> None:
    pairs = [
        ClockPair(a="h0", b="h1", offset_ns=-2_000_000, bound_ns=80.0),
        ClockPair(a="h0", b="h2", offset_ns=None, bound_ns=None),
        ClockPair(a="h1", b="h2", offset_ns=None, bound_ns=None),
    ]
    table = rows(clock_matrix(pairs, width=33))
    assert table[:4] == [
        ["h0", "h1", "h2"],
        ["h0", "·", "-2 ms", "–"],
        ["h1", "±80 ns", "·", "–"],
        ["h2", "±–", "±–", "·"],
    ]
    assert rows(clock_matrix(pairs, width=32))[0][0].startswith("3 clocks, 3 pairs")
    assert rows(clock_matrix([], width=80)) == [["fewer than two clocks are known"]]


def test_a_summary_lists_the_least_certain_pairs() -> None:
    pairs = [ClockPair(a="a", b=f"b{k}", offset_ns=k, bound_ns=float(k)) for k in range(1, 201)] + [
        ClockPair(a="a", b="c", offset_ns=None, bound_ns=None)
    ]
    table = rows(pair_summary(pairs))
    assert table[0] == ["202 clocks, 201 pairs, 200 of them comparable"]
    assert table[1] == [
        "bound of a pair: median 101 ns, p99 199 ns, worst 200 ns; the least certain:"
    ]
    assert table[2] == ["a", "b", "b minus a", "bound ±"]
    assert table[3] == ["a", "b200", "200 ns", "200 ns"]
    assert len(table) == 3 + MOST_PAIRS + 1
    assert "syntony clock matrix" in table[-1][0]
    nothing = rows(pair_summary(pairs[-1:]))
    assert nothing[0] == ["2 clocks, 1 pairs, 0 of them comparable"]
    assert nothing[1][0] == "a"


def test_a_history_tells_how_far_each_second_moved() -> None:
    samples = [
        sample("h0", 0, offset_ns=-500.0, drift_ppb=-2_000.0),
        sample("h0", 2, offset_ns=-4_400.0, drift_ppb=-2_000.0, bound_ns=None, state=HOLDOVER,
               reason="no fresh edges"),
    ]  # fmt: skip
    table = rows(history_table(samples))
    assert table[0] == [
        "second", "offset", "moved", "drift ppb", "1-sigma", "bound ±", "state", "why"
    ]  # fmt: skip
    assert table[1] == ["-2 s", "-500 ns", "–", "-2,000.0", "10 ns", "40 ns", "SYNCHRONIZED"]
    assert table[2] == [
        "0 s", "-4.4 µs", "100 ns", "-2,000.0", "10 ns", "–", "HOLDOVER", "no fresh edges"
    ]  # fmt: skip


def test_a_summary_tells_each_clock_over_the_whole_time() -> None:
    samples = [
        sample("h10", 0),
        *(sample("h2", k, drift_ppb=float(d), bound_ns=b, state=state, offset_ns=o)
          for k, d, b, state, o in ((0, 10, 30.0, SYNCHRONIZED, 0.0), (1, 16, None, UNKNOWN, 90.0),
                                    (2, 12, 50.0, HOLDOVER, 106.0),
                                    (3, 12, 90.0, HOLDOVER, 118.0))),
    ]  # fmt: skip
    table = rows(summary_table(by_clock(samples[::-1])))
    assert table[0] == [
        "clock", "over", "drift ppb", "± span", "moved ≤", "bound p50", "bound ≤", "lapses"
    ]  # fmt: skip
    assert table[1] == [
        "h2", "3 s", "+12.0", "3.0", "80 ns", "50 ns", "90 ns", "2 HOLDOVER 1 UNKNOWN"
    ]  # fmt: skip
    assert table[2] == ["h10", "0 s", "+0.0", "0.0", "–", "40 ns", "40 ns", "none"]


def test_states_have_their_colours() -> None:
    for state, colour in ((SYNCHRONIZED, 32), (HOLDOVER, 33), (DISRUPTED, 31), (UNKNOWN, 35)):
        found = readings([line("h0", state=state)])
        for table in (status_table(found), history_table([sample("h0", state=state)])):
            assert f"\x1b[{colour}m{state}" in styled(table)


# --- the matrix of delays ---


def cell(src: str, dst: str, p50_ns: int | None = 10_000, **more: int | None) -> MatrixCell:
    values: dict[str, int | None] = {
        "paths": 8, "sent": 10, "lost": 0, "owd_min_ns": p50_ns, "owd_p50_ns": p50_ns,
        "owd_p99_ns": p50_ns, "clk_err_ns": 40, "dropped": 0,
    }  # fmt: skip
    return MatrixCell(src=src, dst=dst, **values | more)  # type: ignore[arg-type]


def test_a_listing_has_a_line_for_each_direction_as_people_count() -> None:
    cells = [
        cell("h10/r", "h2/r", 12_345, owd_min_ns=12_000, owd_p99_ns=20_000, dropped=3, lost=2),
        cell("h2/r", "h10/r", None, clk_err_ns=None),
    ]
    assert rows(listing(cells)) == [
        ["from", "to", "paths", "sent", "lost", "min µs", "p50 µs", "p99 µs", "± clock ns",
         "own stall"],
        ["h2/r", "h10/r", "8", "10", "0", "–", "–", "–", "–", "0"],
        ["h10/r", "h2/r", "8", "10", "2", "12.00", "12.35", "20.00", "40", "3"],
    ]  # fmt: skip
    assert styled(listing(cells)).count("\x1b[1;31m") == 1, "losses stand out"


def test_shades_run_from_the_shortest_to_the_longest_delay() -> None:
    cells = [cell("h0/r0", "h1/r0", 10_000), cell("h1/r0", "h0/r0", 99_949),
             cell("h0/r0", "h2/r0", 99_951, lost=1), cell("h2/r0", "h0/r0", 150_000),
             cell("h1/r0", "h2/r0", None)]  # fmt: skip
    text = styled(heatmap(cells, width=80))
    green, red = "38;2;26;152;80", "38;2;215;48;39"
    assert re.search(rf"{green}m +10\.0", text)
    assert re.search(rf"{red}m +150", text)
    assert re.search(r"4;38;2;[\d;]+m +100", text), "underlined: some loss"
    assert "99.9" in text
    (legend,) = (line for line in text.splitlines() if "one-way delay" in line)
    assert re.search(rf"{green}m10\.0", legend)
    assert re.search(rf"{red}m 150", legend)
    assert legend.count("■") == 7
    alone = styled(heatmap(cells[:1], width=80))
    assert re.search(rf"{green}m +10\.0", alone)
    assert "0.0" in styled(heatmap([cell("h0/r0", "h1/r0", None)], width=80)).splitlines()[-2]


def test_a_matrix_fits_to_the_last_column() -> None:
    cells = [cell("h0/rail0", "h1/rail0")]
    width = len("h0/rail0") + 1 + 2 * 5
    assert "rows send" in styled(heatmap(cells, width=width)).replace("\n", "")
    one, two = (styled(heatmap(cells, width=each)).splitlines() for each in (width, width - 1))
    assert len(two) == len(one) + 3, "a block of columns each"


@pytest.mark.parametrize(
    ("name", "short"),
    [("h3/rail12", "3/12"), ("host/nic", "host"), ("a7", "a7"), ("abcdef", "abcd")],
)
def test_columns_are_narrow(name: str, short: str) -> None:
    text = rows(heatmap([cell(name, "z9/z9")], width=80))
    assert text[0][0] in {short, "9/9"}
    assert short in text[0]


def test_people_count_numbers_in_names() -> None:
    names = ["h10", "h2", "h2/rail10", "h2/rail9", "h1a", "h1"]
    assert sorted(names, key=natural) == ["h1", "h1a", "h2", "h2/rail9", "h2/rail10", "h10"]


# --- the report ---


def page_of(seconds: int, step_ns: int = S) -> str:
    samples = reported("h0", 0, 0, seconds) + reported("h1", 5, 3, seconds)
    report = summarize_clocks("lab", samples, step_ns, truth={"h0": truth(0), "h1": truth(5)})
    return page(report, {}, "c")


def test_a_page_says_over_how_long_and_how_finely_it_was_sampled() -> None:
    assert "2 clocks over 19 s, one sample per clock and second at most" in page_of(20)
    assert "one sample per clock and 5 s at most" in page_of(20, 5 * S)
    assert "0 clocks over 0 s" in page(summarize_clocks("x", [], S), {}, "c")


def test_a_page_has_a_row_for_each_clock() -> None:
    samples = [
        sample("h0", 0, bound_ns=30.0, drift_ppb=-5.0),
        sample("h0", 1, bound_ns=50.0, drift_ppb=-7.0, state=HOLDOVER),
        sample("h0", 2, bound_ns=90.0, drift_ppb=2_000.0),
        sample("h1", 2, bound_ns=None, state=UNKNOWN),
    ]
    text = page(summarize_clocks("x", samples, S), {}, "c")
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", text)]
    assert cells[1:] == [
        ["h0", "-5.0", "50 ns", "90 ns", "1 of 3"], ["h1", "+0.0", "–", "–", "1 of 1"]
    ]  # fmt: skip
    assert '<div class="fact bad"><b>50.0%</b>' in text
    good = page_of(4)
    headings = [re.findall(r"<th>(.*?)</th>", each) for each in (text, good)]
    assert headings[0] == ["clock", "drift, ppb", "bound p50", "bound max", "not synchronized"]
    assert headings[1] == [*headings[0], "error p50", "error p95", "error max"]
    assert '<div class="fact"><b>100.0%</b>' in good
    assert "100.0% of samples could be compared" in good
    assert [*re.findall(r"<td>(.*?)</td>", good)][5:8] == ["2 ns", "2 ns", "2 ns"]


def test_facts_are_quantiles_over_all_clocks() -> None:
    samples = [sample("h0", k, bound_ns=float(k)) for k in range(101)]
    known = clock_figures(summarize_clocks("x", samples, S))
    assert (known.bound_p50_ns, known.bound_p95_ns) == (50.0, 95.0)
    assert (known.error_p50_ns, known.error_max_ns, known.compared) == (None, None, 0)
    empty = clock_figures(summarize_clocks("x", [], S))
    assert (empty.synchronized, empty.samples, empty.bound_p50_ns) == (0.0, 0, None)


@pytest.mark.parametrize(("late_ns", "counts"), [(NEAR_NS, True), (NEAR_NS + S, False)])
def test_a_delay_is_explained_by_a_solution_of_the_same_time(late_ns: int, counts: bool) -> None:
    ends = (("h0/r", "h1/r"), ("h1/r", "h0/r"))
    points = [
        SeriesPoint(ts_ns=T0 + late_ns, src=src, dst=dst, sent=1, lost=0, owd_min_ns=7,
                    owd_p50_ns=7 if src < dst else 9, owd_p99_ns=7)
        for src, dst in ends
    ]  # fmt: skip
    delays = summarize_clocks("x", [sample("h0"), sample("h1")], S, points).delays
    assert (delays is not None) is counts
    if delays is not None:
        assert (delays.at_s, delays.forward_ns, delays.reverse_ns) == ([late_ns / S], [7], [9])
        assert delays.half_rtt_ns == [8.0]
        assert delays.clock_error_ns == [None]


def test_a_delay_needs_a_solution_of_both_clocks() -> None:
    points = [
        SeriesPoint(ts_ns=T0 + 60 * S, src=src, dst=dst, sent=1, lost=0, owd_min_ns=7,
                    owd_p50_ns=7, owd_p99_ns=7)
        for src, dst in (("h0/r", "h1/r"), ("h1/r", "h0/r"))
    ]  # fmt: skip
    early = [sample("h0"), sample("h1")]
    assert summarize_clocks("x", [*early, sample("h0", 60)], S, points).delays is None
    assert (
        summarize_clocks("x", [*early, sample("h0", 60), sample("h1", 60)], S, points).delays
        is not None
    )


def test_a_nics_own_clock_goes_before_its_hosts() -> None:
    own = [sample("h0", offset_ns=-5.0), sample("h0/r", offset_ns=-50.0), sample("h1")]
    points = [
        SeriesPoint(ts_ns=T0, src=src, dst=dst, sent=1, lost=0, owd_min_ns=1_000,
                    owd_p50_ns=1_000, owd_p99_ns=1_000)
        for src, dst in (("h0/r", "h1/r"), ("h1/r", "h0/r"))
    ]  # fmt: skip
    delays = summarize_clocks("x", own, S, points).delays
    assert delays is not None
    assert delays.raw_forward_ns == [950]
    assert delays.raw_reverse_ns == [1_050]
    assert local_ns(own[1], T0 + S) == T0 + S + 50
