"""What a controller remembers stays in proportion to what there is, not to how long it has run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.rows import T0, rows_of

from syntony.controller.flow_delays import FORGET_NS as DELAYS_NS
from syntony.controller.flow_delays import DelaySecond, PathDelays, ProbeSecond
from syntony.controller.flow_table import FORGET_EVERY_NS, FORGET_NS, FlowTable
from syntony.controller.locating import FORGET_NS as PATHS_NS
from syntony.controller.locating import LocateLoop
from syntony.fabric.book import Way
from syntony.model import S
from syntony.store import open_store
from syntony.store.embedded import BOUNDS, TABLE_BOUNDS, EmbeddedEngine
from syntony.traffic.classes import Classes
from syntony.wire.tables import PATH

A, B = "h0/rail0", "h1/rail0"


def test_ports_of_connections_long_gone_are_let_go_of() -> None:
    """A connection a second for a day, each from a port of its own."""
    table = FlowTable(None, Classes(()))
    largest = 0
    for second in range(0, 86_400, 10):
        for port in range(10):
            sport = 1_024 + (second + port) % 64_000
            table.learn(Way(A, B, sport, 5_000 + second % 7), ["leaf0"], second * S)
        table.forget(second * S)
        largest = max(largest, len(table.book))
    assert largest <= (FORGET_NS + FORGET_EVERY_NS) // S + 10
    assert table.book.links(Way(A, B, sport, 5_000 + second % 7))


def test_delays_of_paths_of_the_past_are_let_go_of() -> None:
    delays = PathDelays()
    largest = 0
    for second in range(0, 20_000, 5):
        at_ns = second * S
        way = (f"{A}->leaf{second}", f"leaf{second}->{B}")
        delays.add([ProbeSecond(A, B, way, DelaySecond(at_ns, 1, 2), 1)])
        delays.of([], at_ns)
        largest = max(largest, len(delays))
    assert largest <= 2 * 2 * (2 * DELAYS_NS // S // 5 + 1)


def test_probe_flows_of_plans_of_the_past_are_let_go_of(tmp_path: Path) -> None:
    """… but not those that are still planned, however long nothing was heard of them."""
    store = open_store(str(tmp_path / "store"))
    rows = [
        {"ts_ns": T0, "src": src, "dst": dst, "sport": sport, "dport": 8620, "hops": "leaf0"}
        for src, dst in ((A, B), (B, A), ("h2/rail0", B))
        for sport in range(61_000, 61_100)
    ]
    store.insert(PATH, rows_of(PATH, rows))
    locating = LocateLoop(store, "")
    ports = {(A, B): 8620}
    locating.step(T0 + 10 * S, T0 // S, ports)
    assert len(locating.paths()) == 300
    locating.step(T0 + PATHS_NS + 10 * S, (T0 + PATHS_NS) // S, ports)
    assert {(path.src, path.dst) for path in locating.paths()} == {(A, B), (B, A)}
    store.close()


@pytest.mark.parametrize("name", ["store", "a&b 20%3d"])
def test_the_embedded_engine_keeps_to_its_bounds(tmp_path: Path, name: str) -> None:
    """Names of settings come and go with its versions: an unknown one would be passed over."""
    engine = EmbeddedEngine(tmp_path / name)
    sql = "SELECT name, value FROM system.{}_settings WHERE changed"
    found = {
        kind: {str(row[0]): row[1] for row in engine.select(sql.format(kind))}
        for kind in ("server", "merge_tree")
    }
    engine.close()
    for kind, bounds in (("server", BOUNDS), ("merge_tree", TABLE_BOUNDS)):
        assert {name: found[kind].get(name) for name in bounds} == {
            name: str(value) for name, value in bounds.items()
        }
