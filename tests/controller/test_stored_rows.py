"""What gateways tell of stored rows: whole, each batch once, whoever tells and in what order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from tests.link import T0

from syntony.controller import relayed_rows
from syntony.controller.batches import BatchPiece
from syntony.controller.gateway import Gateway
from syntony.controller.ingest import BatchOutcome
from syntony.controller.job_diagnosis import PROCESS_COLUMNS
from syntony.controller.probed_rows import NAMES, VALUES, Probed, RowBuffer
from syntony.controller.relayed_rows import Names, opened, rows_stored
from syntony.controller.stored_rows import STREAMS, WINDOW, StoredRows
from syntony.errors import WireError
from syntony.model import S
from syntony.wire.arrow import arrow_schema
from syntony.wire.coding import encode
from syntony.wire.gateways import ProbedColumns, RowsStored, StoredBatch, from_gateway
from syntony.wire.tables import AGENT, HEARD, JOB_PROCESS, PATH, PROBE, Table

TABLES = (PROBE, HEARD, JOB_PROCESS, PATH, AGENT)
SEED = random.randrange(1_000_000)


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
) -> tuple[list[BatchOutcome], list[BatchPiece]]:
    """Of one insert: some batches refused, of several hosts and tables."""
    outcomes, pieces = list[BatchOutcome](), list[BatchPiece]()
    for number in range(first, first + batches):
        host, table = f"h{chance.randrange(3)}", chance.choice(TABLES)
        if chance.random() < 0.2:
            outcomes.append(BatchOutcome(host, "s", number, 7, 1, 0, None, None))
            continue
        rows = rows_of(table, host, chance.randrange(1, 6), chance)
        instants = rows.column("ts_ns").to_numpy()
        low, high = int(instants.min()), int(instants.max())
        rate = 2.5 if table is PROBE else None
        pieces.append(BatchPiece(table, host, "s", number, rows, low, high, False, rate))
        paths_ns = low if table is PATH else None
        outcomes.append(BatchOutcome(host, "s", number, rows.num_rows, 1, high, rate, paths_ns))
    return outcomes, pieces


def relayed(
    outcomes: list[BatchOutcome], pieces: list[BatchPiece], known: Names | None = None
) -> list[RowsStored]:
    """Over the wire and back."""
    found = list[RowsStored]()
    for message in rows_stored(outcomes, pieces, {} if known is None else known):
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
    told = list[BatchOutcome]()
    here, there = RowBuffer(), RowBuffer()
    jobs_here, jobs_there = list[Any](), list[Any]()
    messages, known_here, known_there = 0, Names(), Names()
    for turn in range(20):
        outcomes, pieces = cycle(chance, 1 + 100 * turn, chance.randrange(1, 40))
        here.put(pieces)
        jobs_here += job_rows(pieces)
        for message in relayed(outcomes, pieces, known_here):
            messages += 1
            found = opened(message, known_there)
            told += found.outcomes
            for rows, places in found.probed:
                assert rows.hosts == [found.outcomes[place].host for place in places]
                there.put_probed(rows)
            jobs_there += job_rows(found.pieces)
            assert {each.table for each in found.pieces} <= {JOB_PROCESS}
        assert told[-len(outcomes) :] == outcomes
    assert (messages > 20) == (limit == 3_000)
    assert jobs_here == jobs_there
    first = T0 // S
    for name in (PROBE.name, HEARD.name):
        one, other = (each.take(name, first, first + 3) for each in (here, there))
        assert {k: said(v) for k, v in one.items()} == {k: said(v) for k, v in other.items()}
        assert one


def said(probed: Probed) -> list[dict[str, Any]]:
    """Row by row."""
    names = pa.Table.from_batches(probed.names).to_pylist()
    values = [dict(zip(probed.values, row, strict=True)) for row in zip(
        *(column.tolist() for column in probed.values.values()), strict=True)]  # fmt: skip
    hosts = [
        host
        for host, batch in zip(probed.hosts, probed.names, strict=True)
        for _ in range(batch.num_rows)
    ]
    return [
        {"host": host, **name, **value}
        for host, name, value in zip(hosts, names, values, strict=True)
    ]


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
    outcome = BatchOutcome("h1", "s", 1, 3, 0, T0 + 3 * S, None, None)
    (message,) = relayed([outcome], [piece])
    buffer = RowBuffer()
    buffer.put([piece])
    ((rows, places),) = opened(message, {}).probed
    assert set(places) == {0}
    buffer.put_probed(rows)
    taken = buffer.take(PROBE.name, T0 // S, T0 // S + 3)
    assert sum(each.rows for each in taken.values()) == 6


def _spoil(change: Callable[[RowsStored], RowsStored]) -> None:
    chance = random.Random(3)
    rows = rows_of(PROBE, "h1", 3, chance)
    piece = BatchPiece(PROBE, "h1", "s", 1, rows, T0, T0 + 3 * S, False)
    (message,) = relayed([BatchOutcome("h1", "s", 1, 3, 0, T0 + 3 * S, None, None)], [piece])
    opened(message, {})
    with pytest.raises(WireError):
        opened(change(message), {})


def _batch(**changes: Any) -> Callable[[RowsStored], RowsStored]:
    def change(message: RowsStored) -> RowsStored:
        batch = msgspec.structs.replace(message.batches[0], **changes)
        return msgspec.structs.replace(message, batches=(batch,))

    return change


def _probed(**changes: Any) -> Callable[[RowsStored], RowsStored]:
    def change(message: RowsStored) -> RowsStored:
        columns = msgspec.structs.replace(message.probed[PROBE.name], **changes)
        return msgspec.structs.replace(message, probed={PROBE.name: columns})

    return change


def _values(**changes: Any) -> Callable[[RowsStored], RowsStored]:
    """Other columns than those that were sent."""
    columns: dict[str, Any] = {name: [1, 2, 3] for name in VALUES[PROBE.name]}
    columns |= {"clk_err_ns": [1.0, 2.0, 3.0]} | changes
    data = _ipc(**{name: values for name, values in columns.items() if values is not None})
    packed = bytes(pa.compress(data, codec=relayed_rows.CODEC, asbytes=True))
    return _probed(values=packed, values_size=len(data))


def _names(**columns: Any) -> Callable[[RowsStored], RowsStored]:
    data = _ipc(**columns)
    packed = bytes(pa.compress(data, codec=relayed_rows.CODEC, asbytes=True))
    return _probed(names=packed, names_size=len(data))


def _columns(data: bytes) -> Callable[[RowsStored], RowsStored]:
    """As gateways told before there was `probed`, not compressed."""
    return lambda message: msgspec.structs.replace(
        message, columns={PROBE.name: data}, sizes={}, probed={}
    )


def _sized(data: bytes, size: int) -> Callable[[RowsStored], RowsStored]:
    return lambda message: msgspec.structs.replace(
        message, columns={PROBE.name: data}, sizes={PROBE.name: size}, probed={}
    )


def _size(more: int) -> Callable[[RowsStored], RowsStored]:
    def change(message: RowsStored) -> RowsStored:
        size = message.probed[PROBE.name].values_size + more
        return _probed(values_size=size)(message)

    return change


BOMB = bytes(pa.compress(b"\0" * (relayed_rows.MAX_STREAM_BYTES + 1), codec="zstd", asbytes=True))
"""A few kilobytes that would be more than may be."""


def _ipc(**columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_pydict(columns)
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


NAMED: dict[str, Any] = {"src": ["a"] * 3, "dst": ["b"] * 3, "prober": ["a"] * 3, "sport": [1] * 3}


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
        _size(1), _size(-1), _probed(fresh=()), _probed(fresh=(1,)), _probed(fresh=(0, 1)),
        _probed(values=b""), _probed(names=b"", names_size=0),
        _values(sent=[1, 2, None]), _values(sent=["1", "2", "3"]), _values(sent=[1.0, 2.0, 3.0]),
        _values(clk_err_ns=[1, 2, 3]), _values(lost=None), _values(more=[1, 2, 3]),
        _values(sent=pa.array([1, 2, 3], pa.uint64())), _values(ts_ns=[1, 2, 3]),
        _names(**NAMED | {"src": ["a", "a", None]}), _names(**NAMED | {"sport": [1, 2, 70_000]}),
        _names(src=["a"] * 3, dst=["b"] * 3),
        _names(**{name: column[:2] for name, column in NAMED.items()}),
        _names(**{name: [*column, column[0]] for name, column in NAMED.items()}),
        _sized(b"junk", 4), _sized(b"", 0),
        _sized(BOMB, relayed_rows.MAX_STREAM_BYTES + 1), _sized(BOMB, 1_000),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(change: Callable[[RowsStored], RowsStored]) -> None:
    _spoil(change)


def test_an_older_leader_or_gateway_has_the_same_rows_in_columns() -> None:
    """As all other tables; also what was not compressed is read."""
    chance = random.Random(4)
    rows = rows_of(PROBE, "h1", 3, chance)
    outcome = BatchOutcome("h1", "s", 1, 3, 0, T0 + 3 * S, None, None)
    piece = BatchPiece(PROBE, "h1", "s", 1, rows, T0, T0 + 3 * S, False)
    (message,) = rows_stored([outcome], [piece], None)
    assert not message.probed
    size = message.sizes[PROBE.name]
    data = pa.decompress(message.columns[PROBE.name], size, codec="zstd", asbytes=True)
    plain = msgspec.structs.replace(message, columns={PROBE.name: bytes(data)}, sizes={})
    for each in (message, plain):
        (found,) = opened(each, {}).pieces
        assert found.rows.to_pylist() == rows.select(relayed_rows.COLUMNS[PROBE.name]).to_pylist()


def test_a_gateway_tells_each_leader_all_that_it_needs() -> None:
    """Another leader, or the same again, does not know what was told before."""
    gateway = Gateway(("leader:1",), None, None, lambda: 0)  # type: ignore[arg-type]
    writer = gateway.link._writer = Mock()
    chance, sent = random.Random(5), list[tuple[bool, tuple[int, ...]]]()
    rows = rows_of(PROBE, "h1", 3, chance)
    for number, (reads, another) in enumerate(
        ((True, True), (True, False), (False, True), (True, True), (True, False)), 1
    ):
        gateway.link.reads_probed = reads
        if another:
            gateway._leader_up()
        piece = BatchPiece(PROBE, "h1", "s", number, rows, T0, T0 + 3 * S, False)
        gateway._stored([BatchOutcome("h1", "s", number, 3, 0, T0, None, None)], [piece])
        message = writer.post.call_args.args[0]
        assert (PROBE.name in message.columns) is not reads
        probed = message.probed.get(PROBE.name)
        sent.append((reads, probed.fresh if probed else ()))
    assert sent == [(True, (0,)), (True, ()), (False, ()), (True, (0,)), (True, ())]


def test_what_rows_are_of_is_told_once_while_it_stays() -> None:
    """Also when batches of one host come together, in turns or cut into several messages."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    kinds = [rows_of(PROBE, "h1", 4, chance) for _ in range(3)]
    known_here, known_there = Names(), Names()
    sent, number, before = list[int](), 0, -1
    for _ in range(60):
        outcomes, pieces, changes = list[BatchOutcome](), list[BatchPiece](), 0
        drawn = [chance.choice((0, 0, 0, 1, 2)) for _ in range(chance.randrange(1, 4))]
        for kind in drawn:
            number += 1
            rows = kinds[kind].set_column(0, "ts_ns", pa.array([T0] * 4))
            pieces.append(BatchPiece(PROBE, "h1", "s", number, rows, T0, T0, False))
            outcomes.append(BatchOutcome("h1", "s", number, 4, 0, T0, None, None))
            changes += kind != before
            before = kind
        (message,) = relayed(outcomes, pieces, known_here)
        assert len(message.probed[PROBE.name].fresh) == changes
        ((rows, _),) = opened(message, known_there).probed
        for kind, names in zip(drawn, rows.names, strict=True):
            assert names.equals(kinds[kind].select(NAMES[PROBE.name]))
        sent.append(changes)
    assert min(sent) == 0


def test_a_table_of_a_newer_gateway_is_skipped() -> None:
    message = RowsStored(
        batches=(StoredBatch("h1", "s", 1, "newer", 1, 0, T0, T0),), columns={"newer": b"what"}
    )
    message = msgspec.structs.replace(
        message,
        probed={
            "newer": ProbedColumns(fresh=(), names=b"", values=b"", names_size=0, values_size=9)
        },
    )
    told = opened(message, {})
    assert len(told.outcomes) == 1
    assert not told.pieces
    assert not told.probed


def _nothing(rows: Probed) -> None:
    pytest.fail(f"{rows.table}: nothing was relayed")


def test_relayed_rows_are_judged_once_batch_by_batch() -> None:
    """Two gateways tell of the same batches, together with others."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    judged = Counter[tuple[str, int]]()

    def evaluate(rows: Probed) -> None:
        for host, sent in zip(rows.hosts, rows.values["sent"].tolist(), strict=True):
            judged[host, sent] += 1

    rows = StoredRows((), evaluate)
    known = [(Names(), Names()) for _ in range(2)]
    batches = [(f"h{n % 3}", 1 + n // 3) for n in range(90)]
    for first in range(0, 90, 6):
        for here, there in known:
            told = [
                each for each in batches[max(0, first - 6) : first + 6] if chance.random() < 0.8
            ]
            told += batches[first : first + 6] if here is known[1][0] else []
            told = sorted(set(told), key=lambda each: each[1])
            outcomes, pieces = list[BatchOutcome](), list[BatchPiece]()
            for host, number in told:
                row = rows_of(PROBE, host, 1, chance).set_column(
                    7, "sent", pa.array([number], pa.uint32())
                )
                at_ns = T0 + number * S
                row = row.set_column(0, "ts_ns", pa.array([at_ns]))
                pieces.append(BatchPiece(PROBE, host, "s", number, row, at_ns, at_ns, False))
                outcomes.append(BatchOutcome(host, "s", number, 1, 0, at_ns, None, None))
            for message in relayed(outcomes, pieces, here):
                rows.take_relayed(opened(message, there))
    assert judged == Counter(batches)
    assert rows.probed == {f"h{n}": T0 + 30 * S for n in range(3)}


def test_rows_that_are_known_already_leave_nothing_to_be_judged() -> None:
    """As after the loss of a gateway, whose rows the next one finds in the store."""
    buffer = RowBuffer()
    rows = StoredRows((), buffer.put_probed)
    told = rows_of(PROBE, "h0", 3, random.Random(1)).set_column(0, "ts_ns", pa.array([T0] * 3))
    piece = BatchPiece(PROBE, "h0", "s", 1, told, T0, T0, False)
    for _ in range(2):
        (message,) = relayed([BatchOutcome("h0", "s", 1, 3, 0, T0, None, None)], [piece])
        rows.take_relayed(opened(message, {}))
    (second,) = buffer.take(PROBE.name, T0 // S, T0 // S).values()
    assert second.rows == 3
    assert rows.repeated == 1


def test_a_table_of_batches_without_rows_is_of_no_second() -> None:
    batch = StoredBatch("h0", "s", 1, PROBE.name, 0, 0, 0, 2 * S, None)
    kinds = arrow_schema(PROBE)
    columns = {
        name: pa.array([], kinds.field(name).type) for name in ("ts_ns", *VALUES[PROBE.name])
    }
    values = _ipc(**columns)
    names = _ipc(**{name: pa.array([], kinds.field(name).type) for name in NAMES[PROBE.name]})
    packed = [bytes(pa.compress(each, codec="zstd", asbytes=True)) for each in (names, values)]
    probed = ProbedColumns(
        fresh=(0,),
        names=packed[0],
        values=packed[1],
        names_size=len(names),
        values_size=len(values),
    )
    message = RowsStored(batches=(batch,), columns={}, sizes={}, probed={PROBE.name: probed})
    ((rows, places),) = opened(message, {}).probed
    assert (rows.rows, rows.hosts, places) == (0, [], [])


def _told(host: str, stream: str, number: int) -> tuple[BatchOutcome, BatchPiece]:
    rows = pa.RecordBatch.from_pydict({"ts_ns": np.array([T0])})
    piece = BatchPiece(PROBE, host, stream, number, rows, T0, T0 + number, False)
    return BatchOutcome(host, stream, number, 1, 0, T0 + number, None, None), piece


def test_a_batch_is_judged_once_in_any_order_from_any_gateway() -> None:
    """Each batch is told of by one to three gateways; a gateway may be as late as batches can be
    under way."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for _ in range(30):
        read: list[BatchPiece] = []
        rows = StoredRows((read.extend,), _nothing)
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
    rows = StoredRows((), _nothing)
    far, oldest = 4 * WINDOW, 3 * WINDOW + 1
    for number, new in ((1, True), (1, False), (far, True), (2, False), (oldest - 1, False),
                        (oldest, True), (oldest, False), (far - 1, True)):  # fmt: skip
        outcome, piece = _told("h1", "a", number)
        assert bool(rows.take([outcome], [piece])) is new, number


def test_streams_of_a_host_are_bounded() -> None:
    rows = StoredRows((), _nothing)
    for number in range(3 * STREAMS):
        outcome, piece = _told("h1", f"stream{number}", 1)
        assert rows.take([outcome], [piece])
    (streams,) = rows._known.values()
    assert len(streams) == STREAMS
