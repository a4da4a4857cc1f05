"""Statements for one server and for a cluster."""

from __future__ import annotations

from syntony.store import minutes
from syntony.store.layout import ONE_SERVER, Layout
from syntony.store.schema import ORIGIN, add_columns, capabilities, create_table
from syntony.wire.tables import CLOCK, TABLES

CLUSTER = Layout("fleet", "syntony")
OLD = capabilities("18.16.1")


def test_one_server_has_each_table_once() -> None:
    assert ONE_SERVER.create("t", "a Int64", "MergeTree", "ORDER BY a", "a") == [
        "CREATE TABLE IF NOT EXISTS t (a Int64) ENGINE = MergeTree ORDER BY a"
    ]
    assert ONE_SERVER.alter("t", "ADD COLUMN b Int64") == ["ALTER TABLE t ADD COLUMN b Int64"]
    assert ONE_SERVER.refresh("t", "a") == []
    assert ONE_SERVER.drop_partition("t", 7) == ["ALTER TABLE t DROP PARTITION 7"]
    assert Layout("", "db").databases() == ["CREATE DATABASE IF NOT EXISTS db"]


def test_a_cluster_has_rows_in_replicated_tables_and_others_in_front() -> None:
    rows, front = CLUSTER.create("t", "a Int64", "ReplacingMergeTree(a)", "ORDER BY a", "hash(a)")
    assert rows == (
        "CREATE TABLE IF NOT EXISTS syntony_local.t ON CLUSTER fleet (a Int64) ENGINE = "
        "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/syntony_local/t', '{replica}', a)"
        " ORDER BY a"
    )
    assert front == (
        "CREATE TABLE IF NOT EXISTS syntony.t ON CLUSTER fleet AS syntony_local.t "
        "ENGINE = Distributed(fleet, syntony_local, t, hash(a))"
    )
    assert CLUSTER.alter("t", "ADD COLUMN b Int64") == [
        "ALTER TABLE syntony_local.t ON CLUSTER fleet ADD COLUMN b Int64"
    ]
    assert CLUSTER.refresh("t", "a")[0] == "DROP TABLE IF EXISTS syntony.t ON CLUSTER fleet"
    assert CLUSTER.drop_partition("t", 7) == [
        "ALTER TABLE syntony_local.t ON CLUSTER fleet DROP PARTITION 7"
    ]


def test_every_table_is_replicated_and_sharded_by_a_column_that_it_has() -> None:
    for table in TABLES.values():
        rows, front = create_table(table, OLD, CLUSTER)
        assert "ENGINE = ReplicatedMergeTree(" in rows
        assert "host String" in rows
        assert front.endswith(f"{table.name}, cityHash64(host))")
    rows, front, *summed_up = minutes.create(CLUSTER)
    assert "ReplicatedReplacingMergeTree(" in rows
    assert front.endswith("cityHash64(src, dst))")
    for hours, hours_front in zip(summed_up[::2], summed_up[1::2], strict=True):
        assert "ENGINE = ReplicatedMergeTree(" in hours
        assert hours_front.endswith("cityHash64(ts_ns))")
    assert len(summed_up) == 4


def test_columns_are_added_where_rows_are() -> None:
    present = {column.name for column in (*ORIGIN, *CLOCK.columns[:-1])}
    (statement,) = add_columns(CLOCK, present, OLD, CLUSTER)
    assert statement.startswith(f"ALTER TABLE syntony_local.{CLOCK.name} ON CLUSTER fleet ADD ")
