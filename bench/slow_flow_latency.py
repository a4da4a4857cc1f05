"""How long a slow flow waits to be named: python -m bench.slow_flow_latency --trials 100

The path from agents' reports to a verdict without the machine: reports every 0.4 s that take a
while to come, seconds of flows as the controller stores them, inserts gathered for 0.5 s, a look
twice a second. Delays of twelve flows scatter, and now and then one is far too long for a second;
one flow is made slow at a random instant. What is printed is waiting by design; a busy machine
comes on top.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import statistics
from typing import Any, NamedTuple

from syntony.controller import ingest
from syntony.controller.flow_table import FlowTable
from syntony.controller.job_flows import JobFlowRecorder
from syntony.io.bundle_files import arrow_tables, bundle_from_tables
from syntony.lab.drill.slow_job import JudgedAnswer, is_named, judged
from syntony.model import MS, S
from syntony.traffic.classes import Classes
from syntony.wire.tables import JOB_FLOW
from syntony.wire.traffic import FlowsReport, FlowView
from syntony.workload import diagnose
from syntony.workload.recorded import recorded

T0 = 1_700_000_000 * S
HOSTS = 4
REPORT_NS, LOOK_NS = 400 * MS, 500 * MS
ALL_NS = 500 * MS
"""Between two looks of the agent at its sockets."""
GATHER_NS = getattr(ingest, "LOCAL_GATHER_NS", ingest.GATHER_NS)
INSERT_NS, ANSWER_NS = 60 * MS, 200 * MS


class Noise(NamedTuple):
    """Of round trips."""

    usual_ns: float
    sigma: float
    """Of their logarithm, from look to look."""
    outliers: float
    """Share of seconds in which a flow waits far longer."""


NOISES = {
    "sockets": Noise(32_000, 0.15, 0.002),
    "pytorch": Noise(760_000, 0.35, 0.02),
    "starved": Noise(1_500_000, 0.6, 0.06),
}
_windows = itertools.count(1)


class Trial:
    """One job: twelve flows, the first of which is slow from `fault_ns` on."""

    def __init__(
        self, noise: Noise, slow_ns: float, seed: int, store_ns: int, *, at_seconds: bool
    ) -> None:
        self.noise, self.slow_ns, self.store_ns = noise, slow_ns, store_ns
        self.at_seconds = at_seconds
        self.draw = random.Random(seed)
        self.fault_ns = T0 + self.draw.randrange(30 * S, 60 * S)
        self.pairs = [(a, b) for a in range(HOSTS) for b in range(HOSTS) if a != b]
        self.usual = [noise.usual_ns * self.draw.uniform(0.8, 1.25) for _ in self.pairs]
        self.bad = {
            (flow, second)
            for flow in range(len(self.pairs))
            for second in range(120)
            if self.draw.random() < noise.outliers
        }
        self.rtt_ns = [float(each) for each in self.usual]
        self.seen_ns = [T0] * len(self.pairs)

    def view(self, flow: int, at_ns: int) -> FlowView:
        """As the agent saw it last: twice a second, the kernel's smoothed round trip."""
        if at_ns - self.seen_ns[flow] >= ALL_NS:
            self.seen_ns[flow] = at_ns
            now = self.usual[flow] * self.draw.lognormvariate(0, self.noise.sigma)
            if (flow, (at_ns - T0) // S) in self.bad:
                now *= self.draw.uniform(3, 12)
            if {*self.pairs[flow]} == {0, 3} and at_ns > self.fault_ns:
                now += 2 * self.slow_ns * min(1.0, (at_ns - self.fault_ns) / S + 0.2)
            self.rtt_ns[flow] = now
        a, b = self.pairs[flow]
        return FlowView(
            job="night", connection="0a", nic="rail0", local=f"10.0.0.{a}", local_port=40_000 + b,
            remote=f"10.0.0.{b}", remote_port=40_000 + a, dialled=True, movable=True, moving=False,
            tx_bps=2_800_000, rx_bps=2_800_000, windows=next(_windows), hops=(),
            rtt_ns=int(self.rtt_ns[flow]), retransmits=0,
        )  # fmt: skip

    def _report(self, host: int, now_ns: int) -> FlowsReport:
        flows = (self.view(flow, now_ns) for flow, (a, _) in enumerate(self.pairs) if a == host)
        return FlowsReport(at_ns=now_ns, flows=tuple(flows), outcomes=(), delays=(), join_port=1)

    def _next_report(self, now_ns: int) -> int:
        next_ns = now_ns + REPORT_NS + self.draw.randrange(100) * MS
        second_ns = (now_ns // S + 1) * S + self.draw.randrange(20) * MS
        return min(next_ns, second_ns) if self.at_seconds else next_ns

    def run(self) -> tuple[list[tuple[int, JudgedAnswer]], tuple[str, str]]:
        """Looks and when each was answered, and what the slow flow's directions are called."""
        now_ns = T0
        table = FlowTable(None, Classes(()))
        table.nics({f"10.0.0.{host}": f"h{host}/rail0" for host in range(HOSTS)})
        recorder = JobFlowRecorder(lambda: now_ns, table)
        events: list[tuple[int, int, str, Any]] = []
        order = itertools.count()

        def at(at_ns: int, what: str, about: Any = None) -> None:
            heapq.heappush(events, (at_ns, next(order), what, about))

        for host in range(HOSTS):
            at(T0 + self.draw.randrange(REPORT_NS), "report", host)
        at(T0 + self.draw.randrange(self.store_ns), "store")
        at(self.fault_ns - 10 * S + self.draw.randrange(LOOK_NS), "look")
        rows: list[dict[str, Any]] = []
        looks: list[tuple[int, JudgedAnswer]] = []
        names = ("h0/rail0:40003>h3/rail0:40000", "h3/rail0:40000>h0/rail0:40003")
        insert_ns = 0
        while events[0][0] < self.fault_ns + 25 * S:
            now_ns, _, what, about = heapq.heappop(events)
            if what == "report":
                arrived = f"h{about}", self._report(about, now_ns)
                at(now_ns + self.draw.randrange(5, 60) * MS, "arrives", arrived)
                at(self._next_report(now_ns), "report", about)
            elif what == "arrives":
                recorder.take(*about)
            elif what == "store":
                if (piece := recorder.step(now_ns)) is not None:
                    # The insert that gathers now, or the next.
                    insert_ns = max(insert_ns, now_ns + self.draw.randrange(GATHER_NS))
                    at(insert_ns + INSERT_NS, "stored", piece.rows.to_pylist())
                at(now_ns + self.store_ns, "store")
            elif what == "stored":
                rows += about
            else:
                looks.append((now_ns + ANSWER_NS, self._look(rows, now_ns)))
                at(now_ns + LOOK_NS, "look")
        return looks, names

    def _look(self, rows: list[dict[str, Any]], now_ns: int) -> JudgedAnswer:
        columns = {column.name: [row[column.name] for row in rows] for column in JOB_FLOW.columns}
        made = recorded("night", {JOB_FLOW.name: columns}, T0, now_ns, now_ns)
        bundle = bundle_from_tables(arrow_tables(made.tables), made.manifest)
        return judged(bundle, diagnose(bundle))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--slow", type=float, default=8.0, help="times the usual delay, one way")
    parser.add_argument("--store-ms", type=int, default=100, help="the controller's loop")
    parser.add_argument("--at-seconds", type=int, default=1, help="agents report then as well")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    wanted = parser.parse_args()
    print(f"seed {wanted.seed}, {wanted.slow} times the usual delay")
    print("| Noise | Stands out, median, p95 | Named, median, p95 | Not named | False looks |")
    print("| --- | --- | --- | --- | --- |")
    for name, noise in NOISES.items():
        detected, named, missed, false, quiet = [], [], 0, 0, 0
        for trial in range(wanted.trials):
            made = Trial(
                noise, noise.usual_ns / 2 * wanted.slow, wanted.seed + trial, wanted.store_ms * MS,
                at_seconds=bool(wanted.at_seconds),
            )  # fmt: skip
            looks, names = made.run()
            before = [look for at_ns, look in looks if at_ns <= made.fault_ns]
            after = [
                (at_ns - made.fault_ns, look) for at_ns, look in looks if at_ns > made.fault_ns
            ]
            quiet += len(before)
            false += sum(bool(look.verdicts) for look in before)
            detected.append(next((ns for ns, look in after if look.worst in names), None))
            named.append(next((ns for ns, look in after if is_named(look, names)), None))
            missed += named[-1] is None
        print(
            f"| {name} | {_figures(detected)} | {_figures(named)} | {missed} of {wanted.trials} "
            f"| {false} of {quiet} |"
        )


def _figures(found: list[int | None]) -> str:
    known = sorted(each / S for each in found if each is not None)
    if not known:
        return "never"
    p95 = known[min(len(known) - 1, int(0.95 * len(known)))]
    return f"{statistics.median(known):.1f}, {p95:.1f} s"


if __name__ == "__main__":
    main()
