"""A server that hangs carries out an insert that its sender gave up: rows are stored once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import uuid

import pytest

from syntony.controller.ingest import Ingest
from syntony.model import S
from syntony.store import clickhouse, open_store
from syntony.wire.arrow import encode_columns
from syntony.wire.messages import MAX_UNACKED, Batch
from syntony.wire.tables import HEARD, Table

T0 = 1_700_000_000 * S
ROWS = 20_000


def _batch(seq: int, count: int) -> Batch:
    rows: dict[str, list[str] | list[int]] = {
        "ts_ns": [T0 + seq * S] * count,
        "src": [f"h{number}/rail0" for number in range(count)],
        "dst": ["h1/rail0"] * count,
        "received": [1] * count,
    }
    arrow = encode_columns(HEARD, rows)
    return Batch(seq=seq, table=HEARD.name, rows=count, dropped=0, arrow=arrow)


@pytest.mark.slow
def test_an_insert_that_a_server_carries_out_late_is_not_repeated(
    clickhouse_process: tuple[str, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clickhouse, "TIMEOUT_S", 3.0)
    url, server = clickhouse_process
    store = open_store(f"{url}/t{uuid.uuid4().hex}")
    ingest = Ingest(store, lambda: T0, lambda *_: None)
    recorded = store.recorded
    loop: asyncio.AbstractEventLoop

    def look_up(table: Table, first_ns: int, last_ns: int) -> object:
        """The server goes on while the first question after the insert waits."""
        if ingest.failing:
            loop.call_soon_threadsafe(loop.call_later, 0.3, server.send_signal, signal.SIGCONT)
        return recorded(table, first_ns, last_ns)

    async def deliver() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        source = ingest.greet("h1", "s")
        for seq in range(1, MAX_UNACKED + 1):  # later ones are not looked up
            await ingest.put(source, _batch(seq, 1))
        await ingest.flush()
        last = _batch(MAX_UNACKED + 1, ROWS)
        await ingest.put(source, last)
        server.send_signal(signal.SIGSTOP)
        await ingest.flush()

    monkeypatch.setattr(store, "recorded", look_up)
    try:
        asyncio.run(asyncio.wait_for(deliver(), 60))
    finally:
        server.send_signal(signal.SIGCONT)
    assert ingest.failures == 1
    found = store._engine.select("SELECT count() FROM heard_1s")
    store.close()
    assert found == [[MAX_UNACKED + ROWS]]
