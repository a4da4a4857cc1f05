"""Schema versions of the telemetry store: old stores are brought forward, newer ones refused."""

from __future__ import annotations

import zlib

import pytest

from syntony.errors import StoreError
from syntony.store import Store, open_store
from syntony.store.engine import Engine, Row
from syntony.store.migrations import MIGRATIONS, VERSIONS, Migration, migrate
from syntony.store.schema import stored_columns
from syntony.wire.tables import CLOCK, TABLES

FINGERPRINTS = {1: 2701475406, 2: 1002113119, 3: 614294495, 4: 3042590235, 5: 2344545085,
                6: 1882387774, 7: 2726032217, 8: 1981317239, 9: 3511694946,
                10: 3511694946, 11: 1171569445,
                12: 100801412, 13: 100801412, 14: 100801412, 15: 100801412,
                16: 393936993, 17: 1654078486, 18: 2943157758, 19: 779173636,
                20: 3697296234, 21: 1513910715}  # fmt: skip
"""Schema version → checksum of the tables. Where they change, add a `Migration` (with statements if
columns are renamed, retyped or dropped, or a sort key changes) and its line here."""
ALL = [[each.version] for each in MIGRATIONS]


def engine_of(store: Store) -> Engine:
    assert isinstance(store, Store)
    return store._engine


def versions(engine: Engine) -> list[Row]:
    return engine.select("SELECT DISTINCT version FROM schema_version ORDER BY version")


def test_every_change_of_the_tables_has_a_version() -> None:
    reported = repr(
        [(t.name, [c[:2] for c in stored_columns(t)], t.about) for t in TABLES.values()]
    )
    assert FINGERPRINTS[MIGRATIONS[-1].version] == zlib.crc32(reported.encode())
    numbers = [each.version for each in MIGRATIONS]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_new_store_has_the_newest_version_and_keeps_it(store: Store) -> None:
    engine = engine_of(store)
    assert versions(engine) == ALL
    Store(engine)
    assert versions(engine) == ALL
    assert store.count_rows() == 0


def test_a_store_from_before_versions_is_taken_over(store: Store) -> None:
    engine = engine_of(store)
    engine.execute(f"DROP TABLE {VERSIONS}")
    engine.execute(f"DROP TABLE {CLOCK.name}")
    Store(engine)
    assert versions(engine) == ALL
    assert store.clock_history(0, 1 << 60) == ()


def test_migrations_run_in_order_once_and_again_after_a_crash(store: Store) -> None:
    engine = engine_of(store)
    steps = (
        *MIGRATIONS,
        Migration(
            90, ("CREATE TABLE IF NOT EXISTS moved (a UInt32) ENGINE = MergeTree ORDER BY a",)
        ),
        Migration(91, ("INSERT INTO moved VALUES (7)", "no statement")),
    )
    with pytest.raises(StoreError):
        migrate(engine, (), steps)
    assert versions(engine) == ALL  # none is done before all are
    migrate(engine, (), (*steps[:-1], Migration(91, ("INSERT INTO moved VALUES (8)",))))
    migrate(engine, (), (*steps[:-1], Migration(91, ("INSERT INTO moved VALUES (9)",))))
    assert engine.select("SELECT a FROM moved ORDER BY a") == [[7], [8]]
    assert versions(engine)[-2:] == [[90], [91]]


def test_a_newer_store_is_refused_and_stays_as_it_is(own_directory: str) -> None:
    store = open_store(own_directory)
    engine = engine_of(store)
    engine.execute("INSERT INTO schema_version VALUES (9999)")
    engine.execute(f"DROP TABLE {CLOCK.name}")
    store.close()
    for _ in range(2):  # the directory is let go each time
        with pytest.raises(StoreError, match=r"has schema 9999, .* start the version") as reported:
            open_store(own_directory)
        assert "\n" not in str(reported.value)
