"""State of a controller for live views, collected once a second for all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from syntony.controller.services import Services

MAX_NAMED = 200
"""Maximum number of changed items named in one event; the others are only counted."""


class TopicState(NamedTuple):
    items: Mapping[str, object]
    """Name → a value that differs once the item has changed."""
    summary: Mapping[str, Any]
    """Copied into the event."""


async def observe(services: Services) -> dict[str, TopicState]:
    """Collect the state of every topic, on the controller's event loop."""
    live = await asyncio.to_thread(services.alerts.live)
    switch = services.traffic.switch
    modes = {
        "placement": str(services.placement.service.mode),
        "pacing": str(services.placement.pacing.mode),
    }
    members = services.fleet.members
    results = services.jobs.known(time.monotonic_ns()) or ()
    return {
        "incidents": TopicState(
            {
                str(each.number): (
                    each.state,
                    each.severity,
                    each.summary,
                    each.cause,
                    each.silenced,
                    each.acknowledged_by,
                )
                for each in live
            },
            {"open": len(live), "critical": sum(each.severity == "critical" for each in live)},
        ),
        "fleet": TopicState(
            {
                host: (member.connected, member.hello.stream, member.faults, member.part_states)
                for host, member in members.items()
            },
            {"hosts": len(members), "connected": sum(each.connected for each in members.values())},
        ),
        "switch": TopicState(
            {"switch": switch, **modes},
            {
                "stopped": switch is not None and switch.stopped,
                "by": "" if switch is None else switch.by,
                "at_ns": 0 if switch is None else switch.at_ns,
                **modes,
            },
        ),
        "jobs": TopicState(
            dict.fromkeys(services.jobs.names, None)
            | {each.job: (each.verdicts, each.error) for each in results},
            {"running": services.jobs.running},
        ),
    }


def changed(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Names of added, removed and changed items, sorted."""
    removed_or_changed = {name for name, item in before.items() if now.get(name, before) != item}
    return sorted(removed_or_changed | (now.keys() - before.keys()))
