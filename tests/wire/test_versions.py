"""The version before, as it really spoke: its recorded messages are read today, field by field.

`before/` holds what a lab of that version sent: one message of each kind that an agent, the
controller or the command line used, and its `protocol.txt`. `README.md` there says how to record
the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from tests.wire.arrow_streams import stream_of
from tests.wire.decoded import decode_columns
from tests.wire.test_contract import described

from syntony.controller.dispatch import QUESTIONS, decode_query
from syntony.errors import WireError
from syntony.wire import messages as m
from syntony.wire.arrow import arrow_schema
from syntony.wire.coding import decode, encode
from syntony.wire.probes import Plan
from syntony.wire.query import Failure, answer_type
from syntony.wire.tables import HEARD, JOB_PROCESS, PROBE, TABLES, Column, Table

BEFORE = Path(__file__).parent / "before"
RECORDED: list[tuple[str, bytes]] = msgspec.msgpack.decode(
    (BEFORE / "messages.msgpack").read_bytes(), type=list[tuple[str, bytes]]
)
_ANSWERS: Any = msgspec.msgpack.Decoder(reduce(or_, map(answer_type, QUESTIONS), Failure))
_DECODERS: tuple[Callable[[bytes], Any], ...] = (
    lambda data: next(m.decode_bundle(data)), m.decode_controller, decode_query, m.decode_joining,
    lambda data: decode(_ANSWERS, data),
)  # fmt: skip


def _read(name: str, data: bytes) -> Any:
    """As today's code reads it; a question and its answer may have the same tag."""
    for decoder in _DECODERS:
        try:
            message = decoder(data)
        except WireError:
            continue
        if type(message).__name__ == name:
            return message
    raise AssertionError(f"nothing reads it as a {name}")


def _kept(before: Any, now: Any) -> bool:
    """Whether everything that was said is still there."""
    if isinstance(before, Mapping):
        return all(key in now and _kept(value, now[key]) for key, value in before.items())
    if isinstance(before, list):
        if all(isinstance(each, str) for each in before):  # sets have no order
            return sorted(before) == sorted(now)
        return len(before) == len(now) and all(map(_kept, before, now))
    return bool(before == now)


@pytest.mark.parametrize(("name", "data"), RECORDED, ids=[name for name, _ in RECORDED])
def test_everything_that_the_version_before_said_is_understood(name: str, data: bytes) -> None:
    message = _read(name, data)
    plain = msgspec.msgpack.decode
    assert _kept(plain(data), plain(encode(message)))
    if isinstance(message, m.Batch):
        assert decode_columns(TABLES[message.table], message.arrow).num_rows == message.rows
    if isinstance(message, m.Decision):
        assert not isinstance(m.decode_controller(message.message), m.Unknown)


def test_the_record_is_of_a_whole_fleet() -> None:
    kinds = {name for name, _ in RECORDED}
    assert len(kinds) > 60
    assert {"Hello", "Batch", "Ack", "Plan", "ProbeKeys", "Moves", "Decision", "Issued"} <= kinds


def test_fields_are_neither_taken_away_nor_demanded_anew() -> None:
    """What the version before sends can be read, and what it needs is sent."""

    def fields(lines: list[str]) -> dict[str, bool]:
        """Of each kind of message: whether it may be left out."""
        return {line.partition(" = ")[0]: " = " in line for line in lines}

    before = fields((BEFORE / "protocol.txt").read_text(encoding="utf-8").splitlines())
    now = fields(list(described()))
    kinds = {name.partition(".")[0] for name in before}
    gone = {name for name, optional in before.items() if name not in now and not optional}
    assert gone == set()
    demanded = {
        name for name, optional in now.items()
        if not optional and before.get(name, name.partition(".")[0] in kinds) is True
    }  # fmt: skip
    assert demanded == set()


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (
            m.Hello(protocol=3, version="", host="h0", nics=(), stream="s",
                    reads_device_stamps=True),
            "reads_device_stamps",
        ),
        (
            Plan(generation=1, nic_ids={}, nic_names={}, clocks={}, flows=(), device_stamps=True),
            "device_stamps",
        ),
    ],
)  # fmt: skip
def test_a_peer_that_does_not_know_stamps_of_devices_neither_reads_nor_allows_them(
    message: m.Hello | Plan, field: str
) -> None:
    assert getattr(_read(type(message).__name__, encode(message)), field) is True
    said = msgspec.msgpack.decode(encode(message))
    del said[field]
    before = _read(type(message).__name__, msgspec.msgpack.encode(said))
    assert getattr(before, field) is False


def test_a_kind_of_a_newer_version_is_skipped_and_garbage_is_not() -> None:
    newer = msgspec.msgpack.encode({"type": "spectrum", "seq": 3})
    assert m.decode_controller(newer) == m.Unknown(kind="spectrum")
    (bundle,) = m.bundles([newer, encode(m.Batch(seq=1, table="t", rows=1, dropped=0, arrow=b""))])
    assert [type(each).__name__ for each in m.decode_bundle(bundle)] == ["Unknown", "Batch"]
    broken = msgspec.msgpack.encode({"type": "ack", "seq": "three"})
    for data in (b"", b"\xc1", b"\x80", broken, encode(m.Ack(seq=1)), bytes(1 + (16 << 20))):
        with pytest.raises(WireError):
            list(m.decode_bundle(data))
    with pytest.raises(WireError):
        m.decode_controller(broken)
    with pytest.raises(WireError):
        m.decode_agent(newer)  # the first message of a stream must be a hello


def test_columns_may_be_more_and_in_another_order() -> None:
    row: dict[str, Any] = {"ts_ns": [1], "src": ["a/x"], "dst": ["b/y"], "received": [2]}
    plain = pa.table(row, schema=arrow_schema(HEARD))
    for extra in (pa.array([0.5]), pa.array(["text"]), pa.array([None], pa.int8())):
        more = plain.append_column("later", extra).select(
            ["later", "received", "ts_ns", "dst", "src"]
        )
        assert decode_columns(HEARD, stream_of(more)) == plain
    nested = plain.append_column("later", pa.array([[1, 2]]))
    with pytest.raises(WireError, match="column 'later' is list"):
        decode_columns(HEARD, stream_of(nested))
    with pytest.raises(WireError, match="columns"):
        decode_columns(HEARD, stream_of(plain.append_column("src", pa.array(["b/z"]))))


def test_a_column_that_the_sender_does_not_know_is_as_unknown_as_in_old_rows() -> None:
    later = Table(
        HEARD.name,
        (*HEARD.columns, Column("why", "string", "-"), Column("share", "float32", "-")),
        HEARD.about, HEARD.retention_days, owner=HEARD.owner,
    )  # fmt: skip
    row: dict[str, Any] = {"ts_ns": [1], "src": ["a/x"], "dst": ["b/y"], "received": [2]}
    found = decode_columns(later, stream_of(pa.table(row, schema=arrow_schema(HEARD))))
    assert found.schema == arrow_schema(later)
    assert found.column("why").to_pylist() == [""]
    assert np.isnan(found.column("share").to_numpy()).all()


@pytest.mark.parametrize("missing", ["ts_ns", "src", "prober", "sent"])
def test_counts_names_and_instants_cannot_be_left_out(missing: str) -> None:
    empty = arrow_schema(PROBE).empty_table().drop_columns([missing])
    with pytest.raises(WireError, match="columns"):
        decode_columns(PROBE, stream_of(empty))


def test_agents_that_do_not_record_how_processes_end_are_understood() -> None:
    """Of the version before."""
    wanted = arrow_schema(JOB_PROCESS)
    texts = {"string": ["a"], "float": [0.0], "double": [0.0]}
    row = {field.name: texts.get(str(field.type), [1]) for field in wanted}
    old = pa.table(row, schema=wanted).drop_columns(["exit_status", "oom_killed", "handles_term"])
    found = decode_columns(JOB_PROCESS, stream_of(old))
    assert np.isnan(found.column("exit_status").to_numpy()).all()
    assert np.isnan(found.column("oom_killed").to_numpy()).all()
    assert np.isnan(found.column("handles_term").to_numpy()).all()
