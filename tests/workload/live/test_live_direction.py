"""One-way delay of a job on a lab link that is slow in one direction, against what was added."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from tests.live import SYNTONY, LiveLab, eventually, live, syntony

from syntony.lab.drill.fleet import fleet_ahead_ns, wait_ready
from syntony.lab.jobs.programs import JobSpec
from syntony.lab.jobs.runner import LabJob
from syntony.model import MS, S

pytestmark = pytest.mark.lab
NAME, JOB = "t-direction", "direction"
START_S, WAIT_S = 90.0, 240.0
ADDED_NS = 5 * MS
SLACK_NS = 1 * MS
"""Of the least of some seconds on a machine that is short of processors."""
SECONDS = 6
Way = tuple[str, str]
"""From NIC to NIC."""
_PLAIN = ("env", "SYNTONY_TCP=off", *SYNTONY, "run", "--job", JOB, "--")


@pytest.fixture
def lab(able: None) -> Iterator[LiveLab]:
    with live(NAME, "--hosts", "3", "--rails", "1", agents=True) as found:
        wait_ready(found)
        yield found


def measured(tmp_path: Path, from_ns: int) -> dict[Way, list[dict[str, Any]]]:
    """Direction to its recorded seconds that begin then or later and that were measured one way."""
    place = tmp_path / f"bundle{sum(1 for _ in tmp_path.iterdir())}"
    done = syntony("record", JOB, "--lab", NAME, "--window", "110s", "--out", str(place))
    found: dict[Way, list[dict[str, Any]]] = {}
    flows = place / "flows.parquet"
    if done.returncode or not flows.exists():  # a table without rows has no file
        print(done.stderr, flush=True)
        return found
    for row in pq.read_table(flows).to_pylist():
        if row["at_ns"] >= from_ns and row.get("one_way_p50_ns") is not None:
            found.setdefault((row["src"], row["dst"]), []).append(row)
    return found


class Level(NamedTuple):
    """Of one direction, over seconds, in ns."""

    least: float
    """Of its one-way delays as measured: a machine that is short of processors only adds."""
    judged: float
    """Median of the delay that rules use."""


Levels = dict[Way, Level]


def wait_levels(
    tmp_path: Path, ways: set[Way], from_ns: int, holds: Callable[[Levels], bool]
) -> None:
    """Until enough seconds of every direction are recorded and something holds of them."""
    found: Levels = {}

    def enough() -> bool:
        rows = measured(tmp_path, from_ns)
        found.update(
            (way, Level(
                min(row["one_way_p50_ns"] for row in some),
                statistics.median(row["owd_p50_ns"] for row in some),
            ))
            for way, some in rows.items()
            if len(some) >= SECONDS
        )  # fmt: skip
        print(found, flush=True)
        return found.keys() >= ways and holds(found)

    eventually(enough, "one-way delays of every direction as they are", within_s=WAIT_S)


def worst() -> str:
    """Where the flow that `job flows` lists first goes to, "" without a flow."""
    found = syntony("job", "flows", JOB, "--lab", NAME, "--window", "8s", "--json")
    rows = json.loads(found.stdout or "[]")
    return rows[0]["dst"] if rows else ""


def test_the_direction_that_is_slow_is_measured_and_the_other_is_not_blamed(
    lab: LiveLab, tmp_path: Path
) -> None:
    hosts = lab.status().hosts
    addresses = tuple(lab.addresses(4)[f"{host}/rail0"] for host in hosts)
    spec = JobSpec(kind="all-to-all", hosts=hosts, addresses=addresses, elements=8_192)
    nics = [f"{host}/rail0" for host in hosts]
    ways = {(src, dst) for src in nics for dst in nics if src != dst}

    def truth_ns(way: Way) -> int:
        return ADDED_NS if way[1] == nics[0] else 0

    with LabJob(lab, spec, wrap=_PLAIN) as job:
        job.wait_steps(5, START_S)
        wait_levels(tmp_path, ways, 0, lambda quiet: max(quiet.values()).least < SLACK_NS)
        fault = lab.inject("delay", nics[0], {"add": f"{ADDED_NS // MS}ms", "direction": "to"})
        ahead_ns = fleet_ahead_ns(lab)
        assert ahead_ns is not None

        def shown(slow: Levels) -> bool:
            """Measured in full and nowhere else, and rules see it in that direction."""
            return all(abs(slow[way].least - truth_ns(way)) < SLACK_NS for way in ways) and all(
                slow[way].judged - slow[way[::-1]].judged > ADDED_NS / 2
                for way in ways
                if truth_ns(way)
            )

        wait_levels(tmp_path, ways, fault.since_ns + ahead_ns + 2 * S, shown)
        eventually(lambda: worst() == nics[0], f"a flow to {nics[0]} listed first")
