"""What the charts show, read from the figures themselves: data, labels, and room for both."""

from __future__ import annotations

import importlib.util
import struct
from itertools import combinations
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from tests.view.fleets import reported, sample, truth

from bench import placement_chart
from syntony.errors import MissingError
from syntony.model import ClockState, S
from syntony.view import clock_plots, drill_charts
from syntony.view.clock_summary import ClockReport, DelayReport, summarize_clocks
from syntony.view.drill_charts import ContentionCurve, ThroughputLine


@pytest.mark.parametrize(
    ("kind", "begins"), [("png", b"\x89PNG\r\n"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_a_chart_is_a_file_of_its_format_and_the_same_each_time(kind: str, begins: bytes) -> None:
    def draw(figure: Figure) -> None:
        figure.text(0.5, 0.5, "words")

    made = drill_charts.render_figure((2.0, 1.0), draw, kind)
    assert made.startswith(begins)
    if kind == "png":
        size = struct.unpack(">II", made[16:24])
        assert size == (320, 160), "sharp on a screen: 160 dots per inch"
    if kind == "svg":
        assert b">words</text>" in made, "text stays text"
        assert drill_charts.render_figure((2.0, 1.0), draw, kind) == made


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures that were written, whatever their format."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    return figures


def legend_of(axes: Axes) -> list[Text]:
    legend = axes.get_legend()
    return legend.get_texts() if legend else []


def words(figure: Figure) -> list[Text]:
    """Every text but the numbers at the ticks."""
    found = list(figure.texts)
    for axes in figure.axes:
        found += [*axes.texts, axes.xaxis.label, axes.yaxis.label]
        found += [child for child in axes.get_children() if isinstance(child, Text)]
        found += legend_of(axes)
    return [each for each in dict.fromkeys(found) if each.get_text().strip()]


def written(figure: Figure) -> str:
    return "\n".join(each.get_text() for each in words(figure))


def assert_legible(figure: Figure) -> None:
    """All words are inside the figure, and none on top of another."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    boxes = [(each.get_text(), each.get_window_extent()) for each in words(figure)]
    for text, box in boxes:
        assert box.width > 3, text
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text
    for (one, a), (other, b) in combinations(boxes, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        along = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert across <= 1 or along <= 1, f"{one!r} on {other!r}"


def assert_fits_a_page(figure: Figure) -> None:
    """As wide as a page's text, and not higher than wide."""
    width, height = figure.get_size_inches()
    assert 8 < width < 11
    assert 0.4 < height / width < 0.8


def assert_headed(figure: Figure) -> None:
    """Title and subtitle stand above the axes, beginning where these do."""
    title, subtitle = figure.texts[:2]
    boxes = [title.get_window_extent(), subtitle.get_window_extent()]
    axes = figure.axes[0].get_window_extent()
    assert [box.x0 for box in boxes] == pytest.approx([axes.x0] * 2, abs=3)
    assert boxes[0].y0 > boxes[1].y1 > axes.y1
    assert_fits_a_page(figure)
    for each in figure.axes:
        shown = {side for side, spine in each.spines.items() if spine.get_visible()}
        assert shown == {"bottom"}, "a floor and no frame"
        assert each.get_axisbelow() is True, "lines are over the grid"
        assert all(line.get_visible() for line in each.get_ygridlines()), "to read values by"


def curves(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """Points of every line, by colour."""
    return {
        to_hex(line.get_color()): list(
            zip(np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist(),
                strict=True)
        )
        for line in axes.lines
    }  # fmt: skip


def upright_at(axes: Axes) -> list[float]:
    """Where upright lines stand across the whole height."""
    lines = [np.asarray(line.get_xdata()).tolist() for line in axes.lines]
    return sorted(xs[0] for xs in lines if len(xs) == 2 and xs[0] == xs[1])


def throughput(
    saved: list[Figure], *lines: ThroughputLine, faults: Any = ((0.0, 3.0), (8.0, 9.5))
) -> Figure:
    picture = drill_charts.ThroughputChart(
        title="A title", subtitle="a subtitle", unit="Mb/s", lines=lines, faults_s=faults,
        fault_label="nic1 dies",
    )  # fmt: skip
    picture.render("png")
    return saved[-1]


LINES = [
    ThroughputLine(label="no fault", note="done", at_s=(-2.0, 0.0, 12.0), rate=(50.0, 52.0, 51.0)),
    ThroughputLine(label="today", note="killed", at_s=(-2.0, 1.0), rate=(50.0, 0.0), ends_s=7.0),
    ThroughputLine(label="Syntony", note="done", at_s=(-2.0, 1.0, 13.0), rate=(50.0, 26.0, 49.0)),
]


def test_throughput_shows_every_run_the_faults_and_where_a_job_died(saved: list[Figure]) -> None:
    figure = throughput(saved, *LINES)
    (axes,) = figure.axes
    low, high = axes.get_ylim()
    assert low < 0, "a line at zero is seen"
    assert 52 * 1.1 < high < 2 * 52, "and labels have room"
    assert axes.get_xlim() == (-2.0, 13.0)
    drawn = [
        list(zip(np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist(),
                 strict=True))
        for line in axes.lines
    ]  # fmt: skip
    for line in LINES:
        assert list(zip(line.at_s, line.rate, strict=True)) in drawn
    assert [text.get_text() for text in axes.texts] == ["nic1 dies", "healed"]
    assert [tuple(text.xy) for text in axes.texts] == [(0.0, high), (9.5, high)]  # type: ignore[attr-defined]
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert [(*np.asarray(each.get_xdata()), *np.asarray(each.get_ydata())) for each in crosses] == [
        (7.0, 0.0)
    ]
    assert upright_at(axes) == [0.0, 9.5], "from the first fault to the last one's end"
    spans = [(box.x0, box.x1) for box in (patch.get_extents() for patch in axes.patches)]
    to_data = axes.transData.inverted().transform
    assert [(round(to_data((x0, 0))[0], 6), round(to_data((x1, 0))[0], 6)) for x0, x1 in spans] == [
        (0.0, 3.0), (8.0, 9.5)
    ]  # fmt: skip
    for said in ("A title", "a subtitle", "Mb/s", "seconds since the fault", "nic1 dies", "healed",
                 "━ no fault", "━ today", "━ Syntony", "killed"):  # fmt: skip
        assert said in written(figure)
    assert_legible(figure)
    assert_headed(figure)


def test_each_run_is_named_in_its_own_colour(saved: list[Figure]) -> None:
    figure = throughput(saved, *LINES)
    named = {text.get_text(): to_hex(text.get_color()) for text in figure.texts}
    by_colour = curves(figure.axes[0])
    for line in (LINES[0], LINES[2]):
        assert by_colour[named["━ " + line.label]] == list(zip(line.at_s, line.rate, strict=True))


@pytest.mark.parametrize(
    "lines", [(), (ThroughputLine(label="x", note="y", at_s=(), rate=(), ends_s=1.0),)]
)
def test_throughput_without_anything_measured_is_an_empty_chart(
    saved: list[Figure], lines: tuple[ThroughputLine, ...]
) -> None:
    figure = throughput(saved, *lines, faults=())
    (axes,) = figure.axes
    assert axes.get_xlim() == (0.0, 1.0)
    low, high = axes.get_ylim()
    assert low < 0
    assert high > 1
    assert "healed" not in written(figure)


def contention(
    saved: list[Figure], jobs: int, delay: tuple[float, ...] = (2.0, 7.0, 1.0)
) -> Figure:
    at_s = (-5.0, 0.0, 5.0)
    picture = drill_charts.ContentionChart(
        title="A title", subtitle="a subtitle", optimum=100.0,
        jobs=tuple(
            ContentionCurve.of(f"job{k}", np.array(at_s), np.array([10.0, 20.0, 30.0 + k]))
            for k in range(jobs)
        ),
        delay=ContentionCurve(label="delay, ms", at_s=at_s, value=delay),
    )  # fmt: skip
    picture.render("png")
    return saved[-1]


def test_contention_shows_each_job_all_together_the_optimum_and_the_delay(
    saved: list[Figure],
) -> None:
    figure = contention(saved, 2)
    above, below = figure.axes
    labelled = {str(line.get_label()): line for line in above.lines}
    assert np.asarray(labelled["job1"].get_ydata()).tolist() == [10.0, 20.0, 31.0]
    assert np.asarray(labelled["all jobs"].get_ydata()).tolist() == [20.0, 40.0, 61.0]
    assert set(np.asarray(labelled["optimum of all"].get_ydata()).tolist()) == {100.0}
    assert upright_at(above) == upright_at(below) == [0.0]
    assert above.get_ylim()[0] == 0
    assert 100 < above.get_ylim()[1] < 200
    assert np.asarray(below.lines[0].get_ydata()).tolist() == [2.0, 7.0, 1.0]
    assert 7 < below.get_ylim()[1] < 14
    told_names = [text.get_text() for text in legend_of(above)]
    assert sorted(told_names) == ["all jobs", "job0", "job1", "optimum of all"]
    for said in ("A title", "a subtitle", "Syntony acts", "payload, Mb/s", "delay, ms",
                 "seconds since Syntony was switched on"):  # fmt: skip
        assert said in written(figure)
    assert_legible(figure)
    assert_headed(figure)


def test_one_job_needs_no_sum_and_a_short_delay_is_not_blown_up(saved: list[Figure]) -> None:
    figure = contention(saved, 1, delay=(0.001, 0.002, 0.001))
    above, below = figure.axes
    assert "all jobs" not in {line.get_label() for line in above.lines}
    assert 1 <= below.get_ylim()[1] < 2


def test_placement_shows_every_policy_to_the_last_epoch(saved: list[Figure]) -> None:
    lines = {"ecmp": [0.5], "syntony": [0.6, 0.6, 1.0], "load-aware": [0.5, 0.9, 1.0]}
    placement_chart.render("A title", "a subtitle", lines)
    (figure,) = saved
    (axes,) = figure.axes
    drawn = [np.asarray(line.get_ydata()).tolist() for line in axes.lines]
    assert sorted(drawn) == [[0.5, 0.5, 0.5], [0.5, 0.9, 1.0], [0.6, 0.6, 1.0]]
    assert all(np.asarray(line.get_xdata()).tolist() == [0, 1, 2] for line in axes.lines)
    assert axes.get_xlim() == (0, 2)
    assert 0.4 < axes.get_ylim()[0] < 0.5, "the lowest line is seen, and little below it"
    assert axes.get_ylim()[1] > 1
    assert len({line.get_color() for line in axes.lines}) == 3
    assert {"epochs", "mean rate, part of the optimum"} <= set(written(figure).splitlines())
    assert_legible(figure)
    assert_headed(figure)


DELAYS = DelayReport(
    src="h0/rail0", dst="h1/rail0", at_s=[-2.0, -1.0, 0.0], forward_ns=[40_000, 41_000, 42_000],
    reverse_ns=[4_000, 4_000, 4_000], half_rtt_ns=[22_000.0, 22_500.0, 23_000.0],
    raw_forward_ns=[5_040_000, 5_041_000, 5_042_000], raw_reverse_ns=[-4_996_000] * 3,
    clock_error_ns=[-30.0, None, 20.0],
)  # fmt: skip


def test_delays_are_shown_by_direction_beside_half_the_round_trip() -> None:
    figure = clock_plots.plot_delays(DELAYS)
    top, bottom = figure.axes
    drawn = [np.asarray(line.get_ydata()).tolist() for line in top.lines]
    assert drawn == [[40.0, 41.0, 42.0], [4.0, 4.0, 4.0], [22.0, 22.5, 23.0]]
    assert top.get_yscale() == "log"
    assert np.asarray(bottom.lines[0].get_ydata()).tolist() == [5.040, 5.041, 5.042]
    assert np.asarray(bottom.lines[1].get_ydata()).tolist() == [-4.996] * 3
    assert [axes.get_ylabel() for axes in figure.axes] == ["one-way delay, µs", "ms"]
    assert bottom.get_xlabel() == "seconds before now"
    assert top.get_xlim() == bottom.get_xlim(), "the same instant above and below"
    assert "Half the round trip is 18.9 µs off" in written(figure)
    assert "one-way delays, 30 ns" in written(figure)
    assert "some arrived before they were sent" in written(figure)
    assert_legible(figure)
    names = {text.get_text(): text for text in top.texts}
    directions = ("h0/rail0 → h1/rail0", "h1/rail0 → h0/rail0", "half the round trip")
    for line, name in zip(top.lines, directions, strict=True):
        assert names[name].get_color() == line.get_color()
        at_s, height = names[name].xy  # type: ignore[attr-defined]
        assert at_s == DELAYS.at_s[-1]
        assert height == pytest.approx(float(np.asarray(line.get_ydata())[-1]), rel=0.05)


def test_names_of_lines_that_end_together_stand_above_each_other() -> None:
    near = DELAYS.__class__(
        **{name: getattr(DELAYS, name) for name in DELAYS.__struct_fields__}
        | {"reverse_ns": [39_000] * 3, "half_rtt_ns": [39_500.0] * 3, "raw_reverse_ns": [1] * 3}
    )
    figure = clock_plots.plot_delays(near)
    assert "before they were sent" not in written(figure)
    assert_legible(figure)


AHEAD = {"h0": 0, "h1": 5_000_000, "h2": -7_000_000}
ERRORS = {"h0": 0, "h1": 30, "h2": -20}


def fleet(seconds: int = 5) -> ClockReport:
    rows = [each for node in AHEAD for each in reported(node, AHEAD[node], ERRORS[node], seconds)]
    rows += [sample("h3", second, state=ClockState.HOLDOVER, bound_ns=None, drift_ppb=7.0 + second)
             for second in range(seconds)]  # fmt: skip
    return summarize_clocks(
        "lab", rows, S, truth={node: truth(ahead) for node, ahead in AHEAD.items()}
    )


def test_errors_are_shown_over_time_and_against_their_bounds() -> None:
    figure = clock_plots.plot_errors(fleet())
    left, right = figure.axes
    named = {str(line.get_label()): np.asarray(line.get_ydata()) for line in left.lines}
    assert named["h1"].tolist() == [-30.0] * 5
    assert named["h2"].tolist() == [20.0] * 5
    clouds = [each for each in right.collections if isinstance(each, PathCollection)]
    points = [np.asarray(each.get_offsets()) for each in clouds]
    spots = {tuple(spot) for cloud in points for spot in cloud.tolist() if spot[0] == spot[0]}
    assert spots == {(40.0, 0.5), (40.0, 30.0), (40.0, 20.0)}, "nothing is drawn at half a ns"
    (limit,) = [np.asarray(line.get_ydata()) for line in right.lines]
    assert limit.tolist() == np.asarray(right.lines[0].get_xdata()).tolist(), "error = bound"
    assert (right.get_xscale(), right.get_yscale()) == ("log", "log")
    low, high = right.get_ylim()
    assert 0 < low < 0.5
    assert high > 40
    (lie,) = [each for each in right.collections if not isinstance(each, PathCollection)]
    area = lie.get_datalim(right.transData)
    assert area.x0 <= right.get_xlim()[0]
    assert area.x1 >= right.get_xlim()[1]
    assert area.y1 >= high, "red up to the top, above the bound only"
    assert area.y0 == pytest.approx(area.x0)
    assert "95 % of errors below 30 ns, worst 30 ns" in written(figure)
    assert "0 of 15 beyond their bound" in written(figure)
    assert [left.get_ylabel(), right.get_ylabel()] == ["clock error, ns", "|error|, ns"]
    assert [left.get_xlabel(), right.get_xlabel()] == ["seconds before now", "reported bound, ns"]
    assert {text.get_text() for text in legend_of(left)} == {*AHEAD, "h3"}
    assert_legible(figure)
    top = max(float(line.max()) for node, line in named.items() if node in AHEAD)
    low, high = left.get_ylim()
    assert top + 0.1 * (high - low) < high < top + (high - low) / 2, "room for the legend"


def test_every_clock_is_shown_with_its_lapses() -> None:
    figure = clock_plots.plot_clocks(fleet())
    offset, drift, bound = figure.axes
    assert np.asarray(offset.lines[1].get_ydata()).tolist() == pytest.approx([-5.00003] * 5)
    named = {str(line.get_label()): np.asarray(line.get_ydata()) for line in drift.lines}
    assert named["h3"].tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0], "around the clock's own median"
    bounds = [line for line in bound.lines if line.get_marker() != "|"]
    assert [np.asarray(line.get_ydata()).tolist() for line in bounds[:3]] == [[40.0] * 5] * 3
    assert np.isnan(np.asarray(bounds[3].get_ydata())).all(), "of h3 none was told"
    marks = [line for line in bound.lines if line.get_marker() == "|"]
    marked = [np.asarray(line.get_xdata()).tolist() for line in marks]
    assert marked == [[], [], [], [-4.0, -3.0, -2.0, -1.0, 0.0]]
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    (height,) = set(marks[-1].get_transform().transform(marks[-1].get_xydata())[:, 1].tolist())
    low, high = bound.get_window_extent().y0, bound.get_window_extent().y1
    above = (height - low) / (high - low)
    assert 0.02 < above < 0.2, "at the foot of the axes, and all of it seen"
    assert [axes.get_ylabel() for axes in figure.axes] == ["ms", "ppb", "ns"]
    assert bound.get_xlabel() == "seconds before now"
    assert bound.get_yscale() == "log"
    assert "75.0% of samples synchronized" in written(figure)
    assert "median 40 ns" in written(figure)
    assert_legible(figure)
    below = next(t for t in offset.texts if t.get_text() == "Fleet time minus local time")
    left = offset.get_window_extent().x0
    assert below.get_window_extent().x0 == pytest.approx(left, abs=3)


def test_without_matplotlib_a_chart_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    drill_charts.check()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingError, match=r"pip install 'syntony\[report\]'"):
        drill_charts.check()
    with pytest.raises(MissingError):
        drill_charts.render_figure((1.0, 1.0), lambda _: None, "svg")


@pytest.mark.parametrize(("clocks", "named"), [(12, True), (13, False)])
def test_up_to_twelve_clocks_are_told_apart(clocks: int, named: bool) -> None:
    rows = [sample(f"h{n}", second) for n in range(clocks) for second in range(2)]
    with mpl.rc_context({"legend.frameon": False}):
        figure = clock_plots.plot_clocks(summarize_clocks("x", rows, S))
    drift = figure.axes[1]
    assert (drift.get_legend() is not None) is named
    assert len({line.get_color() for line in drift.lines}) == (8 if named else 1)


def test_without_a_truth_nothing_is_said_of_clocks_behind_delays() -> None:
    blind = DELAYS.__class__(
        **{name: getattr(DELAYS, name) for name in DELAYS.__struct_fields__}
        | {"clock_error_ns": [None] * 3}
    )
    said = written(clock_plots.plot_delays(blind))
    assert "Half the round trip is 18.9 µs off" in said
    assert "clocks behind" not in said


def test_raw_stamps_are_shown_beside_a_line_at_nothing() -> None:
    bottom = clock_plots.plot_delays(DELAYS).axes[1]
    heights = [set(np.asarray(line.get_ydata()).tolist()) for line in bottom.lines]
    assert heights[-1] == {0.0}


def test_charts_of_a_report_have_a_grid_below_their_lines_and_no_frame() -> None:
    with mpl.rc_context(clock_plots._STYLE):
        figures = [clock_plots.plot_delays(DELAYS), clock_plots.plot_errors(fleet()),
                   clock_plots.plot_clocks(fleet())]  # fmt: skip
    for figure in figures:
        assert_fits_a_page(figure)
    for axes in (each for figure in figures for each in figure.axes):
        assert all(line.get_visible() for line in axes.get_ygridlines())
        assert axes.get_axisbelow() is True
        shown = {side for side, spine in axes.spines.items() if spine.get_visible()}
        assert shown <= {"left", "bottom"}


def test_delays_are_written_as_plain_numbers() -> None:
    figure = clock_plots.plot_delays(DELAYS)
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    axis = figure.axes[0].yaxis
    low, high = figure.axes[0].get_ylim()
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    shown = {tick.label1.get_text() for tick in ticks if low <= tick.get_loc() <= high}
    assert shown == {"5", "10", "20"}
