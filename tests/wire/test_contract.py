"""What peers of another version rely on: every message's fields and defaults, every table.

`protocol.txt` is what was last agreed on. A difference is a change of the protocol: a peer of the
version before must still read it (`test_versions.py`). Then write it anew:
`python -m tests.wire.test_contract > tests/wire/protocol.txt`.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from tests.wire.decoded import decode_columns

from syntony.controller.dispatch import QUESTIONS
from syntony.errors import WireError
from syntony.wire import bounds, gateways, messages
from syntony.wire.arrow import MAX_ROWS, arrow_schema, encode_columns
from syntony.wire.query import MAX_ANSWER_BYTES, PAGE_BYTES, Failure, answer_type
from syntony.wire.tables import HEARD, TABLES
from syntony.wire.x509 import read_validity

AGREED = Path(__file__).with_name("protocol.txt")
DOCS = Path(__file__).parents[2] / "docs/reference"
UNIONS: tuple[types.UnionType | type[msgspec.Struct], ...] = (
    messages.AgentMessage, messages.ControllerMessage, messages.Joining, Failure,
    gateways.FromGateway, gateways.ToGateway, gateways.RelayedRequest,
    *QUESTIONS, *map(answer_type, QUESTIONS),
)  # fmt: skip


def structs(kind: Any, known: dict[str, Any]) -> None:
    """Every struct that a type holds, by name."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__name__ not in known:
        known[kind.__name__] = kind
        for field in msgspec.structs.fields(kind):
            structs(field.type, known)
    for inner in get_args(kind):
        structs(inner, known)


def described() -> Iterator[str]:
    known: dict[str, Any] = {}
    for union in UNIONS:
        structs(union, known)
    for name, kind in sorted(known.items()):
        for field in msgspec.structs.fields(kind):
            default = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            reported = "" if default is msgspec.NODEFAULT else f" = {default!r}"
            yield f"{name}.{field.encode_name}{reported}"


def test_messages_are_as_agreed() -> None:
    hint = "the protocol has changed: see the head of this file"
    assert list(described()) == AGREED.read_text(encoding="utf-8").splitlines(), hint


def test_tables_are_kept_and_sorted_as_the_page_says() -> None:
    page = (DOCS / "store.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| (\w+) \| (\d+) days \|", page, re.MULTILINE)
    reported = {name: (key, int(days)) for name, key, days in rows}
    written = {t.name: (t.about[0], t.retention_days) for t in TABLES.values()}
    assert reported.keys() <= written.keys()
    assert reported == {name: written[name] for name in reported}
    assert len(reported) >= 8
    for table in TABLES.values():
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names)
        assert {*table.about, *filter(None, [table.owner])} <= set(names)


def test_the_page_of_the_protocol_tells_its_numbers() -> None:
    page = (DOCS / "protocol.md").read_text(encoding="utf-8")
    assert f"speak protocol {messages.PROTOCOL}" in page
    assert f"up to {messages.BUNDLE_BYTES >> 10} KiB together" in page
    assert f"understands {messages.OLDEST} to {messages.PROTOCOL}" in page
    assert messages.OLDEST < messages.PROTOCOL or messages.PROTOCOL == 3
    assert f"An answer over {MAX_ANSWER_BYTES >> 20} MiB is refused" in page
    assert f"An answer over {PAGE_BYTES >> 20} MiB is sent as several" in page
    assert f"at most {bounds.MAX_VIEWS:,} connections" in page


def test_what_is_too_much_for_one_batch() -> None:
    """Far above an agent's second: 131,072 paths and two directions."""
    rows = 262_144
    assert rows == MAX_ROWS
    for count, fits in ((rows, True), (rows + 1, False)):
        table = pa.table(
            {"ts_ns": np.zeros(count, np.int64), "src": ["a"] * count, "dst": ["b"] * count,
             "received": np.zeros(count, np.uint32)}, schema=arrow_schema(HEARD),
        )  # fmt: skip
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue().to_pybytes()
        if fits:
            assert decode_columns(HEARD, data).num_rows == count
        else:
            with pytest.raises(WireError, match="262145 rows in one batch"):
                decode_columns(HEARD, data)
    with pytest.raises(WireError, match="16777217 bytes of Arrow"):
        decode_columns(HEARD, bytes(16_777_217))


@pytest.mark.parametrize("nothing", [[], np.zeros(0, np.float64), np.zeros(0, np.int64)])
def test_no_rows_are_no_rows(nothing: Any) -> None:
    columns: dict[str, Any] = {"ts_ns": nothing, "src": [], "dst": [], "received": nothing}
    assert decode_columns(HEARD, encode_columns(HEARD, columns)).num_rows == 0


@pytest.mark.parametrize(
    "body", ["", "A", "MAMCAQA=", "MQMCAQA=", "MIIB", "MIL/////"],
    ids=["empty", "no base64", "an integer", "a set", "cut short", "longer than it is"],
)  # fmt: skip
def test_what_is_no_certificate_is_said_to_be_none(body: str) -> None:
    pem = f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
    with pytest.raises(WireError, match=r"not an X\.509 certificate|no PEM certificate"):
        read_validity(pem.encode())


if __name__ == "__main__":
    print("\n".join(described()))
