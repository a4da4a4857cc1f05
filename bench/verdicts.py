"""How soon agents leave a path that swallows everything, under a job that uses it.

    python -m bench.verdicts [--times 20] [--rate 50] [--latency 20] [--hogs 0] [--json]
    python -m bench.verdicts --fault link-down
    python -m bench.verdicts --quick

One lab of four hosts with agents, one checked job over all of them, and one fault after another.
The fault's instant is the kernel's (`bench.instant`): when the rule is in force in the switch. From
there: the first verdict of any agent (*verdict*: by its log, when a path was first left), how long
after the last answer that was (*silence*), the last path left for this fault within half a second
(*all*), and the longest step about it. *False* counts paths left between faults.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING

import msgspec
from bench.false_failover import takes_for_dead
from bench.hogs import hogs
from bench.instant import Instants, switch_of, watching

from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.lab.client import Lab
from syntony.lab.drill import modes, place
from syntony.lab.drill.fleet import fleet_ahead_ns, wait_ready
from syntony.lab.jobs import programs
from syntony.lab.jobs.records import StepRecord
from syntony.lab.jobs.runner import LabJob
from syntony.lab.plan import FabricSpec, make_plan
from syntony.lab.world import World, allow_realtime, new_lab
from syntony.model import MS, S
from syntony.model.names import host_of
from syntony.wire.failover import (
    ConnectionsQuery,
    FailoverLogQuery,
    PathEventRow,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTAGE_S, ROWS_S, START_S = 2.0, 2.0, 60.0
"""A fault's length; until the agents' rows are in the store."""
CALM_S, RETURN_S = 3.0, 90.0
"""With the target in use again, before the next fault; how long a hold-down may take until then."""
AT_ONCE_NS = 500 * MS
"""What is left so soon is left for this fault."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. All ms from its true instant."""

    verdict_ms: float | None
    """None: no path was left."""
    silence_ms: float | None
    all_ms: float | None
    longest_step_ms: float
    injecting_ms: float
    false: int
    """Paths left between the last fault and this one."""


def rows_of(lab: Lab, ahead_ns: int) -> list[tuple[int, PathEventRow]]:
    """Every path left recently: when the agent knew (CLOCK_MONOTONIC), and its row."""
    query = FailoverLogQuery(window_ns=60 * S, limit=10_000)
    rows = ask(f"unix:{lab.controller_socket}", query).events
    known = [(row.ts_ns - row.act_ns - ahead_ns, row) for row in rows if takes_for_dead(row)]
    return sorted(known, key=lambda each: each[0])


def wait_used(lab: Lab, target: str) -> None:
    """Until every connection of the target's host has a path over it: what is not used cannot be
    left, and a NIC that failed a moment ago is held down for the longer, the more often it did."""
    if "/rail" not in target:
        return  # a part of the fabric: some connection crosses it, most likely
    query = ConnectionsQuery(host=host_of(target))
    end_s = time.monotonic() + RETURN_S
    while time.monotonic() < end_s:
        answer = ask(f"unix:{lab.controller_socket}", query)
        conns = [conn for host in answer.hosts for conn in host.report.connections]
        if conns and all(
            any(each.state == "up" and each.path.startswith(f"{target}:") for each in conn.subflows)
            for conn in conns
        ):
            return
        time.sleep(0.5)
    raise RemoteError(f"{target} was not used again within {RETURN_S:.0f} s")


def longest_step_ms(job: LabJob, from_ns: int) -> float:
    steps = [each for each in job.records() if isinstance(each, StepRecord)]
    about = [each for each in steps if from_ns < each.end_ns and each.start_ns < from_ns + S]
    return max((each.end_ns - each.start_ns for each in about), default=0) / MS


def trial(
    lab: Lab, job: LabJob, instants: Instants, fault: tuple[str, str], since_ns: int
) -> tuple[Trial, int]:
    """One fault, awaited to its end, and when that was."""
    before_ns = time.monotonic_ns()
    options = {"side": "leaf"} if fault[0] == "link-down" else {}
    lab.inject(*fault, options)
    after_ns = time.monotonic_ns()
    began_ns = instants.since(before_ns)
    time.sleep(OUTAGE_S)
    lab.clear()
    cleared_ns = time.monotonic_ns()
    time.sleep(ROWS_S)
    ahead_ns = fleet_ahead_ns(lab)
    if ahead_ns is None:
        raise RemoteError("h0 has lost its clock")
    rows = rows_of(lab, ahead_ns)
    ours = [(at_ns, row) for at_ns, row in rows if before_ns <= at_ns <= began_ns + AT_ONCE_NS]
    false = [row for at_ns, row in rows if since_ns < at_ns < before_ns]
    for row in false:
        print(f"false: {row.host} {row.cause} {row.evidence} {row.old_path}", file=sys.stderr)
    for at_ns, row in ours:
        late_ms = (at_ns - began_ns) / MS
        print(f"  {late_ms:5.0f} ms {row.host} {row.cause}: {row.evidence}; {row.old_path}",
              file=sys.stderr)  # fmt: skip
    found = Trial(
        verdict_ms=(ours[0][0] - began_ns) / MS if ours else None,
        silence_ms=ours[0][1].detect_ns / MS if ours else None,
        all_ms=(ours[-1][0] - began_ns) / MS if ours else None,
        longest_step_ms=longest_step_ms(job, began_ns),
        injecting_ms=(after_ns - before_ns) / MS,
        false=len(false),
    )
    return found, cleared_ns


def trials(requested: argparse.Namespace) -> Iterator[Trial]:
    spec = FabricSpec(
        hosts=4, rate_bps=requested.rate * 1_000_000, latency_ns=requested.latency * MS
    )
    switch = switch_of(make_plan(spec).link(requested.target))
    with World(new_lab(f"verdicts-{os.getpid()}", spec), detach=False) as world:
        world.wait_ready()
        lab = Lab(world.directory)
        wait_ready(lab)
        framework, kind = programs.by_name(requested.job)
        end_requested = place.job_spec(lab, framework=framework, kind=kind, python=sys.executable)
        with (
            watching(lab, switch) as instants,
            LabJob(lab, end_requested, wrap=modes.SYNTONY.wrap) as job,
        ):
            job.wait_steps(5, START_S)
            with hogs(requested.hogs):
                since_ns = time.monotonic_ns()
                for _ in range(requested.times):
                    wait_used(lab, requested.target)
                    time.sleep(CALM_S)
                    fault = (requested.fault, requested.target)
                    found, since_ns = trial(lab, job, instants, fault, since_ns)
                    yield found
            job.request_end()
            job.wait_end(START_S)


def quantiles(times: list[float]) -> dict[str, float | None]:
    """Of so few, p99 is the largest: it is called so."""
    if not times:
        return {"median": None, "p90": None, "max": None}
    ordered = sorted(times)
    return {
        "median": round(statistics.median(ordered), 1),
        "p90": round(ordered[int(0.9 * (len(ordered) - 1))], 1),
        "max": round(ordered[-1], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--times", type=int, default=20, help="faults")
    parser.add_argument("--quick", action="store_true", help="four faults")
    parser.add_argument("--fault", choices=("blackhole", "link-down"), default="blackhole")
    parser.add_argument("--target", default="h0/rail0", help="the link it is done to")
    parser.add_argument("--rate", type=int, default=50, help="Mb/s of every link")
    parser.add_argument("--latency", type=int, default=20, help="ms, depth of every queue")
    parser.add_argument("--job", choices=("builtin", "builtin-all-to-all"), default="builtin")
    parser.add_argument("--hogs", type=int, default=0, help="busy loops beside the lab")
    parser.add_argument("--json", action="store_true")
    requested = parser.parse_args()
    requested.times = 4 if requested.quick else requested.times
    allow_realtime()
    done = []
    for each in trials(requested):
        done.append(each)
        print(f"{len(done)}: {each}  load {os.getloadavg()[0]:.0f}", file=sys.stderr, flush=True)
    found = {
        "load_1m": round(os.getloadavg()[0], 1),
        "noticed": f"{sum(each.verdict_ms is not None for each in done)}/{len(done)}",
        "false": sum(each.false for each in done),
    } | {
        name: quantiles([getattr(each, name) for each in done if getattr(each, name) is not None])
        for name in ("verdict_ms", "silence_ms", "all_ms", "longest_step_ms", "injecting_ms")
    }
    if requested.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name:>16}  {value}" for name, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
