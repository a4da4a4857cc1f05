import io

import pytest
from rich.console import Console, RenderableType

from syntony.model.names import natural
from syntony.view.heatmap import (
    _CELL,
    _SHADES,
    MAX_BLOCKS,
    _microseconds,
    _shade,
    _short,
    heatmap,
    is_dark,
    listing,
)
from syntony.wire.probes import MatrixCell


def cell(
    src: str, dst: str, *, owd_ns: int | None = 10_000, sent: int = 10, lost: int = 0
) -> MatrixCell:
    return MatrixCell(
        src=src,
        dst=dst,
        paths=8,
        sent=sent,
        lost=lost,
        owd_min_ns=owd_ns,
        owd_p50_ns=owd_ns,
        owd_p99_ns=owd_ns,
        clk_err_ns=40,
        dropped=0,
    )


def shown(renderable: RenderableType, width: int = 120) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(renderable)
    return out.getvalue()


CELLS = [
    cell("h2/rail0", "h10/rail1", owd_ns=12_345),
    cell("h10/rail1", "h2/rail0", owd_ns=None, lost=10),
    cell("h10/rail1", "h0/rail0", owd_ns=250_000, lost=1),
    cell("h0/rail0", "h2/rail0", owd_ns=None),
]


def test_rows_and_columns_are_in_numeric_order_with_a_legend() -> None:
    lines = shown(heatmap(CELLS, width=120)).splitlines()
    assert lines[0].split() == ["0/0", "2/0", "10/1"]
    assert [line.split()[0] for line in lines[1:4]] == ["h0/rail0", "h2/rail0", "h10/rail1"]
    assert lines[2].split()[1:] == ["·", "·", "12.3"]
    assert lines[3].split()[1:] == ["250", "lost", "·"]
    assert "?" in lines[1]
    assert "µs" in lines[4]


@pytest.mark.parametrize(
    ("owd_ns", "place"),
    [(10_000, 0.0), (10_001, 0.0), (15_000, 0.5), (19_999, 1.0), (20_000, 1.0)],
)
def test_cells_are_shaded_from_the_shortest_delay_to_the_longest(owd_ns: int, place: float) -> None:
    shade = _SHADES.index(_shade(owd_ns, (10_000.0, 20_000.0)))
    assert shade == min(int(place * len(_SHADES)), len(_SHADES) - 1)
    assert _shade(owd_ns, (owd_ns, owd_ns)) == _SHADES[0], "all alike"


@pytest.mark.parametrize(
    ("owd_ns", "text"),
    [(12_345, "12.3"), (99_949, "99.9"), (99_951, "100"), (250_000, "250"), (-99_960, "-100")],
)
def test_a_delay_fits_its_column(owd_ns: int, text: str) -> None:
    assert _microseconds(owd_ns) == text


def test_names_are_shortened_where_they_are_numbered() -> None:
    assert [_short(name) for name in ("h3/rail0", "gpu012/mlx5_1", "alpha/rail0")] == [
        "3/0", "012/51", "alpha/rail0"[: _CELL - 1]
    ]  # fmt: skip


def test_a_matrix_too_wide_is_divided_and_one_far_too_wide_is_listed() -> None:
    names = [f"h{host}/rail{rail}" for host in range(8) for rail in range(2)]
    cells = [cell(src, dst) for src in names for dst in names if src != dst]
    lines = shown(heatmap(cells, width=80), width=80).splitlines()
    heads = [line.split() for line in lines if line.startswith("  ")]
    assert [len(head) for head in heads] == [8, 8]
    assert heads[0] + heads[1] == [_short(name) for name in names]
    assert sum(line.startswith("h3/rail0 ") for line in lines) == 2
    assert max(map(len, lines)) <= 80
    narrow = 9 + _CELL * 16 // MAX_BLOCKS
    assert "p99 µs" in shown(heatmap(cells, width=narrow - _CELL), width=80)
    assert "p99 µs" in shown(heatmap(CELLS, width=14)), "no room for one column"


def test_the_listing_has_one_line_per_direction() -> None:
    lines = shown(listing(CELLS)).splitlines()
    assert len(lines) == 1 + len(CELLS)
    assert lines[1].split()[:2] == ["h0/rail0", "h2/rail0"]


def test_every_column_of_the_listing_has_its_heading_and_every_figure_its_unit() -> None:
    lines = shown(listing([cell("h0/rail0", "h1/rail0", owd_ns=12_345, sent=9, lost=2)]))
    head, row = (line.split() for line in lines.splitlines())
    assert len(row) == 10
    assert row[:5] == ["h0/rail0", "h1/rail0", "8", "9", "2"]
    assert row[5:8] == ["12.35"] * 3 or row[5:8] == ["12.34"] * 3, "µs"
    assert row[8:] == ["40", "0"]
    assert [word for word in head if word in {"min", "p50", "p99"}] == ["min", "p50", "p99"]
    assert head.count("µs") == 3
    legend = " ".join(" ".join(shown(heatmap(CELLS, width=200)).splitlines()[4:]).split())
    for said in (
        "12.3", "250", "lost more than half", "12.3 some lost", "30% lost, delay not known",
        "– not measured: the other direction is lost, or nothing was sent", "· not probed",
        "? clocks not known",
    ):  # fmt: skip
        assert said in legend


@pytest.mark.parametrize(
    "names",
    [["h2", "h10"], ["h2/rail1", "h2/rail02", "h2/rail10", "h10"], ["a", "b1", "b2", "b10"]],
)
def test_names_are_in_the_order_of_their_numbers(names: list[str]) -> None:
    assert min(names, key=natural) == names[0]
    assert sorted({*names}, key=natural) == names


@pytest.mark.parametrize(
    ("sent", "lost", "back", "shown_as"),
    [
        (10, 0, 0, "?"),  # clocks not known
        (10, 3, 0, "30%"),
        (10, 0, 9, "–"),  # our probes arrive, and no reply comes back with a stamp
        (10, 3, 9, "–"),
        (10, 9, 9, "lost"),
        (0, 0, 0, "–"),
    ],
)
def test_a_direction_without_delay_says_what_was_measured(
    sent: int, lost: int, back: int, shown_as: str
) -> None:
    cells = [
        cell("h0/x", "h1/x", owd_ns=None, sent=sent, lost=lost),
        cell("h1/x", "h0/x", owd_ns=None, lost=back),
    ]
    assert shown(heatmap(cells, width=120)).splitlines()[1].split() == ["h0/x", "·", shown_as]


def test_no_pairs_yet() -> None:
    assert "no probes yet" in shown(heatmap([], width=80))


@pytest.mark.parametrize(
    ("sent", "lost", "dark"), [(10, 10, True), (10, 6, True), (10, 5, False), (0, 0, False)]
)
def test_darkness(sent: int, lost: int, dark: bool) -> None:
    assert is_dark(cell("a/x", "b/x", sent=sent, lost=lost)) is dark
