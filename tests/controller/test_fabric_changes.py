"""From learnt paths in the store to changes told, stored, answered, and an incident."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.store.rows import T0, rows_of

from syntony.alerts.incidents import Incident
from syntony.controller.batches import joined
from syntony.controller.config import AlertSettings
from syntony.controller.fabric_changes import FABRIC_MAP
from syntony.controller.incident_inputs import EvaluationInputs
from syntony.controller.incidents import IncidentService
from syntony.controller.locating import LocateLoop
from syntony.fabric.changes import HOLD_NS, QUIET_NS
from syntony.fabric.departures import Departures
from syntony.model import S
from syntony.state import ControlState, upsert
from syntony.store import Store, open_store
from syntony.wire.tables import PATH

NICS = [f"h{k}/rail0" for k in range(4)]
LEAF = {NICS[0]: "leaf0", NICS[1]: "leaf0", NICS[2]: "leaf1", NICS[3]: "leaf1"}
PORTS = range(61_000, 61_016)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(str(tmp_path / "store"))
    yield opened
    opened.close()


@pytest.fixture
def fleet(store: Store, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(store, tmp_path / "state")
    yield fleet
    assert fleet.state is not None
    fleet.state.close()


class Fleet:
    """Four hosts on two leaves and two spines, a controller's eyes and its rules."""

    def __init__(self, store: Store, state_dir: Path) -> None:
        self.store, self.now_ns = store, T0
        self.state_dir = state_dir
        self.state: ControlState | None = None
        self.leaf = dict(LEAF)
        self.spines = ["spine0", "spine1"]
        self.restart()

    def restart(self, topology: str = "") -> None:
        if self.state is not None:
            self.state.close()
        self.state = ControlState(self.state_dir)
        self.locating = LocateLoop(self.store, topology, self.state)
        self.alerts = IncidentService(AlertSettings(), self.state, self.store)

    def learn(self) -> None:
        rows: list[dict[str, Any]] = [
            {
                "ts_ns": self.now_ns, "src": a, "dst": b, "sport": port, "dport": 8620,
                "hops": " ".join(self._hops(a, b, port)),
            }
            for a in NICS for b in NICS if a != b for port in PORTS
        ]  # fmt: skip
        self.store.insert(PATH, rows_of(PATH, rows))

    def _hops(self, a: str, b: str, port: int) -> list[str]:
        near, far = self.leaf[a], self.leaf[b]
        spine = self.spines[port % len(self.spines)]
        return [near] if near == far else [near, spine, far]

    def wait(self, ns: int) -> None:
        """Each second the loop, as the controller runs it."""
        for _ in range(ns // S):
            self.now_ns += S
            for piece in self.locating.step(self.now_ns, self.now_ns // S - 4, {}):
                self.store.insert(piece.table, joined([piece]))
            inputs = EvaluationInputs(
                {}, fabric=self.locating.changes.status, homes=self.locating.homes()
            )
            self.alerts.evaluate(self.now_ns, inputs)

    def reported(self) -> list[tuple[str, str]]:
        found = self.store.fabric.changes(T0, self.now_ns + S)
        return [(each.change, each.name) for each in found]

    def open(self) -> dict[tuple[str, str], Incident]:
        return {(each.rule, each.subject): each for each in self.alerts.live()}


def test_that_a_cable_is_lost_may_be_proven_later(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.learn()
    fleet.wait(QUIET_NS + 2 * S)
    fleet.spines = ["spine0"]
    fleet.learn()
    fleet.wait(HOLD_NS + 3 * S)
    assert fleet.locating.changes.status is not None
    assert "leaf0--spine1" in fleet.locating.changes.status.lost
    assert not fleet.locating.changes.status.proven
    proven = frozenset({"leaf0--spine1"})
    monkeypatch.setattr(Departures, "lost_cables", lambda *_: proven)
    fleet.wait(2 * S)
    assert fleet.locating.changes.status.proven == proven


def test_a_lost_cable_is_told_once_and_is_an_incident_over_restarts(fleet: Fleet) -> None:
    fleet.learn()
    fleet.wait(QUIET_NS + 2 * S)
    assert fleet.reported() == []
    assert not fleet.open()
    fleet.spines = ["spine0"]
    fleet.learn()
    fleet.wait(HOLD_NS + 3 * S)
    lost = {("removed", name) for name in ("leaf0--spine1", "leaf1--spine1", "spine1")}
    assert set(fleet.reported()) == lost
    subjects = {("cable-lost", "leaf0--spine1 or leaf1--spine1")}
    subjects.add(("switch-down", "leaf0--spine1 or leaf1--spine1 or spine1"))
    assert set(fleet.open()) == subjects
    assert [each.paged for each in fleet.open().values()].count(True) == 1
    fleet.restart()
    fleet.wait(QUIET_NS + HOLD_NS)
    assert (set(fleet.reported()), set(fleet.open())) == (lost, subjects)
    fleet.spines = ["spine0", "spine1"]
    fleet.learn()
    fleet.wait(HOLD_NS + 65 * S)
    assert not fleet.open()


def test_a_moved_nic_is_an_incident_with_where_it_was(fleet: Fleet) -> None:
    fleet.learn()
    fleet.wait(QUIET_NS + 2 * S)
    fleet.leaf[NICS[0]] = "leaf1"
    fleet.learn()
    fleet.wait(HOLD_NS + 5 * S)
    assert ("moved", NICS[0]) in fleet.reported()
    (incident,) = fleet.open().values()
    assert (incident.rule, incident.subject) == ("nic-misplaced", NICS[0])
    assert incident.evidence == ("at leaf1; leaf0 where it was before",)


def test_a_map_that_cannot_be_read_is_kept_aside(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ControlState(tmp_path) as state:
        with state.transaction() as connection:
            row = {"name": FABRIC_MAP, "body": '{"cables": 3}'}
            upsert(connection, "document", row, key="name")
        LocateLoop(store, "", state)
        assert "map of the fabric starts empty" in caplog.text
        kept = dict(state.read("SELECT name, body FROM document"))
        assert kept[f"{FABRIC_MAP} (unreadable)"] == '{"cables": 3}'


def test_where_nics_are_is_told_by_the_map_else_by_probes_else_by_the_topology(
    fleet: Fleet, tmp_path: Path
) -> None:
    assert fleet.locating.homes() == {}
    fleet.learn()
    fleet.wait(2 * S)
    assert fleet.locating.homes() == LEAF, "before the first look at the fabric is over"
    fleet.wait(QUIET_NS)
    fleet.leaf[NICS[1]] = "leaf1"
    fleet.learn()
    fleet.wait(HOLD_NS + 5 * S)
    moved = LEAF | {NICS[1]: "leaf1"}
    assert fleet.locating.homes() == moved
    cables = "".join(f'[[cable]]\na = "{nic}"\nb = "leaf9"\n' for nic in [*NICS, "h4/rail0"])
    devices = "".join(f'[[device]]\nname = "{name}"\n' for name in [*NICS, "h4/rail0", "leaf9"])
    topology = tmp_path / "topology.toml"
    topology.write_text(devices + cables)
    fleet.restart(str(topology))
    assert fleet.locating.homes() == moved | {"h4/rail0": "leaf9"}, "over a start"
