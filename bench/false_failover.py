"""Failovers and pages without a failure: a lab where nothing breaks, all else happens.

    .venv/bin/python -m bench.false_failover --minutes 60
    .venv/bin/python -m bench.false_failover --minutes 10 --rate 30 --latency 5   # crowded
    .venv/bin/python -m bench.false_failover --minutes 10 --mode syntony-tcp

Each minute: a checked job runs for 25 s, goes on for 20 s while busy loops on two hosts take the
processor from it and from the agents, and ends; the rest is idle. Every path that an agent leaves
meanwhile is left without a reason, and is counted by its cause, with the steps done and the longest
one. Every page is one too many, but those of `congestion`: jobs do crowd the links.
One line a minute on stderr; the result at the end, or at the first Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter

from bench.tcp_modes import MODES

from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.lab.client import Lab
from syntony.lab.drill import modes, place
from syntony.lab.drill.fleet import wait_ready
from syntony.lab.jobs import programs
from syntony.lab.jobs.records import StepRecord
from syntony.lab.jobs.runner import LabJob
from syntony.lab.plan import FabricSpec
from syntony.lab.world import World, new_lab
from syntony.model import MS, S
from syntony.wire.failover import FailoverLogQuery, PathEventRow
from syntony.wire.incidents import IncidentsQuery

CALM_S, HOGS_S, CYCLE_S = 25, 20, 60
START_S = 60.0
LEAVING = frozenset({"destroy", "detour", "keep-last-path"})
"""What an agent does, or would do, because it takes a path for dead. A path that a peer gives up is
counted where it was given up and where that was heard."""
BUSY = frozenset({"congestion"})
HARMLESS = frozenset({"contention", "surplus", "dead-man", "operator"})


def takes_for_dead(row: PathEventRow) -> bool:
    """Whether a path was left, or would have been, because an agent took it for dead."""
    return row.action in LEAVING and row.cause not in HARMLESS


class Tally:
    """What was seen so far."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.causes: Counter[str] = Counter()
        self.rows: list[PathEventRow] = []
        self.steps = 0
        self.longest_s = 0.0
        self.broken = 0
        """Jobs that did not end as asked."""
        self.wrong = 0
        self.pages: dict[tuple[int, int], tuple[str, str]] = {}
        """By the incident's number and which of its pages."""
        self._seen: set[tuple[int, str, str, str]] = set()

    def read(self, lab: Lab) -> None:
        """Whatever the agents have told since the last time."""
        query = FailoverLogQuery(window_ns=3 * CYCLE_S * S, limit=10_000)
        for row in ask(f"unix:{lab.controller_socket}", query).events:
            key = (row.ts_ns, row.host, row.connection, row.action)
            if key in self._seen:
                continue
            self._seen.add(key)
            if takes_for_dead(row):
                self.causes[row.cause] += 1
                self.rows.append(row)

        self._read_pages(f"unix:{lab.controller_socket}")

    def _read_pages(self, controller: str) -> None:
        for each in ask(controller, IncidentsQuery(resolved=True)).incidents:
            name = (each["rule"], each["subject"])
            for page in range(each["pages"]):
                self.pages.setdefault((each["number"], page), name)

    def false_pages(self) -> list[tuple[str, str]]:
        """Rule and subject of each."""
        return [name for name in self.pages.values() if name[0] not in BUSY]

    def took(self, job: LabJob) -> None:
        """A job has ended."""
        if not job.finished():
            self.broken += 1
            print(f"a job did not end as asked: {job.last_output()}", file=sys.stderr, flush=True)
        steps = [record for record in job.records() if isinstance(record, StepRecord)]
        self.steps += job.steps_done()
        self.wrong += sum(step.wrong for step in steps)
        self.longest_s = max([self.longest_s, *((s.end_ns - s.start_ns) / S for s in steps)])

    def line(self) -> str:
        minutes = (time.monotonic() - self.began_s) / 60
        reported = ", ".join(f"{n} {cause}" for cause, n in self.causes.most_common()) or "none"
        return (
            f"{minutes:.1f} min: left without a failure: {reported}; "
            f"{len(self.false_pages())} false of {len(self.pages)} pages; {self.steps} steps, "
            f"the longest {self.longest_s:.2f} s; load {os.getloadavg()[0]:.0f}"
        )

    def as_json(self) -> dict[str, object]:
        return {
            "minutes": (time.monotonic() - self.began_s) / 60,
            "false_failovers": sum(self.causes.values()),
            "by_cause": dict(self.causes),
            "false_pages": self.false_pages(),
            "pages": len(self.pages),
            "steps": self.steps,
            "longest_step_s": self.longest_s,
            "wrong": self.wrong,
            "jobs_broken": self.broken,
            "load_1m": os.getloadavg()[0],
            "rows": [[r.host, r.action, r.cause, r.evidence, r.old_path] for r in self.rows],
        }


def cycle(lab: Lab, mode: modes.JobMode, kind: str, tally: Tally, end_s: float) -> None:
    """One minute, or what is left."""
    until_s = min(end_s, time.monotonic() + CYCLE_S)
    framework, what = programs.by_name(kind)
    spec = place.job_spec(lab, framework=framework, kind=what, python=sys.executable)
    with LabJob(lab, spec, wrap=mode.wrap) as job:
        try:
            job.wait_steps(1, START_S)
            _pause(min(CALM_S, until_s - time.monotonic()))
            for host in lab.status().hosts[:2]:
                lab.inject("cpu-hog", host)
            _pause(min(HOGS_S, until_s - time.monotonic()))
            lab.clear()
            job.request_end()
            job.wait_end(START_S)
        finally:
            lab.clear()
            tally.took(job)
    _pause(until_s - time.monotonic())
    tally.read(lab)


def _pause(seconds: float) -> None:
    time.sleep(max(0.0, seconds))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--quick", action="store_true", help="one minute and a half")
    parser.add_argument("--hosts", type=int, default=place.HOSTS)
    parser.add_argument("--rate", type=int, default=200, help="Mb/s of every link")
    parser.add_argument("--latency", type=int, default=20, help="ms, depth of every queue")
    parser.add_argument("--job", choices=("builtin", "builtin-all-to-all"),
                        default="builtin-all-to-all")  # fmt: skip
    parser.add_argument("--mode", choices=("syntony", "syntony-tcp"), default="syntony")
    parser.add_argument("--json", action="store_true")
    requested = parser.parse_args()
    spec = FabricSpec(
        hosts=requested.hosts,
        rate_bps=requested.rate * 1_000_000,
        latency_ns=requested.latency * MS,
    )
    with World(new_lab(f"false-{os.getpid()}", spec), detach=False) as world:
        world.wait_ready()
        lab = Lab(world.directory)
        wait_ready(lab)
        tally = Tally()
        end_s = tally.began_s + (90 if requested.quick else requested.minutes * 60)
        try:
            while time.monotonic() < end_s:
                cycle(lab, MODES[requested.mode], requested.job, tally, end_s)
                print(tally.line(), file=sys.stderr, flush=True)
        except (KeyboardInterrupt, RemoteError) as error:
            print(f"ended early: {error!r}", file=sys.stderr)
    if requested.json:
        print(json.dumps(tally.as_json(), indent=1))
    else:
        print(tally.line())
        for row in tally.rows:
            print(f"  {row.host} {row.action} {row.cause}: {row.evidence}; {row.old_path}")
        for rule, subject in tally.false_pages():
            print(f"  page: {rule} {subject}")
    return 1 if tally.causes or tally.false_pages() or tally.broken or tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
