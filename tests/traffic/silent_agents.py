"""Two hosts whose agents die, hang and come back, and whose probes are answered by agents only.

Foreign to what it tests: probes are sent and answered one by one and judged as the engine does, by
each flow's own habit; a job's data get stuck with the path that carries them, and go on over
another one when MPTCP sends them again. The whole of what an agent weighs is at work.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import cast

from tests.traffic.flow_samples import flow_sample
from tests.traffic.network import (
    MORE_PORTS,
    PORTS_PER_PATH,
    WIRE_NS,
    Host,
    Pair,
    World,
    address,
    reverse,
)

from syntony.agent.steering.flows import FlowWatch
from syntony.agent.steering.liveness import LivenessSource
from syntony.agent.steering.path_corroboration import PathCorroboration
from syntony.io.probe_records import WatchStatus
from syntony.model import MS, S
from syntony.model.paths import FourTuple, LivenessEvent, StallEvent
from syntony.traffic.failover import Event
from syntony.traffic.instructions import Destroy, Instruction
from syntony.traffic.pairs import ConnectionProgress, WatchedFlow

TURN_NS = 5 * MS
MISSES, HITS = 4, 3
REINJECTED_NS = 250 * MS
"""After which MPTCP sends again elsewhere what a path has not brought."""
SUSPECT_NS, ALL_NS = 30 * MS, 500 * MS
THIRD = "c"


class Watched:
    """One probed flow, as the engine judges it (native/probe/liveness.c, pair_silence.c)."""

    def __init__(self, pair: Pair, now_ns: int) -> None:
        self.pair = pair
        self.heard_ns = self.awake_ns = now_ns
        self.rtt_ns = 0
        self.life: bool | None = None
        self.hits = self.misses = 0


class Row:
    """When a pair was answered (pair_silence.c)."""

    heard_ns = steady_ns = gap_ns = 0

    def answered(self, now_ns: int, turn_ns: int) -> None:
        if self.heard_ns and now_ns - self.heard_ns > max(20 * MS, 3 * turn_ns):
            self.steady_ns, self.gap_ns = now_ns, now_ns - self.heard_ns
        self.heard_ns = now_ns


class Agent:
    """Of one host: its probes, its weighing, whether it is there."""

    def __init__(self, world: SilentWorld, host: Host) -> None:
        self._world, self.host = world, host
        self.away = False
        self.paused_ns = 0
        """Until then its probe engine's thread is not scheduled."""
        self.flows: dict[int, Watched] = {}
        self.rows: dict[Pair, Row] = defaultdict(Row)
        self.rung = False
        self.path_corroboration = PathCorroboration(host.machine.health, cast("FlowWatch", self))

    # --- a LivenessSource ---

    @property
    def interval_ns(self) -> int:
        return self._world.interval_ns

    def look(self, now_ns: int) -> list[WatchStatus]:
        newest: dict[Pair, int] = {}
        for each in self.flows.values():
            newest[each.pair] = max(newest.get(each.pair, 0), each.heard_ns if each.rtt_ns else 0)
        spacing_ns = self.interval_ns // PORTS_PER_PATH
        return [
            WatchStatus(
                flow_id=flow_id, alive=each.life, heard_ns=each.heard_ns, rtt_ns=each.rtt_ns,
                suspect=now_ns - newest[each.pair] > max(8 * MS, spacing_ns * 3 // 2),
                unresponsive=now_ns - newest[each.pair] > max(20 * MS, 6 * spacing_ns),
                steady_ns=self.rows[each.pair].steady_ns, gap_ns=self.rows[each.pair].gap_ns,
            )
            for flow_id, each in self.flows.items()
        ]  # fmt: skip

    # --- a FlowWatch ---

    def progress(
        self, remotes: Collection[str], now_ns: int, *, anew: bool = False
    ) -> list[ConnectionProgress]:
        del anew
        found = []
        for flow, acked_ns in self.host.subflows.items():
            if flow.remote in remotes:
                waits = self._world.waits_ns(self.host, flow)
                found.append(ConnectionProgress(flow, acked_ns, 2 * MS, waits, streams=True))
        return found


class SilentWorld(World):
    """`kill`, `hang` and `back` are for agents; `answers` of a third host are for all NICs."""

    def __init__(self, seed: int, *, third: bool = False, rails: int = 2) -> None:
        draw = random.Random(f"silent {seed}")
        self.third = third
        self.interval_ns = draw.choice([5, 5, 15, 50]) * MS
        self.slack_ns = {rail: draw.choice([12, 12, 40, 150]) * MS for rail in range(rails)}
        self.queue_ns = {rail: draw.choice([0, 0, 5, 15, 40]) * MS for rail in range(rails)}
        self.agents: dict[str, Agent] = {}
        self.stuck_ns: dict[str, int] = {}
        self.idle = False
        """Whether the job has nothing to send."""
        self.blind_ns = 0
        """For how long, at most, there was no path though one could be."""
        self.wrong: list[tuple[int, str, Destroy]] = []
        self.changed_ns = self.left_ns = self.lived_ns = 0
        super().__init__(seed, rails=rails)
        for name, host in self.hosts.items():
            self._begin(name, host)
        self._every(MS, self._account)

    def _begin(self, name: str, host: Host) -> None:
        self.agents[name] = Agent(self, host)
        host.machine.health.watch_only(frozenset(self._usual()), self.now_ns)
        for flow_id in self._usual():
            self._watch_one(name, flow_id)

    def _usual(self) -> list[int]:
        numbers = (1, 2) if self.third else (1,)
        return [
            number * 100 + rail * 10 + port
            for number in numbers for rail in range(self.rails) for port in range(PORTS_PER_PATH)
        ]  # fmt: skip

    def _plan(self, host: Host) -> None:
        other = self.peer[host.name].name
        last = {1: address(other, 0).rsplit(".", 1)[1]} | ({2: "3"} if self.third else {})
        flows = [
            WatchedFlow(number * 100 + rail * 10 + port, f"nic{rail}", f"10.{rail}.0.{end}",
                        f"{other if number == 1 else THIRD}/nic{rail}", rail)
            for number, end in last.items()
            for rail in range(self.rails)
            for port in range(PORTS_PER_PATH + MORE_PORTS)
        ]  # fmt: skip
        self.do(host, host.machine.watch(flows, self.now_ns))

    # --- agents ---

    def awake(self, name: str) -> bool:
        return name not in self.agents or not self.agents[name].away

    def gone(self, name: str) -> None:
        """Killed, or hung."""
        self.agents[name].away = True
        self.left_ns = self.now_ns

    def back(self, name: str, *, killed: bool) -> None:
        host = self.hosts[name]
        self.agents[name].away = False
        if killed:
            self.restart(name)
            self._begin(name, host)
            return
        away_ns = self.now_ns - self.left_ns
        for each in self.agents[name].flows.values():
            each.awake_ns += away_ns
        self.agents[name].path_corroboration.note_pause(self.now_ns)
        self.do(host, host.machine.handle(StallEvent(at_ns=self.now_ns, lasted_ns=away_ns)))
        self._all_ns = self.now_ns

    def tell(self, host: Host, event: Event, *, may_be_lost: bool = True) -> None:
        if self.awake(host.name):
            super().tell(host, event, may_be_lost=may_be_lost)

    def do(self, host: Host, instructions: Sequence[Instruction]) -> None:
        for each in instructions:
            if (
                isinstance(each, Destroy)
                and each.flow in host.subflows
                and not self.dead(each.flow)
            ):
                mute = self.now_ns - self.changed_ns > S // 2 and each.reason.cause != "surplus"
                if mute and reverse(each.flow) in self.peer[host.name].subflows:
                    self.wrong.append((self.now_ns, host.name, each))
        super().do(host, instructions)

    def _turn(self, host: Host) -> None:
        agent = self.agents[host.name]
        corroborated = agent.path_corroboration.corroborate(
            cast("LivenessSource", agent), self.now_ns
        )
        agent.rung = False
        self.do(
            host,
            host.machine.tick(
                self.now_ns, revived=corroborated.back, presumed=corroborated.presumed
            ),
        )

    def run(self, duration_ns: int) -> None:
        end_ns = self.now_ns + duration_ns
        while self._queue[0][0] < end_ns:
            at_ns, _, do = self._queue[0]
            for host in self.hosts.values():
                due_ns = host.machine.next_due_ns()
                if due_ns is not None and due_ns < at_ns and self.awake(host.name):
                    self.now_ns = max(self.now_ns, due_ns)
                    self._turn(host)
                    break
            else:
                self.now_ns, _, do = heapq.heappop(self._queue)
                do()
        self.now_ns = end_ns

    # --- probes ---

    def _ask_more(self, host: Host, pairs: frozenset[Pair]) -> None:
        more = {
            100 + int(nic.removeprefix("nic")) * 10 + port
            for nic, remote in pairs if not remote.endswith(".3")
            for port in range(PORTS_PER_PATH, PORTS_PER_PATH + MORE_PORTS)
        }  # fmt: skip
        if host.name not in self.agents:
            return
        wanted = more | set(self._usual())
        agent = self.agents[host.name]
        for flow_id in wanted - agent.flows.keys():
            self._watch_one(host.name, flow_id)
        agent.flows = {k: v for k, v in agent.flows.items() if k in wanted}
        host.machine.health.watch_only(frozenset(wanted), self.now_ns)

    def _watch_one(self, name: str, flow_id: int) -> None:
        flow = self.hosts[name].machine.health.plan.flows[flow_id]
        agent, watched = self.agents[name], Watched((flow.nic, flow.remote), self.now_ns)
        agent.flows[flow_id] = watched

        def send() -> None:
            if self.agents[name] is not agent or agent.flows.get(flow_id) is not watched:
                return
            if not agent.away and self.now_ns >= agent.paused_ns:
                watched.misses += 1
                rail = flow_id // 10 % 10
                late_ns = WIRE_NS + self.random.randrange(max(1, self.queue_ns[rail] + MS))
                if self._answers(name, flow_id):
                    sent_ns = self.now_ns
                    late_ns += self._unread_ns(name, flow_id)
                    self.at(late_ns, lambda: self._answer(agent, flow_id, watched, sent_ns))
            self.at(self.interval_ns, send)

        self.at(self.random.randrange(self.interval_ns), send)

    def _answers(self, name: str, flow_id: int) -> bool:
        rail, port = flow_id // 10 % 10, flow_id % 10
        if flow_id >= 200:
            return (name, f"nic{rail}") not in self.black
        peer = self.peer[name].name
        there = address(peer, rail)
        flow = FourTuple(address(name, rail), 40_000 + port, there, 8620)
        return not self.agents[peer].away and not self.dead(flow)

    def _unread_ns(self, name: str, flow_id: int) -> int:
        """How long a probe sent now waits at the peer until its agent reads it."""
        return 0

    def _answer(self, agent: Agent, flow_id: int, watched: Watched, sent_ns: int) -> None:
        if agent.away:
            return
        watched.heard_ns = watched.awake_ns = self.now_ns
        agent.rows[watched.pair].answered(self.now_ns, self.interval_ns // PORTS_PER_PATH)
        watched.rtt_ns = watched.rtt_ns or max(1, self.now_ns - sent_ns)
        watched.rtt_ns += (self.now_ns - sent_ns - watched.rtt_ns) // 16
        watched.hits = watched.hits + 1 if watched.misses <= 2 else 1
        watched.misses = 0
        if watched.life is not True and watched.hits >= HITS:
            watched.life = True
            self._tell(agent, flow_id, watched, alive=True)

    def _probe(self) -> None:
        for agent in self.agents.values():
            if agent.away or self.now_ns < agent.paused_ns:
                continue
            for flow_id, each in list(agent.flows.items()):
                limit_ns = MISSES * self.interval_ns + self.slack_ns[flow_id // 10 % 10]
                if each.life is not False and self.now_ns - each.awake_ns > limit_ns:
                    each.life, each.hits = False, 0
                    self._tell(agent, flow_id, each, alive=False)
            agent.rung = True
            self._turn(agent.host)

    def _tell(self, agent: Agent, flow_id: int, watched: Watched, *, alive: bool) -> None:
        event = LivenessEvent(
            at_ns=self.now_ns, flow_id=flow_id, alive=alive, since_ns=watched.heard_ns,
            misses=watched.misses,
        )  # fmt: skip
        self.tell(agent.host, event, may_be_lost=False)

    # --- data ---

    def _sample(self) -> None:
        everything = self.now_ns >= self._all_ns
        if everything:
            self._all_ns = self.now_ns + ALL_NS
        for host in self.hosts.values():
            theirs = self.peer[host.name].subflows
            for flow in list(host.subflows):
                if not self.dead(flow) and reverse(flow) not in theirs:
                    self._closed(host, flow)
            stuck = [flow for flow in host.subflows if self.dead(flow)]
            if not stuck:
                self.stuck_ns.pop(host.name, None)
            since_ns = self.stuck_ns.setdefault(host.name, self.now_ns) if stuck else 0
            goes_on = not stuck or self.now_ns - since_ns >= REINJECTED_NS
            for flow in list(host.subflows):
                if flow not in host.subflows:
                    continue  # ended meanwhile
                if flow not in stuck and goes_on and not self.idle:
                    host.subflows[flow] = self.now_ns
                silent_ns = self.now_ns - host.subflows[flow]
                waits = flow in stuck
                if not everything and not (waits and silent_ns >= SUSPECT_NS):
                    continue
                self.tell(host, flow_sample(
                    flow, self.now_ns, token=7, bytes_acked=host.subflows[flow], unacked=5 * waits,
                    retransmits=silent_ns // (200 * MS) * waits,
                    backoff=silent_ns // (200 * MS) * waits, last_ack_ns=silent_ns, rtt_ns=2 * MS,
                ))  # fmt: skip

    def waits_ns(self, host: Host, flow: FourTuple) -> int:
        return self.now_ns - host.subflows[flow] if self.dead(flow) else 0

    # --- account ---

    def could(self) -> bool:
        """Whether a rail lives at both ends."""
        return any(
            not {("a", f"nic{rail}"), ("b", f"nic{rail}")} & self.black
            for rail in range(self.rails)
        )

    def _account(self) -> None:
        if self.living("a") or not self.could():
            self.lived_ns = self.now_ns
        self.blind_ns = max(self.blind_ns, self.now_ns - self.lived_ns)

    def black_out(self, host: str, rail: int) -> None:
        self.black.add((host, f"nic{rail}"))
        self.changed_ns = self.now_ns

    def light(self, host: str, rail: int) -> None:
        self.black.discard((host, f"nic{rail}"))
        self.changed_ns = self.now_ns
