"""What gateways tell of stored rows: whole, each batch once, whoever tells and in what order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from tests.link import T0

from syntony.controller import relayed_rows
from syntony.controller.batches import BatchPiece
from syntony.controller.flow_seconds import RowBuffer
from syntony.controller.ingest import Outcome
from syntony.controller.job_diagnosis import PROCESS_COLUMNS
from syntony.controller.relayed_rows import opened, rows_stored
from syntony.controller.stored_rows import STREAMS, WINDOW, StoredRows
from syntony.errors import WireError
from syntony.model import S
from syntony.wire.arrow import arrow_schema
from syntony.wire.coding import encode
from syntony.wire.gateways import RowsStored, StoredBatch, from_gateway
from syntony.wire.tables import AGENT, HEARD, JOB_PROCESS, PATH, PROBE, Table

TABLES = (PROBE, HEARD, JOB_PROCESS, PATH, AGENT)
SEED = random.SystemRandom().randrange(1_000_000)


def rows_of(table: Table, host: str, count: int, chance: random.Random) -> pa.RecordBatch:
    """Any values of the right types."""
    columns: dict[str, list[Any]] = {}
    for field in arrow_schema(table):
        if pa.types.is_string(field.type):
            columns[field.name] = [f"{host}/r{chance.randrange(3)}" for _ in range(count)]
        elif pa.types.is_floating(field.type):
            columns[field.name] = [chance.random() for _ in range(count)]
        elif pa.types.is_boolean(field.type):
            columns[field.name] = [chance.random() < 0.5 for _ in range(count)]
        else:
            columns[field.name] = [chance.randrange(100) for _ in range(count)]
    columns["ts_ns"] = [T0 + chance.randrange(3 * S) for _ in range(count)]
    return pa.RecordBatch.from_pydict(columns, schema=arrow_schema(table))


def cycle(
    chance: random.Random, first: int, batches: int
) -> tuple[list[Outcome], list[BatchPiece]]:
    """Of one insert: some batches refused, of several hosts and tables."""
    outcomes, pieces = list[Outcome](), list[BatchPiece]()
    for number in range(first, first + batches):
        host, table = f"h{chance.randrange(3)}", chance.choice(TABLES)
        if chance.random() < 0.2:
            outcomes.append(Outcome(host, "s", number, 7, 1, 0, None, None))
            continue
        rows = rows_of(table, host, chance.randrange(1, 6), chance)
        instants = rows.column("ts_ns").to_numpy()
        low, high = int(instants.min()), int(instants.max())
        rate = 2.5 if table is PROBE else None
        pieces.append(BatchPiece(table, host, "s", number, rows, low, high, False, rate))
        paths_ns = low if table is PATH else None
        outcomes.append(Outcome(host, "s", number, rows.num_rows, 1, high, rate, paths_ns))
    return outcomes, pieces


def relayed(outcomes: list[Outcome], pieces: list[BatchPiece]) -> list[RowsStored]:
    """Over the wire and back."""
    found = list[RowsStored]()
    for message in rows_stored(outcomes, pieces):
        (back,) = from_gateway(encode(message))
        assert isinstance(back, RowsStored)
        found.append(back)
    return found


@pytest.mark.parametrize("limit", [relayed_rows.MAX_COLUMN_BYTES, 3_000])
def test_a_leader_is_told_what_it_would_have_stored(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(relayed_rows, "MAX_COLUMN_BYTES", limit)
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    told = list[Outcome]()
    here, there = RowBuffer(), RowBuffer()
    jobs_here, jobs_there = list[Any](), list[Any]()
    messages = 0
    for turn in range(20):
        outcomes, pieces = cycle(chance, 1 + 100 * turn, chance.randrange(1, 40))
        here.put(pieces)
        jobs_here += job_rows(pieces)
        for message in relayed(outcomes, pieces):
            messages += 1
            found, relayed_pieces = opened(message)
            told += found
            there.put(relayed_pieces)
            jobs_there += job_rows(relayed_pieces)
            assert {each.table for each in relayed_pieces} <= {PROBE, HEARD, JOB_PROCESS}
        assert told[-len(outcomes) :] == outcomes
    assert (messages > 20) == (limit == 3_000)
    assert jobs_here == jobs_there
    first = T0 // S
    for name in (PROBE.name, HEARD.name):
        one, other = (each.take(name, first, first + 3) for each in (here, there))
        assert {k: v.to_pylist() for k, v in one.items()} == {
            k: v.to_pylist() for k, v in other.items()
        }
        assert one


def job_rows(pieces: list[BatchPiece]) -> list[Any]:
    return [
        [piece.rows.column(name).to_pylist() for name in PROCESS_COLUMNS]
        for piece in pieces
        if piece.table is JOB_PROCESS
    ]


def test_rows_stored_here_and_by_gateways_are_of_one_second_together() -> None:
    chance = random.Random(SEED)
    direct = rows_of(PROBE, "h1", 3, chance)
    piece = BatchPiece(PROBE, "h1", "s", 1, direct, T0, T0 + 3 * S, False)
    outcome = Outcome("h1", "s", 1, 3, 0, T0 + 3 * S, None, None)
    (message,) = relayed([outcome], [piece])
    buffer = RowBuffer()
    buffer.put([piece])
    buffer.put(opened(message)[1])
    taken = buffer.take(PROBE.name, T0 // S, T0 // S + 3)
    assert sum(table.num_rows for table in taken.values()) == 6


def _spoil(change: Callable[[RowsStored], RowsStored]) -> None:
    chance = random.Random(3)
    rows = rows_of(PROBE, "h1", 3, chance)
    piece = BatchPiece(PROBE, "h1", "s", 1, rows, T0, T0 + 3 * S, False)
    (message,) = relayed([Outcome("h1", "s", 1, 3, 0, T0 + 3 * S, None, None)], [piece])
    opened(message)
    with pytest.raises(WireError):
        opened(change(message))


def _batch(**changes: Any) -> Callable[[RowsStored], RowsStored]:
    def change(message: RowsStored) -> RowsStored:
        batch = msgspec.structs.replace(message.batches[0], **changes)
        return msgspec.structs.replace(message, batches=(batch,))

    return change


def _columns(data: bytes) -> Callable[[RowsStored], RowsStored]:
    """Not compressed."""
    return lambda message: msgspec.structs.replace(message, columns={PROBE.name: data}, sizes={})


def _size(more: int) -> Callable[[RowsStored], RowsStored]:
    def change(message: RowsStored) -> RowsStored:
        size = message.sizes[PROBE.name] + more
        return msgspec.structs.replace(message, sizes={PROBE.name: size})

    return change


def _sized(data: bytes, size: int) -> Callable[[RowsStored], RowsStored]:
    return lambda message: msgspec.structs.replace(
        message, columns={PROBE.name: data}, sizes={PROBE.name: size}
    )


BOMB = bytes(pa.compress(b"\0" * (relayed_rows.MAX_STREAM_BYTES + 1), codec="zstd", asbytes=True))
"""A few kilobytes that would be more than may be."""


def _ipc(**columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_pydict(columns)
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def _all(value: str | None) -> bytes:
    return _ipc(**{name: [value] * 3 for name in relayed_rows.COLUMNS[PROBE.name]})


@pytest.mark.parametrize(
    "change",
    [
        _batch(seq=0), _batch(rows=4), _batch(rows=-1), _batch(first_ns=-5),
        _batch(first_ns=T0 + 9 * S), _batch(table="heard_1s"),
        _columns(b""), _columns(b"\xff" * 64), _columns(_ipc(ts_ns=[1, 2, 3])),
        _columns(_all(None)),
        _columns(_all("x")),
        _size(1), _size(-1), _sized(b"junk", 4), _sized(b"", 0),
        _sized(BOMB, relayed_rows.MAX_STREAM_BYTES + 1), _sized(BOMB, 1_000),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(change: Callable[[RowsStored], RowsStored]) -> None:
    _spoil(change)


def test_a_stream_that_names_no_size_is_read_as_it_is() -> None:
    chance = random.Random(4)
    piece = BatchPiece(PROBE, "h1", "s", 1, rows_of(PROBE, "h1", 3, chance), T0, T0 + 3 * S, False)
    (message,) = relayed([Outcome("h1", "s", 1, 3, 0, T0 + 3 * S, None, None)], [piece])
    data = pa.decompress(
        message.columns[PROBE.name], message.sizes[PROBE.name], codec="zstd", asbytes=True
    )
    plain = msgspec.structs.replace(message, columns={PROBE.name: bytes(data)}, sizes={})
    assert [each.rows.to_pylist() for each in opened(plain)[1]] == [
        each.rows.to_pylist() for each in opened(message)[1]
    ]


def test_a_table_of_a_newer_gateway_is_skipped() -> None:
    message = RowsStored(
        batches=(StoredBatch("h1", "s", 1, "newer", 1, 0, T0, T0),), columns={"newer": b"what"}
    )
    outcomes, pieces = opened(message)
    assert len(outcomes) == 1
    assert not pieces


def _told(host: str, stream: str, number: int) -> tuple[Outcome, BatchPiece]:
    rows = pa.RecordBatch.from_pydict({"ts_ns": np.array([T0])})
    piece = BatchPiece(PROBE, host, stream, number, rows, T0, T0 + number, False)
    return Outcome(host, stream, number, 1, 0, T0 + number, None, None), piece


def test_a_batch_is_judged_once_in_any_order_from_any_gateway() -> None:
    """Each batch is told of by one to three gateways; a gateway may be as late as batches can be
    under way."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for _ in range(30):
        read: list[BatchPiece] = []
        rows = StoredRows((read.extend,))
        arriving = list[tuple[float, str, str, int]]()
        for host, stream in (("h1", "a"), ("h1", "b"), ("h2", "a")):
            for number in range(1, 300):
                for _ in range(chance.randrange(1, 4)):
                    late = chance.random() * (WINDOW // 2 - 1)
                    arriving.append((number + late, host, stream, number))
        new = Counter[tuple[str, str, int]]()
        for _, host, stream, number in sorted(arriving):
            outcome, piece = _told(host, stream, number)
            new.update((each.host, each.stream, each.seq) for each in rows.take([outcome], [piece]))
        assert set(new.values()) == {1}
        assert len(new) == len(read) == 3 * 299
        assert rows.repeated == len(arriving) - len(new)
        assert rows.probed == {"h1": T0 + 299, "h2": T0 + 299}


def test_what_is_far_behind_counts_as_known() -> None:
    rows = StoredRows(())
    for number, new in ((1, True), (1, False), (500, True), (2, False), (500 - WINDOW, False),
                        (501 - WINDOW, True), (501 - WINDOW, False), (499, True)):  # fmt: skip
        outcome, piece = _told("h1", "a", number)
        assert bool(rows.take([outcome], [piece])) is new, number


def test_streams_of_a_host_are_bounded() -> None:
    rows = StoredRows(())
    for number in range(3 * STREAMS):
        outcome, piece = _told("h1", f"stream{number}", 1)
        assert rows.take([outcome], [piece])
    (streams,) = rows._known.values()
    assert len(streams) == STREAMS
