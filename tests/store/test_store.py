"""What goes in comes out, from the embedded engine and from a real old server alike."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.store.rows import T0, fill, heard, probed, rows_of, silent

from syntony.errors import StoreError, UsageError
from syntony.model import DAY_NS, HOUR_NS, ClockState, S
from syntony.store import Store, StoredPart, open_store
from syntony.store.clickhouse import parse_url
from syntony.store.embedded import EmbeddedEngine
from syntony.store.engine import Row
from syntony.store.schema import capabilities, create_table, quote
from syntony.wire.probes import MatrixCell, Plane, SeriesPoint
from syntony.wire.tables import (
    AGENT,
    CLOCK,
    LINK_COUNTER,
    LINK_EVENT,
    LINK_PORT,
    PROBE,
    TABLES,
    Table,
)

A, B = "a/n", "b/n"
END = T0 + 60 * S


def cell(store: Store, src: str, dst: str) -> MatrixCell:
    cells = {(each.src, each.dst): each for each in store.matrix(T0, END)}
    return cells[src, dst]


def test_links_newest_look_flaps_and_worst_reading(store: Store) -> None:
    fill_table(store, LINK_PORT, [
        {"nic": "a/n", "state": "no-peer", "ts_ns": T0, "temperature_c": math.nan},
        {"nic": "a/n", "state": "active", "ts_ns": T0 + S, "gbps": 400.0, "rx_dbm": math.nan,
         "temperature_c": 41.5, "bias_ma": math.nan},
    ])  # fmt: skip
    fill_table(store, LINK_EVENT, [
        {"nic": "a/n", "kind": "carrier", "losses": 2, "ts_ns": T0 + S, "before": "up"},
        {"nic": "a/n", "kind": "carrier", "losses": 1, "ts_ns": T0 + 2 * S, "after": "down"},
        {"nic": "a/n", "kind": "module", "ts_ns": T0, "after": "beyond limit", "detail": "hot"},
        {"nic": "a/n", "kind": "module", "ts_ns": T0 + S, "after": "well", "detail": "cool"},
    ])  # fmt: skip
    fill_table(store, LINK_COUNTER, [
        {"nic": "a/n", "counter": "c", "increase": 3, "reading": "saturated", "ts_ns": T0},
        {"nic": "a/n", "counter": "c", "increase": 4, "reading": "counted", "ts_ns": T0 + S},
    ])  # fmt: skip
    (port,) = store.links.ports(T0, END)
    assert (port.state, port.gbps, port.flaps, port.last_flap_ns) == (
        "active", 400.0, 3, T0 + 2 * S,
    )  # fmt: skip
    assert (port.temperature_c, port.rx_dbm) == (41.5, None)
    assert [event.losses for event in store.links.events(T0, END, "a/n")] == [0, 2, 0, 1]
    assert store.links.events(T0, END, "b/n") == ()
    assert store.links.modules(T0, END) == {"a/n": ("well", "cool")}
    (counter,) = store.links.counters(T0, END)
    assert (counter.increase, counter.reading) == (7, "saturated")


def fill_table(store: Store, table: Table, rows: list[dict[str, Any]]) -> None:
    store.insert(table, rows_of(table, rows))


def test_an_empty_store_answers(store: Store) -> None:
    assert store.matrix(T0, END) == ()
    assert store.series(T0, END) == ()
    assert store.clock_history(T0, END) == ()
    assert (store.latest_ns(), store.count_rows(), store.expire(END)) == (0, 0, 0)


def test_counts_and_order_statistics_of_one_row_are_exact(store: Store) -> None:
    fill(store, [probed(A, B, stalled=3, lost=2, sent=42)])
    assert cell(store, A, B) == MatrixCell(
        src=A,
        dst=B,
        paths=1,
        sent=42,
        lost=2,
        owd_min_ns=1000,
        owd_p50_ns=2000,
        owd_p99_ns=4000,
        clk_err_ns=50,
        dropped=3,
    )


def test_a_window_weighs_rows_by_their_counts(store: Store) -> None:
    slow = dict.fromkeys(
        ("owd_min_ns", "owd_p50_ns", "owd_p90_ns", "owd_p99_ns", "owd_max_ns"), 9000
    )
    fill(store, [probed(A, B, 0, count=1000), probed(A, B, 1, count=40, **slow)])
    found = cell(store, A, B)
    assert (found.owd_min_ns, found.owd_p50_ns, found.owd_p99_ns) == (1000, 2000, 9000)


def test_paths_are_ports_and_labels(store: Store) -> None:
    rows = [
        probed(A, B, 0, sport=61000),
        probed(A, B, 1, sport=61000),
        probed(A, B, 1, sport=61001),
        probed(A, B, 1, sport=61001, flow_label=7),
    ]
    fill(store, rows)
    assert cell(store, A, B).paths == 3


def test_the_window_is_half_open(store: Store) -> None:
    fill(store, [probed(A, B, second) for second in (-1, 0, 1, 59, 60)])
    assert cell(store, A, B).sent == 3 * 40


def test_negative_delays_and_huge_values_survive(store: Store) -> None:
    fill(store, [probed(A, B, owd_min_ns=-(1 << 62), owd_p50_ns=-5, clk_err_ns=float("inf"))])
    found = cell(store, A, B)
    assert (found.owd_min_ns, found.owd_p50_ns, found.clk_err_ns) == (-(1 << 62), -5, None)


@pytest.mark.parametrize(
    ("probes", "hearings", "there", "back"),
    [
        # (sent, lost) of a→b and of b→a
        ([silent(A, B), silent(B, A)], [], (40, 40), (40, 40)),  # both ways dark, both probe
        ([silent(A, B)], [], (40, 40), None),  # dead or cut off target
        ([silent(A, B)], [heard(A, B)], (40, 0), (40, 40)),  # the way back only
        (
            [silent(A, B), probed(B, A, count=0, unresolved=40)],
            [heard(B, A)],
            (80, 80),
            (40, 0),
        ),  # a→b only: b's probes get there, their replies do not
        (
            [
                probed(A, B, count=30, unresolved=10),
                probed(B, A, prober=A, count=30, unresolved=10),
            ],
            [heard(A, B, received=30)],
            (40, 10),
            (30, 0),
        ),  # one path of four dead on the way there
        (
            [
                probed(A, B, count=30, unresolved=10),
                probed(B, A, prober=A, count=30, unresolved=10),
            ],
            [heard(A, B, received=36)],
            (40, 4),
            (36, 6),
        ),  # some each way
        ([probed(A, B, lost=5, count=35)], [heard(A, B, received=35)], (40, 5), None),  # known
    ],
)
def test_direction_of_loss(
    store: Store,
    probes: list[dict[str, Any]],
    hearings: list[dict[str, Any]],
    there: tuple[int, int],
    back: tuple[int, int] | None,
) -> None:
    fill(store, probes, hearings)
    cells = {(each.src, each.dst): (each.sent, each.lost) for each in store.matrix(T0, END)}
    points = {(each.src, each.dst): (each.sent, each.lost) for each in store.series(T0, END)}
    wanted = {(A, B): there} | ({(B, A): back} if back else {})
    assert cells == wanted
    assert points == wanted
    pairs = store.pair_latencies(T0, END)
    assert {way: (each.sent, each.lost) for way, each in pairs.items()} == {
        "->".join(way): counts for way, counts in wanted.items()
    }


def test_hearing_in_another_second_excuses_nothing(store: Store) -> None:
    fill(store, [silent(A, B, 5)], [heard(A, B, 4), heard(A, B, 6)])
    assert cell(store, A, B).lost == 40


def test_series_of_one_direction_of_one_end_and_of_all(store: Store) -> None:
    fill(store, [probed(A, B, 0), probed(A, B, 1), probed("c/n", A, 0), silent(B, A, 2)])
    assert [p.ts_ns for p in store.series(T0, END, A, B)] == [T0, T0 + S]
    assert [p.src for p in store.series(T0, END, dst=A)] == [B, "c/n"]
    assert len(store.series(T0, END)) == 4
    assert store.series(T0, END, B, A) == (
        SeriesPoint(
            ts_ns=T0 + 2 * S,
            src=B,
            dst=A,
            sent=40,
            lost=40,
            owd_min_ns=None,
            owd_p50_ns=None,
            owd_p99_ns=None,
        ),
    )


def test_series_in_steps_has_the_sums_of_its_seconds(store: Store) -> None:
    """Losses found from both ends' counts are of their steps, too."""
    fill(
        store,
        [probed(A, B, 0), probed(A, B, 4, owd_max_ns=9), silent(A, B, 5), probed(A, B, 9)],
        [heard(A, B, second) for second in (0, 4, 5, 9)],
    )
    points = store.series(T0, END, A, B, 5)
    first = T0 // (5 * S) * 5 * S
    assert [p.ts_ns for p in points] == [first + 5 * S * each for each in (0, 1)]
    assert [(p.sent, p.lost) for p in points] == [(80, 0), (80, 0)]
    back = store.series(T0, END, B, A, 5)
    assert [(p.ts_ns, p.sent, p.lost) for p in back] == [(first + 5 * S, 40, 40)]
    assert store.series(T0, END, A, B, 1) == store.series(T0, END, A, B)


def test_more_history_than_fits_an_answer_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syntony.store.queries.MAX_POINTS", 2)
    monkeypatch.setattr("syntony.store.columnar.MAX_POINTS", 2)
    fill(store, [probed(A, B, second) for second in range(3)])
    assert len(store.series(T0, T0 + 2 * S)) == 2
    with pytest.raises(UsageError, match="ask for a shorter window, longer steps or one pair"):
        store.series(T0, END)


def test_series_tells_the_way_back_of_the_direction_asked_for(store: Store) -> None:
    fill(store, [silent(A, B)], [heard(A, B)])
    assert [(p.src, p.sent, p.lost) for p in store.series(T0, END, B, A)] == [(B, 40, 40)]
    assert [(p.src, p.sent, p.lost) for p in store.series(T0, END, A, B)] == [(A, 40, 0)]


def test_names_are_text_whatever_is_in_them(store: Store) -> None:
    odd = 'it\'s \\ "x"\n; DROP TABLE probe_1s --/µ'
    fill(store, [probed(odd, B)])
    assert [p.src for p in store.series(T0, END, odd, B)] == [odd]
    assert store.series(T0, END, odd + "'", B) == ()


def test_recorded_names_batches_by_partition(store: Store) -> None:
    hour = T0 // HOUR_NS
    edge = (hour + 1) * HOUR_NS
    rows = [
        probed(A, B) | {"seq": 5},
        probed(A, B) | {"seq": (1 << 64) - 1, "stream": "t", "ts_ns": edge - 1},
        probed(A, B) | {"seq": (1 << 64) - 1, "stream": "t", "ts_ns": edge},
    ]
    fill(store, rows)
    assert store.recorded(PROBE, T0, edge) == {
        StoredPart("h0", "s", 5, hour),
        StoredPart("h0", "t", (1 << 64) - 1, hour),
    }
    assert StoredPart("h0", "t", (1 << 64) - 1, hour + 1) in store.recorded(PROBE, T0, edge + 1)


def test_own_host_column_is_the_origin(store: Store) -> None:
    store.insert(AGENT, rows_of(AGENT, [{"host": "h7", "seq": 3}]))
    assert store.recorded(AGENT, T0, END) == {StoredPart("h7", "s", 3, T0 // DAY_NS)}


def test_clock_history(store: Store) -> None:
    rows = [
        {"ts_ns": T0 + k * S, "node": node, "ref_ns": k, "offset_ns": -1.5, "state": "HOLDOVER"}
        for node in ("h1", "h0")
        for k in (1, 0)
    ]
    store.insert(CLOCK, rows_of(CLOCK, rows))
    history = store.clock_history(T0, END)
    assert [(p.node, p.ts_ns - T0) for p in history] == [
        ("h0", 0),
        ("h0", S),
        ("h1", 0),
        ("h1", S),
    ]
    assert history[0].state is ClockState.HOLDOVER
    assert history[0].offset_ns == -1.5
    assert len(store.clock_history(T0, END, "h1")) == 2
    store.insert(CLOCK, rows_of(CLOCK, [rows[0] | {"ts_ns": T0 + 5 * S, "node": "h2"}]))
    firsts = [store.first_ns(CLOCK, T0, END, node) - T0 for node in ("", "h1", "h2", "h3")]
    assert firsts == [0, 0, 5 * S, -T0]


def test_a_step_of_clock_history_has_the_newest_place_and_the_worst_of_the_rest(
    store: Store,
) -> None:
    states = [("SYNCHRONIZED", ""), ("DISRUPTED", "stepped"), ("SYNCHRONIZED", "")]
    rows = [
        {
            "ts_ns": T0 + k * S,
            "node": "h0",
            "ref_ns": k,
            "offset_ns": float(k),
            "sigma_ns": 10.0 - k,
            "bound_ns": 100.0 * k,
            "state": state,
            "reason": reason,
        }
        for k, (state, reason) in enumerate(states)
    ]
    store.insert(CLOCK, rows_of(CLOCK, rows))
    (only,) = store.clock_history(T0, END, "h0", 60 * S)
    assert (only.ts_ns - T0, only.ref_ns, only.offset_ns) == (2 * S, 2, 2.0)
    assert (only.sigma_ns, only.bound_ns) == (10.0, 200.0)
    assert (only.state, only.reason) == (ClockState.DISRUPTED, "stepped")


def test_no_bound_is_none(store: Store) -> None:
    row = {"node": "h0", "state": "UNKNOWN", "bound_ns": math.inf}
    store.insert(CLOCK, rows_of(CLOCK, [row]))
    assert store.clock_history(T0, END)[0].bound_ns is None


def test_a_table_of_an_earlier_version_gains_what_is_new(store: Store) -> None:
    assert isinstance(store, Store)
    engine = store._engine
    engine.execute(f"DROP TABLE {CLOCK.name}")
    earlier = CLOCK._replace(columns=CLOCK.columns[:7])
    for statement in create_table(earlier, capabilities("18.16.1")):
        engine.execute(statement)
    store.insert(earlier, rows_of(earlier, [{"node": "h0", "state": "SYNCHRONIZED"}]))
    again = Store(engine)
    later = {"ts_ns": T0 + S, "node": "h0", "state": "SYNCHRONIZED", "bound_ns": 7.0}
    again.insert(CLOCK, rows_of(CLOCK, [later]))
    assert [sample.bound_ns for sample in again.clock_history(T0, END)] == [None, 7.0]
    Store(engine)  # nothing more to do


def test_rows_of_seconds_can_be_kept_for_a_shorter_time_than_those_of_solves(store: Store) -> None:
    fill(store, [probed(A, B), probed(A, B, 3600)])
    store.insert(CLOCK, rows_of(CLOCK, [{"node": "h0", "state": "UNKNOWN"}]))
    kept_ns = 6 * HOUR_NS
    assert store.expire(T0 + kept_ns, kept_ns) == 0
    assert store.expire(T0 + HOUR_NS + kept_ns, kept_ns) == 1
    assert (store.count_rows(), store.latest_ns()) == (2, T0 + HOUR_NS)


def test_retention_drops_what_is_wholly_too_old(store: Store) -> None:
    fill(store, [probed(A, B), probed(A, B, 3600)])
    store.insert(CLOCK, rows_of(CLOCK, [{"node": "h0", "state": "UNKNOWN"}]))
    keep_ns = PROBE.retention_days * DAY_NS
    assert store.expire(T0 + keep_ns) == 0
    assert store.expire(T0 + HOUR_NS + keep_ns) == 1
    assert (store.count_rows(), store.latest_ns()) == (2, T0 + HOUR_NS)


def test_rows_outlive_the_process_that_wrote_them(own_directory: str) -> None:
    first = open_store(f"chdb:{own_directory}")
    fill(first, [probed(A, B)])
    with pytest.raises(StoreError, match="in use by another controller"):
        open_store(own_directory)
    first.close()
    second = open_store(own_directory)
    assert (second.latest_ns(), second.latest_ns(Plane.VERBS)) == (T0, 0)
    second.close()


def test_missing_columns_are_named(store: Store) -> None:
    with pytest.raises(StoreError, match="rows lack owd_max_ns"):
        store.insert(PROBE, rows_of(PROBE, [probed(A, B)]).drop_columns(["owd_max_ns"]))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "write a directory"),
        ("http://x/", "write a directory"),
        ("clickhouse://", "write clickhouse"),
        ("clickhouse://h:99999/db", "Port out of range"),
        ("clickhouse://h/a-b", "cannot name a database"),
        ("clickhouse://h/x;y", "cannot name a database"),
        ("clickhouse://a,b/db", "add .cluster=NAME"),
        ("clickhouse://a,/db?cluster=c", "'' is not a server"),
        ("clickhouse://a,b:x/db?cluster=c", "'b:x' is not a server"),
        ("clickhouse://a,b:70000/db?cluster=c", "'b:70000' is not a server"),
        ("clickhouse://a/db?cluster=", "'' cannot name a cluster"),
        ("clickhouse://a/db?cluster=c%20d", "'c d' cannot name a cluster"),
        ("clickhouse://a/db?clutser=c", "clutser: the only option"),
    ],
)
def test_urls_that_are_none(url: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        open_store(url)


def test_url_parts_and_defaults() -> None:
    assert parse_url("clickhouse://u:p%40@h:1/db") == ("h", 1, False, "u", "p@", "db", "", ())
    assert parse_url("clickhouses://h")[:6] == ("h", 8443, True, "default", "", "syntony")
    of_cluster = parse_url("clickhouse://u@a:1,b,c:3/db?cluster=fleet")
    assert of_cluster[:3] == ("a", 1, False)
    assert of_cluster[6:] == ("fleet", (("b", 8123), ("c", 3)))


def test_a_server_that_is_not_there_is_one_line() -> None:
    with pytest.raises(StoreError, match=r"store 127\.0\.0\.1:1 does not answer: .*refused"):
        open_store("clickhouse://127.0.0.1:1/db")


@pytest.mark.slow
def test_a_server_that_refuses_us_is_one_line(clickhouse_server: str) -> None:
    with pytest.raises(StoreError, match=r"store 127\.0\.0\.1:.*[Pp]assword"):
        open_store(clickhouse_server.replace("p%40ss", "wrong"))


@pytest.mark.parametrize(
    ("version", "modern"), [("18.16.1", False), ("26.9.2.1", True), ("20.1", True), ("?", False)]
)
def test_old_engines_get_the_common_subset(version: str, *, modern: bool) -> None:
    for table in TABLES.values():
        (statement,) = create_table(table, capabilities(version))
        assert ("LowCardinality" in statement) is modern
        assert ("CODEC" in statement) is modern


def test_quoting() -> None:
    assert quote("a'b\\c") == "'a\\'b\\\\c'"


def test_nothing_is_asked_about_windows_that_no_rows_have_reached(
    own_directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    select = EmbeddedEngine.select

    def noting(engine: EmbeddedEngine, sql: str) -> list[Row]:
        asked.append(sql)
        return select(engine, sql)

    monkeypatch.setattr(EmbeddedEngine, "select", noting)

    def ports(first_ns: int) -> tuple[list[str], bool]:
        """Those found, and whether the engine was asked about them."""
        asked.clear()
        found = [each.nic for each in store.links.ports(first_ns, END)]
        return found, any("argMax" in sql for sql in asked)

    def look(nic: str, at_ns: int) -> None:
        fill_table(store, LINK_PORT, [{"nic": nic, "ts_ns": at_ns}])

    store = open_store(own_directory)
    assert ports(T0) == ([], False)
    look("a/n", T0)
    assert ports(T0) == (["a/n"], True)
    assert ports(T0 + 1) == ([], False)
    look("b/n", T0 + 2)
    look("c/n", T0 + 1)  # late
    assert ports(T0 + 1) == (["b/n", "c/n"], True)
    assert ports(T0 + 3) == ([], False)
    store.close()
    store = open_store(own_directory)
    look("d/n", T0 - HOUR_NS)
    assert ports(T0 + 2) == (["b/n"], True)  # stored before it was opened
    assert ports(T0 + 3) == ([], False)
    store.close()
