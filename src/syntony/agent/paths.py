"""Learns which way this host's flows and its replies go, on a thread of its own.

Probe flows by the plan; and, where jobs may be moved between paths, TCP: what jobs use now, and
from which source ports which paths can be had.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

import numpy as np

from syntony.fabric.learn import BURST, INTERVAL_NS, FlowKey, Learnt, PathLearner
from syntony.io.process import name_thread
from syntony.io.trace_packets import is_ipv6
from syntony.io.traceroute import Traceroute
from syntony.mesh.stats import Columns
from syntony.model import S
from syntony.model.paths import FourTuple
from syntony.wire.probes import ProbeFlow

SILENT = "*"
_IDLE_S = 0.5
_TURN_S = BURST * INTERVAL_NS / S
"""Between two looks while anything is asked: to wake costs more than to ask, so as many packets go
at a time as may."""
_HURRY_NS = 2 * S
"""Paths that jobs have just begun to use are learnt packet by packet for so long."""
CONFIRMED_NS = 5 * S
"""Paths that are as they were are reported together, this often; what has changed, at once."""
PAIR_NS = 600 * S
"""Spare ways of a pair are kept in mind for so long after a job has used it: jobs come again."""
MAX_WAITING = 20_000
"""Learnt paths that wait to be reported; a plan's worth of the largest host."""


class PathTracer:
    """`plan` and `rows` serve the agent's loop; the thread does the rest. Until `start` paths stay
    unknown, and blame stays at the level of groups.

    Args:
        host: this host.
        spare_ports: TCP source ports whose paths to the `join_port` of jobs' peers are learnt.
        join_port: where peers are joined.
    """

    def __init__(
        self,
        host: str,
        *,
        spare_ports: range = range(0),
        join_port: int = 0,
    ) -> None:
        self._host = host
        self._addresses: dict[str, str] = {}
        self._spare_ports = spare_ports
        self._join_port = join_port
        self._lock = threading.Lock()
        self._learner = PathLearner()
        self._peers: dict[str, str] = {}
        self._probed: dict[tuple[str, str, int], FlowKey] = {}
        """(NIC, peer, source port), NICs as ``host/nic``, to the flow."""
        self._learnt: list[Learnt] = []
        self._confirm_ns = self._hurry_until_ns = 0
        self._followed: frozenset[FlowKey] = frozenset()
        self._pairs: dict[tuple[str, str, str], int] = {}
        """(NIC, its address, peer's) to when a job last used it."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._traceroute: Traceroute | None = None
        self.fault: Exception | None = None
        """What ended the thread."""

    def start(self, addresses: dict[str, str]) -> None:
        """Begin to ask, or again, from these addresses.

        Args:
            addresses: NIC to its probed address; none: nothing is asked.

        Raises:
            MissingError: raw sockets are not allowed, or an address is not this host's.
        """
        self.close()
        self._addresses = dict(addresses)
        if not addresses:
            return
        self._traceroute = Traceroute(addresses)
        self._stop.clear()
        self.fault = None
        self._thread = threading.Thread(target=self._run, name="path-tracer", daemon=True)
        self._thread.start()

    def plan(self, flows: Sequence[ProbeFlow], probe_port: int) -> None:
        """Learn these flows, and the replies to the same flows of their targets."""
        keys = [
            _probe_key(flow, self._addresses[flow.src], sport, dport)
            for flow in flows
            if flow.src in self._addresses
            for sport, dport in ((flow.src_port, flow.dst_port), (probe_port, flow.src_port))
        ]
        probed = {
            (f"{self._host}/{flow.src}", flow.dst, flow.src_port): _probe_key(
                flow, self._addresses[flow.src], flow.src_port, flow.dst_port
            )
            for flow in flows
            if flow.src in self._addresses
        }
        with self._lock:
            self._probed = probed
            self._peers = {flow.dst_addr: flow.dst for flow in flows}
            self._learner.plan(keys)

    def doubt(self, probes: Columns, now_ns: int) -> None:
        """Ask again for the paths of flows that lost probes on the way out, or nobody knows where.

        Args:
            probes: `probe_1s` rows of this host's own flows.
            now_ns: CLOCK_MONOTONIC.
        """
        lost = np.asarray(probes["lost"]) + np.asarray(probes["unresolved"]) > 0
        with self._lock:
            named = (
                (str(probes["src"][k]), str(probes["dst"][k]), int(probes["sport"][k]))
                for k in np.flatnonzero(lost).tolist()
            )
            known = [self._probed[name] for name in named if name in self._probed]
            self._learner.doubt(known, now_ns)

    def follow(self, flows: Iterable[tuple[str, FourTuple]], now_ns: int) -> None:
        """What jobs use now, by NIC: learnt first, and then where else the same pairs could go.

        Args:
            flows: NIC and flow.
            now_ns: CLOCK_MONOTONIC.
        """
        keys = [_key(nic, flow) for nic, flow in flows if nic in self._addresses]
        # A NIC asks by the family that it is probed by.
        keys = [key for key in keys if is_ipv6(key.src) == is_ipv6(self._addresses[key.nic])]
        if not self._followed.issuperset(keys):
            self._hurry_until_ns = now_ns + _HURRY_NS
        self._followed = frozenset(keys)
        self._pairs |= dict.fromkeys(((key.nic, key.src, key.dst) for key in keys), now_ns)
        self._pairs = {pair: at for pair, at in self._pairs.items() if now_ns - at < PAIR_NS}
        with self._lock:
            self._learner.follow(keys, self._spare())

    def _spare(self) -> list[FlowKey]:
        """Both ways: what we would send from a spare port, and what we would answer to one."""
        return [
            FlowKey(*pair, *ports, "tcp")
            for port in self._spare_ports
            for pair in self._pairs
            for ports in ((port, self._join_port), (self._join_port, port))
        ]

    def peers(self, addresses: Iterable[str]) -> frozenset[str]:
        """NICs (``host/nic``) of the plan by their addresses."""
        with self._lock:
            return frozenset(self._peers[each] for each in addresses if each in self._peers)

    def hops(self, nic: str, flow: FourTuple) -> tuple[str, ...]:
        """Who forwards what we send on a TCP flow, by address; empty: not known (yet)."""
        with self._lock:
            return self._learner.hops(_key(nic, flow)) or ()

    def rows(self, fleet_ns: int, now_ns: int) -> Columns | None:
        """`path_learnt` rows of paths that were learnt and not yet reported.

        Args:
            fleet_ns: fleet time.
            now_ns: CLOCK_MONOTONIC at the same instant.
        """
        with self._lock:
            changed = any(each.changed for each in self._learnt)
            if not self._learnt or (fleet_ns < self._confirm_ns and not changed):
                return None
            self._confirm_ns = fleet_ns + CONFIRMED_NS
            # Of one path the newest word only.
            learnt = {each.flow: each for each in self._learnt}.values()
            self._learnt = []
            # Jobs talk to peers that nobody probes: those go by their addresses.
            known = [e for e in learnt if e.flow.proto == "tcp" or e.flow.dst in self._peers]
            peers = [self._peers.get(each.flow.dst, each.flow.dst) for each in known]
        if not known:
            return None
        return {
            "ts_ns": np.array([each.at_ns for each in known], dtype=np.int64) + (fleet_ns - now_ns),
            "src": [f"{self._host}/{each.flow.nic}" for each in known],
            "dst": peers,
            "sport": np.array([each.flow.sport for each in known], dtype=np.uint16),
            "dport": np.array([each.flow.dport for each in known], dtype=np.uint16),
            "hops": [" ".join(hop or SILENT for hop in each.hops) for each in known],
            "proto": [each.flow.proto for each in known],
        }

    def close(self) -> None:
        """Stop asking."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._traceroute is not None:
            self._traceroute.close()
            self._traceroute = None

    def _run(self) -> None:
        name_thread("path-tracer")
        try:
            self._ask()
        except Exception as error:  # noqa: BLE001 — supervisor: the agent's loop starts it again
            self.fault = error

    def _ask(self) -> None:
        wait_s = _TURN_S
        while not self._stop.wait(wait_s):
            now_ns = time.monotonic_ns()
            busy = self._turn(now_ns)
            wait_s = _TURN_S if busy else _IDLE_S
            if busy and now_ns < self._hurry_until_ns:
                wait_s = INTERVAL_NS / S

    def _turn(self, now_ns: int) -> bool:
        """Send what is due, take what has come; whether anything is under way."""
        assert self._traceroute is not None  # noqa: S101 - the thread runs only then
        with self._lock:
            learnt = []
            # First what has come, then what has not: a host short of CPU comes late itself.
            for answer in self._traceroute.receive(now_ns):
                done = self._learner.answer(answer.ask.flow, answer.ask.ttl, answer.address, now_ns)
                learnt += [done] if done is not None else []
            learnt += self._learner.expire(now_ns)
            asks = list(iter(lambda: self._learner.next(now_ns), None))
            self._learnt = (self._learnt + learnt)[-MAX_WAITING:]
            waiting = self._learner.waiting
            checks = [] if asks else self._learner.checks(now_ns)
        for ask in (*asks, *checks):
            self._traceroute.send(ask, now_ns)
        return waiting


def _probe_key(flow: ProbeFlow, src_addr: str, sport: int, dport: int) -> FlowKey:
    """A probe's way, or its reply's, which has the same label."""
    label = flow.flow_label if is_ipv6(src_addr) else 0
    return FlowKey(flow.src, src_addr, flow.dst_addr, sport, dport, label=label)


def _key(nic: str, flow: FourTuple) -> FlowKey:
    return FlowKey(nic, flow.local, flow.remote, flow.local_port, flow.remote_port, "tcp")
