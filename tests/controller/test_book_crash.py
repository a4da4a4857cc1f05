"""kill -9 of the controller between any two writes: no incident and no page is lost or doubled."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cases import mostly_slow
from tests.postgres import Server

SEED = random.randrange(10**6)
ROOT = Path(__file__).parents[2]


def run(
    directory: Path, seed: int, kills: list[list[int]], server: Server | None = None
) -> list[dict[str, Any]]:
    """What became of the same world under each list of kills."""
    orders = [
        (
            str(directory / f"state{seed}-{n}") if server is None else server.database(),
            str(directory / f"life{seed}-{n}"),
            seed,
            each,
        )
        for n, each in enumerate(kills)
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.controller.book_life"],
        input=json.dumps(orders), capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def pages(outcome: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What receivers were reported; the same key twice is the same message."""
    by_key: dict[str, dict[str, Any]] = {}
    for each in outcome["received"]:
        assert by_key.setdefault(each["url"] + each["key"], each) == each
    return sorted(
        (each["url"], each["body"]["event"], each["body"]["incident"]["subject"])
        for each in by_key.values()
    )


def check(reference: dict[str, Any], outcome: dict[str, Any], deaths: int) -> None:
    assert outcome["died"] == deaths
    assert outcome["numbers"] == list(range(1, outcome["next"]))
    assert outcome["waiting"] == 0
    for what in ("incidents", "silences"):
        assert outcome[what] == reference[what], what
    assert sorted(outcome["changes"]) == sorted(reference["changes"])
    assert pages(outcome) == pages(reference)
    # Only a crash between a receiver's answer and our commit sends again: once a death, for each
    # of the receivers, which are reported on threads of their own.
    repeated = len(outcome["received"]) - len(reference["received"])
    assert 0 <= repeated <= deaths * len({each["url"] for each in reference["received"]})


def check_often(outcome: dict[str, Any]) -> None:
    """Lives too short to count what is bad or good see another world; what they write down holds
    all the same: numbers go on, who was reported an incident hears once that it is over."""
    assert outcome["died"] > 0
    assert outcome["numbers"] == list(range(1, outcome["next"]))
    assert outcome["waiting"] == 0
    assert {state for *_, state, _ in outcome["incidents"]} <= {"resolved"}
    reported: dict[tuple[str, int], dict[str, str]] = {}
    for each in outcome["received"]:
        about = each["url"], each["body"]["incident"]["number"]
        reported.setdefault(about, {}).setdefault(each["key"], each["body"]["event"])
    for about, events in reported.items():
        loud = [event for event in events.values() if event in {"page", "clear"}]
        assert loud == ["page", "clear"] * (len(loud) // 2), about


def test_the_world_is_worth_a_crash(tmp_path: Path) -> None:
    """Over a few worlds there are pages, all-clears, reopenings, acknowledgements, silences."""
    events: set[str] = set()
    for seed in range(SEED, SEED + 4):
        print(f"seed {seed}")
        (outcome,) = run(tmp_path, seed, [[]])
        events |= {each["body"]["event"] for each in outcome["received"]}
        events |= {after.split()[0] for _, _, after in outcome["changes"]}
    assert events >= {"page", "clear"}
    assert events & {"ack", "for", "resolve"}


@pytest.mark.parametrize("world", mostly_slow([0, 1], {0}))
def test_killed_at_some_instants(tmp_path: Path, world: int) -> None:
    seed = SEED + world
    print(f"seed {seed}")
    (reference,) = run(tmp_path, seed, [[]])
    draw = random.Random(seed)
    points = draw.sample(range(1, reference["points"]), 12)
    often = [draw.randrange(1, 30) for _ in range(20)]
    (tmp_path / "killed").mkdir()
    *once, twenty = run(tmp_path / "killed", seed, [*([point] for point in points), often])
    for outcome in once:
        check(reference, outcome, 1)
    check_often(twenty)


@pytest.mark.slow
def test_killed_at_every_third_instant(tmp_path: Path) -> None:
    """Another third in each run."""
    print(f"seed {SEED}")
    (reference,) = run(tmp_path, SEED, [[]])
    (tmp_path / "killed").mkdir()
    first = 1 + random.Random(SEED).randrange(3)
    kills = [[point] for point in range(first, reference["points"] + 1, 3)]
    for outcome in run(tmp_path / "killed", SEED, kills):
        check(reference, outcome, 1)


@pytest.mark.slow
def test_killed_at_some_instants_with_postgresql(tmp_path: Path, postgresql: Server) -> None:
    print(f"seed {SEED}")
    (reference,) = run(tmp_path, SEED, [[]])
    (tmp_path / "killed").mkdir()
    draw = random.Random(SEED)
    points = draw.sample(range(1, reference["points"]), 12)
    often = [draw.randrange(1, 30) for _ in range(20)]
    kills = [*([point] for point in points), often]
    for outcome in run(tmp_path / "killed", SEED, kills, postgresql):
        check(reference, outcome, outcome["died"])
