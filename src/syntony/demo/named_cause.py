"""During the race: a link flaps and a cable loses packets; each gets one incident with its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syntony.demo.claims import DemoClaim
from syntony.demo.stage import Stage
from syntony.model import MS, S

FLAPS = 9
"""One more than the eight alerts per hour that operators tolerate."""
FLAP_PERIOD_NS = 400 * MS
LOSS_PERCENT = 5
NAMING_NS = 60 * S
"""How long the demo waits for an incident; the claims below are stricter."""
FLAP_NAMED_NS = 15 * S
LOSS_NAMED_NS = 40 * S
"""5 % of about four probes a second on each path: it takes tens of seconds on a small fleet."""


def named_cause(stage: Stage) -> tuple[DemoClaim, ...]:
    """A flap and a lossy cable: two incidents, each with the right name, and nothing else."""
    before = {each["number"] for each in stage.retry(stage.incidents)}
    flapping = _flap(stage)
    lossy = _lose(stage)
    pages = [
        each
        for each in stage.retry(stage.incidents)
        if each["number"] not in before and each["cause"] is None and not each["silenced"]
    ]
    guilty = {flapping[1], lossy[1]}
    extra = sorted(
        f"{each['rule']} of {each['subject']}"
        for each in pages
        if not any(_is_at(each["subject"], part) for part in guilty)
    )
    only = DemoClaim(
        text="one incident for each cause, and no others",
        measured=", ".join(extra) if extra else f"{len(pages)} incidents, all of the two causes",
        held=not extra,
    )
    return (flapping[0], lossy[0], only)


def _flap(stage: Stage) -> tuple[DemoClaim, str]:
    host = stage.status.hosts[-1]
    nic = f"{host}/rail1"
    stage.screen.say(f"{nic} flaps {FLAPS} times, each for {FLAP_PERIOD_NS // 2 // MS} ms")
    options = {"period": f"{FLAP_PERIOD_NS // MS}ms", "count": str(FLAPS)}
    stage.lab.inject("flap", nic, options)
    incident, took_ns = wait_for_incident(
        stage, lambda each: each["subject"] == nic and each["rule"] == "link-flapping"
    )
    if incident is not None:
        stage.screen.say(f"incident {incident['number']}: {incident['summary']}")
    claim = DemoClaim(
        text=f"a link that flaps {FLAPS} times is an incident with its name and its count",
        measured=f"{incident['summary']}, after {took_ns / S:.0f} s" if incident else "no incident",
        held=incident is not None
        and took_ns <= FLAP_NAMED_NS + FLAPS * FLAP_PERIOD_NS
        and f" {FLAPS} times" in incident["summary"],
    )
    return claim, nic


def _lose(stage: Stage) -> tuple[DemoClaim, str]:
    leaf, spine = stage.status.leaves[0], stage.status.spines[-1]
    stage.screen.say(f"the cable between {leaf} and {spine} loses {LOSS_PERCENT} % of its packets")
    fault = stage.lab.inject("loss", f"{leaf}/{spine}", {"percent": str(LOSS_PERCENT)})
    incident, took_ns = wait_for_incident(
        stage, lambda each: each["rule"] == "link-loss" and _is_at(each["subject"], leaf, spine)
    )
    if incident is not None:
        stage.screen.say(f"incident {incident['number']}: {incident['summary']}")
    stage.lab.clear(fault.id)
    claim = DemoClaim(
        text=f"a cable that loses {LOSS_PERCENT} % is named, not its switches or hosts",
        measured=f"{incident['subject']}, after {took_ns / S:.0f} s" if incident else "not named",
        held=incident is not None and took_ns <= LOSS_NAMED_NS,
    )
    return claim, f"{leaf} {spine}"


def wait_for_incident(
    stage: Stage, wanted: Callable[[dict[str, Any]], bool]
) -> tuple[dict[str, Any] | None, int]:
    """Wait for the first live incident that matches, and return it and how long it took; None after
    `NAMING_NS`."""
    return stage.watch_until(lambda: next(filter(wanted, stage.incidents()), None), NAMING_NS)


def _is_at(subject: str, *parts: str) -> bool:
    """A test for incidents whose subject contains every one of the parts (several may be in one
    text)."""
    return all(word in subject for part in parts for word in part.split())
