"""One-way delay of a job on a lab link that is slow in one direction, against what was added."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from syntony.lab.drill.fleet import fleet_ahead_ns, wait_ready
from syntony.lab.jobs.programs import JobSpec
from syntony.lab.jobs.runner import Job
from syntony.lab.testing import SYNTONY, LiveLab, eventually, live, syntony
from syntony.model import MS, S

pytestmark = pytest.mark.lab
NAME, JOB = "t-direction", "direction"
START_S, WAIT_S = 90.0, 240.0
ADDED_NS = 5 * MS
SLACK_NS = 1 * MS
"""Of a median of seconds on a machine that is short of processors."""
SECONDS = 6
_PLAIN = ("env", "SYNTONY_TCP=off", *SYNTONY, "run", "--job", JOB, "--")


@pytest.fixture
def lab(able: None) -> Iterator[LiveLab]:
    with live(NAME, "--hosts", "3", "--rails", "1", agents=True) as found:
        wait_ready(found)
        yield found


def measured(tmp_path: Path, from_ns: int) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Direction to its recorded seconds that begin then or later and that were measured one way."""
    place = tmp_path / f"bundle{sum(1 for _ in tmp_path.iterdir())}"
    done = syntony("record", JOB, "--lab", NAME, "--window", "110s", "--out", str(place))
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    flows = place / "flows.parquet"
    if done.returncode or not flows.exists():  # a table without rows has no file
        print(done.stderr, flush=True)
        return found
    for row in pq.read_table(flows).to_pylist():
        if row["at_ns"] >= from_ns and row.get("one_way_p50_ns") is not None:
            found.setdefault((row["src"], row["dst"]), []).append(row)
    return found


def levels(
    tmp_path: Path, ways: set[tuple[str, str]], from_ns: int
) -> dict[tuple[str, str], tuple[float, float]]:
    """Median of what was measured one way, and of the delay that rules use, of each direction."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def enough() -> bool:
        found.update(measured(tmp_path, from_ns))
        return found.keys() >= ways and min(map(len, found.values())) >= SECONDS

    eventually(enough, "one-way delays of every direction", within_s=WAIT_S)
    return {
        way: (
            statistics.median(row["one_way_p50_ns"] for row in rows),
            statistics.median(row["owd_p50_ns"] for row in rows),
        )
        for way, rows in found.items()
    }


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
    with Job(lab, spec, wrap=_PLAIN) as job:
        job.wait_steps(5, START_S)
        quiet = levels(tmp_path, ways, 0)
        fault = lab.inject("delay", nics[0], {"add": f"{ADDED_NS // MS}ms", "direction": "to"})
        ahead_ns = fleet_ahead_ns(lab)
        assert ahead_ns is not None
        slow = levels(tmp_path, ways, fault.since_ns + ahead_ns + 2 * S)
        eventually(lambda: worst() == nics[0], f"a flow to {nics[0]} listed first")
    for way in ways:
        truth_ns = ADDED_NS if way[1] == nics[0] else 0
        for kind in (0, 1):  # measured; as rules see it
            slack_ns = (1 + kind) * SLACK_NS + truth_ns // 5
            grown_ns = slow[way][kind] - quiet[way][kind]
            print(way, kind, quiet[way][kind], slow[way][kind], flush=True)
            assert abs(grown_ns - truth_ns) < slack_ns, (way, kind, grown_ns)
