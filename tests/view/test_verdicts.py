"""Every verdict on clocks and every cell of the matrix, by what its words promise."""

from __future__ import annotations

import io
import itertools
import math

import msgspec
import pytest
from rich.console import Console

from syntony.model import ClockState, S, Timeline
from syntony.model.names import natural
from syntony.view.clocks import ClockReading, newest_ns, plain_line, readings, verdict
from syntony.view.heatmap import heatmap, is_dark, listing
from syntony.wire.probes import MatrixCell

SYNC, HELD, BROKEN, UNKNOWN = (
    ClockState.SYNCHRONIZED, ClockState.HOLDOVER, ClockState.DISRUPTED, ClockState.UNKNOWN,
)  # fmt: skip
WARN_NS, CRITICAL_NS = 1_000.0, 10_000.0


def reading(
    state: ClockState, bound_ns: float | None, island: str = "h0", node: str = "h0"
) -> ClockReading:
    return ClockReading(
        node=node, state=state, offset_ns=1.0, drift_ppb=2.0, sigma_ns=3.0, bound_ns=bound_ns,
        island=island, reason="",
    )  # fmt: skip


def expected(found: list[ClockReading]) -> int:
    """As `syntony clock status --help` words it, one question after the other."""
    if any(r.state is BROKEN or (r.bound_ns or 0) > CRITICAL_NS for r in found):
        return 2
    if not found or any(r.state is UNKNOWN for r in found):
        return 3
    held = any(r.state is HELD or (r.bound_ns or 0) > WARN_NS for r in found)
    return int(held or len({r.island for r in found if r.state is SYNC and r.island}) > 1)


KINDS = [
    reading(SYNC, WARN_NS), reading(SYNC, WARN_NS + 1), reading(SYNC, CRITICAL_NS),
    reading(SYNC, CRITICAL_NS + 1), reading(SYNC, 10.0, "h7"), reading(SYNC, 10.0, ""),
    reading(HELD, 10.0, "h7"), reading(BROKEN, 10.0), reading(UNKNOWN, None, ""),
]  # fmt: skip


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_any_clocks_have_the_verdict_of_their_worst(size: int) -> None:
    words = ("CLOCK OK", "CLOCK WARNING", "CLOCK CRITICAL", "CLOCK UNKNOWN")
    for kinds in itertools.combinations_with_replacement(KINDS, size):
        found = [msgspec.structs.replace(kind, node=f"h{k}") for k, kind in enumerate(kinds)]
        reported = verdict(found, WARN_NS, CRITICAL_NS)
        assert reported.code == expected(found), found
        assert reported.text.startswith(words[reported.code])


def test_a_verdict_names_the_worst_bound_and_its_limits() -> None:
    found = [
        reading(SYNC, 20.0, node="a"),
        reading(HELD, 900.0, node="b"),
        reading(SYNC, 30.0, "z"),
    ]
    reported = verdict(found, WARN_NS, CRITICAL_NS).text
    assert reported == (
        "CLOCK WARNING - 2 SYNCHRONIZED, 1 HOLDOVER on 2 islands; "
        "worst bound 900 ns (b) | bound=900ns;1000;10000"
    )
    assert verdict(found).text.endswith("| bound=900ns;;")
    assert verdict([]).text == "CLOCK UNKNOWN - no clock is known"


def line(node: str, **changes: object) -> Timeline:
    fields: dict[str, object] = {
        "node": node, "ref_ns": 100 * S, "offset_ns": 0.0, "drift_ppb": 0.0, "sigma_ns": 1.0,
        "state": SYNC,
    }  # fmt: skip
    return Timeline(**(fields | changes))  # type: ignore[arg-type]


def test_clocks_are_read_at_the_newest_instant_and_the_worst_comes_first() -> None:
    lines = [
        line("h2", drift_ppb=1_000.0), line("h10", ref_ns=110 * S, sigma_ns=1e6),
        line("h1", ref_ns=500 * S, state=UNKNOWN), line("h3", state=HELD),
        line("h4", ref_ns=90 * S, offset_ns=5e9),
    ]  # fmt: skip
    assert newest_ns(lines) == 110 * S
    assert newest_ns([]) == newest_ns(lines[2:3]) == 0
    found = readings(lines, expected=["h10", "h77"])
    assert [each.node for each in found] == ["h1", "h77", "h3", "h10", "h4", "h2"]
    by_node = {each.node: each for each in found}
    assert by_node["h2"].offset_ns == pytest.approx(10_000, rel=1e-4), "1,000 ppb for 10 s"
    assert by_node["h77"].reason
    assert by_node["h1"].bound_ns is None
    assert "bound ±–" in plain_line(by_node["h77"], "now")
    assert plain_line(by_node["h2"], "now").startswith("now h2 SYNCHRONIZED bound ±")
    assert "offset 10 µs drift +1000.0 ppb" in plain_line(by_node["h2"], "now")


# --- the matrix ---


def cell(
    src: str, dst: str, p50_ns: int | None = 5_000, sent: int = 100, lost: int = 0
) -> MatrixCell:
    return MatrixCell(
        src=src, dst=dst, paths=8, sent=sent, lost=lost, owd_min_ns=p50_ns, owd_p50_ns=p50_ns,
        owd_p99_ns=p50_ns, clk_err_ns=None, dropped=0,
    )  # fmt: skip


def drawn(thing: object, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(thing)
    return console.export_text()


@pytest.mark.parametrize(
    ("sent", "lost", "dark"), [(100, 50, False), (100, 51, True), (0, 0, False), (1, 1, True)]
)
def test_more_than_half_lost_is_dark(sent: int, lost: int, dark: bool) -> None:
    assert is_dark(cell("a", "b", sent=sent, lost=lost)) == dark


def test_a_matrix_has_a_row_for_each_sender() -> None:
    cells = [cell("h0/r0", "h1/r0", 12_340), cell("h1/r0", "h0/r0", 123_400),
             cell("h0/r0", "h10/r0", None), cell("h10/r0", "h0/r0", lost=99)]  # fmt: skip
    rows = drawn(heatmap(cells, width=100)).splitlines()
    assert rows[0].split() == ["0/0", "1/0", "10/0"]
    assert rows[1].split() == ["h0/r0", "·", "12.3", "–"]
    assert rows[2].split() == ["h1/r0", "123", "·", "·"]
    assert rows[3].split() == ["h10/r0", "lost", "·", "·"]
    assert "5.0 ■" in rows[4]
    assert "■ 123" in rows[4]


def test_a_matrix_that_does_not_fit_is_listed() -> None:
    cells = [cell(f"h{k}/r0", f"h{k + 1}/r0", lost=k) for k in range(4)]
    fitting = 6 + 5 * 5
    assert "rows send" in drawn(heatmap(cells, width=fitting))
    assert "rows send" in drawn(heatmap(cells, width=fitting - 1)), "in two blocks"
    listed = drawn(heatmap(cells, width=6 + 5)).splitlines()
    assert listed[0].split()[:5] == ["from", "to", "paths", "sent", "lost"]
    assert [line.split()[0] for line in listed[1:]] == ["h0/r0", "h1/r0", "h2/r0", "h3/r0"]
    assert listed[2].split()[:9] == [
        "h1/r0", "h2/r0", "8", "100", "1", "5.00", "5.00", "5.00", "–",
    ]  # fmt: skip
    assert "–" in drawn(listing([cell("a", "b", None)]))
    assert drawn(heatmap([], width=80)).strip() == "no probes yet"


def test_names_are_sorted_by_their_numbers() -> None:
    names = ["h2", "h10/rail1", "h10/rail0", "h1", "h02x", "a9", "a10"]
    assert sorted(names, key=natural) == [
        "a9", "a10", "h1", "h2", "h02x", "h10/rail0", "h10/rail1",
    ]  # fmt: skip
    assert math.isfinite(len(natural("")))
