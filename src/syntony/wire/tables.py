"""Column schemas: what agents send in Arrow batches and what the store keeps.

One description per table, three renderings: Arrow (agent, controller), SQL (store), documentation.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

ColumnType = Literal["int64", "uint64", "uint32", "uint16", "float32", "float64", "string"]


class Column(NamedTuple):
    """One column: its type and what it means, unit included."""

    name: str
    type: ColumnType
    meaning: str


class Table(NamedTuple):
    """One table; `order` is its sort key, the first column of every table is the fleet time."""

    name: str
    columns: tuple[Column, ...]
    order: tuple[str, ...]
    retention_days: int


PROBE = Table(
    "probe_1s",
    (
        Column("ts_ns", "int64", "start of the second, fleet timeline"),
        Column("src", "string", "sending NIC, host/nic"),
        Column("dst", "string", "receiving NIC, host/nic"),
        Column("prober", "string", "NIC whose engine sent the requests, host/nic"),
        Column("sport", "uint16", "UDP source port of the prober: the path's entropy"),
        Column("flow_label", "uint32", "IPv6 flow label of the prober's packets"),
        Column("dscp", "uint16", "traffic class"),
        Column("sent", "uint32", "probes put on the wire in this direction"),
        Column("lost", "uint32", "known not to have arrived in this direction"),
        Column("unresolved", "uint32", "round trip broken, direction not known"),
        Column("stalled", "uint32", "left out: an engine was late, not the network"),
        Column("count", "uint32", "one-way delays measured; 0 makes the owd columns void"),
        Column("owd_min_ns", "int64", "one-way delay, smallest"),
        Column("owd_p50_ns", "int64", "one-way delay, median"),
        Column("owd_p90_ns", "int64", "one-way delay, 90th percentile"),
        Column("owd_p99_ns", "int64", "one-way delay, 99th percentile"),
        Column("owd_max_ns", "int64", "one-way delay, largest"),
        Column("clk_err_ns", "float32", "1-sigma of the clock error in the delays"),
    ),
    order=("src", "dst", "sport", "ts_ns"),
    retention_days=7,
)

HEARD = Table(
    "heard_1s",
    (
        Column("ts_ns", "int64", "start of the second, fleet timeline"),
        Column("src", "string", "NIC that probed, host/nic"),
        Column("dst", "string", "NIC that received, host/nic"),
        Column("received", "uint32", "authentic requests received in the second"),
    ),
    order=("src", "dst", "ts_ns"),
    retention_days=7,
)

AGENT = Table(
    "agent_1s",
    (
        Column("ts_ns", "int64", "start of the second, fleet timeline"),
        Column("host", "string", "the agent's host"),
        Column("tx", "uint64", "probe packets sent since the engine started, replies included"),
        Column("rx", "uint64", "authentic probe packets received since the engine started"),
        Column("rejected", "uint64", "malformed, foreign, replayed or misdelivered packets"),
        Column("stalls", "uint64", "times the engine itself was late"),
        Column("dropped", "uint64", "rows or records ever shed by this agent"),
        Column("cpu_ns", "uint64", "CPU time of the agent process since it started"),
        Column("rss_bytes", "uint64", "resident memory of the agent process"),
    ),
    order=("host", "ts_ns"),
    retention_days=30,
)

CLOCK = Table(
    "clock_1s",
    (
        Column("ts_ns", "int64", "fleet time of the solve"),
        Column("node", "string", "clock: host, or host/nic with hardware stamps"),
        Column("ref_ns", "int64", "local instant the offset refers to"),
        Column("offset_ns", "float64", "fleet = local + offset at ref_ns"),
        Column("drift_ppb", "float64", "rate of the offset"),
        Column("sigma_ns", "float64", "1-sigma of the offset"),
        Column("state", "string", "UNKNOWN, SYNCHRONIZED, HOLDOVER, DISRUPTED"),
        Column("drift_sigma_ppb", "float64", "1-sigma of the drift"),
        Column("bound_ns", "float64", "bound on the clock's error at ts_ns; not finite: none"),
        Column("reason", "string", "why the state is not SYNCHRONIZED"),
    ),
    order=("node", "ts_ns"),
    retention_days=90,
)

TABLES: dict[str, Table] = {table.name: table for table in (PROBE, HEARD, AGENT, CLOCK)}
