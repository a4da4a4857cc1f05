"""Learns the paths of this host's flows and of its replies, in a separate thread.

These are probe flows by the plan and, if jobs may be moved between paths, TCP: flows that jobs use
now, and the paths available from which source ports.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

import numpy as np

from syntony.fabric.learn import (
    BURST,
    FIRST_NS,
    INTERVAL_NS,
    FlowKey,
    PathLearner,
    TracedPath,
)
from syntony.io.process import name_thread
from syntony.io.trace_packets import is_ipv6
from syntony.io.traceroute import Traceroute
from syntony.mesh.stats import Columns
from syntony.model import S
from syntony.model.paths import FourTuple
from syntony.wire.probes import ProbeFlow

SILENT = "*"
_IDLE_S = 0.5
_FAST_NS = 2 * S
"""For this long, paths that jobs have just begun to use are learnt packet by packet."""
CONFIRMED_NS = 5 * S
"""Interval of reporting unchanged paths together; changes are reported at once."""
PAIR_NS = 600 * S
"""Spare paths of a pair are kept for this long after a job has used it: jobs return."""
MAX_WAITING = 20_000
"""Traced paths that wait to be reported: as many as the largest host's plan has."""


class PathTracer:
    """`plan` and `rows` serve the agent's loop; the thread does the rest. Until `start` paths stay
    unknown, and localisation names groups.

    Args:
        spare_ports: TCP source ports whose paths to the `join_port` of jobs' peers are learnt.
        join_port: the port for joins at peers.
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
        """(NIC, peer, source port), NICs as ``host/nic`` → the flow."""
        self._learnt: list[TracedPath] = []
        self._confirm_ns = self._fast_until_ns = 0
        self._followed: frozenset[FlowKey] = frozenset()
        self._pairs: dict[tuple[str, str, str], int] = {}
        """(NIC, its address, peer's) → when a job last used it."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._traceroute: Traceroute | None = None
        self.fault: Exception | None = None
        """The error that ended the thread."""

    def start(self, addresses: dict[str, str]) -> None:
        """Begin to trace, or restart, from these addresses.

        Args:
            addresses: NIC → its probed address; empty: nothing is traced.

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

    def plan(
        self, flows: Sequence[ProbeFlow], probe_port: int, first_ns: int = INTERVAL_NS
    ) -> None:
        """Learn these flows, and the replies to the same flows of their targets.

        Args:
            flows: of the plan.
            probe_port: from which this host replies.
            first_ns: interval of packets while paths are unknown.
        """
        # One path of every pair first: each pair's length, and each switch early.
        keys = [
            _probe_key(flow, self._addresses[flow.src], sport, dport)
            for flow in sorted(flows, key=lambda flow: flow.src_port)
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
            self._learner.plan(keys, min(max(first_ns, FIRST_NS), INTERVAL_NS))

    def retrace(self, probes: Columns, now_ns: int) -> None:
        """Trace again flows that lost probes on the way out, or in an unknown direction.

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
            self._learner.suspect(known, now_ns)

    def follow(self, flows: Iterable[tuple[str, FourTuple]], now_ns: int) -> None:
        """Set the flows that jobs use now, by NIC: learnt first, and then alternatives for the same
        pairs.

        Args:
            flows: NIC and flow.
            now_ns: CLOCK_MONOTONIC.
        """
        keys = [_key(nic, flow) for nic, flow in flows if nic in self._addresses]
        # A NIC traces in the address family in which it is probed.
        keys = [key for key in keys if is_ipv6(key.src) == is_ipv6(self._addresses[key.nic])]
        if not self._followed.issuperset(keys):
            self._fast_until_ns = now_ns + _FAST_NS
        self._followed = frozenset(keys)
        self._pairs |= dict.fromkeys(((key.nic, key.src, key.dst) for key in keys), now_ns)
        self._pairs = {pair: at for pair, at in self._pairs.items() if now_ns - at < PAIR_NS}
        with self._lock:
            self._learner.follow(keys, self._spare())

    def _spare(self) -> list[FlowKey]:
        """Both directions: what we would send from a spare port, and how we would answer to one."""
        return [
            FlowKey(*pair, *ports, "tcp")
            for port in self._spare_ports
            for pair in self._pairs
            for ports in ((port, self._join_port), (self._join_port, port))
        ]

    def peers(self, addresses: Iterable[str]) -> frozenset[str]:
        """NICs (``host/nic``) of the plan by address."""
        with self._lock:
            return frozenset(self._peers[each] for each in addresses if each in self._peers)

    def hops(self, nic: str, flow: FourTuple) -> tuple[str, ...]:
        """Addresses of the hops of a TCP flow from here; empty: unknown (yet)."""
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
            # Only the newest report of one path.
            learnt = {each.flow: each for each in self._learnt}.values()
            self._learnt = []
            # Jobs' peers that are not probed are named by their addresses.
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
        wait_s = _IDLE_S
        while not self._stop.wait(wait_s):
            now_ns = time.monotonic_ns()
            busy = self._turn(now_ns)
            # Waking up costs more than sending, so many packets are sent at a time.
            wait_s = BURST * self._learner.interval_ns / S if busy else _IDLE_S
            if busy and now_ns < self._fast_until_ns:
                wait_s = INTERVAL_NS / S

    def _turn(self, now_ns: int) -> bool:
        """Send what is due, read answers; returns whether any are pending."""
        assert self._traceroute is not None  # noqa: S101 - the thread runs only then
        with self._lock:
            learnt = []
            # First read answers, then time out: a host short of CPU reads late.
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
    """A probe's direction, or that of its reply, which has the same label."""
    label = flow.flow_label if is_ipv6(src_addr) else 0
    return FlowKey(flow.src, src_addr, flow.dst_addr, sport, dport, label=label)


def _key(nic: str, flow: FourTuple) -> FlowKey:
    return FlowKey(nic, flow.local, flow.remote, flow.local_port, flow.remote_port, "tcp")
