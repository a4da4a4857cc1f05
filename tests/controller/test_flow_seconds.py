"""Seconds of probing from ingest to localisation, against a count row by row."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.store.rows import T0, rows_of

from syntony.controller import probed_rows
from syntony.controller.batches import BatchPiece
from syntony.controller.flow_seconds import FlowSeconds
from syntony.controller.locating import LocateLoop
from syntony.controller.probed_rows import RowBuffer, of_pieces
from syntony.fabric.book import PathBook, Way
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.history import SecondCounts
from syntony.model import S
from syntony.model.names import host_of
from syntony.store import open_store
from syntony.wire.tables import HEARD, PROBE, Table

SECOND = T0 // S


class Recorder(FaultLocator):
    """Keeps what it is given instead of judging it."""

    def __init__(self) -> None:
        super().__init__(PathBook(None))
        self.ways: list[Way] = []
        self.seconds: list[tuple[list[Way], SecondCounts, dict[tuple[str, str], int]]] = []
        self.ends: list[int | None] = []

    def number(self, way: Way) -> tuple[int, int]:
        found = super().number(way)
        if found[0] == len(self.ways):
            self.ways.append(way)
        return found

    def take(
        self, second: SecondCounts, heard: NDArray[np.int64], end_ns: int | None = None
    ) -> None:
        places = {super(Recorder, self).number(way)[1]: (way.src, way.dst) for way in self.ways}
        by_pair = {places[number]: int(count) for number, count in enumerate(heard) if count}
        self.seconds.append((list(self.ways), second, by_pair))
        self.ends.append(end_ns)


def piece(table: Table, rows: list[dict[str, Any]], host: str = "h") -> BatchPiece:
    made = rows_of(table, rows)
    names = [column.name for column in table.columns]
    first_ns, last_ns = (pick(row["ts_ns"] for row in rows) for pick in (min, max))
    (only,) = made.select(names).combine_chunks().to_batches()
    return BatchPiece(table, host, "s", 1, only, first_ns, last_ns, check=False)


def random_parts(draw: random.Random, rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Batches of more than one second, some of them."""
    cut = draw.randrange(len(rows) + 1)
    return [rows[:cut], rows[cut:]]


def drawn(draw: random.Random, second: int, nics: list[str]) -> list[dict[str, Any]]:
    """Rows of flows that are planned and not, of either direction or both, some twice."""
    found = []
    for _ in range(draw.randrange(400)):
        prober, peer = draw.sample(nics, 2)
        back = draw.random() < 0.5
        found.append({
            "ts_ns": second * S + draw.randrange(S), "src": peer if back else prober,
            "dst": prober if back else peer, "prober": prober,
            "sport": draw.choice([0, 61_000, 61_001, 65_535]), "sent": draw.randrange(50),
            "lost": draw.randrange(50), "unresolved": draw.randrange(9),
            "count": draw.choice([0, 0, 7]), "owd_p50_ns": draw.randrange(-10_000, 10_000),
            "clk_err_ns": draw.choice([0.0, 12.5, 99.0, math.inf, math.nan]),
        })  # fmt: skip
    return found


def counted(rows: list[dict[str, Any]], ports: dict[tuple[str, str], int]) -> dict[Way, list[Any]]:
    """Flow → sent, lost, sent back, lost back, unresolved, delays there and back, clock error."""
    groups: dict[tuple[str, str, int], dict[bool, list[dict[str, Any]]]] = defaultdict(
        lambda: {True: [], False: []}
    )
    for row in rows:
        forward = row["prober"] == row["src"]
        peer = row["dst"] if forward else row["src"]
        groups[row["prober"], peer, row["sport"]][forward].append(row)
    found = {}
    for (prober, peer, sport), halves in groups.items():
        there, back = halves[True], halves[False]
        if not there or (prober, peer) not in ports:
            continue
        delays = [
            max((row["owd_p50_ns"] for row in half if row["count"]), default=None)
            for half in (there, back)
        ]
        errors = [row["clk_err_ns"] for row in there if math.isfinite(row["clk_err_ns"])]
        found[Way(prober, peer, sport, ports[prober, peer])] = [
            *(sum(row[it] for row in half) for half in (there, back) for it in ("sent", "lost")),
            sum(row["unresolved"] for row in there), *delays, max(errors, default=0.0),
        ]  # fmt: skip
    return found


def reported(ways: list[Way], second: SecondCounts) -> dict[Way, list[Any]]:
    found = {}
    for place, way in enumerate(ways):
        numbers = [int(each) for each in second.counts[:5, place]]
        delays = [None if math.isnan(each) else each for each in second.delay_ns[:, place]]
        found[way] = [*numbers, *delays, float(second.clk_err_ns[place])]
    return found


def test_columns_say_what_rows_said() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed={seed}")
    draw = random.Random(seed)
    nothing = [0, 0, 0, 0, 0, None, None, 0.0]
    for _ in range(40):
        nics = [f"h{n // 2}/rail{n % 2}" for n in range(draw.randrange(3, 12))]
        watch, buffer = Recorder(), RowBuffer()
        seconds = FlowSeconds(watch)
        ports: dict[tuple[str, str], int] = {}
        for number in range(6):
            if number % 3 == 0:  # another plan
                ports = {(a, b): draw.choice([8620, 9000]) for a in nics for b in nics
                         if a != b and draw.random() < 0.7}  # fmt: skip
            rows = drawn(draw, SECOND + number, nics)
            heard = {(a, b): draw.randrange(1, 99) for a, b in ports if draw.random() < 0.5}
            cut = draw.randrange(len(rows) + 1)
            late = drawn(draw, SECOND + number - 1, nics)
            mixed = draw.sample(rows[cut:] + late, len(rows[cut:] + late))
            for part in (rows[:cut], *random_parts(draw, mixed)):
                if part:
                    buffer.put([piece(PROBE, part)])
            if heard:
                buffer.put([piece(HEARD, [
                    {"ts_ns": (SECOND + number) * S, "src": a, "dst": b, "received": count}
                    for (a, b), count in heard.items()
                ])])  # fmt: skip
            probed, received = (
                buffer.take(table.name, SECOND + number, SECOND + number).get(SECOND + number)
                for table in (PROBE, HEARD)
            )
            seconds.add(probed, received, ports)
            ways, got, by_pair = watch.seconds[-1]
            expected = counted(rows, ports)
            found = reported(ways, got)
            assert {way: each for way, each in found.items() if way in expected} == expected, seed
            assert all(each == nothing for way, each in found.items() if way not in expected), seed
            known = {(way.src, way.dst) for way in ways}
            # A pair with no flow in this plan's numbering yet has nobody to tell of.
            assert by_pair.items() <= heard.items(), seed
            assert (
                {(way.src, way.dst) for way in expected} & heard.keys() <= by_pair.keys() <= known
            )


def test_rows_wait_for_their_second_and_no_longer() -> None:
    buffer = RowBuffer()
    rows = [
        {"ts_ns": (SECOND + n) * S, "src": "a/n", "dst": "b/n", "prober": "a/n"} for n in range(9)
    ]
    buffer.put([piece(PROBE, rows)])
    assert {n: t.rows for n, t in buffer.take(PROBE.name, SECOND + 3, SECOND + 5).items()} == {
        SECOND + 3: 1, SECOND + 4: 1, SECOND + 5: 1,
    }  # fmt: skip
    assert buffer.take(PROBE.name, SECOND + 5, SECOND + 5) == {}
    assert buffer.take(PROBE.name, SECOND + 8, SECOND + 8)[SECOND + 8].rows == 1
    assert buffer.take(PROBE.name, SECOND, SECOND + 99) == {}


def test_what_nobody_takes_is_shed_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"ts_ns": SECOND * S, "src": "a/n", "dst": "b/n", "prober": "a/n"}
    monkeypatch.setattr(probed_rows, "MAX_BYTES", 5 * 8 * len(PROBE.columns))
    buffer = RowBuffer()
    for n in range(4):
        row = {"ts_ns": (SECOND + n) * S, "src": "a/n", "dst": "b/n", "prober": "a/n"}
        buffer.put([piece(PROBE, [row, row])])
    assert buffer.shed == 4
    found = buffer.take(PROBE.name, SECOND, SECOND + 9)
    assert sum(each.rows for each in found.values()) == 4
    assert set(found) == {SECOND + 2, SECOND + 3}


def test_a_black_hole_is_located_without_a_row_in_the_store(tmp_path: Path) -> None:
    """Eight hosts in a ring of two leaves; one uplink loses everything."""
    store = open_store(str(tmp_path / "store"))
    locating = LocateLoop(store, "")
    hosts = [f"h{n}/rail0" for n in range(8)]
    ports = {(a, b): 8620 for a in hosts for b in hosts if a != b}
    for (a, b), sport in ((pair, sport) for pair in ports for sport in (61_000, 61_001)):
        la, lb = (f"leaf{hosts.index(x) // 4}" for x in (a, b))
        hops = [la] if la == lb else [la, f"spine{sport % 2}", lb]
        locating._book.learn(Way(a, b, sport, 8620), hops, T0)
        locating._book.learn(Way(b, a, 8620, sport), hops[::-1], T0)
    for second in range(SECOND, SECOND + 12):
        probed: list[dict[str, Any]] = []
        heard: dict[tuple[str, str], int] = defaultdict(int)
        for (a, b), sport in ((pair, sport) for pair in ports for sport in (61_000, 61_001)):
            arrived = 20
            for src, dst in ((a, b), (b, a)):
                dead = hosts.index(src) // 4 < hosts.index(dst) // 4 and sport % 2 == 1
                sent, arrived = arrived, 0 if dead else arrived
                probed.append({
                    "ts_ns": second * S, "src": src, "dst": dst, "prober": a, "sport": sport,
                    "sent": sent, "lost": sent - arrived, "count": arrived, "owd_p50_ns": 5_000,
                })  # fmt: skip
                if src == a:
                    heard[a, b] += arrived
        locating.rows.put([
            piece(PROBE, probed),
            piece(HEARD, [{"ts_ns": second * S, "src": a, "dst": b, "received": n}
                          for (a, b), n in heard.items()]),
        ])  # fmt: skip
        locating.step((second + 3) * S, second, ports)
    (found,) = locating.answer.findings
    assert (found.component, found.fault) == ("leaf0->spine1", "blackhole")
    store.close()


def test_replies_alone_are_of_no_flow_yet() -> None:
    watch = Recorder()
    row = {"ts_ns": SECOND * S, "src": "h1/rail0", "dst": "h0/rail0", "prober": "h0/rail0",
           "sport": 61_000, "sent": 5, "lost": 1, "unresolved": 0, "count": 0, "owd_p50_ns": 0,
           "clk_err_ns": 0.0}  # fmt: skip
    rows = of_pieces(PROBE.name, [piece(PROBE, [row])])
    FlowSeconds(watch).add(rows, None, {("h0/rail0", "h1/rail0"): 8620})
    assert watch.seconds[0][0] == []


def test_when_a_second_ended_goes_with_it() -> None:
    recorder = Recorder()
    seconds = FlowSeconds(recorder)
    for end_ns in (7 * S, None):
        seconds.add(None, None, {("h0/rail0", "h1/rail0"): 8620}, end_ns)
    assert recorder.ends == [7 * S, None]


def test_rows_that_repeat_are_counted_as_if_seen_for_the_first_time() -> None:
    """Hosts send the same flows every second; some change, come late, or under another plan."""
    seed = random.randrange(1 << 30)
    print(f"seed={seed}")
    draw = random.Random(seed)
    nics = [f"h{n // 2}/rail{n % 2}" for n in range(8)]
    pairs = [(a, b) for a in nics for b in nics if host_of(a) != host_of(b)]
    ports = {pair: 8620 for pair in pairs if draw.random() < 0.7}
    flows = {f"h{n}": draw.sample(pairs, 12) for n in range(4)}
    watch, buffer = Recorder(), RowBuffer()
    seconds = FlowSeconds(watch)
    for number in range(30):
        kind = draw.choice(["same", "same", "same", "other plan", "order", "flows", "turned"])
        host = draw.choice(sorted(flows))
        if kind == "other plan":
            ports = {pair: draw.choice([8620, 9000]) for pair in pairs if draw.random() < 0.7}
        elif kind == "order":
            draw.shuffle(flows[host])
        elif kind == "flows":
            flows[host] = draw.sample(pairs, draw.randrange(1, 20))
        elif kind == "turned":  # the same keys, as requests where there were replies
            flows[host] = [(b, a) for a, b in flows[host]]
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for name, own in flows.items():
            if draw.random() < 0.1:
                continue
            for a, b in own:
                src, dst = (a, b) if draw.random() < 0.98 else (b, a)
                rows[name].append({
                    "ts_ns": (SECOND + number) * S, "src": src, "dst": dst, "prober": a,
                    "sport": 61_000, "sent": draw.randrange(50), "lost": draw.randrange(9),
                    "unresolved": draw.randrange(9), "count": draw.choice([0, 7]),
                    "owd_p50_ns": draw.randrange(9_999), "owd_max_ns": 10_000, "clk_err_ns": 1.0,
                })  # fmt: skip
        heard = {pair: draw.randrange(1, 99) for pair in pairs[:: draw.choice([1, 1, 1, 2])]}
        for name in draw.sample(sorted(rows), len(rows)):
            buffer.put([piece(PROBE, rows[name], name)])
        buffer.put([piece(HEARD, [
            {"ts_ns": (SECOND + number) * S, "src": a, "dst": b, "received": count}
            for (a, b), count in heard.items()
        ])])  # fmt: skip
        probed, received = (
            buffer.take(table.name, SECOND + number, SECOND + number).get(SECOND + number)
            for table in (PROBE, HEARD)
        )
        seconds.add(probed, received, ports)
        ways, got, by_pair = watch.seconds[-1]
        expected = counted([row for own in rows.values() for row in own], ports)
        found = reported(ways, got)
        assert {way: each for way, each in found.items() if way in expected} == expected, seed
        idle = (each for way, each in found.items() if way not in expected)
        assert all(each == [0, 0, 0, 0, 0, None, None, 0.0] for each in idle), seed
        assert by_pair.items() <= heard.items(), seed
        assert {(way.src, way.dst) for way in expected} & heard.keys() <= by_pair.keys(), seed


def test_a_host_stays_the_same_object_while_it_sends_the_same() -> None:
    buffer = RowBuffer()
    rows = {host: {"ts_ns": 0, "src": f"{host}/n", "dst": "x/n", "prober": f"{host}/n"}
            for host in ("h2", "h0", "h1")}  # fmt: skip
    seen = []
    for number in range(3):
        rows["h1"]["sport"] = number // 2
        for host in random.sample(sorted(rows), 3):
            rows[host]["ts_ns"] = (SECOND + number) * S
            buffer.put([piece(PROBE, [rows[host]], host)])
        taken = buffer.take(PROBE.name, SECOND + number, SECOND + number)[SECOND + number]
        assert taken.hosts == ["h0", "h1", "h2"]
        seen.append(taken.names)
    kept = [
        [a is b for a, b in zip(one, other, strict=True)] for one, other in itertools.pairwise(seen)
    ]
    assert kept == [[True] * 3, [True, False, True]]
