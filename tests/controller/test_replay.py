"""A recorded stretch through the leader's code: what happened is found again, policies count."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from syntony.cli import run
from syntony.controller.replay import Replay, ReplayedEvent, stretch
from syntony.errors import UsageError
from syntony.model import S
from syntony.store import Store, open_store
from syntony.wire.arrow import arrow_schema
from syntony.wire.tables import AGENT, HEARD, LINK_PORT, PATH, PROBE, Table

T0 = 1_700_000_000 * S
SECONDS = 64
HOSTS = tuple(f"h{each}" for each in range(6))
SILENT = "h5", range(10, 36)
DEAD, SINCE = "h2", 40
SPORTS = (50_000, 50_001)
_ZERO: dict[str, object] = {"string": "", "float32": 0.0, "float64": 0.0}


def _stored(store: Store, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
    """Rows with what they do not say left empty, as if of one batch."""
    whole = [
        {column.name: row.get(column.name, _ZERO.get(column.type, 0)) for column in table.columns}
        for row in rows
    ]
    made = pa.Table.from_pylist(whole, schema=arrow_schema(table))
    origin = {"host": pa.array(["h"] * len(rows)), "stream": pa.array(["s"] * len(rows)),
              "seq": pa.array([1] * len(rows), pa.uint64())}  # fmt: skip
    for name, values in origin.items():
        if name not in made.column_names:
            made = made.append_column(name, values)
    store.insert(table, made)


def _second(second: int) -> Iterator[tuple[Table, dict[str, Any]]]:
    """What agents tell of one second: every host's NIC at one leaf probes every other's."""
    ts_ns = T0 + second * S
    for a in HOSTS:
        if not (a == SILENT[0] and second in SILENT[1]):
            yield AGENT, {"ts_ns": ts_ns, "host": a}
        yield LINK_PORT, {
            "ts_ns": ts_ns, "nic": f"{a}/rail0", "netdev": "eth0", "link_layer": "Ethernet",
            "driver": "mlx5_core", "role": "compute", "state": "active", "gbps": 400.0,
        }  # fmt: skip
        for b in HOSTS:
            if a == b:
                continue
            src, dst = f"{a}/rail0", f"{b}/rail0"
            dead = DEAD in {a, b} and second >= SINCE
            for sport in SPORTS:
                there = {"ts_ns": ts_ns, "src": src, "dst": dst, "prober": src, "sport": sport,
                         "sent": 4}  # fmt: skip
                if dead:
                    yield PROBE, there | {"unresolved": 4}
                    continue
                delays = {f"owd_{each}_ns": 5_000 for each in ("min", "p50", "p90", "p99", "max")}
                yield PROBE, there | {"count": 4} | delays
                yield PROBE, there | {"src": dst, "dst": src, "count": 4} | delays
            if not dead:
                yield HEARD, {"ts_ns": ts_ns, "src": src, "dst": dst, "received": 4 * len(SPORTS)}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a minute and a half, closed: a host is silent, then a NIC dies."""
    place = tmp_path_factory.mktemp("record") / "store"
    store = open_store(str(place))
    rows: dict[Table, list[dict[str, Any]]] = {}
    for second in range(SECONDS):
        for table, row in _second(second):
            rows.setdefault(table, []).append(row)
    paths = [
        {"ts_ns": T0, "src": f"{a}/rail0", "dst": f"{b}/rail0", "sport": sport, "dport": 61_000,
         "hops": "10.0.0.254"}
        for a in HOSTS for b in HOSTS if a != b for sport in SPORTS
    ]  # fmt: skip
    _stored(store, PATH, paths)
    for table, some in rows.items():
        _stored(store, table, some)
    store.close()
    return place


def _replayed(place: Path, policy: str = "") -> list[ReplayedEvent]:
    with contextlib.closing(open_store(str(place))) as store:
        replay = Replay(store, *stretch(store, 3600 * S, 0), rules=policy)
        return [event for _, events in replay.run() for event in events]


@pytest.fixture(scope="module")
def events(record: Path) -> list[ReplayedEvent]:
    return _replayed(record)


def test_what_happened_is_found_again(events: list[ReplayedEvent]) -> None:
    pages = {(each.rule, each.subject): each for each in events if each.what == "page"}
    silent = pages["host-silent", "h5"]
    assert 20 <= (silent.at_ns - T0) // S <= 26
    assert any(each.what == "clear" and each.subject == "h5" for each in events)
    blamed = [each for each in events if each.what == "blamed"]
    assert {each.subject for each in blamed} == {f"{DEAD}/rail0"}
    assert SINCE <= (blamed[0].at_ns - T0) // S <= SINCE + 5
    assert any(DEAD in subject for _, subject in pages)


@pytest.mark.slow
def test_the_same_again(record: Path, events: list[ReplayedEvent]) -> None:
    assert _replayed(record) == events


def test_another_policy_pages_otherwise(record: Path, tmp_path: Path) -> None:
    policy = tmp_path / "rules.toml"
    policy.write_text(
        '[[rule]]\nname = "host-silent"\nmetric = "host_silent_s"\nseverity = "critical"\n'
        'above = 60\nsummary = "{subject}: silent"\nremedy = "look"\n'
    )
    assert not any(
        each.what == "page" and each.subject == "h5" for each in _replayed(record, str(policy))
    )


def test_on_the_command_line(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", str(record), "--for", "1h", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["pages"] >= 2
    assert found["recorded"] == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--end", "yesterday"], "is not an instant"),
        (["--end", "2026-01-01T00:00:00"], "time zone"),
        (["--end", "2020-01-01T00:00:00Z"], "no probes of that time"),
        (["--policy", "/nowhere.toml"], "cannot be read"),
    ],
)
def test_bad_input_is_one_line(
    record: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["replay", str(record), *words]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert why in said[0]


def test_no_store(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "new"))
    with contextlib.closing(store), pytest.raises(UsageError):
        stretch(store, S, 0)
    assert run(["replay", str(tmp_path / "nowhere")]) == 2
    other = tmp_path / "other"
    other.mkdir()
    assert run(["replay", str(other)]) == 2
    assert not list(other.iterdir()), "a directory that is no store is left as it is"
