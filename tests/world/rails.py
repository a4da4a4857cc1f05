"""Jobs that send by queue pairs, and orders to move them to another rail: the agents' logic is
production's, processes and links are not.

`WIDE` has two rails and asks for less than one carries; `NARROW` needs all of the first one, where
both send to the same host. So a leader that places lets `WIDE` avoid that one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.controller.railed import Job

from syntony.agent.steering.orders import flows_report, order_of
from syntony.agent.steering.view import View
from syntony.fabric.files import format_topology
from syntony.fabric.graph import Cable, Device, make_topology
from syntony.fabric.names import ComponentKind
from syntony.model.paths import FourTuple
from syntony.traffic.failover import Failover
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.instructions import Avoid, Instruction
from syntony.traffic.pairs import LocalNic
from syntony.traffic.policy import FailoverMode, Policy
from syntony.wire.traffic import FlowsReport, Moves

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.world.agent import Agent
    from tests.world.world import Host, World

WIDE = Job("wide", 11, "h0", "h2", (0, 1), demand=0.8)
NARROW = Job("narrow", 22, "h1", "h2", (0,), demand=1.0)
TWO_RAILS = frozenset({"h0", "h2"})
RATE_BPS = 100_000_000_000
SHARED, ALONE = (0.267, 0.533, 0.733), (0.0, 0.8, 1.0)
"""What `WIDE` sends by each of its rails and `NARROW` by its own, in parts of a link: while both
send by the first one, and otherwise."""
POLICY = Policy(mode=FailoverMode.ACT, place=("*",))


class Process:
    """What a job's process was told to avoid; it outlives agents."""

    def __init__(self) -> None:
        self.avoided: dict[tuple[str, str], int] = {}
        """Rail → until when."""

    def avoids(self, path: tuple[str, str], now_ns: int) -> bool:
        """Whether it sends nothing there now."""
        return self.avoided.get(path, 0) > now_ns


class Rails:
    """What one host's process sends by queue pairs, if it has one, as its agent sees and orders
    it."""

    def __init__(self, world: World, agent: Agent) -> None:
        self._world, self._agent = world, agent
        self._job = next((job for job in (WIDE, NARROW) if job.src == agent.host.name), None)
        nics = (
            LocalNic(name=nic.name, rail=nic.rail, addresses=nic.addresses)
            for nic in agent.host.nics
        )
        self._failover = Failover(POLICY, nics, seed=1)
        self._view = View(self._failover, lambda _: "")
        self._windows = 0

    def stop(self, *, stopped: bool) -> None:
        """The stop switch."""
        self._act(self._failover.stop(stopped=stopped, now_ns=self._world.loop.now_ns))

    def report(self, fleet_ns: int) -> FlowsReport:
        """What its process sends, and what became of orders."""
        flows = [] if self._job is None else self._sent(self._job)
        return flows_report(
            self._view.rails(flows), self._view.outcomes, lambda *_: (), fleet_ns=fleet_ns,
            join_port=0,
        )  # fmt: skip

    def _sent(self, job: Job) -> list[ReportedFlow]:
        self._windows += 2
        now_ns = self._world.loop.now_ns
        process = self._agent.host.process
        rates = ALONE if shared_rail_is_left(self._world) else SHARED
        paths = [_path(self._world, job, rail) for rail in job.rails]
        mine = rates[:2] if job is WIDE else rates[2:]
        flows = [self._flow(job, path, rate) for path, rate in zip(paths, mine, strict=True)]
        self._failover.use(frozenset(paths), now_ns, flows)
        self._act(self._failover.tick(now_ns))
        self._view.take_flows()
        self._world.ledger.hold(
            not all(process.avoids(path, now_ns) for path in paths),
            f"{job.name} is to avoid all its rails",
        )
        return flows

    def obey(self, orders: Moves, fleet_ns: int | None) -> None:
        """As `agent.reactor.process` does."""
        self._failover.confirm(frozenset(orders.helped))
        for move in orders.moves:
            order = order_of(move, fleet_ns)
            if not isinstance(order, str):
                self._world.ledger.moved(self._agent, move, fleet_ns)
                self._act(self._failover.move(order, self._world.loop.now_ns))
        self._view.take_flows()

    def _act(self, out: Iterable[Instruction]) -> None:
        avoided = self._agent.host.process.avoided
        for each in out:
            if isinstance(each, Avoid):
                avoided[each.path] = each.expires_ns
                self._world.ledger.hold(
                    not each.expires_ns or not self._agent.switch.stopped,
                    f"{self._agent.host.name} is to avoid {each.path}, and all is stopped",
                )

    def _flow(self, job: Job, path: tuple[str, str], rate: float) -> ReportedFlow:
        nic = next(nic for nic in self._agent.host.nics if path[0] in nic.addresses)
        return ReportedFlow(
            job=job.name, token=0, nic=nic.name, flow=FourTuple(path[0], 0, path[1], 0),
            dialled=True, movable=False, moving=False, tx_bps=round(rate * RATE_BPS), rx_bps=0,
            windows=self._windows, process=job.process,
        )  # fmt: skip


def shared_rail_is_left(world: World) -> bool:
    """Whether `WIDE` leaves the first rail to `NARROW`."""
    process = world.hosts[WIDE.src].process
    return process.avoids(_path(world, WIDE, 0), world.loop.now_ns)


def write_topology(hosts: Sequence[Host], file: Path) -> None:
    """One leaf for each rail."""
    nics = [(host, nic) for host in hosts for nic in host.nics]
    devices = [
        *(
            Device(name=f"{host.name}/{nic.name}", kind=ComponentKind.NIC, addresses=nic.addresses)
            for host, nic in nics
        ),
        *(
            Device(name=leaf, kind=ComponentKind.LEAF, addresses=(leaf,))
            for leaf in sorted({f"leaf{nic.rail}" for _, nic in nics})
        ),
    ]  # fmt: skip
    cables = [
        Cable(a=f"{host.name}/{nic.name}", b=f"leaf{nic.rail}", gbps=RATE_BPS / 1e9)
        for host, nic in nics
    ]
    file.write_text(format_topology(make_topology(devices, cables)))


def _path(world: World, job: Job, rail: int) -> tuple[str, str]:
    local, remote = (world.hosts[name].nics[rail].addresses[0] for name in (job.src, job.dst))
    return local, remote
