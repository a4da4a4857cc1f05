"""An agent: production's spool, stream, fence, switch and keys, around a clock that is drawn."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from tests.world.loop import Node
from tests.world.rails import Rails
from tests.world.segments import Segments

from syntony.agent.fence import Fence
from syntony.agent.keyring import Keyring
from syntony.agent.plans import usable
from syntony.agent.reactor import saved_orders
from syntony.agent.spool import Spool
from syntony.agent.steering.switch import StopSwitch
from syntony.agent.stream import ConnectionNumbers, Stream
from syntony.errors import WireError
from syntony.io.dialling import ControllerDialer
from syntony.io.probe_records import PeerKeys
from syntony.mesh.fresh_losses import STEP_NS
from syntony.model import ClockState, Edge, S, Timeline
from syntony.model.names import host_of
from syntony.wire.arrow import encode_columns
from syntony.wire.clocks import Edges, Timelines
from syntony.wire.failover import PathsReport, Switch
from syntony.wire.messages import PROTOCOL, ControllerMessage, Decision, Hello, Unknown
from syntony.wire.probes import KeysHeld, LossReport, PairLosses, Plan, ProbeFlow, ProbeKeys
from syntony.wire.tables import AGENT
from syntony.wire.traffic import FlowView, Moves

if TYPE_CHECKING:
    from tests.world.ledger import Ledger
    from tests.world.network import Connection
    from tests.world.world import Host, World

SPOOL_BYTES = 1 << 20
EDGE_SIGMA_NS = 40.0
ESTIMATE_S = 2
PROBE_TIMEOUT_NS = 1 * S
JOB_HOSTS = ("h0", "h1", "h2")
"""A job runs on these, each with a flow to the next one."""
JOB_PORT = 29_500


class _WatchedFence(Fence):
    """The ledger hears of each decision that is admitted."""

    def __init__(self, agent: Agent, ledger: Ledger) -> None:
        super().__init__(agent.host.disk)
        self._agent, self._ledger = agent, ledger

    def admit(self, message: ControllerMessage | Unknown) -> ControllerMessage | Unknown:
        content = super().admit(message)
        if isinstance(message, Decision):
            self._ledger.obeyed(self._agent, message.issuer, message.epoch)
        return content


class Agent:
    """One life of one host's agent.

    Args:
        world: that it lives in.
        host: its name, clock and disk.
    """

    def __init__(self, world: World, host: Host) -> None:
        self._world = world
        self.host = host
        self.node = Node(host.name, host.clock)
        self.started_ns = world.loop.now_ns
        self.plan: Plan | None = None
        self._probed: tuple[ProbeFlow, ...] = ()
        """One flow for each pair of NICs."""
        self._peers: list[str] = []
        """Hosts that the plan names."""
        self.lines: dict[str, Timeline] = {}
        self._reports: dict[type, msgspec.Struct] = {}
        self._wake = asyncio.Event()
        self._keys: dict[int, PeerKeys] = {}
        self._ring = Keyring()
        self._rails = Rails(world, self)
        self._segments = Segments(host, JOB_PORT)
        self._step = 0
        """The last step of fleet time."""
        self.connection: Connection | None = None
        self._stream: Stream | None = None
        self._second = -1
        self._attempts = ConnectionNumbers()
        self.spool = Spool(host.disk / "spool", SPOOL_BYTES)

    def start(self) -> None:
        """Open what is on disk, and run."""
        self._world.loop.spawn(self.node, self._live())

    async def _live(self) -> None:
        directory = self.host.disk
        self.spool.open()
        self._world.ledger.opened(self)
        self.fence, self.switch = _WatchedFence(self, self._world.ledger), StopSwitch(directory)
        self._world.ledger.woke(self)
        self._rails.stop(stopped=self.switch.stopped)
        self.host.run.mkdir(exist_ok=True)
        self._kept = saved_orders.load(self.host.run)
        if self._kept.keys is not None:
            self._obey(self._kept.keys)
        if self._kept.plan is not None:
            self._obey(self._kept.plan)
        loop = self._world.loop
        loop.spawn(self.node, self._measure())
        dialling = ControllerDialer(self._world.addresses_for(self.host))
        while True:
            established = await self._connect(dialling)
            wait_ns = dialling.wait_ns(self._world.chance.uniform, established=established)
            await asyncio.sleep(wait_ns / S)

    # --- the uplink ---

    async def _connect(self, dialling: ControllerDialer) -> bool:
        world = self._world
        connection = await world.network.dial(self.node, dialling.controller, self.host.pem)
        if connection is None:
            dialling.next_controller(time.monotonic_ns(), established=False)
            return False
        stream = self._stream = Stream(self.spool, self.fence, self._stream)
        self.connection = connection
        watching = world.loop.spawn(self.node, connection.watch())
        sending = world.loop.spawn(self.node, self._send(stream, connection))
        try:
            async for data in connection.answers():
                self._take(stream, connection, data)
        except WireError:
            pass  # an order of a controller that was replaced
        finally:
            sending.cancel()
            watching.cancel()
            self.connection = None
            connection.leave()
        if not stream.renewed:
            dialling.next_controller(time.monotonic_ns(), established=stream.established)
        return stream.established

    def _take(self, stream: Stream, connection: Connection, data: bytes) -> None:
        before = self.spool.acknowledged
        message = stream.take(data)
        self._world.ledger.acknowledged(self, before)
        if stream.delivery.over:
            stream.renewed = True
            connection.leave()
        elif stream.delivery.ready:
            self._wake.set()
        if message is not None:
            self._obey(message)

    async def _send(self, stream: Stream, connection: Connection) -> None:
        hello = self._attempts.number(self._hello(stream.delivery.stream))
        connection.up.send(stream.opening(hello))
        while not stream.delivery.over:
            reports, self._reports = list(self._reports.values()), {}
            for data in stream.outgoing(reports):
                connection.up.send(data)
            if not stream.delivery.ready:
                self._wake.clear()
                if held_ns := stream.delivery.held_ns:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(held_ns / S):
                            await self._wake.wait()
                else:
                    await self._wake.wait()
        stream.renewed = True
        connection.leave()

    def _hello(self, stream: str) -> Hello:
        return Hello(
            protocol=PROTOCOL, version="world", host=self.host.name, stream=stream,
            nics=self.host.nics, reads_stored=self._world.chance.random() < 0.5,
        )  # fmt: skip

    def _report(self, report: msgspec.Struct) -> None:
        self._reports[type(report)] = report
        self._wake.set()

    # --- what it is told ---

    def _obey(self, message: Any) -> None:
        """As `agent.daemon` and `agent.reactor.process` hand it on."""
        if isinstance(message, Switch):
            if self.switch.take(message):
                self.switch.save()
                self._world.ledger.switched(self)
                self._rails.stop(stopped=self.switch.stopped)
        elif isinstance(message, ProbeKeys):
            peers = self._ring.take(message)
            if peers is not None:
                self._probe_all()  # with the keys before, under way when these are in force
                self._keys = peers
                self._probe_all()
                self._keep(msgspec.structs.replace(self._kept, keys=message))
                self._report(
                    KeysHeld(epochs=message.epochs, sending=message.sending, number=message.number)
                )
        elif isinstance(message, Plan):
            found = usable(message, {nic.name for nic in self.host.nics}, "ipv4")
            if found is not None:
                self.plan = plan = found.plan
                self._probed = tuple({(flow.src, flow.dst): flow for flow in plan.flows}.values())
                self._peers = sorted({host_of(flow.dst) for flow in self._probed})
                self._keep(msgspec.structs.replace(self._kept, plan=message))
        elif isinstance(message, Moves):
            self._rails.obey(message, self._fleet_ns)
        elif isinstance(message, Timelines):
            self._world.ledger.timed(self, message)
            self.lines = {line.node: line for line in message.timelines}
            self._step = message.step

    def _keep(self, now: saved_orders.SavedOrders) -> None:
        if now != self._kept:
            self._kept = now
            saved_orders.save(self.host.run, now)

    # --- what it measures ---

    @property
    def line(self) -> Timeline | None:
        """Fleet time, where it is known of this clock as it runs now."""
        line = self.lines.get(self.host.name)
        if line is None or line.state is ClockState.UNKNOWN:
            return None
        return line if line.epoch in {0, self.host.clock.epoch} else None

    async def _measure(self) -> None:
        await asyncio.sleep(self._world.chance.random())
        second = 0
        while True:
            second += 1
            self._row()
            self._report(PathsReport(mode="manage", stopped=self.switch.stopped, connections=()))
            if second % ESTIMATE_S == 0 or self.line is None:
                self._report(self._edges())
            self._report_flows(second)
            if self.host.name in self._world.lossy:
                self._report_losses()
            if self.plan is not None and self.plan.flows:
                self._probe(self._world.chance.choice(self.plan.flows))
            await asyncio.sleep(1)

    @property
    def _fleet_ns(self) -> int | None:
        line = self.line
        return line.to_fleet_ns(self.host.clock.read_ns(self._world.loop.true_ns)) if line else None

    def _report_flows(self, second: int) -> None:
        """Of a job, on the few hosts that have one; while it runs the others report that they
        listen."""
        name, world, line = self.host.name, self._world, self.line
        if line is None or world.loop.time() > world.job_s or len(world.hosts) < len(JOB_HOSTS):
            return
        at_ns = line.to_fleet_ns(self.host.clock.read_ns(world.loop.true_ns))
        report = self._rails.report(at_ns)
        if name not in JOB_HOSTS:
            self._report(report)
            return
        place = JOB_HOSTS.index(name)
        ring = [JOB_HOSTS[(place + each) % len(JOB_HOSTS)] for each in (0, 1, -1)]
        ends = [world.hosts[each].nics[0].addresses[0] for each in ring]
        own, remote, _ = ends
        self._report(self._segments.report(line, world.loop.true_ns, self._step, ends))
        view = FlowView(
            job="job", connection=f"tcp-{JOB_PORT}", nic="rail0", local=own, local_port=JOB_PORT,
            remote=remote, remote_port=JOB_PORT, dialled=True, movable=False, moving=False,
            tx_bps=1_000_000_000, rx_bps=0, windows=second, hops=(),
        )  # fmt: skip
        self._report(msgspec.structs.replace(report, flows=(view, *report.flows)))

    def _report_losses(self) -> None:
        """None of its probes is answered; those of others are."""
        at_ns = self._fleet_ns
        if at_ns is not None and self._probed:
            pairs = tuple(
                PairLosses(src=f"{self.host.name}/{flow.src}", dst=flow.dst, lost=9, paths=3)
                for flow in self._probed
            )[:16]
            report = LossReport(
                at_ns=at_ns // STEP_NS * STEP_NS, pairs=pairs, prompt=tuple(self._peers)
            )
            self._report(report)

    def _row(self) -> None:
        line = self.line
        if line is None:
            return
        fleet_ns = line.to_fleet_ns(self.host.clock.read_ns(self._world.loop.true_ns))
        if fleet_ns // S == self._second or fleet_ns <= 0:
            return
        self._second = fleet_ns // S
        before, after = _row_of(self.host.name)
        data = before + (self._second * S).to_bytes(8, "little") + after
        number = self.spool.append(AGENT.name, 1, data)
        self._world.ledger.appended(self, number)
        self._wake.set()

    def _edges(self) -> Edges:
        """Of the pairs that the plan names; as clean as an idle fabric's."""
        found, world, host = list[Edge](), self._world, self.host.name
        true_ns, own, gauss = world.loop.true_ns, self.host.clock, self._world.chance.gauss
        own_ns = own.read_ns(true_ns)
        for name in self._peers:
            if not world.reachable(name):
                continue
            other = world.hosts[name].clock
            edge = Edge(
                a=host, b=name, ref_ns=own_ns,
                theta_ns=other.read_ns(true_ns) - own_ns + gauss(0, EDGE_SIGMA_NS),
                drift_ppb=other.drift_ppb - own.drift_ppb + gauss(0, 2),
                sigma_ns=EDGE_SIGMA_NS, drift_sigma_ppb=5.0, rtt_floor_ns=10_000.0, probes=16,
                a_epoch=own.epoch, b_epoch=other.epoch,
            )  # fmt: skip
            found.append(edge)
        return Edges(edges=tuple(found), epochs={self.host.name: own.epoch})

    def _probe_all(self) -> None:
        """One to each peer: production sends hundreds a second."""
        for flow in self._probed:
            self._probe(flow)

    def _probe(self, flow: ProbeFlow) -> None:
        """One probe, authenticated by the keys of the pair."""
        assert self.plan is not None
        keys = self._keys.get(flow.dst_nic_id)
        name = host_of(flow.dst)
        own = self.plan.nic_ids.get(flow.src)
        if keys is None or own is None or not self._world.reachable(name):
            return
        draw = self._world.chance.random()
        delay_s = 0.0001 if draw < 0.8 else draw * PROBE_TIMEOUT_NS / S
        for _ in range(1 + (draw > 0.97)):  # duplicated, and out of order
            self._world.loop.call_later(
                delay_s, self._world.probe, name, own, keys.sends, context=self._world.context
            )
            delay_s *= self._world.chance.random()

    def arrives(self, source: int, sending: tuple[int, bytes]) -> None:
        """A probe of NIC `source`. Only an agent without keys may refuse it."""
        keys = self._keys.get(source)
        if keys is not None and sending not in {keys.sends, keys.accepts}:
            accepted = [each[0] for each in (keys.sends, keys.accepts) if each]
            self._world.ledger.broken(
                f"{self.host.name} refuses a probe of NIC {source} for its key: "
                f"epoch {sending[0]}, it accepts {accepted}"
            )


@functools.cache
def _row_of(host: str) -> tuple[bytes, bytes]:
    """A row of its own table, encoded once: what is before and what is after its instant."""
    mark = 0x5EC0_0D5E_C00D_5EC0
    zeros = np.zeros(1, np.uint64)
    columns: dict[str, Any] = {column.name: zeros for column in AGENT.columns}
    columns |= {"ts_ns": np.array([mark]), "host": [host]}
    before, found, after = encode_columns(AGENT, columns).partition(mark.to_bytes(8, "little"))
    assert found
    return before, after


def snapshot(disk: Path) -> None:
    """Keep what is on the disk now, as a power failure may bring it back."""
    before = disk.with_suffix(".before")
    shutil.rmtree(before, ignore_errors=True)
    shutil.copytree(disk, before)


def restore(disk: Path) -> bool:
    """The disk as it was at the snapshot; whether there is one."""
    before = disk.with_suffix(".before")
    if not before.exists():
        return False
    shutil.rmtree(disk)
    shutil.copytree(before, disk)
    return True
