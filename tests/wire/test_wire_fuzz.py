"""No bytes from elsewhere make a parser do anything but answer or raise its own error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.decoded import decode_columns

from syntony.controller.dispatch import decode_query
from syntony.errors import WireError
from syntony.model import Edge
from syntony.wire import messages
from syntony.wire.arrow import encode_columns
from syntony.wire.clocks import Edges
from syntony.wire.coding import MAX_MESSAGE_BYTES, encode
from syntony.wire.probes import Matrix, MatrixQuery
from syntony.wire.query import decode_answer
from syntony.wire.spoolfile import index_segment, read_state
from syntony.wire.tables import AGENT, HEARD, TABLES
from syntony.wire.x509 import read_validity

DECODERS: list[Callable[[bytes], object]] = [
    messages.decode_agent,
    lambda data: list(messages.decode_bundle(data)),
    messages.decode_controller,
    decode_query,
    messages.decode_joining,
    lambda data: decode_answer(data, Matrix),
    read_validity,
]
SAMPLES = [
    *messages.bundles(
        [encode(messages.Batch(seq=1, table="t", rows=1, dropped=0, arrow=b"x"))] * 2
    ),
    encode(messages.Ack(seq=7)),
    encode(messages.Refuse(reason="no")),
    encode(MatrixQuery()),
    encode(messages.Batch(seq=1, table="t", rows=1, dropped=0, arrow=b"xyz")),
    encode(
        Edges(
            edges=(
                Edge(
                    a="a",
                    b="b",
                    ref_ns=1,
                    theta_ns=0.5,
                    drift_ppb=1.0,
                    sigma_ns=2.0,
                    drift_sigma_ppb=1.0,
                    rtt_floor_ns=3.0,
                    probes=9,
                ),
            )
        )
    ),
]


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.binary(max_size=300))
def test_arbitrary_bytes(decode: Callable[[bytes], object], data: bytes) -> None:
    with contextlib.suppress(WireError):
        decode(data)


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.data())
def test_damaged_messages(decode: Callable[[bytes], object], data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from(SAMPLES)))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        decode(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


@pytest.mark.parametrize("text", [b"\x91" * 200_000, msgspec.msgpack.encode({"type": "hello"})])
def test_deep_or_incomplete_messages_are_refused(text: bytes) -> None:
    for decode in DECODERS:
        with pytest.raises(WireError):
            decode(text)


def test_oversize_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(WireError, match="over the limit"):
        messages.decode_agent(bytes(MAX_MESSAGE_BYTES + 1))


@given(data=st.binary(max_size=400))
def test_arbitrary_bytes_as_arrow(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_columns(HEARD, data)


@given(data=st.data())
def test_damaged_arrow(data: st.DataObject) -> None:
    good = encode_columns(
        HEARD, {"ts_ns": [1, 2], "src": ["a/x", "b/y"], "dst": ["c/z", "d/w"], "received": [3, 4]}
    )
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        rows = decode_columns(HEARD, bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))
        assert rows.column_names == [column.name for column in HEARD.columns]
        assert len(rows.to_pylist()) == rows.num_rows


@given(data=st.binary(max_size=400))
def test_arbitrary_bytes_as_spool_files(data: bytes) -> None:
    assert not any(entry.intact for entry in index_segment(data, 1))
    assert read_state(data) is None


def test_every_table_has_a_time_and_its_sort_key() -> None:
    for name, table in TABLES.items():
        names = [column.name for column in table.columns]
        assert (name, names[0]) == (table.name, "ts_ns")
        assert set(table.about) <= set(names)
        assert len(set(names)) == len(names)
    assert AGENT.name in TABLES
