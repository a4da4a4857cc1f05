"""Batches of every table that agents write, into a real store: each once, and known again."""

from __future__ import annotations

import random

import pytest
from tests.controller.test_batches import columns_of
from tests.link import T0

from syntony.controller.batches import Arrival, BatchPiece, joined, open_batches, unrecorded
from syntony.model import S
from syntony.store import Store, open_store
from syntony.wire.arrow import encode_columns
from syntony.wire.messages import Batch
from syntony.wire.tables import TABLES, Table

SEED = random.randrange(1_000_000)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return open_store(str(tmp_path_factory.mktemp("store")))


@pytest.mark.parametrize(
    "table", [each for each in TABLES.values() if each.owner], ids=lambda each: each.name
)
def test_batches_are_stored_and_recognized(table: Table, store: Store) -> None:
    draw = random.Random(f"{SEED}/{table.name}")
    arrivals = []
    for seq in (7, 8, 9):
        host = draw.choice(("h1", "h2"))
        columns = columns_of(draw, table, host)
        if table.owner == "host":
            columns["host"] = [host] * len(columns["host"])
        arrow, rows = encode_columns(table, columns), len(columns["ts_ns"])
        batch = Batch(seq=seq, table=table.name, rows=rows, dropped=0, arrow=arrow)
        arrivals.append(Arrival(batch, host, "s", check=True))
    pieces = [each for each in open_batches(arrivals, T0) if isinstance(each, BatchPiece)]
    assert len(pieces) == len(arrivals), SEED
    store.insert(table, joined(pieces[:2]))
    recorded = store.recorded(table, T0, T0 + 10 * S)
    assert [unrecorded(each, recorded) for each in pieces] == [None, None, pieces[2]], SEED
