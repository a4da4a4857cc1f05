"""Before the race: an audit of the fleet, then of the fleet with three planted faults."""

from __future__ import annotations

import sys
import time

from syntony.audit.reach_judge import judge
from syntony.audit.result import Result, Status
from syntony.demo.claims import DemoClaim
from syntony.demo.stage import Stage
from syntony.io.audit.survey import SurveyOptions, boot_argv, survey
from syntony.lab.plan import make_plan
from syntony.lab.topology import topology
from syntony.model import S

PORTS = 16
SETTLE_NS = 30 * S
"""Incidents that agents opened for the planted faults close within this time after the faults."""


def before_the_race(stage: Stage) -> tuple[DemoClaim, ...]:
    """Plant three faults that no counter shows; each must be named, and nothing else."""
    stage.screen.say(f"the audit asks every pair of NICs on {PORTS} source ports")
    began_ns = time.monotonic_ns()
    clean = _failures(stage)
    took_ns = time.monotonic_ns() - began_ns
    hosts = stage.status.hosts
    small, crossed = hosts[len(hosts) * 3 // 8], hosts[len(hosts) * 6 // 8]
    leaf, spine = stage.status.leaves[0], stage.status.spines[0]
    planted = {
        f"{small}/rail0": ("mtu", f"{small}/rail0", "be.conn.mtu"),
        f"{crossed}/rail0+rail1": ("rail-swap", crossed, "be.conn.hops"),
        f"{leaf}--{spine}": ("blackhole", f"{leaf}/{spine}", "be.conn.paths"),
    }
    for kind, target, _ in planted.values():
        stage.lab.inject(kind, target)
    stage.screen.say(
        f"planted: a small MTU at {small}/rail0, {crossed}'s rails swapped, "
        f"{leaf} to {spine} dead; every link is up"
    )
    found = _failures(stage)
    for result in found:
        stage.screen.say(f"{result.check}: {result.subject}: {result.got} → {result.remedy}")
    stage.lab.clear()
    settle(stage)
    named = {(result.check, result.subject) for result in found}
    wanted = {(check, subject) for subject, (_, _, check) in planted.items()}
    extra = sorted(subject for _, subject in named - wanted)
    return (
        DemoClaim(
            text="an audit of the good fleet fails nothing",
            measured=f"{len(clean)} failures in {took_ns / S:.1f} s",
            held=not clean,
        ),
        DemoClaim(
            text="a wrong MTU, a swapped rail and a dead ECMP member are each named",
            measured=f"{len(named & wanted)} of {len(wanted)} named",
            held=wanted <= named,
        ),
        DemoClaim(
            text="and no other part is named",
            measured=", ".join(extra) if extra else "nothing else",
            held=not extra,
        ),
    )


def _failures(stage: Stage) -> list[Result]:
    argv = boot_argv(sys.executable)
    seen = survey(
        stage.status.hosts,
        lambda host: stage.lab.enter_argv(host, argv),
        ["rail*"],
        SurveyOptions(PORTS),
    )
    plan = topology(make_plan(stage.lab.file().spec))
    bad = {Status.FAIL, Status.UNKNOWN}
    return [
        result for result in judge(seen, plan)
        if result.status in bad and not result.check.startswith("be.lat.")
    ]  # fmt: skip


def settle(stage: Stage) -> None:
    """Wait until the incidents that the agents opened are closed, so that the next act starts
    clean."""
    stage.watch_until(lambda: not stage.incidents(), SETTLE_NS)
