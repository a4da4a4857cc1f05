"""How soon a dead path is noticed, by which evidence; how often one is that is not dead.

    .venv/bin/python -m bench.detect [--injections 50] [--quiet-s 600] [--hog-s 60] [--json]
    .venv/bin/python -m bench.detect --quick

The default lab's fabric without agents. Host h0 watches eight paths to h3 (two rails, four source
ports each, 2 ms), its carriers, and four TCP connections of iperf3 over rail 0, sampled each 10 ms.
*Loaded* means that those are unlimited, so that the shapers' queues (20 ms each) are full; else
they send 20 Mb/s together; *hogs* is loaded beside two busy loops for each processor. A latency is
told from the instant at which packets stop, as the kernel of the switch tells it (`bench.instant`).
Silence is what the evidence itself saw: from the last answer to the verdict. Evidence: the carrier;
*liveness*, one path by its own probes; *pair*, the engine's word on all paths between two NICs, one
of the things that agents weigh (`bench.verdicts` has their verdicts); *flow*, one connection by its
acknowledgements.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from bench.hogs import hogs
from bench.instant import Instants, switch_of, watching
from tests.live import LiveLab, eventually, live

from syntony.io.carrier import CarrierWatch
from syntony.io.clocks import KernelClock
from syntony.io.probe import ProbeEngine
from syntony.io.probe_records import PeerKeys, ProbeNic
from syntony.io.tcp_flows import TcpFlows
from syntony.lab.plan import FabricSpec, make_plan
from syntony.lab.world import allow_realtime
from syntony.model import MS, S
from syntony.model.paths import FlowSample
from syntony.traffic.connection import Subflow, SubflowState
from syntony.traffic.policy import Policy
from syntony.wire.probes import ProbeFlow

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = (1, b"bench-detect-key")
PORT, FLOW_PORT, SOURCE_PORT = 8620, 5201, 41000
SOURCE, TARGET = "h0", "h3"
PORTS_PER_RAIL = 4
SAMPLE_NS = 10 * MS
STALL_NS = 5 * MS
"""Looking later than this after it was meant to: the watcher was not scheduled."""
POLICY = Policy()
FIND_NS = 500 * MS
PATIENCE_S = 1.5
PLAN = make_plan(FabricSpec(hosts=4))
FAULTS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "carrier": ("link-down", f"{SOURCE}/rail0", {"side": "leaf"}, "carrier"),
    "black-hole": ("blackhole", f"{SOURCE}/rail0", {}, "liveness"),
    "one way out": ("blackhole", f"{SOURCE}/rail0", {"direction": "from"}, "liveness"),
    "one way in": ("blackhole", f"{SOURCE}/rail0", {"direction": "to"}, "liveness"),
    "spine": ("blackhole", "leaf0-0/spine0", {}, "flow"),
}
"""What is injected, and the evidence that must come."""
SOURCES = ("carrier", "liveness", "pair", "flow")
MODES = ("light", "loaded", "hogs")
HOGS_PER_CPU, HOG_NICENESS = 2, 10


# --- inside a host --------------------------------------------------------------------------------


def nic_of(host: str, rail: int) -> ProbeNic:
    number = PLAN.hosts.index(host) * PLAN.spec.rails + rail + 1
    address = PLAN.link(f"{host}/rail{rail}").a.ipv4
    return ProbeNic(name=f"rail{rail}", nic_id=number, address=address, port=PORT)


def open_engine(host: str) -> ProbeEngine:
    nics = [nic_of(host, rail) for rail in range(PLAN.spec.rails)]
    engine = ProbeEngine(nics, KernelClock(host))
    engine.set_peers(dict.fromkeys(range(1, 4096), PeerKeys(KEY)))
    engine.start()
    return engine


def watched_paths() -> list[ProbeFlow]:
    return [
        ProbeFlow(
            flow_id=rail * PORTS_PER_RAIL + port,
            src=f"rail{rail}",
            dst=f"{TARGET}/rail{rail}",
            dst_nic_id=nic_of(TARGET, rail).nic_id,
            dst_addr=nic_of(TARGET, rail).address,
            dst_port=PORT,
            src_port=SOURCE_PORT + port,
            interval_ns=2 * MS,
        )
        for rail in range(PLAN.spec.rails)
        for port in range(PORTS_PER_RAIL)
    ]


class Detector:
    """All evidence of one host, each change one line of JSON."""

    def __init__(self) -> None:
        self._engine = open_engine(SOURCE)
        self._engine.watch(watched_paths())
        self._carrier = CarrierWatch(["rail0", "rail1"])
        self._flows = TcpFlows()
        self._rows = self._flows.find()
        self._judges: dict[int, Subflow] = {}
        self._carriers: dict[str, bool] = {}
        self._unresponsive: set[int] = set()
        self._stalled: set[int] = set()
        self._find_ns = self._sample_ns = 0

    def run(self) -> None:
        """Until standard input ends."""
        poller = select.epoll()
        for descriptor in (self._engine.liveness_fd(), self._carrier.fileno(), sys.stdin.fileno()):
            poller.register(descriptor, select.EPOLLIN | select.EPOLLHUP)
        while True:
            due_ns = self._sample_ns
            ready = poller.poll(max(0, due_ns - time.monotonic_ns()) / S)
            if any(descriptor == sys.stdin.fileno() for descriptor, _ in ready):
                return
            now_ns = time.monotonic_ns()
            if due_ns and now_ns - due_ns > STALL_NS:
                for judge in self._judges.values():
                    judge.excuse(now_ns)
            self._tell_liveness()
            self._tell_carriers(now_ns)
            if now_ns >= self._sample_ns:
                self._sample_ns = now_ns + SAMPLE_NS
                self._tell_flows(now_ns)

    def _tell_liveness(self) -> None:
        for event in self._engine.liveness():
            silent_ns = event.at_ns - event.since_ns
            tell("liveness", event.at_ns, f"path {event.flow_id}", event.alive, silent_ns)
        now_ns = time.monotonic_ns()
        watched = self._engine.watched()
        unresponsive = {each.flow_id // PORTS_PER_RAIL for each in watched if each.unresponsive}
        for rail in sorted(unresponsive ^ self._unresponsive):
            paths = [each for each in watched if each.flow_id // PORTS_PER_RAIL == rail]
            silent_ns = now_ns - max(each.heard_ns for each in paths)
            tell("pair", now_ns, f"rail {rail}", rail not in unresponsive, silent_ns)
        self._unresponsive = unresponsive

    def _tell_carriers(self, now_ns: int) -> None:
        for event in self._carrier.poll(now_ns):
            if self._carriers.get(event.nic) != event.carrier:
                self._carriers[event.nic] = event.carrier
                tell("carrier", now_ns, event.nic, event.carrier)

    def _tell_flows(self, now_ns: int) -> None:
        if now_ns >= self._find_ns:
            self._find_ns = now_ns + FIND_NS
            found = self._flows.find([nic_of(SOURCE, 0).address])
            self._rows = found[found["remote_port"] == FLOW_PORT].copy()
        else:
            self._flows.sample(self._rows)
        for sample in self._flows.samples(self._rows, now_ns):
            self._judge(sample)

    def _judge(self, sample: FlowSample) -> None:
        port = sample.flow.local_port
        judge = self._judges.setdefault(
            port, Subflow(sample.flow, None, SubflowState.UP, sample.at_ns)
        )
        silent_ns = sample.at_ns - judge.acked_ns
        judge.take(sample, POLICY)
        good = judge.stalled is None
        if good == (port in self._stalled):  # told otherwise before, if we were not late meanwhile
            (self._stalled.discard if good else self._stalled.add)(port)
            tell("flow", sample.at_ns, f"port {port}", good, silent_ns)


def tell(source: str, at_ns: int, what: str, good: bool, silent_ns: int = 0) -> None:
    event = {"source": source, "at_ns": at_ns, "what": what, "good": good, "silent_ns": silent_ns}
    print(json.dumps(event), flush=True)


def reflect() -> None:
    with open_engine(TARGET):
        sys.stdin.read()


# --- outside --------------------------------------------------------------------------------------


class Ears:
    """Reads what the detector tells."""

    def __init__(self, stream: IO[str]) -> None:
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.bad: set[tuple[str, str]] = set()
        self.heard: list[dict[str, Any]] = []
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(json.loads(line))

    def take(self, wait_s: float = 0.0) -> None:
        end = time.monotonic() + wait_s
        while True:
            try:
                event = self._lines.get(timeout=max(0.0, end - time.monotonic()) or 0.001)
            except queue.Empty:
                return
            self.heard.append(event)
            key = (event["source"], event["what"])
            (self.bad.discard if event["good"] else self.bad.add)(key)

    def well(self) -> bool:
        """Whether all that was told bad has been told good again."""
        self.take(0.05)
        return not self.bad

    def first_bad(self, source: str) -> dict[str, Any] | None:
        reported = [e for e in self.heard if e["source"] == source and not e["good"]]
        return min(reported, key=lambda event: int(event["at_ns"]), default=None)


@contextmanager
def process(lab: LiveLab, host: str, *command: str) -> Iterator[subprocess.Popen[str]]:
    running = subprocess.Popen(
        lab.enter_argv(host, command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield running
    finally:
        os.killpg(running.pid, signal.SIGKILL)  # it, and what nsenter has started
        running.wait()


def own(role: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "bench.detect", "--role", role)


@contextmanager
def listening(lab: LiveLab, loaded: bool) -> Iterator[Ears]:
    """Traffic and detector, once all is well."""
    rate = "0" if loaded else "5M"
    target, source = nic_of(TARGET, 0).address, nic_of(SOURCE, 0).address
    client = ["iperf3", "-c", target, "-B", source, "-P", "4", "-b", rate, "-t", "36000"]
    with (
        process(lab, TARGET, "iperf3", "-s", "-i", "0"),
        process(lab, TARGET, *own("reflector")),
    ):
        time.sleep(1.0)
        with (
            process(lab, SOURCE, *client, "-i", "0"),
            process(lab, SOURCE, *own("detector")) as detector,
        ):
            ears = Ears(cast("IO[str]", detector.stdout))
            time.sleep(3.0)
            eventually(ears.well, "all paths well")
            yield ears


def node_of(name: str) -> str:
    """Where a fault is made."""
    return switch_of(PLAN.link(FAULTS[name][1]))


def inject(lab: LiveLab, ears: Ears, instants: Instants, name: str) -> dict[str, float | None]:
    """Latencies in ms by source of evidence, and how long putting the fault in took."""
    kind, target, options, must = FAULTS[name]
    ears.take(random.uniform(0.1, 0.3))
    ears.heard.clear()
    before_ns = time.monotonic_ns()
    fault = lab.inject(kind, target, options)
    after_ns = time.monotonic_ns()
    began_ns = instants.since(before_ns)
    end = time.monotonic() + PATIENCE_S
    while ears.first_bad(must) is None and time.monotonic() < end:
        ears.take(0.02)
    ears.take(0.15)  # the other sources' chance
    found: dict[str, float | None] = {"injecting": (after_ns - before_ns) / MS}
    for source in SOURCES:
        first = ears.first_bad(source)
        found[source] = None if first is None else (first["at_ns"] - began_ns) / MS
        found[f"{source} silent"] = None if first is None else first["silent_ns"] / MS
    lab.clear(fault.id)
    try:
        eventually(ears.well, "recovery")
    except TimeoutError as error:
        raise TimeoutError(f"{name}: not well again: {sorted(ears.bad)}") from error
    return found


def latencies(lab: LiveLab, mode: str, injections: int) -> list[dict[str, Any]]:
    rows = []
    busy = HOGS_PER_CPU * (os.cpu_count() or 1) if mode == "hogs" else 0
    with listening(lab, mode != "light") as ears, hogs(busy, HOG_NICENESS), ExitStack() as stack:
        places = {
            node: stack.enter_context(watching(lab, node))
            for node in sorted({node_of(name) for name in FAULTS})
        }
        for name, (_, _, _, must) in FAULTS.items():
            instants = places[node_of(name)]
            found = [inject(lab, ears, instants, name) for _ in range(injections)]
            for source in SOURCES:
                times = [one[source] for one in found if one[source] is not None]
                if not times and source != must:
                    continue
                silent = [one[f"{source} silent"] for one in found if one[source] is not None]
                took = np.array([one["injecting"] for one in found])
                rows.append(
                    {
                        "fabric": mode,
                        "fault": name,
                        "evidence": source,
                        "noticed": f"{len(times)}/{injections}",
                        "injecting_p50_ms": round(float(np.median(took)), 1),
                    }
                    | quantiles("", times)
                    | quantiles("silence_", silent)
                )
                print(rows[-1], file=sys.stderr)
    return rows


def quantiles(prefix: str, times: list[Any]) -> dict[str, Any]:
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    return {
        prefix + name: round(float(np.quantile(times, share)), 1) if any(times) else None
        for name, share in shares.items()
    }


def false_events(lab: LiveLab, loaded: bool, seconds: float, hog_count: int) -> dict[str, Any]:
    with listening(lab, loaded) as ears, hogs(hog_count, HOG_NICENESS):
        ears.heard.clear()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ears.take(min(1.0, max(0.0, end - time.monotonic())))
        wrong = [event for event in ears.heard if not event["good"]]
    counts = {source: sum(event["source"] == source for event in wrong) for source in SOURCES}
    row = {"fabric": "loaded" if loaded else "light", "hogs": hog_count, "seconds": seconds}
    print(row | counts, file=sys.stderr)
    return row | counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--injections", type=int, default=50, help="of each fault")
    parser.add_argument("--quiet-s", type=float, default=600, help="without faults, loaded")
    parser.add_argument("--hog-s", type=float, default=60, help="the same beside busy loops")
    parser.add_argument("--quick", action="store_true", help="4 faults, 10 s of each quiet")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--role", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        Detector().run() if arguments.role == "detector" else reflect()
        return 0
    if arguments.quick:
        arguments.injections, arguments.quiet_s, arguments.hog_s = 4, 10, 10
    cores = os.cpu_count() or 1
    allow_realtime()
    with live(f"bench-{os.getpid()}", "--hosts", "4") as lab:
        rows = [
            row for mode in arguments.modes for row in latencies(lab, mode, arguments.injections)
        ]
        calm = [
            false_events(lab, loaded=False, seconds=arguments.hog_s, hog_count=0),
            false_events(lab, loaded=True, seconds=arguments.quiet_s, hog_count=0),
            false_events(lab, loaded=True, seconds=arguments.hog_s, hog_count=cores),
            false_events(lab, loaded=True, seconds=arguments.hog_s, hog_count=4 * cores),
        ]
    if arguments.json:
        print(json.dumps({"latency": rows, "false": calm}, indent=1))
        return 0
    for table in (rows, calm):
        print("  ".join(f"{name:>12}" for name in table[0]))
        for line in table:
            print("  ".join(f"{value!s:>12}" for value in line.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
