"""Rows of an agent that does not know fleet time yet, and a clock that is far off it."""

from __future__ import annotations

import random
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tests.wire.decoded import decode_columns

from syntony.agent import daemon
from syntony.agent.config import AgentConfig, NicConfig
from syntony.agent.daemon import Agent
from syntony.agent.early_rows import MAX_WAITING, EarlyRows
from syntony.agent.pipeline import agent_row
from syntony.agent.spool import Spool
from syntony.agent.uplink import Uplink
from syntony.errors import MissingError
from syntony.model import ClockState, S, Timeline
from syntony.model.tls_files import TlsFiles
from syntony.wire.arrow import encode_columns
from syntony.wire.clocks import Timelines
from syntony.wire.tables import AGENT, HEARD, PATH_EVENTS, TABLES

HOST = "h0"
VITALS = dict.fromkeys(
    [column.name for column in AGENT.columns if column.name not in {"ts_ns", "host"}], 3
)


@pytest.mark.parametrize("seed", range(10))
def test_rows_keep_their_second_and_their_order(seed: int) -> None:
    rng = random.Random(seed)
    rows, began_ns = EarlyRows(), rng.randrange(10**15)
    offset_ns = rng.randrange(-(10**15), 10**18)
    kept: dict[str, list[tuple[int, int]]] = {"agent_1s": [], "heard_1s": []}
    for number in range(50):
        at_ns = began_ns + number * S + rng.randrange(S)
        if rng.random() < 0.8:
            rows.keep(AGENT, agent_row(HOST, at_ns, VITALS | {"tx": number}))
            kept["agent_1s"].append(((at_ns + offset_ns) // S * S, number))
        count = rng.randrange(3)
        columns: dict[str, Any] = {
            "ts_ns": np.full(count, at_ns), "src": ["a/x"] * count, "dst": ["h0/r"] * count,
            "received": np.full(count, number, np.uint32),
        }  # fmt: skip
        rows.keep(HEARD, columns if count else None)
        kept["heard_1s"] += [((at_ns + offset_ns) // S * S, number)] * count
    for table, found in rows.release(offset_ns):
        reported = decode_columns(table, encode_columns(table, found))
        value = "tx" if table is AGENT else "received"
        pairs = zip(
            reported.column("ts_ns").to_pylist(), reported.column(value).to_pylist(), strict=True
        )
        assert list(pairs) == kept.pop(table.name), f"seed {seed}"
    assert kept == {}
    assert list(rows.release(offset_ns)) == []
    assert rows.dropped == 0


def test_an_event_keeps_its_instant_to_the_nanosecond() -> None:
    rows = EarlyRows()
    columns: dict[str, Any] = {c.name: ["x"] for c in PATH_EVENTS.columns if c.type == "string"}
    columns |= {c.name: np.array([7]) for c in PATH_EVENTS.columns if c.type == "int64"}
    rows.keep(PATH_EVENTS, columns)
    ((_, found),) = rows.release(10**18)
    assert list(found["ts_ns"]) == [10**18 + 7]
    assert list(found["detect_ns"]) == [7]


def test_what_waits_is_bounded_and_what_is_dropped_is_counted() -> None:
    rows = EarlyRows()
    for number in range(MAX_WAITING + 5):
        rows.keep(AGENT, agent_row(HOST, number * S, VITALS))
    ((_, found),) = rows.release(0)
    assert list(found["ts_ns"]) == [number * S for number in range(5, MAX_WAITING + 5)]
    assert rows.dropped == 5


class Bench:
    """An agent that is not started: its loop's reports, by a clock of our own."""

    def __init__(
        self, place: Path, patch: pytest.MonkeyPatch, ahead_ns: int, rng: random.Random
    ) -> None:
        self.rng = rng
        nowhere = TlsFiles(ca="/nonexistent", cert="/nonexistent", key="/nonexistent")
        config = AgentConfig(
            host=HOST, controller="127.0.0.1:1", tls=nowhere,
            nics=(NicConfig(name="va", rail=0),), spool_dir=str(place / "spool"),
        )  # fmt: skip
        self.agent = Agent(config, Spool(place / "spool", 1 << 20))
        self.monotonic_ns, self.ahead_ns = 5_000 * S + rng.randrange(S), ahead_ns
        self.fleet_ns = 1_700_000_000 * S + rng.randrange(S)
        patch.setattr(daemon, "time", SimpleNamespace(monotonic_ns=lambda: self.monotonic_ns))
        clock = SimpleNamespace(now_ns=lambda: self.fleet_ns + self.ahead_ns)
        patch.setattr(self.agent, "_clock", clock)
        patch.setattr(self.agent, "_estimate", lambda *_: None)
        self.reported: list[tuple[str, list[int]]] = []
        self.uplink = cast(
            Uplink,
            SimpleNamespace(submit=self._submit, send=lambda _: None),
        )

    def _submit(self, table: str, rows: int, data: bytes) -> None:
        columns = decode_columns(TABLES[table], data)
        assert columns.num_rows == rows
        self.reported.append((table, columns.column("ts_ns").to_pylist()))

    def live(self, seconds: int) -> None:
        """Turns as long as they come, none longer than half a second."""
        left_ns = seconds * S
        while left_ns > 0:
            turn_ns = min(left_ns, self.rng.randrange(S // 100, S // 2))
            left_ns -= turn_ns
            self.monotonic_ns += turn_ns
            self.fleet_ns += turn_ns
            self.agent._report_due(self.uplink)

    def learn_time(self) -> None:
        line = Timeline(
            node=HOST, ref_ns=self.fleet_ns + self.ahead_ns, offset_ns=-self.ahead_ns,
            drift_ppb=0.0, sigma_ns=1.0, state=ClockState.SYNCHRONIZED, component=HOST,
        )  # fmt: skip
        self.agent._pipeline.timelines(Timelines(timelines=(line,)).timelines)

    def seconds(self) -> list[int]:
        """Of the agent's own rows."""
        return [ts_ns // S for table, instants in self.reported if table == AGENT.name
                for ts_ns in instants]  # fmt: skip


@pytest.mark.parametrize("ahead_ns", [0, 3 * S // 10, 365 * 86_400 * S, -365 * 86_400 * S])
def test_seconds_before_fleet_time_are_told_in_it_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_ns: int
) -> None:
    """Also of a host whose clock is a year off: it once told nothing until fleet time had come to
    where its clock had been. Whenever seconds begin, and however late the agent's turns come."""
    seed = random.randrange(1 << 30)
    for number in range(seed, seed + 12):
        bench = Bench(tmp_path / str(number), monkeypatch, ahead_ns, random.Random(number))
        first = bench.fleet_ns // S
        bench.live(30)
        if bench.rng.random() < 0.5:
            bench.ahead_ns += bench.rng.randrange(-2 * S, 2 * S)  # somebody sets the host's clock
        bench.live(5)
        assert bench.reported == []
        bench.learn_time()
        bench.live(30)
        found = bench.seconds()
        assert found == sorted(set(found)), f"{number=}"
        # The first may be cut by the agent's start, the last by the end.
        assert set(range(first + 1, first + 63)) <= set(found), f"{number=}"


def test_a_loop_whose_reports_fail_rests_between_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instant of the next report has passed then, and stays: an agent once burnt a core."""
    bench = Bench(tmp_path, monkeypatch, 0, random.Random(1))
    bench.learn_time()
    agent, stop = bench.agent, threading.Event()
    agent.parts.add("reports", lambda: None, 0, 60 * S)
    agent._next_check_ns = bench.monotonic_ns + 3_600 * S
    pauses: list[int] = []

    def take(pause_ns: int) -> list[Any]:
        pauses.append(pause_ns)
        bench.monotonic_ns += S
        bench.fleet_ns += S
        if len(pauses) == 10:
            stop.set()
        return []

    def fail(_: Uplink) -> None:
        raise MissingError("nothing can be read")

    monkeypatch.setattr(agent, "_take_messages", take)
    monkeypatch.setattr(agent, "_check_clock", lambda _: None)
    monkeypatch.setattr(agent, "_watch_clock", lambda _: None)
    monkeypatch.setattr(agent, "_report_due", fail)
    uplink = SimpleNamespace(reconnect=lambda: None, send=lambda _: None, together=nullcontext)
    agent.run(cast(Uplink, uplink), stop)
    assert pauses[1:] == [daemon.TURN_NS] * 9
