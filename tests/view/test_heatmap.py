import io

import pytest
from rich.console import Console, RenderableType

from syntony.view.heatmap import heatmap, is_dark, listing
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
    assert lines[3].split()[1:] == ["250", "×", "·"]
    assert "?" in lines[1]
    assert "µs" in lines[4]
    assert "dark" in lines[4]


def test_a_matrix_too_wide_is_listed() -> None:
    assert "p99 µs" in shown(heatmap(CELLS, width=20))


def test_the_listing_has_one_line_per_direction() -> None:
    lines = shown(listing(CELLS)).splitlines()
    assert len(lines) == 1 + len(CELLS)
    assert lines[1].split()[:2] == ["h0/rail0", "h2/rail0"]


def test_no_pairs_yet() -> None:
    assert "no pairs" in shown(heatmap([], width=80))


@pytest.mark.parametrize(
    ("sent", "lost", "dark"), [(10, 10, True), (10, 6, True), (10, 5, False), (0, 0, False)]
)
def test_darkness(sent: int, lost: int, dark: bool) -> None:
    assert is_dark(cell("a/x", "b/x", sent=sent, lost=lost)) is dark
