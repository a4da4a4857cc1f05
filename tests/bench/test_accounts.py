"""What benchmarks count: rows lost and doubled, messages told twice, pages that fit a cause."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from bench.acknowledged import Account, InStore, account, acknowledged, embedded, waiting
from bench.key_rotation import Sent, missing
from bench.localise_cases import LOSS, SWITCH, Case, fits
from bench.pages import Doubled, Message, doubled
from tests.link import open_spool, probe_rows
from tests.wire.decoded import decode_columns

from syntony.store import open_store
from syntony.wire.tables import PROBE

WHOLE = InStore(10, 1)


@pytest.mark.parametrize(
    ("found", "lost_batches", "lost_rows", "doubled_rows"),
    [
        ([(1, WHOLE), (2, WHOLE), (3, WHOLE)], 0, 0, 0),
        ([(1, WHOLE), (3, WHOLE)], 1, 0, 0),
        ([(1, WHOLE), (2, InStore(7, 1))], 0, 3, 0),
        ([(1, WHOLE), (2, InStore(14, 1))], 0, 0, 4),
        ([(1, InStore(20, 2)), (2, WHOLE)], 0, 0, 10),
        ([(1, InStore(20, 1)), (2, WHOLE)], 0, 0, 0),
        ([(1, WHOLE), (1, WHOLE), (2, WHOLE)], 0, 0, 10),
    ],
    ids=[
        "whole",
        "number missing",
        "rows missing",
        "inserted in part again",
        "inserted twice",
        "of unknown size, some rows alike",
        "under two streams",
    ],
)
def test_a_batch_is_there_once_and_whole(
    found: list[tuple[int, InStore]], lost_batches: int, lost_rows: int, doubled_rows: int
) -> None:
    sizes = {("h1", 2): 10, ("h1", 3): 10}
    parts = [(("h1", seq), part) for seq, part in found]
    own = [(("controller", 1), WHOLE), (("controller", 1), WHOLE)]
    got = account(sizes, {"h1": 2}, parts + own)
    assert got == Account(
        batches=len({seq for seq, _ in found}),
        rows=sum(part.rows for _, part in found),
        acknowledged=2,
        sized=1,
        lost_batches=lost_batches,
        lost_rows=lost_rows,
        doubled_rows=doubled_rows,
    )


def test_numbers_are_read_from_a_real_spool_and_store(tmp_path: Path) -> None:
    spool = open_spool(tmp_path / "spools/h1", 1 << 20)
    store = open_store(str(tmp_path / "store"))
    for second in range(4):
        count, data = probe_rows("h1", second, ("h8/rail0", "h9/rail0"))
        seq = spool.append(PROBE.name, count, data)
        if second < 2:
            rows = decode_columns(PROBE, data)
            for name, value in (("host", "h1"), ("stream", spool.stream), ("seq", seq)):
                rows = rows.append_column(name, [[value] * count])
            store.insert(PROBE, rows)
    spool.acknowledge(3)
    spool.close()
    store.close()
    sizes, safe = waiting(tmp_path / "spools"), acknowledged(tmp_path / "spools")
    assert safe == {"h1": 3}
    got = account(sizes, safe, embedded(tmp_path / "store"))
    assert (got.batches, got.rows, got.sized) == (2, 4, 3)
    assert (got.lost_batches, got.lost_rows, got.doubled_rows) == (1, 0, 0)


def reported(*events: str) -> list[Message]:
    """``KEY EVENT`` of one port's incident."""
    pairs = [each.split() for each in events]
    return [Message(key, event, "port-down", "h1/rail0") for key, event in pairs]


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        (("1 page", "2 clear", "3 page", "4 clear"), Doubled(0, 0)),
        (("1 page", "1 page", "2 clear"), Doubled(0, 1)),
        (("1 page", "2 page", "3 clear"), Doubled(1, 0)),
        (("1 page", "2 clear", "1 page", "3 clear"), Doubled(1, 1)),
    ],
)
def test_a_message_told_again_is_told_from_the_next(
    events: tuple[str, ...], wanted: Doubled
) -> None:
    other = Message("9", "page", "port-down", "h2/rail0")
    assert doubled([*reported(*events), other]) == wanted


@pytest.mark.parametrize(("known", "gaps"), [((5, 6, 7), 0), ((5, 7), 1), ((7, 5, 9), 2)])
def test_a_second_without_a_row_is_missing(known: tuple[int, ...], gaps: int) -> None:
    seconds = defaultdict(dict, {("a", "b"): dict.fromkeys(known, Sent(1, 0))})
    seconds["b", "a"] = {1: Sent(1, 0)}
    assert missing(seconds) == gaps


@pytest.mark.parametrize(
    ("page", "part"),
    [
        (("switch-down", "leaf0-1"), {"leaf0-1": "right"}),
        (("port-down", "h2/rail0"), {"leaf0-1": "twin"}),
        (("port-down", "h0/rail0"), {}),
        (("ambiguous-loss", "h2/rail0 or leaf0-1"), {}),
        (("switch-loss", "leaf0-0"), {}),
    ],
)
def test_a_dead_leaf_is_told_by_its_name_or_by_the_only_port_at_it(
    page: tuple[str, str], part: dict[str, str]
) -> None:
    lone = {"h2/rail0": "leaf0-1", "h7/rail1": "leaf1-0"}
    dead = Case("leaf dies", [], {"leaf0-1": SWITCH}, lone)
    assert fits(page, dead) == part
    assert fits(page, Case("leaf dies", [], {"leaf0-2": SWITCH}, lone)) == {}


CABLES = "leaf0--spine0", "leaf1--spine0"


@pytest.mark.parametrize(
    ("subject", "wanted"),
    [
        (f"{CABLES[0]} or {CABLES[1]} or spine0", dict.fromkeys(CABLES, "twin")),
        (CABLES[0], {CABLES[0]: "right"}),
        ("leaf1->spine0", {CABLES[1]: "twin"}),
        ("spine0", {}),
    ],
)
def test_one_page_may_be_about_both_cables_of_a_spine(subject: str, wanted: dict[str, str]) -> None:
    case = Case("two cables lose", [], dict.fromkeys(CABLES, LOSS))
    assert fits(("ambiguous-loss", subject), case) == wanted
