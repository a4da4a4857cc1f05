"""Work that operators plan, on a fleet of real controllers: drawn, announced or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import msgspec
from tests.world.orders import ask

from syntony.model import S
from syntony.wire.enrol import RevokeCommand
from syntony.wire.incidents import IncidentsQuery, SilenceAction
from syntony.wire.query import Failure

if TYPE_CHECKING:
    from tests.world.world import World

    from syntony.controller.server import Controller

WINDOW_S, OVER_S = 200, 60
AWAY_S = 25
"""A host that boots, or is re-imaged, is away for so long or longer."""


class Work:
    """An operator's day.

    Args:
        world: the fleet; its last two hosts are spare ones that are not started.
    """

    def __init__(self, world: World) -> None:
        self.world, self.chance = world, world.chance
        names = list(world.hosts)
        self.living, self.spare = names[:-2], names[-2:]
        self.gone: set[str] = set()
        """Names that nothing may have any more."""
        self.renumbered = 0

    def kinds(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {
            "agents are upgraded": self.upgrade_agents, "controllers are": self.upgrade_controllers,
            "a host boots": self.boot, "several boot": self.boot_several,
            "a host is re-imaged": self.reimage, "two swap addresses": self.swap_addresses,
            "a host is renamed": self.rename, "a host is removed": self.remove,
            "a host is added": self.add, "the store is away": self.stop_store,
        }  # fmt: skip

    async def begin(self) -> None:
        for unit in self.world.units:
            unit.start()
        for name in self.living:
            self.world.start_agent(name)
        await asyncio.sleep(90)

    @property
    def controller(self) -> Controller:
        leader = self.world.leader
        assert leader is not None
        assert leader.controller is not None
        return leader.controller

    # --- what operators do ---

    async def order(self, query: object) -> None:
        leader = self.world.leader
        assert leader is not None
        answer = await ask(self.world, leader, query)  # type: ignore[arg-type]
        assert answer is not None
        assert not isinstance(answer, Failure), answer

    async def announce(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            await self.order(SilenceAction(subject=host, for_ns=WINDOW_S * S, by="op"))

    async def _away(self, hosts: Iterable[str], seconds: float) -> None:
        hosts = list(hosts)
        for host in hosts:
            self.world.kill(self.world.agents[host].node)
        await asyncio.sleep(seconds)
        for host in hosts:
            if host in self.living:
                self.world.start_agent(host)

    def _some(self, least: int = 1) -> list[str]:
        return self.chance.sample(self.living, self.chance.randint(least, len(self.living) - 1))

    async def upgrade_agents(self) -> None:
        """Not announced: each is back within seconds."""
        waiting = list(self.living)
        self.chance.shuffle(waiting)
        while waiting:
            few, waiting = waiting[:2], waiting[2:]
            await self._away(few, self.chance.uniform(0.5, 5))

    async def upgrade_controllers(self) -> None:
        for unit in self.world.processes:
            unit.stop()
            await asyncio.sleep(self.chance.uniform(5, 40))

    async def boot(self) -> None:
        (host,) = self.chance.sample(self.living, 1)
        await self.announce([host])
        await self._away([host], self.chance.uniform(AWAY_S, 120))

    async def boot_several(self) -> None:
        hosts = self._some(least=2)
        await self.announce(hosts)
        await self._away(hosts, self.chance.uniform(AWAY_S, 120))

    async def reimage(self) -> None:
        """The same name; another name and address of its NIC."""
        (host,) = self.chance.sample(self.living, 1)
        await self.announce([host])
        before = self.world.hosts[host].nics
        self.renumbered += 1
        name, address = f"ens{self.renumbered}", f"10.9.0.{self.renumbered}"
        self.world.hosts[host].nics = tuple(
            msgspec.structs.replace(nic, name=name, addresses=(address,)) for nic in before
        )
        self.gone |= {f"{host}/{nic.name}" for nic in before}
        self.gone.discard(f"{host}/{name}")
        await self._away([host], self.chance.uniform(AWAY_S, 120))

    async def swap_addresses(self) -> None:
        """By a new lease, which their agents notice: they begin new streams."""
        one, other = (self.world.hosts[name] for name in self.chance.sample(self.living, 2))
        addresses = [host.nics[0].addresses for host in (one, other)]
        for host, theirs in zip((one, other), reversed(addresses), strict=True):
            host.nics = (msgspec.structs.replace(host.nics[0], addresses=theirs),)
            await self._away([host.name], self.chance.uniform(0.1, 3))

    async def rename(self) -> None:
        """Another name and certificate, the same addresses; the old name is revoked."""
        if not self.spare:
            return
        (old,), new = self.chance.sample(self.living, 1), self.spare.pop()
        await self.announce([old])
        self.world.hosts[new].nics = tuple(
            msgspec.structs.replace(nic, clock=new) for nic in self.world.hosts[old].nics
        )
        self.living.remove(old)
        await self._away([old], self.chance.uniform(AWAY_S, 60))
        self.living.append(new)
        self.world.start_agent(new)
        await asyncio.sleep(self.chance.uniform(0, 30))
        await self._revoke(old)

    async def remove(self) -> None:
        if len(self.living) < 4:
            return
        (host,) = self.chance.sample(self.living, 1)
        await self.announce([host])
        self.living.remove(host)
        await self._away([host], self.chance.uniform(1, 60))
        await self._revoke(host)

    async def _revoke(self, host: str) -> None:
        await self.order(RevokeCommand(what=host, by="op", comment="planned"))
        self.gone.add(host)

    async def add(self) -> None:
        if self.spare:
            self.living.append(self.spare.pop())
            self.world.start_agent(self.living[-1])

    async def stop_store(self) -> None:
        self.world.store.down = True
        await asyncio.sleep(self.chance.uniform(60, 600))
        self.world.store.down = False

    # --- what is left ---

    async def complaints(self) -> list[str]:
        """Once all is over."""
        await asyncio.sleep(WINDOW_S + OVER_S)
        controller, pager = self.controller, self.world.pager
        fleet = controller._fleet
        found = [f"paged: {rule} {subject}" for rule, subject in sorted(pager.paged)]
        live = controller._alerts.incidents(IncidentsQuery()).incidents
        found += [f"live: {each['rule']} {each['subject']}" for each in live]
        if sorted(fleet.members) != sorted(self.living):
            found.append(f"members: {sorted(fleet.members)}, living: {sorted(self.living)}")
        nics = {f"{name}/{nic.name}" for name in self.living for nic in self.world.hosts[name].nics}
        if planned := nics ^ set(map(str, fleet.mesh.nics)):
            found.append(f"planned, or not: {sorted(planned)}")
        known = {line.node for line in controller._solving.timelines}
        found += [f"clock: {name}" for name in sorted(known & self.gone)]
        found += [f"address of {name}" for name in fleet.owners.values() if name in self.gone]
        found += [f"contested: {ref}" for ref in fleet.contested]
        return found
