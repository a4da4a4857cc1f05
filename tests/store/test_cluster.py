"""The store on a real ClickHouse cluster: it answers as one server, and outlives lost ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.store.cluster import Cluster, Server
from tests.store.rows import T0, heard, probed, rows_of

from syntony.errors import StoreError
from syntony.model import DAY_NS, HOUR_NS, S
from syntony.store import Store, open_store
from syntony.store.clickhouse import ClickHouseEngine, parse_url
from syntony.store.schema import capabilities, create_table
from syntony.wire.tables import AGENT, CLOCK, HEARD, PROBE, Table

pytestmark = pytest.mark.slow
PATIENCE_S = 300
HOSTS = [f"h{number}" for number in range(12)]
END = T0 + 60 * S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), session_s=20).running() as running:
        yield running


@pytest.fixture(scope="module")
def stored(cluster: Cluster) -> Iterator[Store]:
    opened = open_store(cluster.url("shared"))
    yield opened
    opened.close()


def engine_of(store: Store) -> ClickHouseEngine:
    engine = store._engine
    assert isinstance(engine, ClickHouseEngine)
    return engine


def soon(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def copies(cluster: Cluster, table: Table) -> list[list[int]]:
    """Rows that each replica has, by shard."""
    return [[_rows(each, table) for each in shard] for shard in cluster.replicas]


def _rows(server: Server, table: Table) -> int:
    engine = ClickHouseEngine(
        parse_url(f"clickhouse://tester:p%40ss@127.0.0.1:{server.port}/shared_local")
    )
    try:
        return int(str(engine.select(f"SELECT count() FROM {table.name}")[0][0]))  # noqa: S608
    finally:
        engine.close()


def test_it_answers_as_one_server(stored: Store, tmp_path: Path) -> None:
    one = open_store(str(tmp_path / "one"))
    ways = [(f"{a}/n", f"{b}/n") for a in HOSTS for b in HOSTS if a < b]
    for store in (stored, one):
        for second in range(3):
            for host in HOSTS:
                mine: list[Mapping[str, Any]] = [
                    probed(a, b, second, host=host, seq=second + 1, unresolved=second)
                    for a, b in ways
                    if a == f"{host}/n"
                ]
                if mine:
                    store.insert(PROBE, rows_of(PROBE, mine))
                heads = [
                    heard(a, b, second, 39) | {"host": host} for a, b in ways if b == f"{host}/n"
                ]
                if heads:
                    store.insert(HEARD, rows_of(HEARD, heads))
        store.insert(
            CLOCK, rows_of(CLOCK, [{"node": each, "state": "SYNCHRONIZED"} for each in HOSTS])
        )
    asks: tuple[Callable[[Store], object], ...] = (
        lambda store: store.matrix(T0, END),
        lambda store: store.series(T0, END),
        lambda store: store.recorded(PROBE, T0, END),
        lambda store: store.clock_history(T0, END),
        lambda store: store.latest_ns(),
        lambda store: store.count_rows(),
    )
    for ask in asks:
        assert ask(stored) == ask(one)
    one.close()


def test_rows_are_on_both_shards_and_all_replicas(cluster: Cluster, stored: Store) -> None:
    for seq, host in enumerate(HOSTS):
        stored.insert(AGENT, rows_of(AGENT, [{"host": host, "seq": seq, "stream": "both"}]))
    soon(lambda: all(one == two for one, two in copies(cluster, AGENT)))
    (first, _), (second, _) = copies(cluster, AGENT)
    assert first + second >= len(HOSTS)
    assert min(first, second) > 0


def insert_once(store: Store, host: str, stream: str, seq: int) -> int:
    """As ingest does: what failed is looked up before it is tried again. Returns the failures."""
    rows = rows_of(AGENT, [{"host": host, "seq": seq, "stream": stream, "ts_ns": T0 + seq * S}])
    deadline, failures = time.monotonic() + PATIENCE_S, 0
    while True:
        try:
            if failures:
                known = store.recorded(AGENT, T0, T0 + HOUR_NS)
                if any((each.host, each.stream, each.seq) == (host, stream, seq) for each in known):
                    return failures
            store.insert(AGENT, rows)
        except StoreError:
            failures += 1
            assert time.monotonic() < deadline
            time.sleep(0.5)
        else:
            return failures


def keep_inserting(store: Store, rows: Any) -> None:
    """Until it is refused: a server notices late that ZooKeeper is gone."""
    while True:
        store.insert(AGENT, rows)


def assert_each_once(store: Store, stream: str, count: int) -> None:
    found = engine_of(store).select(
        f"SELECT count(), uniqExact(host, seq) FROM {AGENT.name} WHERE stream = '{stream}'"  # noqa: S608 — our own name
    )
    assert found == [[count, count]]


@pytest.mark.parametrize("shard", [0, 1])
def test_a_lost_replica_costs_no_row(cluster: Cluster, stored: Store, shard: int) -> None:
    """The first of a shard: inserts and look-ups go to it while it lives."""
    stream, lost = f"lost{shard}", cluster.replicas[shard][0]
    for seq in range(1, 4):
        for host in HOSTS:
            insert_once(stored, host, stream, seq)
    soon(lambda: all(one == two for one, two in copies(cluster, AGENT)))
    lost.kill()
    for seq in range(4, 7):
        for host in HOSTS:
            insert_once(stored, host, stream, seq)
    assert_each_once(stored, stream, 6 * len(HOSTS))
    lost.start()
    soon(lambda: all(one == two for one, two in copies(cluster, AGENT)))
    insert_once(stored, HOSTS[0], stream, 7)
    soon(lambda: all(one == two for one, two in copies(cluster, AGENT)))
    assert_each_once(stored, stream, 6 * len(HOSTS) + 1)


def test_what_is_too_old_goes_from_every_replica(cluster: Cluster, stored: Store) -> None:
    before = stored.count_rows()
    assert before
    kept = stored.expire(T0 + PROBE.retention_days * DAY_NS)
    assert kept == 0
    assert stored.expire(T0 + HOUR_NS + PROBE.retention_days * DAY_NS) > 0
    soon(lambda: copies(cluster, PROBE) == [[0, 0], [0, 0]])
    assert stored.matrix(T0, END) == ()


def test_a_server_without_tables_gets_them(cluster: Cluster, stored: Store) -> None:
    engine = ClickHouseEngine(
        parse_url(f"clickhouse://tester:p%40ss@127.0.0.1:{cluster.servers[2].port}/shared")
    )
    before = stored.count_rows()
    engine.execute(f"DROP TABLE {AGENT.name}")
    open_store(cluster.url("shared")).close()
    assert engine.select(f"SELECT count() FROM {AGENT.name} WHERE host = ''") == [[0]]  # noqa: S608
    engine.close()
    assert stored.count_rows() == before


def test_a_table_of_an_earlier_version_gains_its_columns_everywhere(cluster: Cluster) -> None:
    engine = ClickHouseEngine(parse_url(cluster.url("earlier")))
    earlier = CLOCK._replace(columns=CLOCK.columns[:7])
    for statement in create_table(earlier, capabilities("18.16.1"), engine.layout):
        engine.execute(statement)
    engine.insert(
        CLOCK.name, list(earlier.columns),
        rows_of(earlier, [{"node": "h0", "state": "SYNCHRONIZED"}]).select(
            [c.name for c in earlier.columns]
        ),
    )  # fmt: skip
    store = Store(engine)
    store.insert(CLOCK, rows_of(CLOCK, [{"node": "h1", "state": "SYNCHRONIZED", "bound_ns": 7.0}]))
    found = {each.node: each.bound_ns for each in store.clock_history(T0, END)}
    assert found == {"h0": None, "h1": 7.0}
    store.close()


def test_without_zookeeper_rows_are_refused_and_stored_once_when_it_is_back(
    cluster: Cluster, stored: Store
) -> None:
    """The last test: ClickHouse 18 may end its thread for statements on the cluster, for good, when
    ZooKeeper goes away (its log then says `DDLWorker: Unexpected error, will terminate`)."""
    insert_once(stored, "h1", "keeper", 1)
    cluster.keeper.kill()
    rows = rows_of(AGENT, [{"host": "h1", "seq": 2, "stream": "refused", "ts_ns": T0 + 2 * S}])
    with pytest.raises(StoreError):
        keep_inserting(stored, rows)
    cluster.start_keeper()
    for seq in range(2, 5):
        insert_once(stored, "h1", "keeper", seq)
    assert_each_once(stored, "keeper", 4)


@pytest.mark.parametrize("away", ["replica", "zookeeper"])
def test_a_controller_starts_while_a_server_is_away(
    cluster: Cluster, stored: Store, away: str
) -> None:
    """All tables are there: nothing is asked of all servers."""
    one = cluster.keeper if away == "zookeeper" else cluster.replicas[1][1]
    one.kill()
    try:
        opened = open_store(cluster.url("shared"))
        assert opened.count_rows() == stored.count_rows()
        opened.close()
    finally:
        cluster.start_keeper() if away == "zookeeper" else one.start()
