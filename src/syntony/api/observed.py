"""What live views are told of a controller: looked at once a second for all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from syntony.controller.services import Services

MAX_NAMED = 200
"""Changed things that one event names; of more it says only how many."""


class Observed(NamedTuple):
    """One topic at one instant."""

    things: Mapping[str, object]
    """Name to anything that differs when the thing has changed."""
    summary: Mapping[str, Any]
    """Goes into the event as it is."""


async def observe(services: Services) -> dict[str, Observed]:
    """Every topic, on the controller's event loop."""
    live = await asyncio.to_thread(services.alerts.live)
    switch = services.traffic.switch
    modes = {
        "placement": str(services.placement.service.mode),
        "pacing": str(services.placement.pacing.mode),
    }
    members = services.fleet.members
    judged = services.jobs.known(time.monotonic_ns()) or ()
    return {
        "incidents": Observed(
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
        "fleet": Observed(
            {
                host: (member.connected, member.hello.stream, member.faults, member.part_states)
                for host, member in members.items()
            },
            {"hosts": len(members), "connected": sum(each.connected for each in members.values())},
        ),
        "switch": Observed(
            {"switch": switch, **modes},
            {
                "stopped": switch is not None and switch.stopped,
                "by": "" if switch is None else switch.by,
                "at_ns": 0 if switch is None else switch.at_ns,
                **modes,
            },
        ),
        "jobs": Observed(
            dict.fromkeys(services.jobs.names, None)
            | {each.job: (each.verdicts, each.error) for each in judged},
            {"running": services.jobs.running},
        ),
    }


def changed(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Names of things that came, went or changed, sorted."""
    gone_or_other = {name for name, thing in before.items() if now.get(name, before) != thing}
    return sorted(gone_or_other | (now.keys() - before.keys()))
