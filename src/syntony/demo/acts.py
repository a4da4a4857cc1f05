"""The acts, in the order of the demo. Each measures, and reports which claims held."""

from __future__ import annotations

import time
from collections.abc import Callable

from syntony.demo.before_the_race import before_the_race
from syntony.demo.claims import (
    DemoClaim,
    clock_claims,
    converged,
    coverage_claim,
    darkness,
    darkness_claims,
)
from syntony.demo.named_cause import named_cause
from syntony.demo.nobody_noticed import nobody_noticed
from syntony.demo.nobody_waits import nobody_waits
from syntony.demo.rank_lost import rank_lost
from syntony.demo.stage import ANSWER_NS, Stage
from syntony.model import S, format_ns

CONVERGE_TIMEOUT_NS = 60 * S
CLOCK_WATCH_NS = 20 * S
CLEAN_WATCH_NS = 10 * S
FAULT_NS = 12 * S
VICTIM_NIC = "rail0"
AFTER_FAULT_NS = 8 * S
"""Probe results take a second to be known and two more to be stored; then judge the recovery."""


def one_clock(stage: Stage) -> tuple[DemoClaim, ...]:
    """One fleet, one clock: how far is each clock from the truth?"""
    hosts = stage.status.hosts
    true_ns = [truth.offset_ns for truth in stage.lab.truth()]
    stage.screen.say(
        f"{len(hosts)} clocks, up to {format_ns(max(true_ns) - min(true_ns))} apart and drifting; "
        "each agent sees only its own"
    )
    found_ns = find_clocks(stage)
    agreed = converged(stage.timelines(), hosts)
    stage.screen.say(f"clocks found after {found_ns / S:.0f} s; watching them against the truth")
    samples = stage.watch(CLOCK_WATCH_NS)
    first = DemoClaim(
        text=f"all clocks found within {CONVERGE_TIMEOUT_NS // S} s of the agents' start",
        measured=f"{found_ns / S:.0f} s" if agreed else "not all were",
        held=agreed,
    )
    return (first, *clock_claims([sample for sample in samples if sample]))


def every_path(stage: Stage) -> tuple[DemoClaim, ...]:
    """See every path: the delay matrix, then a silent black-hole."""
    find_clocks(stage)
    stage.screen.say("every NIC probes ten others on every path; each delay is one-way")
    stage.watch(CLEAN_WATCH_NS)
    # A busy machine's rows are stored late: the last seconds may still be empty.
    cells = stage.watch_until(lambda: stage.matrix(CLEAN_WATCH_NS), ANSWER_NS)[0] or ()
    clean = coverage_claim(cells, stage.nics)
    victim = f"{stage.status.hosts[len(stage.status.hosts) * 3 // 8]}/{VICTIM_NIC}"
    touching = [cell for cell in cells if victim in {cell.src, cell.dst}]
    stage.screen.say(f"black-hole at {victim} for {FAULT_NS // S} s: carrier stays up")
    watch_began_ns = time.monotonic_ns()
    began_ns = stage.retry(stage.fleet_ns)
    stage.lab.inject("blackhole", victim, for_ns=FAULT_NS)
    stage.watch(FAULT_NS)
    stage.screen.say("black-hole over")
    stage.watch(AFTER_FAULT_NS)
    points = stage.retry(lambda: stage.series(time.monotonic_ns() - watch_began_ns + 5 * S))
    report = darkness(points, victim, began_ns, began_ns + FAULT_NS)
    peers = sorted(way.replace(victim, "").strip(" →") for way in report.dark)
    stage.screen.say(f"went dark: {victim} with {', '.join(dict.fromkeys(peers)) or 'nobody'}")
    for way in report.wrongly_dark:
        stage.screen.say(f"wrongly dark: {way}")
    for way in report.still_lit:
        stage.screen.say(f"not dark: {way}")
    for way in report.still_dark:
        stage.screen.say(f"still dark: {way}")
    return (clean, *darkness_claims(report, victim, len(touching)))


def find_clocks(stage: Stage) -> int:
    """Wait until the clocks agree, at most for the claimed time; return how long that took, ns."""
    hosts = stage.status.hosts
    return stage.watch_until(lambda: converged(stage.timelines(), hosts), CONVERGE_TIMEOUT_NS)[1]


ACTS: dict[str, Callable[[Stage], tuple[DemoClaim, ...]]] = {
    "one-clock": one_clock,
    "every-path": every_path,
    "before-the-race": before_the_race,
    "named-cause": named_cause,
    "nobody-noticed": nobody_noticed,
    "nobody-waits": nobody_waits,
    "rank-lost": rank_lost,
}
