"""Two hosts, their kernels' MPTCP and a fabric that fails, as a seeded simulation of events.

The truth is `World.lost`: who is cut off from whom. Everything the state machines learn, they learn
late, some of it never.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import random
from collections.abc import Callable, Sequence

from tests.traffic.flow_samples import flow_sample

from syntony.model import MS, S
from syntony.model.paths import FourTuple, LinkEvent, LivenessEvent, StallEvent
from syntony.traffic import events
from syntony.traffic.failover import Event, Failover
from syntony.traffic.instructions import (
    Announce,
    Create,
    Destroy,
    Instruction,
    KernelRefusal,
    Note,
    WatchPaths,
    Withdraw,
)
from syntony.traffic.pairs import LocalNic, Reply, WatchedFlow
from syntony.traffic.policy import FailoverMode, Policy

HOSTS = ("a", "b")
WIRE_NS = 200_000
APP_PORT = 5000
PORTS_PER_PATH, MORE_PORTS = 2, 4
FOUND_NS = 28 * MS
"""Until a port that is asked anew is known to live, or not to."""
SPINES = 2
SAMPLE_NS, ALL_NS = 15 * MS, 500 * MS
Pair = tuple[str, str]


@functools.cache
def address(host: str, rail: int) -> str:
    return f"10.{rail}.0.{1 + HOSTS.index(host)}"


@functools.cache
def host_of(text: str) -> str:
    return HOSTS[int(text.rsplit(".", 1)[1]) - 1]


@functools.cache
def rail_of(text: str) -> int:
    return int(text.split(".")[1])


def reverse(flow: FourTuple) -> FourTuple:
    return FourTuple(flow.remote, flow.remote_port, flow.local, flow.local_port)


class Host:
    """One agent's machine and its kernel's list of subflows."""

    def __init__(self, name: str, policy: Policy, rails: int, seed: int) -> None:
        self.name = name
        self.nics = [
            LocalNic(name=f"nic{rail}", rail=rail, addresses=(address(name, rail),))
            for rail in range(rails)
        ]
        self.machine = Failover(policy, self.nics, seed)
        self.subflows: dict[FourTuple, int] = {}
        """Flow to when it last made progress."""
        self.cancelled: set[FourTuple] = set()
        self.announced: dict[int, str] = {}
        self.actions: list[tuple[int, Instruction]] = []


class World:
    """A simulation; `run` until an instant, look at `hosts`, change `nic_down` and the like."""

    def __init__(
        self,
        seed: int,
        *,
        rails: int = 2,
        policy: Policy | None = None,
        event_loss: float = 0.0,
        lossy: bool = False,
        blind: bool = False,
        timers: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.lossy = lossy
        """Whether every flow loses a segment now and then and goes on."""
        self.blind = blind
        """Whether all ports that are watched all the time pass spine 0."""
        self.timers = timers
        """Whether a flow that was silent goes on only when its retransmission timer fires, which
        doubles each time."""
        self.now_ns = 0
        self.event_loss = event_loss
        self.policy = policy or Policy(mode=FailoverMode.ACT)
        self.rails = rails
        other = {"a": "b", "b": "a"}
        self.hosts = {
            name: Host(name, self.policy, rails, seed + number) for number, name in enumerate(HOSTS)
        }
        self.peer = {name: self.hosts[other[name]] for name in HOSTS}
        self.black: set[Pair] = set()
        """(host, nic) whose packets vanish."""
        self.bad_spines: set[int | tuple[int, int]] = set()
        """Of all rails, or (rail, spine)."""
        self.reported: dict[tuple[str, int], bool] = {}
        self.requested_ns: dict[tuple[str, int], int] = {}
        """Flows that are probed only since then."""
        self._all_ns = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()
        for host in self.hosts.values():
            self._plan(host)
        self._establish()
        self._every(SAMPLE_NS, self._sample)
        self._every(5 * MS, self._probe)
        self._every(1 * S, self._forget)

    # --- truth ---

    def dead(self, flow: FourTuple) -> bool:
        """Whether packets of a flow are lost, in either direction."""
        if not self.black and not self.bad_spines:
            return False
        if self.black:
            for text in (flow.local, flow.remote):
                if (host_of(text), f"nic{rail_of(text)}") in self.black:
                    return True
        spine = (flow.local_port + flow.remote_port) % SPINES
        return not self.bad_spines.isdisjoint({spine, (rail_of(flow.local), spine)})

    def living(self, host: str) -> list[FourTuple]:
        """Subflows of the connection that exist at both ends and carry packets."""
        theirs = self.peer[host].subflows
        return [
            flow
            for flow in self.hosts[host].subflows
            if not self.dead(flow) and reverse(flow) in theirs
        ]

    # --- time ---

    def at(self, delay_ns: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_ns + delay_ns, next(self._count), do))

    def run(self, duration_ns: int) -> None:
        end_ns = self.now_ns + duration_ns
        while True:
            awake = [host for host in self.hosts.values() if self.awake(host.name)]
            dues = [(host.machine.next_due_ns(), host) for host in awake]
            due_ns, host = min(
                ((due, host) for due, host in dues if due is not None),
                key=lambda each: each[0],
                default=(end_ns, None),
            )
            event_ns = self._queue[0][0]
            if min(due_ns, event_ns) >= end_ns:
                self.now_ns = end_ns
                return
            if host is not None and due_ns < event_ns:
                self.now_ns = max(self.now_ns, due_ns)
                self.do(host, host.machine.tick(self.now_ns))
            else:
                self.now_ns, _, do = heapq.heappop(self._queue)
                do()

    def awake(self, name: str) -> bool:
        return name in self.hosts

    def _every(self, interval_ns: int, do: Callable[[], None]) -> None:
        def again() -> None:
            do()
            self.at(interval_ns, again)

        self.at(self.random.randrange(interval_ns), again)

    # --- what the kernel and the probes say ---

    def tell(self, host: Host, event: Event, *, may_be_lost: bool = True) -> None:
        if may_be_lost and self.random.random() < self.event_loss:
            return
        self.do(host, host.machine.handle(event))

    def link(self, host: str, nic: str, *, up: bool) -> None:
        rail = int(nic.removeprefix("nic"))
        event = LinkEvent(
            at_ns=self.now_ns, nic=nic, carrier=up, admin_up=up,
            addresses=(address(host, rail),), carrier_down_count=0,
        )  # fmt: skip
        (self.black.discard if up else self.black.add)((host, nic))
        self.tell(self.hosts[host], event, may_be_lost=False)

    def stall(self, host: str, lasted_ns: int) -> None:
        self.tell(self.hosts[host], StallEvent(at_ns=self.now_ns, lasted_ns=lasted_ns))

    def restart(self, name: str) -> None:
        """An agent is killed and comes back: the kernel's subflows are all that is left."""
        host = self.hosts[name]
        host.machine = Failover(self.policy, host.nics, self.random.randrange(1 << 32))
        self._plan(host)
        self._all_ns = self.now_ns  # it lists all there is
        self.at(SAMPLE_NS, self._sample)
        found = events.JobFound(at_ns=self.now_ns + 2 * SAMPLE_NS, token=7, job="train")
        self.at(2 * SAMPLE_NS, lambda: self.tell(host, found, may_be_lost=False))

    def lie(self, host: str, flow_id: int, *, alive: bool) -> None:
        """A probe result that is wrong."""
        self.tell(self.hosts[host], self._liveness(flow_id, alive=alive))

    def _liveness(self, flow_id: int, *, alive: bool) -> LivenessEvent:
        since_ns = max(0, self.now_ns - 25 * MS)
        return LivenessEvent(
            at_ns=self.now_ns, flow_id=flow_id, alive=alive, since_ns=since_ns, misses=5
        )

    def _plan(self, host: Host) -> None:
        other = self.peer[host.name].name
        flows = [
            WatchedFlow(number * 100 + rail * 10 + port, f"nic{rail}", address(other, rail),
                        f"{other}/nic{rail}", rail)
            for number in (1,)
            for rail in range(self.rails)
            for port in range(PORTS_PER_PATH + MORE_PORTS)
        ]  # fmt: skip
        self.do(host, host.machine.watch(flows, 0))
        for flow in flows:
            if flow.flow_id % 10 < PORTS_PER_PATH:
                self.reported[host.name, flow.flow_id] = True
                host.machine.handle(self._liveness(flow.flow_id, alive=True))

    def _ask_more(self, host: Host, pairs: frozenset[Pair]) -> None:
        wanted = {
            100 + int(nic.removeprefix("nic")) * 10 + port
            for nic, _ in pairs
            for port in range(PORTS_PER_PATH, PORTS_PER_PATH + MORE_PORTS)
        }
        for name, flow_id in list(self.requested_ns):
            if name == host.name and flow_id not in wanted:
                del self.requested_ns[name, flow_id]
                self.reported.pop((name, flow_id), None)
        for flow_id in wanted:
            self.requested_ns.setdefault((host.name, flow_id), self.now_ns)
        usual = {
            100 + rail * 10 + port for rail in range(self.rails) for port in range(PORTS_PER_PATH)
        }
        host.machine.health.watch_only(frozenset(wanted | usual), self.now_ns)

    def _probe(self) -> None:
        """Liveness with some detection time: told at one of the next looks that find it so."""
        if not self.black and not self.bad_spines and all(self.reported.values()):
            return
        for (name, flow_id), reported in list(self.reported.items()):
            alive = self._answers(name, flow_id)
            if alive != reported and self.random.random() < 0.4:
                self._tell_life(name, flow_id, alive=alive)
        for (name, flow_id), requested_ns in list(self.requested_ns.items()):
            if (name, flow_id) not in self.reported and self.now_ns >= requested_ns + FOUND_NS:
                self._tell_life(name, flow_id, alive=self._answers(name, flow_id))
        for host in self.hosts.values():
            mine = [flow_id for name, flow_id in self.reported if name == host.name]
            answered = [flow_id for flow_id in mine if self._answers(host.name, flow_id)]
            host.machine.health.revive_answered(
                dict.fromkeys(answered, Reply(self.now_ns)), self.now_ns
            )

    def _answers(self, name: str, flow_id: int) -> bool:
        rail, port = flow_id // 10 % 10, flow_id % 10
        there = address(self.peer[name].name, rail)
        port *= 2 if self.blind and port < PORTS_PER_PATH else 1
        return not self.dead(FourTuple(address(name, rail), 40_000 + port, there, 8620))

    def _tell_life(self, name: str, flow_id: int, *, alive: bool) -> None:
        self.reported[name, flow_id] = alive
        self.tell(self.hosts[name], self._liveness(flow_id, alive=alive), may_be_lost=False)

    def _sample(self) -> None:
        """Both ends always have data under way."""
        if self.now_ns >= self._all_ns + SAMPLE_NS:
            self._all_ns = self.now_ns + ALL_NS
        for host in self.hosts.values():
            for flow in list(host.subflows):
                if not self.dead(flow) and reverse(flow) not in self.peer[host.name].subflows:
                    self._closed(host, flow)  # the peer knows nothing of it: a reset
                    continue
                if not self.dead(flow) and self._fires(host.subflows[flow]):
                    host.subflows[flow] = self.now_ns
                progress_ns = host.subflows[flow]
                silent_ns = self.now_ns - progress_ns
                if not silent_ns and self.now_ns < self._all_ns:
                    continue  # told only now and then, as the agent does
                sample = flow_sample(
                    flow, self.now_ns, token=7, bytes_acked=progress_ns, unacked=5,
                    retransmits=silent_ns // (40 * MS) + self.lossy * progress_ns // SAMPLE_NS,
                    backoff=silent_ns // (200 * MS), last_ack_ns=silent_ns,
                )  # fmt: skip
                self.tell(host, sample)

    def _fires(self, progress_ns: int) -> bool:
        """Whether the timer of a flow has fired since the last look, or never had to."""
        silent_ns = self.now_ns - progress_ns
        if not self.timers or silent_ns < 2 * SAMPLE_NS:
            return True
        due_ns = 200 * MS
        while due_ns < silent_ns - SAMPLE_NS:
            due_ns = 2 * due_ns + 200 * MS
        return due_ns <= silent_ns

    def _forget(self) -> None:
        for host in self.hosts.values():
            self.do(host, host.machine.forget(self.now_ns))

    def _establish(self) -> None:
        flow = FourTuple(address("a", 0), 33_000, address("b", 0), APP_PORT)
        ends = ((self.hosts["a"], flow), (self.hosts["b"], reverse(flow)))
        for host, mine in ends:
            host.subflows[mine] = 0
        for host, mine in ends:
            up = events.ConnectionUp(at_ns=0, token=7, flow=mine, accepted=host.name == "b")
            self.tell(host, up, may_be_lost=False)
            job = events.JobFound(at_ns=0, token=7, job="train")
            self.tell(host, job, may_be_lost=False)

    # --- what the kernel does ---

    def do(self, host: Host, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            host.actions.append((self.now_ns, instruction))
            self._do(host, instruction)

    def _do(self, host: Host, instruction: Instruction) -> None:
        match instruction:
            case Create(flow=flow, local_id=local_id):
                self.at(WIRE_NS, lambda: self._join(host, flow, local_id))
            case Destroy(flow=flow):
                host.cancelled.add(flow)
                host.subflows.pop(flow, None)
                if not self.dead(flow):
                    self.at(WIRE_NS, lambda: self._closed(self.peer[host.name], reverse(flow)))
            case Announce(address=text, port=port, local_id=local_id):
                host.announced[local_id] = text
                self._send(host, events.AddressAnnounced(
                    at_ns=self.now_ns, token=7, remote_id=local_id, address=text, port=port
                ))  # fmt: skip
            case Withdraw(local_id=local_id):
                if host.announced.pop(local_id, None) is None:
                    self.at(0, lambda: self.tell(
                        host, KernelRefusal(at_ns=self.now_ns, instruction=instruction, errno=22)
                    ))  # fmt: skip
                    return
                self._send(host, events.AddressWithdrawn(
                    at_ns=self.now_ns, token=7, remote_id=local_id
                ))  # fmt: skip
            case WatchPaths(suspect=suspect, partial=partial):
                self._ask_more(host, suspect | partial)
            case _:
                pass

    def _send(self, host: Host, event: events.AddressEvent) -> None:
        """Goes over the first living subflow, if there is one."""
        if self.living(host.name):
            self.at(WIRE_NS, lambda: self._arrive(self.peer[host.name], event))

    def _arrive(self, host: Host, event: events.AddressEvent) -> None:
        """The peer's kernel ends subflows to a withdrawn address that it was joined at."""
        if isinstance(event, events.AddressWithdrawn):
            self.tell(host, events.AddressWithdrawn(
                at_ns=self.now_ns, token=7, remote_id=event.remote_id
            ))  # fmt: skip
        else:
            self.tell(host, events.AddressAnnounced(
                at_ns=self.now_ns, token=7, remote_id=event.remote_id,
                address=event.address, port=event.port,
            ))  # fmt: skip

    def _join(self, host: Host, flow: FourTuple, local_id: int) -> None:
        peer = self.peer[host.name]
        if self.dead(flow) or flow in host.cancelled:
            return
        if flow.remote_port != APP_PORT and flow.remote not in peer.announced.values():
            return  # the kernel resets joins at ports it has not announced
        for end, mine in ((host, flow), (peer, reverse(flow))):
            end.subflows[mine] = self.now_ns
            self.tell(end, events.SubflowUp(
                at_ns=self.now_ns, token=7, flow=mine, local_id=local_id, remote_id=0
            ))  # fmt: skip

    def _closed(self, host: Host, flow: FourTuple) -> None:
        if host.subflows.pop(flow, None) is not None:
            self.tell(host, events.SubflowDown(at_ns=self.now_ns, token=7, flow=flow, error=0))


def moves(world: World, since_ns: int = 0) -> list[Instruction]:
    """Creations and destructions, both hosts together."""
    return [
        instruction
        for host in world.hosts.values()
        for at_ns, instruction in host.actions
        if at_ns >= since_ns and isinstance(instruction, Create | Destroy)
    ]


def notes(world: World, since_ns: int = 0) -> list[Note]:
    return [
        instruction
        for host in world.hosts.values()
        for at_ns, instruction in host.actions
        if at_ns >= since_ns and isinstance(instruction, Note)
    ]
