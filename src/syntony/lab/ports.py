"""The effects of faults on ports: down, slowed, delayed. Effects of several faults add up. Each
effect is stored per fault, so that faults can end in any order and the port returns to its original
state.
"""

from __future__ import annotations

from collections.abc import Iterable

from syntony.lab import commands, netns
from syntony.lab.plan import LabPlan, Link, LinkKind, Port
from syntony.lab.relay import Relay, RelaySpot
from syntony.lab.routes import nic_routes

Holder = int
"""The fault's number."""


class LabPorts:
    """Tracks how each port differs from the plan, and runs the commands for it."""

    def __init__(self, plan: LabPlan, *, guests: bool = False) -> None:
        self._plan = plan
        self._guests = guests
        self._down: dict[str, set[Holder]] = {}
        self._rates: dict[str, dict[Holder, int]] = {}
        self._delays: dict[RelaySpot, dict[Holder, int]] = {}
        self._relays: dict[RelaySpot, Relay] = {}
        self._links = {str(p): link for link in plan.links for p in (link.a, link.b)}

    def hold_down(self, holder: Holder, ports: Iterable[Port]) -> None:
        """Sets ports administratively down until released. Raises `MissingError`."""
        for port in ports:
            holders = self._down.setdefault(str(port), set())
            holders.add(holder)
            netns.tool(port.node, ["ip", "link", "set", port.name, "down"])

    def release(self, holder: Holder, ports: Iterable[Port]) -> None:
        """Sets ports up again unless another fault holds them; hosts get their routes back."""
        for port in ports:
            holders = self._down.get(str(port), set())
            if holder not in holders:
                continue
            holders.discard(holder)
            if not holders:
                self._raise(port)

    def _raise(self, port: Port) -> None:
        netns.tool(port.node, ["ip", "link", "set", port.name, "up"])
        link = self._links[str(port)]
        if port == link.a and link.kind is not LinkKind.FABRIC and not self._guests:
            lines = commands.restore_lines(link)
            lines += commands.route_lines("replace", nic_routes(link))
            netns.batch(port.node, ["ip"], lines)

    def limit(self, holder: Holder, link: Link, rate_bps: int) -> None:
        """Shape both ends of `link`; of several limits the lowest applies. Raises
        `MissingError`."""
        self._rates.setdefault(link.name, {})[holder] = rate_bps
        self._shape(link)

    def unlimit(self, holder: Holder, link: Link) -> None:
        """Takes one limit away."""
        if self._rates.get(link.name, {}).pop(holder, None) is not None:
            self._shape(link)

    def limit_flow(self, holder: Holder, port: Port, flow: tuple[int, int], rate_bps: int) -> None:
        """Shape one TCP flow within the shaper of `port`; one flow per port at a time. Raises
        `MissingError`: it cannot, or another flow is shaped there."""
        netns.batch(port.node, ["tc"], commands.flow_shaper_lines(port, holder, flow, rate_bps))

    def unlimit_flow(self, holder: Holder, port: Port) -> None:
        """Remove that; the shaper gets its own queue back."""
        netns.batch_forced(port.node, ["tc"], [commands.flow_shaper_end(port, holder)])
        self._shape(self._links[str(port)])

    def _shape(self, link: Link) -> None:
        rate_bps = min([self._plan.spec.rate_bps, *self._rates.get(link.name, {}).values()])
        for port in (link.a, link.b):
            line = commands.shaper_line("change", self._plan, port, rate_bps)
            netns.batch(port.node, ["tc"], [line])

    def delay(self, holder: Holder, spot: RelaySpot, add_ns: int) -> None:
        """Delay packets at `spot`; several delays add up. Raises `MissingError`."""
        self._delays.setdefault(spot, {})[holder] = add_ns
        try:
            self._relay(spot)
        except BaseException:
            del self._delays[spot][holder]
            raise

    def undelay(self, holder: Holder, spot: RelaySpot) -> None:
        """Takes one delay away."""
        if self._delays.get(spot, {}).pop(holder, None) is not None:
            self._relay(spot)

    def _relay(self, spot: RelaySpot) -> None:
        total_ns = sum(self._delays[spot].values())
        relay = self._relays.get(spot)
        if relay is not None and not relay.alive:
            self._relays.pop(spot).close()
            relay = None
        if not self._delays[spot]:
            if relay is not None:
                self._relays.pop(spot).close()
        elif relay is None:
            self._relays[spot] = Relay(spot, total_ns)
        else:
            relay.set_delay(total_ns)
