"""A fleet in one process: agents, controllers, their database and store, an operator, faults.

Everything that happens follows from the seed, if Python's hashes are fixed (``PYTHONHASHSEED=0``).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import shutil
import sys
import warnings
from contextvars import copy_context
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import NamedTuple, cast
from unittest import mock

from cryptography import x509
from tests.world.agent import Agent, restore, snapshot
from tests.world.ambient import Log, surroundings
from tests.world.gateway import GatewayUnit
from tests.world.ledger import Ledger, Pager
from tests.world.loop import NODE, DiesNowError, HostClock, Loop, Node
from tests.world.network import Network
from tests.world.postgres import Server
from tests.world.rails import TWO_RAILS, Process, write_topology
from tests.world.store import WorldStore
from tests.world.unit import Unit

from syntony.agent import delivery
from syntony.controller import ingest
from syntony.controller.config import (
    AlertSettings,
    ControllerConfig,
    PlacementConfig,
    PlacementMode,
)
from syntony.controller.notify import Receiver
from syntony.controller.open_state import STANDBY_S, check_of
from syntony.controller.pki import create_authority
from syntony.controller.server import Controller
from syntony.controller.service import FleetService
from syntony.errors import ConfigError, StateError
from syntony.model import S
from syntony.state import postgresql
from syntony.store import Store
from syntony.wire.messages import NicInfo
from syntony.wire.roles import Role
from syntony.wire.x509 import read_certificate

SETTLE_S = 150
"""Without faults, after which everything must be well again: an agent that comes back may be waited
for, keys are rotated in phases of up to 30 s, incidents are held before they are cleared."""
KEY_PERIOD_S = 70
"""Between two rotations of the probe keys."""
WINDOW = 8
"""Batches that are sent before any is acknowledged, and looked up after a hello: an agent sends one
a second here and about eight in production, where the window is 64."""
OPERATOR = "operator"


class Settings(NamedTuple):
    """How large a world is, and for how long it suffers."""

    hosts: int = 4
    controllers: int = 2
    gateways: int = 0
    faults_s: float = 150.0
    mean_gap_s: float = 6.0
    """Between two faults."""
    order_gap_s: float = 9.0
    """Between two orders of the operator."""
    only: tuple[str, ...] = ()
    """Names of the faults that may happen; empty: all."""
    hostile: bool = True
    echo: bool = False


class Host:
    """A host: what outlives its agent."""

    def __init__(self, name: str, number: int, clock: HostClock, folder: Path, pem: bytes) -> None:
        self.name = name
        self.clock = clock
        self.disk = folder / name
        self.run = folder / f"{name}.run"
        self.disk.mkdir()
        self.pem = pem
        self.process = Process()
        """Of the job that sends from here by queue pairs."""
        self.nics: tuple[NicInfo, ...] = tuple(
            NicInfo(
                name=f"rail{rail}", rail=rail,
                addresses=(f"10.{rail}.{number // 250}.{number % 250 + 1}",),
                clock=name, stamping="kernel", port=61_000,
            )
            for rail in range(2 if name in TWO_RAILS else 1)
        )  # fmt: skip


class ControllerUnit(Unit):
    """One controller's unit."""

    controller: Controller | None = None

    async def live(self, node: Node) -> None:
        """One life: it waits for control state, leads, and ends."""
        world = self.world
        self.controller = None
        try:
            controller = await self._hold()
            self.controller = controller
            world.log.say(self.name, f"in charge, epoch {controller._leadership.epoch}")
            await controller.begin(self.name)  # ends one that was replaced while it read its state
            epoch, switch = controller._leadership.epoch, controller._traffic.switch
            world.ledger.took_over(self.name, epoch, switch)
            world.ledger.knows_revoked(
                self.name, controller._membership.enrolment.refusal(world.hostile_certificate)
            )
            world.network.services[self.address] = node, FleetService(controller.hub)
            await controller.work(self._close)
        except DiesNowError:
            world.kill(node)
        except (ConfigError, StateError) as error:
            world.log.say(self.name, f"ends: {error}")
            world.end(node)
        except asyncio.CancelledError:
            world.end(node)

    async def _hold(self) -> Controller:
        """As `open_state._hold`, without blocking everybody."""
        store, config = cast("Store", self.world.store), self.world.config(self.address)
        may_take = check_of(config.state)
        while True:
            if await asyncio.to_thread(may_take):
                with contextlib.suppress(ConfigError, StateError):
                    return await asyncio.to_thread(Controller, config, store)
            await asyncio.sleep(STANDBY_S)

    async def _close(self) -> None:
        self.leave_network()


class World:
    """Args:
    seed: everything follows from it.
    folder: for spools; emptied.
    """

    def __init__(self, seed: int, folder: Path, settings: Settings = Settings()) -> None:  # noqa: B008
        self.seed = seed
        self.settings = settings
        self.chances = [Random(seed + each) for each in range(6)]
        self.chance, of_loop, of_network, of_server, of_store, self._of_surroundings = self.chances
        self.loop = Loop(of_loop)
        self.loop.kill = self.kill
        self.context = copy_context()
        self.log = Log(self.loop, echo=settings.echo)
        self.log.failed = self.loop.failed = lambda text: self.ledger.broken(text)  # noqa: PLW0108 — made below
        self.ledger = Ledger(self)
        self.network = Network(self.loop, of_network, self.context)
        self.server = Server(self.loop, of_server, self.ledger.committed)
        self.store = WorldStore(self.loop, of_store, self.ledger.broken)
        self.pager = Pager(self)
        self.agents: dict[str, Agent] = {}
        self._dead: list[object] = []
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        authority = create_authority(folder / "ca")
        serials = Random(seed + 6)

        def serial() -> int:
            return serials.getrandbits(159) | 1

        @mock.patch.object(x509, "random_serial_number", serial)
        def pem(name: str, role: Role) -> bytes:
            made = authority.issue(
                name, role, addresses=["127.0.0.1"], lifetime_ns=3_600 * S, directory=folder / "tls"
            )
            return Path(made.cert).read_bytes()

        self.operator_pem = pem(OPERATOR, Role.OPERATOR)
        self.hostile_pem = pem("mallory", Role.AGENT)
        self.hostile_certificate = read_certificate(self.hostile_pem)
        self.hosts = {
            name: Host(name, number, self._clock(), folder, pem(name, Role.AGENT))
            for number, name in enumerate(f"h{each}" for each in range(settings.hosts))
        }
        self._topology = folder / "topology.json"
        write_topology(list(self.hosts.values()), self._topology)
        self.processes = [
            ControllerUnit(self, f"c{each}", b"") for each in range(1, settings.controllers + 1)
        ]
        self.gateways = [
            GatewayUnit(self, f"g{each}", pem(f"g{each}", Role.GATEWAY))
            for each in range(1, settings.gateways + 1)
        ]
        self.full: set[str] = set()
        """Hosts whose disk is full."""
        self.job_s = 0.0
        """Until when a job runs."""
        self.lossy: dict[str, float] = {}
        """Hosts whose probes are lost, with when that was last so."""

    def _clock(self) -> HostClock:
        return HostClock(round(self.chance.gauss(0, 2 * S)), self.chance.gauss(0, 20_000))

    def config(self, address: str) -> ControllerConfig:
        """Of every controller."""
        return ControllerConfig(
            listen=address, tls_ca="", tls_cert="", tls_key="",
            state="postgresql://syntony@db/syntony",
            probe_key_period=f"{KEY_PERIOD_S}s",
            topology=str(self._topology),
            placement=PlacementConfig(mode=PlacementMode.ACT),
            alerts=AlertSettings(
                receivers=(Receiver(name="pager", kind="webhook", url="http://pager/"),)
            ),
        )  # fmt: skip

    @property
    def units(self) -> tuple[Unit, ...]:
        """Controllers and gateways."""
        return (*self.processes, *self.gateways)

    def addresses_for(self, host: Host) -> list[str]:
        """Of gateways, where there are any; some hosts know the controllers as well."""
        both = int(host.name[1:]) % 2 == 0 or not self.gateways
        found: list[Unit] = [*(self.processes if both else ()), *self.gateways]
        if self.gateways:
            self.chance.shuffle(found)
        return [each.address for each in found]

    @property
    def leader(self) -> ControllerUnit | None:
        """Who serves; the newest, where a paused one still thinks so."""
        serving = [
            each
            for each in self.processes
            if each.address in self.network.services
            and each.node is not None
            and each.node.alive
            and not each.node.paused
        ]
        return max(
            serving, key=lambda each: each.controller._leadership.epoch if each.controller else 0,
            default=None,
        )  # fmt: skip

    def reachable(self, host: str) -> bool:
        """Whether probes of a host are answered: it has an agent that runs."""
        found = self.agents.get(host)
        return found is not None and (node := found.node).alive and not node.paused

    def probe(self, host: str, source: int, sending: tuple[int, bytes]) -> None:
        """A probe arrives at a host."""
        agent = self.agents.get(host)
        if agent is not None and agent.node.alive and not agent.node.paused:
            agent.arrives(source, sending)

    # --- lives ---

    def born(self, node: Node) -> Node:
        node.boot_ns = self.chance.randrange(1_000_000) * S
        return node

    def start_agent(self, name: str) -> None:
        """A host's agent begins a life."""
        agent = self.agents[name] = Agent(self, self.hosts[name])
        self.born(agent.node)
        agent.start()

    def kill(self, node: Node) -> None:
        """As SIGKILL does."""
        if not node.alive:
            return
        self.log.say(node.name, "dies")
        self.end(node)

    def end(self, node: Node) -> None:
        """A process is no more; its host cleans up, and its unit is started again."""
        node.alive = False
        self.network.died(node)
        self.server.end_of(node)
        agent = self.agents.get(node.name)
        if agent is not None and agent.node is node:
            self._dead.append(agent)
            agent.spool.close()
            return
        process = next(each for each in self.units if each.name == node.name)
        if process.node is node:
            self._dead.append((process.__dict__.copy(), process.running))
            if self.network.services.get(process.address, (None,))[0] is node:
                del self.network.services[process.address]
            self.loop.call_later(process.restart_s, process.start, context=self.context)

    def power_loss(self, name: str) -> None:
        """An agent's host loses power: its disk goes back to the last snapshot."""
        agent = self.agents[name]
        if agent.node.alive:
            self.kill(agent.node)
        shutil.rmtree(self.hosts[name].run, ignore_errors=True)
        if restore(self.hosts[name].disk):
            self.log.say(name, "disk goes back in time")
            self.ledger.restored(name)

    def snapshot(self, name: str) -> None:
        snapshot(self.hosts[name].disk)
        self.ledger.snapshot(name)

    # --- running ---

    def run(self, planted: str = "") -> None:
        """All of it. Raises `BrokenError`.

        Args:
            planted: a fault of `tests.world.planted`.
        """
        from tests.world.course import suffer
        from tests.world.planted import PLANTED

        with contextlib.ExitStack() as stack:
            stack.enter_context(
                surroundings(self.loop, self._of_surroundings, self.log, self.pager.post)
            )
            sessions = SimpleNamespace(connect=self.server.connect)
            stack.enter_context(
                mock.patch.object(postgresql, "_session_type", return_value=sessions)
            )
            stack.enter_context(mock.patch("syntony.agent.spool.os", _disk(self)))
            stack.enter_context(mock.patch.object(sys, "unraisablehook"))
            for module in (delivery, ingest):
                stack.enter_context(mock.patch.object(module, "MAX_UNACKED", WINDOW))
                stack.enter_context(mock.patch.object(module, "MAX_WINDOW", 4 * WINDOW))
            if planted:
                stack.enter_context(PLANTED[planted](self))
            task = self.loop.create_task(suffer(self))
            task.add_done_callback(lambda _: self.loop.stop())
            try:
                self.loop.run_forever()
                if self.loop.broken is not None:
                    raise self.loop.broken
                task.result()
            finally:
                self._bury()

    def _bury(self) -> None:
        """What still runs ends here, whatever it would do, or log, about it."""
        self.log.setLevel(logging.CRITICAL + 1)
        for agent in self.agents.values():
            agent.spool.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of what never began
            # A set has no order that a seed repeats; names are numbered.
            for task in sorted(asyncio.all_tasks(self.loop), key=_number):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        self.loop.clear()
        self._dead.clear()
        gc.collect()


def _number(task: asyncio.Task[object]) -> tuple[int, str]:
    name = task.get_name()
    return len(name), name


def _disk(world: World) -> SimpleNamespace:
    """`os` as a host's spool sees it: full where the world says so."""

    def write(fd: int, data: bytes) -> int:
        node = NODE.get()
        if node is not None and node.name in world.full:
            raise OSError(28, "No space left on device")
        return os.write(fd, data)

    return SimpleNamespace(**vars(os) | {"write": write})
