"""How the embedded engine reads what it is given, and answers."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.store.conftest import SharedEngine
from tests.store.rows import probed, rows_of

from syntony.errors import StoreError
from syntony.wire.tables import PROBE


@pytest.mark.parametrize("missing", [(), ("dst", "sent", "clk_err_ns")])
def test_what_is_missing_is_as_a_column_has_it_by_default(
    shared_engine: SharedEngine, missing: tuple[str, ...]
) -> None:
    """Rows without a null are read without masks: with one, the others must be the same."""
    rows = rows_of(PROBE, [probed("h0/r0", "h1/r0"), probed("h\0'0/r0", "h1/é", 1)])
    for name in missing:
        place = rows.column_names.index(name)
        kind = rows.schema.field(place).type
        values = pa.array([None, rows.column(name)[1].as_py()], kind)
        rows = rows.set_column(place, pa.field(name, kind), values)
    store = shared_engine.empty_store()
    store.insert(PROBE, rows)
    found = store._engine.select("SELECT src, dst, sent, clk_err_ns FROM probe_1s ORDER BY ts_ns")
    first = {"src": "h0/r0", "dst": "h1/r0", "sent": 40, "clk_err_ns": 50}
    first |= {name: "" if name in {"src", "dst"} else 0 for name in missing}
    assert found == [list(first.values()), ["h\0'0/r0", "h1/é", 40, 50]]


def test_a_query_whose_time_is_over_leaves_nothing_in_the_next_answer(
    shared_engine: SharedEngine,
) -> None:
    """Its first rows were in the answer of whoever asked next, which could not be read."""
    engine = shared_engine.empty_store()._engine
    slow = "SELECT number, sleepEachRow(0.3) FROM numbers(20)"
    with pytest.raises(StoreError, match="Timeout exceeded"):
        engine.select(f"{slow} SETTINGS max_execution_time = 1, max_block_size = 1")
    assert engine.select("SELECT 7") == [[7]]
