"""The first start after an upgrade takes over what earlier versions kept in files, once."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest

from syntony.alerts.incidents import BookState, Incident, IncidentState, Streak
from syntony.alerts.rules import Severity
from syntony.alerts.silences import Silence
from syntony.clock.anchored import FleetMemory
from syntony.controller.fabric_changes import FABRIC_MAP
from syntony.controller.import_files import import_files
from syntony.controller.timeline import TIMELINE, StoredTimeline
from syntony.errors import ConfigError
from syntony.fabric.changes import MapState
from syntony.model import ClockState, Timeline
from syntony.state import ControlState
from syntony.state.document import Document
from syntony.state.incident_store import IncidentStore
from syntony.state.outbox import Outbox

MEMORY = FleetMemory(
    lines=(
        Timeline(
            node="p1", ref_ns=5, offset_ns=12.5, drift_ppb=3.0, sigma_ns=5.0,
            state=ClockState.SYNCHRONIZED, component="p1",
        ),
    )
)  # fmt: skip
MAP = MapState(cables=["leaf0--spine0"], lost={"leaf1--spine0": 7})


def book(seed: int) -> BookState:
    draw = random.Random(seed)
    numbers = sorted(draw.sample(range(1, 50), 9))
    return BookState(
        next_number=numbers[-1] + draw.randrange(1, 9),
        next_silence=draw.randrange(5, 9),
        incidents=[
            Incident(
                number=number,
                rule="r",
                subject=f"h{number}",
                severity=Severity.CRITICAL,
                state=draw.choice(list(IncidentState)),
                summary="Ünïcode \0 '; --",
                remedy="",
                opened_ns=1,
                updated_ns=2,
                resolved_ns=draw.randrange(9),
                evidence=("a", "b"),
                value=0.1,
            )
            for number in numbers
        ],
        streaks={"r|h1": Streak(bad=3, last_bad_ns=8)},
        silences=[Silence(number=number, last_ns=9, who="eve") for number in (2, 4)],
    )


def write(directory: Path, seed: int) -> None:
    """As the earlier version left it."""
    (directory / "incidents.json").write_bytes(msgspec.json.encode(book(seed)))
    (directory / "timeline.json").write_bytes(msgspec.json.encode(MEMORY))
    (directory / "fabric.json").write_bytes(msgspec.json.encode(MAP))
    for receiver, numbers in {"duty": (9, 10, 11), "hook": (1,)}.items():
        (directory / "outbox" / receiver).mkdir(parents=True)
        for number in numbers:
            path = directory / "outbox" / receiver / f"{number:012d}.json"
            path.write_text(json.dumps({"routing_key": "secret", "n": number}))


def bodies(state: ControlState, receiver: str) -> list[object]:
    rows = state.read("SELECT body FROM outbox WHERE receiver = ? ORDER BY number", receiver)
    return [json.loads(body)["n"] for (body,) in rows]


def check(state: ControlState, seed: int) -> None:
    assert IncidentStore(state).load() == book(seed)
    kept = Document(state, TIMELINE, StoredTimeline).load()
    assert kept is not None
    assert kept.memory == MEMORY
    assert Document(state, FABRIC_MAP, MapState).load() == MAP
    assert bodies(state, "duty") == [9, 10, 11]
    assert bodies(state, "hook") == [1]
    assert "secret" not in str(state.read("SELECT body FROM outbox"))


def test_everything_is_taken_over_once(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    write(tmp_path, seed)
    with ControlState(tmp_path) as state:
        import_files(state, tmp_path)
        check(state, seed)
        Outbox(state).remove(1)
        import_files(state, tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left.isdisjoint({"incidents.json", "timeline.json", "fabric.json", "outbox"})
    with ControlState(tmp_path) as state:
        import_files(state, tmp_path)
        assert bodies(state, "duty") == [10, 11]


def test_a_crash_before_the_files_are_renamed_imports_nothing_twice(tmp_path: Path) -> None:
    write(tmp_path, 1)
    with ControlState(tmp_path) as state:
        import_files(state, tmp_path)
        for name in ("incidents.json", "outbox"):
            (tmp_path / f"{name}.imported").rename(tmp_path / name)
        import_files(state, tmp_path)
        check(state, 1)
    assert not (tmp_path / "outbox").exists()


@pytest.mark.parametrize(
    "name", ["incidents.json", "timeline.json", "fabric.json", "outbox/hook/000000000001.json"]
)
def test_a_broken_file_is_one_clear_line_and_nothing_is_imported(tmp_path: Path, name: str) -> None:
    write(tmp_path, 1)
    good = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(good[:-1])
    with ControlState(tmp_path) as state:
        with pytest.raises(ConfigError, match=rf"{name}: cannot be read.*move it away") as reported:
            import_files(state, tmp_path)
        assert "\n" not in str(reported.value)
        assert IncidentStore(state).load() == BookState()
        assert not state.read("SELECT * FROM outbox")
        (tmp_path / name).write_bytes(good)
        import_files(state, tmp_path)
        check(state, 1)


def test_a_new_deployment_has_nothing_to_import(tmp_path: Path) -> None:
    with ControlState(tmp_path) as state:
        import_files(state, tmp_path)
        assert IncidentStore(state).load() == BookState()
