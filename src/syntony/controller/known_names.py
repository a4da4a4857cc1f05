"""What there is in the fleet by name, to tell a name that is mistyped."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from syntony.fabric.names import cable_name, link_name

if TYPE_CHECKING:
    from syntony.controller.services import Services


async def known_names(services: Services) -> frozenset[str]:
    """Hosts, NICs, switches, cables in both directions, gateways and jobs. To be awaited on the
    controller's event loop, which it does not block."""
    fabric = await asyncio.to_thread(services.locating.fabric_map)
    names = {device.name for device in fabric.devices}
    for a, b in fabric.cables:
        names |= {cable_name(a, b), link_name(a, b), link_name(b, a)}
    for host, member in services.fleet.members.items():
        names |= {host, *(f"{host}/{nic.name}" for nic in member.hello.nics)}
    names |= {gateway.name for gateway in services.gateways.statuses()}
    names |= services.traffic.used(time.monotonic_ns()).keys()
    return frozenset(names).union(services.jobs.names)
