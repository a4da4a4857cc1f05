"""Two hosts whose agents are there, and get processor time late and in small pieces.

Packets wait in sockets meanwhile: what a peer asked is answered when the probe engine's thread has
run again, at one NIC after the other, and answers are read as late. The thread that controls paths
is another one, and may be late by itself.
"""

from __future__ import annotations

import math

from tests.traffic.network import Host
from tests.traffic.silent_agents import Agent, SilentWorld, Watched

from syntony.model import MS
from syntony.model.paths import FlowSample, StallEvent
from syntony.traffic.failover import Event
from syntony.traffic.pair_timeouts import PAUSE_NS

LONGEST_MS, RUNS_MS, UNFAIR_MS, STEP_MS = 900, 200, 150, 2_000
THIRDS = 200
"""From this number on, flows are to the third host, which never starves."""


class StarvedWorld(SilentWorld):
    """`starved` are the hosts without processor time."""

    def __init__(self, seed: int, *, third: bool = False, rails: int = 2) -> None:
        self.starved: set[str] = set()
        self.control_ns = dict.fromkeys("ab", 0)
        """Until then the thread that controls paths is not scheduled."""
        self.read_ns = {(host, rail): 0 for host in "ab" for rail in range(rails)}
        """Until then nothing that has come to a NIC is read."""
        super().__init__(seed, third=third, rails=rails)
        for host in self.hosts:
            self._run_a_while(host)
        self._step()

    def _step(self) -> None:
        """The job computes, or starves as well; nothing is sent meanwhile."""
        self.idle = bool(self.starved) and not self.idle
        self.at(self._drawn_ns(STEP_MS), self._step)

    def awake(self, name: str) -> bool:
        return super().awake(name) and self.now_ns >= self.control_ns[name]

    def tell(self, host: Host, event: Event, *, may_be_lost: bool = True) -> None:
        if self.now_ns >= self.control_ns[host.name]:
            super().tell(host, event, may_be_lost=may_be_lost)
        elif not isinstance(event, FlowSample):
            self.at(self.control_ns[host.name] - self.now_ns, lambda: self.tell(host, event))

    def _run_a_while(self, name: str) -> None:
        self.at(self._drawn_ns(RUNS_MS), lambda: self._pause(name))

    def _drawn_ns(self, most_ms: int) -> int:
        """Small ones as often as large ones."""
        return int(math.exp(self.random.uniform(0, math.log(most_ms))) * MS)

    def _pause(self, name: str) -> None:
        if name not in self.starved:
            self._run_a_while(name)
            return
        pause_ns = self._drawn_ns(LONGEST_MS)
        engine = self.random.random() < 0.8
        if not engine or self.random.random() < 0.6:
            self._stop_control(name, pause_ns)
        end_ns = pause_ns
        if engine:
            most_ns = min(pause_ns, UNFAIR_MS * MS) * self.random.choice([0, 0, 1])
            end_ns = self._stop_engine(name, pause_ns, most_ns)
        self.at(end_ns, lambda: self._run_a_while(name))

    def pause(self, name: str, pause_ns: int) -> None:
        """All threads of a reactor, as by SIGSTOP; its NICs are read one after the other then."""
        self._stop_control(name, pause_ns)
        self._stop_engine(name, pause_ns, UNFAIR_MS * MS)

    def _stop_control(self, name: str, pause_ns: int) -> None:
        self.control_ns[name] = self.now_ns + pause_ns
        self.at(pause_ns, lambda: self._control_is_back(name, pause_ns))

    def _stop_engine(self, name: str, pause_ns: int, most_ns: int) -> int:
        """Returns when all NICs have been read, up to `most_ns` after the pause."""
        end_ns = pause_ns
        for rail in self.random.sample(range(self.rails), self.rails):
            self.read_ns[name, rail] = self.now_ns + end_ns
            end_ns += self.random.randrange(most_ns // self.rails + 1)
        self.agents[name].paused_ns = self.now_ns + end_ns
        self.at(end_ns, lambda: self._engine_is_back(name, end_ns))
        return end_ns

    def _engine_is_back(self, name: str, paused_ns: int) -> None:
        """Its own silence is not counted."""
        for each in self.agents[name].flows.values():
            each.awake_ns += paused_ns

    def _control_is_back(self, name: str, late_ns: int) -> None:
        agent, host = self.agents[name], self.hosts[name]
        agent.path_corroboration.note_wakeup(late_ns, self.now_ns)
        if late_ns >= PAUSE_NS:
            agent.path_corroboration.note_pause(self.now_ns)
            self.do(host, host.machine.handle(StallEvent(at_ns=self.now_ns, lasted_ns=late_ns)))

    def _turn(self, host: Host) -> None:
        if self.now_ns >= self.control_ns[host.name]:
            super()._turn(host)

    def _unread_ns(self, name: str, flow_id: int) -> int:
        there_ns = self.read_ns[self.peer[name].name, flow_id // 10 % 10]
        return max(0, there_ns - self.now_ns) if flow_id < THIRDS else 0

    def _answer(self, agent: Agent, flow_id: int, watched: Watched, sent_ns: int) -> None:
        unread_ns = self.read_ns[agent.host.name, flow_id // 10 % 10] - self.now_ns
        if unread_ns <= 0:
            super()._answer(agent, flow_id, watched, sent_ns)
            return
        self.at(unread_ns, lambda: self._answer(agent, flow_id, watched, sent_ns))
