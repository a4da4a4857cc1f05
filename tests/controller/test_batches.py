"""Batches opened together are what each is by itself: a generator of good and bad ones."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.link import T0

from syntony.controller import batches
from syntony.controller.batches import Arrival, BatchPiece, joined, open_batches, together
from syntony.errors import WireError
from syntony.model import HOUR_NS, S
from syntony.wire.arrow import MAX_ROWS, MessageHeader, arrow_schema, encode_columns
from syntony.wire.messages import Batch
from syntony.wire.tables import HEARD, PROBE, Table

HOSTS = ("h1", "h2", "h3", "h4", "h5")
Columns = dict[str, Any]
Spoil = Callable[[random.Random, str, Columns], None]


def columns_of(draw: random.Random, table: Table, host: str) -> Columns:
    """Rows that a host may send; some tables of several NICs, of several seconds."""
    rows = draw.randint(1, 12)
    found: Columns = {}
    for column in table.columns:
        if column.type == "string":
            found[column.name] = [f"p{draw.randint(0, 9)}/rail0" for _ in range(rows)]
        else:
            found[column.name] = np.array([draw.randint(0, 9) for _ in range(rows)], column.type)
    own = [f"{host}/rail{draw.randint(0, 1)}" for _ in range(rows)]
    found[table.owner] = own
    if table is PROBE:
        ends = [draw.choice(("src", "dst")) for _ in range(rows)]
        for end in ("src", "dst"):
            found[end] = [
                name if which == end else other
                for name, which, other in zip(own, ends, found[end], strict=True)
            ]
    found["ts_ns"] = T0 + S * np.array([draw.randint(0, 2) for _ in range(rows)])
    return found


def another_owner(draw: random.Random, host: str, columns: Columns) -> None:
    owner = "prober" if "prober" in columns else "dst"
    columns[owner][draw.randrange(len(columns[owner]))] = f"{host}x/rail0"


def a_neighbour(draw: random.Random, host: str, columns: Columns) -> None:
    """One that delivers batches as well."""
    owner = "prober" if "prober" in columns else "dst"
    other = draw.choice([each for each in HOSTS if each != host])
    place = draw.randrange(len(columns[owner]))
    columns[owner][place] = columns["src"][place] = f"{other}/rail0"


def neither_end(draw: random.Random, host: str, columns: Columns) -> None:
    place = draw.randrange(len(columns["src"]))
    if "prober" in columns:
        columns["src"][place] = columns["dst"][place] = "p/rail0"
    else:
        columns["dst"][place] = "p/rail0"


def instant(at_ns: int) -> Spoil:
    def spoil(draw: random.Random, host: str, columns: Columns) -> None:
        columns["ts_ns"][draw.randrange(len(columns["ts_ns"]))] = at_ns

    return spoil


def a_null(draw: random.Random, host: str, columns: Columns) -> None:
    columns["src"][draw.randrange(len(columns["src"]))] = None


def not_text(draw: random.Random, host: str, columns: Columns) -> None:
    columns["src"][draw.randrange(len(columns["src"]))] = "~marked~"


SPOILS: tuple[Spoil, ...] = (
    another_owner,
    a_neighbour,
    neither_end,
    instant(-1),
    instant(T0 + 2 * HOUR_NS),
    instant(T0 - 9_000_000 * S),
    a_null,
    not_text,
)


def stream(table: Table, columns: Columns, parts: int = 1) -> bytes:
    """An Arrow stream in `parts` record batches, of one by the agents' writer where it can write
    it; `~marked~` becomes text that is no UTF-8."""
    if parts == 1 and None not in columns["src"]:
        return encode_columns(table, columns).replace(b"~marked~", b"~mark\xff\xfe~")
    rows = pa.table(columns, schema=arrow_schema(table))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        for batch in rows.to_batches(max_chunksize=-(-rows.num_rows // parts)):
            writer.write_batch(batch)
    return sink.getvalue().replace(b"~marked~", b"~mark\xff\xfe~")


def arrivals(draw: random.Random, *, bad: float) -> tuple[list[Arrival], list[Columns], list[bool]]:
    made, rows, good = [], [], []
    for seq in range(1, draw.randint(2, 40)):
        table, host = draw.choice((PROBE, HEARD)), draw.choice(HOSTS)
        columns = columns_of(draw, table, host)
        spoilt = draw.random() < bad
        count = len(columns["ts_ns"])
        if spoilt:
            draw.choice(SPOILS)(draw, host, columns)
        data = stream(table, columns, draw.choice((1, 1, 2)))
        if not spoilt and draw.random() < bad:
            spoilt, data = True, data[: draw.randrange(len(data) - 8)]
        batch = Batch(seq=seq, table=table.name, rows=count, dropped=0, arrow=data)
        made.append(Arrival(batch, host, f"s-{host}", draw.random() < 0.5))
        rows.append(columns)
        good.append(not spoilt)
    return made, rows, good


@pytest.mark.parametrize("bad", [0.0, 0.1, 0.5])
def test_opened_together_each_is_what_it_is_by_itself(bad: float) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(20):
        made, rows, good = arrivals(draw, bad=bad)
        found = open_batches(made, T0)
        assert [isinstance(each, BatchPiece) for each in found] == good
        for arrival, columns, piece in zip(made, rows, found, strict=True):
            alone = open_batches([arrival], T0)[0]
            if isinstance(piece, WireError):
                assert str(piece) == str(alone)
                continue
            assert isinstance(alone, BatchPiece)
            assert piece._replace(block=None) == alone._replace(block=None)
            table, host, stream_of, seq, kept, first_ns, last_ns, check, rate, _ = piece
            assert (host, stream_of, seq, check) == (
                arrival.host, arrival.stream, arrival.batch.seq, arrival.check,
            )  # fmt: skip
            instants = [int(each) for each in columns["ts_ns"]]
            assert (first_ns, last_ns) == (min(instants), max(instants))
            assert kept.to_pydict() == {name: list(each) for name, each in columns.items()}
            requests = [
                int(sent)
                for sent, src, prober in zip(
                    columns.get("sent", ()), columns["src"], columns.get("prober", ()), strict=False
                )
                if src == prober
            ]
            seconds = max(instants) // S - min(instants) // S + 1
            assert rate == (sum(requests) / seconds if table is PROBE else None)


def by_arrow(made: list[Arrival], monkeypatch: pytest.MonkeyPatch) -> list[BatchPiece | WireError]:
    """What batches hold that are read stream by stream."""
    with monkeypatch.context() as patched:
        patched.setattr(batches, "read_block", lambda *_: None)
        return open_batches(made, T0)


def assert_same(each: BatchPiece, alone: BatchPiece | WireError) -> None:
    """Though one is a part of a block, and numbers may be none."""
    assert isinstance(alone, BatchPiece)
    assert each._replace(rows=alone.rows, block=None) == alone
    assert repr(each.rows.to_pydict()) == repr(alone.rows.to_pydict())


def test_changed_bytes_are_taken_or_refused_as_when_each_stream_is_read_by_arrow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    changed = in_block = 0
    for _ in range(150):
        table = draw.choice((PROBE, HEARD))
        made = []
        for host in HOSTS:
            columns = columns_of(draw, table, host)
            data = bytearray(stream(table, columns))
            if draw.random() < 0.5:
                changed += 1
                end = len(data) if draw.random() < 0.3 else min(len(data), 1_800)
                for _ in range(draw.choice((1, 1, 2))):
                    place = draw.randrange(end)
                    data[place] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, data[place] ^ 8))
            count = len(columns["ts_ns"])
            batch = Batch(seq=1, table=table.name, rows=count, dropped=0, arrow=bytes(data))
            made.append(Arrival(batch, host, "s", check=False))
        found = open_batches(made, T0)
        for each, alone in zip(found, by_arrow(made, monkeypatch), strict=True):
            assert isinstance(each, WireError) == isinstance(alone, WireError), (each, alone)
            if isinstance(each, BatchPiece):
                in_block += each.block is not None
                assert_same(each, alone)
    assert changed
    assert in_block


@pytest.mark.parametrize("texts", [["h1/a", "p/b", "p/c"], ["", "h1/a", ""]])
@pytest.mark.parametrize("offset", [-1, 1, 9, 1 << 30, -(1 << 31), (1 << 31) - 1])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_texts_that_begin_elsewhere_than_they_say_harm_their_sender_alone(
    texts: list[str], offset: int, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two others, into whose texts they would reach."""
    columns: Columns = {"ts_ns": [T0] * 3, "src": texts, "dst": ["h1/a"] * 3, "received": [1] * 3}
    good = stream(HEARD, columns)
    told = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    wrong = told.copy()
    wrong[place] = offset
    bad = good.replace(told.tobytes(), wrong.tobytes(), 1)
    made = [
        Arrival(Batch(seq=seq, table=HEARD.name, rows=3, dropped=0, arrow=data), "h1", "s", False)
        for seq, data in enumerate((good, bad, good))
    ]
    found, alone = open_batches(made, T0), by_arrow(made, monkeypatch)
    assert isinstance(found[0], BatchPiece)
    assert isinstance(found[2], BatchPiece)
    assert found[0].block is not None
    assert [isinstance(each, WireError) for each in found] == [
        isinstance(each, WireError) for each in alone
    ]
    for each, expected in zip(found, alone, strict=True):
        if isinstance(each, BatchPiece):
            assert_same(each, expected)


def test_too_many_rows_are_refused_whoever_wrote_them() -> None:
    rows = MAX_ROWS + 1
    names = ["h1/a"] * rows
    columns: Columns = {"ts_ns": np.full(rows, T0), "src": names, "dst": names}
    columns["received"] = np.ones(rows, np.uint32)
    batch = Batch(seq=1, table=HEARD.name, rows=rows, dropped=0, arrow=stream(HEARD, columns))
    (found,) = open_batches([Arrival(batch, "h1", "s", check=False)], T0)
    assert isinstance(found, WireError)
    assert "rows in one batch" in str(found)


def test_columns_that_are_not_aligned_are_refused_whoever_wrote_them() -> None:
    columns: Columns = {"ts_ns": [T0], "src": ["p/x"], "dst": ["h1/x"], "received": [1]}
    data = bytearray(stream(HEARD, columns))
    begin = 16 + int.from_bytes(data[4:8], "little")
    header = MessageHeader(bytes(data[begin:]))
    at, count = header.buffers
    last = begin + at + 16 * (count - 1)
    data[last : last + 8] = (int.from_bytes(data[last : last + 8], "little") + 1).to_bytes(
        8, "little"
    )
    batch = Batch(seq=1, table=HEARD.name, rows=1, dropped=0, arrow=bytes(data))
    (found,) = open_batches([Arrival(batch, "h1", "s", check=False)], T0)
    assert isinstance(found, WireError)
    assert "aligned" in str(found)


def test_columns_that_share_their_bytes_are_not_copied_for_each() -> None:
    columns: Columns = {"ts_ns": [T0], "src": ["h1/x"], "dst": ["h1/x"], "received": [1]}
    good = stream(HEARD, columns)
    data = bytearray(good)
    begin = 16 + int.from_bytes(data[4:8], "little")
    at, _ = MessageHeader(bytes(data[begin:])).buffers
    source, target = (begin + at + 16 * place for place in (4, 7))
    data[target : target + 8] = data[source : source + 8]
    made = [
        Arrival(
            Batch(seq=1, table=HEARD.name, rows=1, dropped=0, arrow=bytes(each)), "h1", "s", True
        )
        for each in (good, data)
    ]
    honest, shared = open_batches(made, T0)
    assert isinstance(honest, BatchPiece)
    assert isinstance(shared, BatchPiece)
    assert honest.block is not None
    assert shared.block is None
    assert_same(shared, honest._replace(block=None))


def test_rows_that_were_read_together_stay_in_one_part() -> None:
    columns = columns_of(random.Random(1), HEARD, "h1")
    rows = len(columns["ts_ns"])
    data = stream(HEARD, columns)
    other = stream(HEARD, columns, parts=2)
    made = [
        Arrival(Batch(seq=seq, table=HEARD.name, rows=rows, dropped=0, arrow=each), "h1", "s", True)
        for seq, each in enumerate((data, data, other, data, data))
    ]
    pieces = [each for each in open_batches(made, T0) if isinstance(each, BatchPiece)]
    assert together(pieces).column("src").num_chunks == 3
    assert together(pieces).num_rows == 5 * rows
    assert together([pieces[0], *pieces[3:]]).column("src").num_chunks == 2


def test_joined_rows_say_which_batch_they_came_in() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    made, rows, _ = arrivals(random.Random(seed), bad=0.0)
    opened = [each for each in open_batches(made, T0) if isinstance(each, BatchPiece)]
    for table in (PROBE, HEARD):
        pieces = [each for each in opened if each.table is table]
        if not pieces:
            continue
        whole = joined(pieces)
        expected = [
            (arrival.host, arrival.stream, arrival.batch.seq, int(ts_ns))
            for arrival, columns in zip(made, rows, strict=True)
            if arrival.batch.table == table.name
            for ts_ns in columns["ts_ns"]
        ]
        names = ("host", "stream", "seq", "ts_ns")
        found = zip(*(whole.column(name).to_pylist() for name in names), strict=True)
        assert list(found) == expected


def test_only_tables_of_agents_are_opened() -> None:
    batch = Batch(seq=1, table="clock_1s", rows=1, dropped=0, arrow=b"")
    (found,) = open_batches([Arrival(batch, "h1", "s", check=False)], None)
    assert isinstance(found, WireError)
    assert "'clock_1s' is not a table that agents write" in str(found)


@pytest.mark.parametrize(("ts_ns", "good"), [(-1, False), (0, False), (1, True)])
def test_instants_are_after_the_epoch_though_nobody_knows_the_time(ts_ns: int, good: bool) -> None:
    columns: Columns = {"ts_ns": [ts_ns], "src": ["p/x"], "dst": ["h1/x"], "received": [1]}
    batch = Batch(seq=1, table=HEARD.name, rows=1, dropped=0, arrow=stream(HEARD, columns))
    (found,) = open_batches([Arrival(batch, "h1", "s", check=False)], None)
    assert isinstance(found, BatchPiece) is good
