"""How much one controller takes: rows/s into the embedded store, and its CPU for many agents.

Everything is real except the agents: the controller is its own process with mutual TLS, gRPC
streams, application acks and the embedded store on disk. The agents are simulated by one client
process that holds one TLS channel and one stream per agent and sends ready-made Arrow batches; its
own CPU is reported beside the controller's, so that a limit of the client is not taken for one of
the controller.

From the moment it is attached each agent says every other second, as real ones do, how far its
clock is from those of `--peers` others, on both rails, so that clocks are synchronized and nobody
is silent; with `--ill` a part of each agent is down, which is an incident each. With `--askers`
so many clients ask for the delay matrix of a week, over all rows that there are, again and again.

    python -m bench.ingest flood --rows 2000000 --rows-per-batch 2000
    python -m bench.ingest fleet --agents 1000 --seconds 20 --rows-per-batch 160
    python -m bench.ingest fleet --agents 200 --seconds 60 --rows-per-batch 2000 --askers 6
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from msgspec import structs
from tests.link import ControllerProcess, hello

from syntony.agent.daemon import ESTIMATE_SECONDS
from syntony.controller.client import ask
from syntony.errors import SyntonyError
from syntony.io.transport import grpc
from syntony.model import Edge, S
from syntony.model.tls_files import TlsFiles
from syntony.wire.arrow import encode_columns
from syntony.wire.clocks import Edges
from syntony.wire.coding import encode
from syntony.wire.messages import (
    ATTACH,
    MAX_UNACKED,
    Ack,
    Batch,
    Decision,
    Refuse,
    bundles,
    decode_controller,
)
from syntony.wire.parts import PartsReport, PartState, PartStatus
from syntony.wire.probes import KeysHeld, MatrixQuery, ProbeKeys
from syntony.wire.tables import PROBE

START_NS = 1_700_000_000 * S
_TICKS = os.sysconf("SC_CLK_TCK")


class Outcome(NamedTuple):
    """What was measured, as printed."""

    agents: int
    batches: int
    rows: int
    seconds: float
    rows_per_s: float
    controller_cpu_percent: float
    agents_per_core: int
    """That send one such batch a second: batches by processor second of the controller, which does
    not hang on what else the machine does as wall time would."""
    controller_rss_mb: float
    client_cpu_percent: float
    ack_p50_ms: float
    ack_p99_ms: float
    ack_max_ms: float
    decision_gap_p50_s: float
    decision_gap_max_s: float
    """Longest time between two decisions that one agent was sent."""
    questions: int
    question_p50_s: float
    question_max_s: float
    refused_questions: int


class Agent:
    """One stream: sends batches, remembers when each went and when it was acknowledged; says that
    it has the probe keys it was sent, as agents do, or it would be sent them twice a second.

    Args:
        host: its name.
        peers: whose clocks it measures.
        channel: of its own.
        arguments: of the bench.
    """

    def __init__(
        self,
        host: str,
        peers: Sequence[str],
        channel: grpc.aio.Channel,
        arguments: argparse.Namespace,
    ) -> None:
        self._host, self._peers = host, peers
        self._rows, self._ill = arguments.rows_per_batch, arguments.ill
        self._interval_s: float = arguments.interval
        self.steady = False
        """Whether its batches come at their interval, and bring what it reports beside them."""
        self._call = channel.stream_stream(ATTACH)()
        self._writing = asyncio.Lock()
        self._sent: dict[int, float] = {}
        self._progress = asyncio.Event()
        self._payloads: dict[int, bytes] = {}
        self.seq = 0
        self._reported = sum(map(ord, host))  # not all agents in the same second
        self.acknowledged = 0
        self.delays: list[float] = []
        self.decided: list[float] = []
        """When decisions came, monotonic."""

    async def _write(self, data: bytes) -> None:
        async with self._writing:
            await self._call.write(data)

    async def attach(self) -> asyncio.Task[None]:
        await self._write(encode(structs.replace(hello(self._host, "bench"), reads_stored=True)))
        return asyncio.create_task(self._live())

    async def _live(self) -> None:
        """Listen, and report without rows as long as there are none to send."""
        listening = asyncio.create_task(self._listen())
        while not self.steady and not listening.done():
            for data in bundles(self._reports()):
                await self._write(data)
            await asyncio.wait([listening], timeout=self._interval_s)
        await listening

    def _reports(self) -> list[bytes]:
        """What it says beside its rows, at their interval."""
        self._reported += 1
        reports: list[bytes] = []
        if self._reported % max(1, round(ESTIMATE_SECONDS / self._interval_s)) == 0:
            reports.append(encode(clocks_of(self._host, self._peers)))
        if self._ill:
            down = PartStatus(name="spool", state=PartState.FAILED, reason="full", age_ns=3600 * S)
            reports.append(encode(PartsReport(parts=(down,))))
        return reports

    async def send(self, second: int) -> None:
        """One batch, when the window allows it."""
        while self.seq - self.acknowledged >= MAX_UNACKED:
            self._progress.clear()
            await self._progress.wait()
        self.seq += 1
        data = second_of_probes(self._host, second, self._rows)
        self._sent[self.seq] = time.monotonic()
        batch = Batch(seq=self.seq, table=PROBE.name, rows=self._rows, dropped=0, arrow=data)
        for data in bundles([encode(batch), *(self._reports() if self.steady else ())]):
            await self._write(data)

    async def warm_up(self) -> None:
        """So many batches that the controller looks none of the following ones up in the store."""
        messages = []
        for _ in range(MAX_UNACKED):
            self.seq += 1
            self._sent[self.seq] = time.monotonic()
            data = second_of_probes(self._host, (now_ns() - START_NS) // S, 1)
            batch = Batch(seq=self.seq, table=PROBE.name, rows=1, dropped=0, arrow=data)
            messages.append(encode(batch))
        for data in bundles(messages):
            await self._write(data)
        while self.acknowledged < self.seq:
            self._progress.clear()
            await self._progress.wait()
        self.delays.clear()

    async def settle(self) -> None:
        """Until everything sent is acknowledged."""
        while self.acknowledged < self.seq:
            self._progress.clear()
            await self._progress.wait()
        self.steady = True
        await self._call.done_writing()

    async def _listen(self) -> None:
        async for data in _messages(self._call):
            message = decode_controller(data)
            if isinstance(message, Refuse):
                raise SystemExit(f"refused: {message.reason}")
            stored = message.seq if isinstance(message, Ack) else 0
            if isinstance(message, Decision):
                self.decided.append(time.monotonic())
                stored = message.stored
                message = decode_controller(message.message)
            if stored > self.acknowledged:
                now = time.monotonic()
                for seq in range(self.acknowledged + 1, stored + 1):
                    self.delays.append(now - self._sent.pop(seq))
                self.acknowledged = stored
                self._progress.set()
            if isinstance(message, ProbeKeys):
                held = KeysHeld(epochs=message.epochs, sending=message.sending)
                await self._write(encode(held))


async def _messages(call: Any) -> AsyncIterator[bytes]:
    async for data in call:
        yield data


_RNG = np.random.default_rng(17)
_BEGAN_S = time.monotonic()


def now_ns() -> int:
    """What all agents' clocks say, and their rows."""
    return START_NS + round((time.monotonic() - _BEGAN_S) * S)


def clocks_of(host: str, peers: Sequence[str]) -> Edges:
    """Readings of one window, as right as those of NICs with stamps: of each peer on each rail."""
    edges = [
        Edge(
            a=host, b=peer, ref_ns=now_ns(), theta_ns=theta, drift_ppb=0.0, sigma_ns=20.0,
            drift_sigma_ppb=5.0, rtt_floor_ns=8_000.0, probes=80, mode="both", a_epoch=1, b_epoch=1,
        )
        for peer, thetas in zip(peers, _RNG.normal(0, 20, (len(peers), 2)).tolist(), strict=True)
        for theta in thetas
    ]  # fmt: skip
    return Edges(edges=tuple(edges), epochs={host: 1})


_TEMPLATES: dict[tuple[str, int], dict[str, Any]] = {}


def second_of_probes(host: str, second: int, rows: int) -> bytes:
    """`rows` rows of `probe_1s`, as an agent with ten peers and some source ports reports them."""
    columns = _TEMPLATES.get((host, rows))
    if columns is None:
        columns = _TEMPLATES[host, rows] = _template(host, rows)
    return encode_columns(PROBE, columns | {"ts_ns": np.full(rows, START_NS + second * S)})


def _template(host: str, rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(len(host) + rows)
    owd = np.sort(rng.integers(5_000, 90_000, (rows, 5)), axis=1)
    numbers = {column.name: np.zeros(rows, column.type) for column in PROBE.columns[4:]}
    delays = ("owd_min_ns", "owd_p50_ns", "owd_p90_ns", "owd_p99_ns", "owd_max_ns")
    numbers |= {name: owd[:, place] for place, name in enumerate(delays)}
    numbers |= {name: np.full(rows, 4, np.uint32) for name in ("sent", "count")}
    numbers["sport"] = (61_000 + np.arange(rows) % 8).astype(np.uint16)
    source = f"{host}/rail0"
    peers = [f"p{(place // 8) % 10}/rail0" for place in range(rows)]
    return numbers | {"src": [source] * rows, "prober": [source] * rows, "dst": peers}


class Usage(NamedTuple):
    """CPU seconds so far."""

    controller: float
    client: float
    at: float

    @classmethod
    def now(cls, pid: int) -> Usage:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        own = resource.getrusage(resource.RUSAGE_SELF)
        controller = (int(fields[11]) + int(fields[12])) / _TICKS
        return cls(controller, own.ru_utime + own.ru_stime, time.monotonic())


async def drive(controller: ControllerProcess, arguments: argparse.Namespace) -> Outcome:
    """Attach every agent, send, wait for the last ack."""
    tls = {f"b{number}": controller.issue(f"b{number}") for number in range(arguments.agents)}
    hosts = list(tls)
    agents = [
        Agent(
            host,
            peers_of(hosts, place, arguments.peers),
            channel_to(controller, tls[host]),
            arguments,
        )
        for place, host in enumerate(hosts)
    ]
    listening = [await agent.attach() for agent in agents]
    await asyncio.gather(*(agent.warm_up() for agent in agents))
    await asyncio.sleep(arguments.settle)
    load = _flood if arguments.load == "flood" else steady
    before = Usage.now(controller.pid)
    with Asking(controller, arguments.askers) as asking:
        await asyncio.gather(*(load(each, place, arguments) for place, each in enumerate(agents)))
        await asyncio.gather(*(agent.settle() for agent in agents))
        after = Usage.now(controller.pid)
    for task in listening:
        task.cancel()
    return _outcome(agents, arguments.rows_per_batch, (before, after), controller.pid, asking)


class Asking:
    """Clients in threads of their own, each with a heavy question, again and again."""

    def __init__(self, controller: ControllerProcess, askers: int) -> None:
        self._target = f"unix:{controller.socket}"
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(askers)]
        self.took: list[float] = []
        self.refused = 0

    def _ask(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            try:
                ask(self._target, MatrixQuery(window_ns=7 * 86_400 * S), timeout_ns=120 * S)
            except SyntonyError:
                self.refused += 1
                self._over.wait(0.1)
            else:
                self.took.append(time.monotonic() - began)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def peers_of(hosts: Sequence[str], place: int, wanted: int) -> list[str]:
    """Some other hosts, drawn as a plan's are: all clocks are a few edges from each other."""
    others = len(hosts) - 1
    drawn = _RNG.choice(others, min(wanted, others), replace=False)
    return [hosts[(place + 1 + other) % len(hosts)] for other in drawn]


async def _flood(agent: Agent, _place: int, arguments: argparse.Namespace) -> None:
    batches = arguments.rows // arguments.rows_per_batch // arguments.agents
    for second in range(batches):
        await agent.send(second)


async def steady(agent: Agent, place: int, arguments: argparse.Namespace) -> None:
    # Agents report at their own moment of the interval, not all at once.
    interval_s = arguments.interval
    await asyncio.sleep(place / arguments.agents * interval_s)
    agent.steady = True
    started = time.monotonic()
    for number in range(1, round(arguments.seconds / interval_s) + 1):
        await agent.send((now_ns() - START_NS) // S)
        await asyncio.sleep(max(0.0, started + number * interval_s - time.monotonic()))


def _outcome(
    agents: list[Agent], rows: int, usage: tuple[Usage, Usage], pid: int, asking: Asking
) -> Outcome:
    before, after = usage
    seconds = after.at - before.at
    batches = sum(len(agent.delays) for agent in agents)
    delays = np.sort([delay for agent in agents for delay in agent.delays]) * 1e3
    gaps = np.sort(np.concatenate([
        np.diff([at for at in agent.decided if before.at <= at <= after.at]) for agent in agents
    ]))  # fmt: skip
    took = sorted(asking.took) or [0.0]
    return Outcome(
        agents=len(agents),
        batches=batches,
        rows=batches * rows,
        seconds=round(seconds, 2),
        rows_per_s=round(batches * rows / seconds),
        controller_cpu_percent=round(100 * (after.controller - before.controller) / seconds, 1),
        agents_per_core=round(batches / (after.controller - before.controller)),
        controller_rss_mb=rss_mb(pid),
        client_cpu_percent=round(100 * (after.client - before.client) / seconds, 1),
        ack_p50_ms=round(float(delays[len(delays) // 2]), 1),
        ack_p99_ms=round(float(delays[int(len(delays) * 0.99)]), 1),
        ack_max_ms=round(float(delays[-1]), 1),
        decision_gap_p50_s=round(float(gaps[len(gaps) // 2]), 2) if len(gaps) else 0.0,
        decision_gap_max_s=round(float(gaps[-1]), 2) if len(gaps) else 0.0,
        questions=len(asking.took),
        question_p50_s=round(took[len(took) // 2], 2),
        question_max_s=round(took[-1], 2),
        refused_questions=asking.refused,
    )


def rss_mb(pid: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return round(int(status.partition("VmRSS:")[2].split()[0]) / 1024, 1)


def channel_to(controller: ControllerProcess, tls: TlsFiles) -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(
        Path(tls.ca).read_bytes(), Path(tls.key).read_bytes(), Path(tls.cert).read_bytes()
    )
    options = (("grpc.use_local_subchannel_pool", 1),)
    return grpc.aio.secure_channel(f"127.0.0.1:{controller.port}", credentials, options)


def main() -> int:
    """Run the loads and print one JSON object each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("load", nargs="?", choices=("flood", "fleet"), help="default: both")
    parser.add_argument("--agents", type=int, default=0, help="streams (flood: 8, fleet: 1000)")
    parser.add_argument("--rows", type=int, default=2_000_000, help="flood: rows in all")
    parser.add_argument("--seconds", type=int, default=20, help="fleet: batches per agent")
    parser.add_argument("--rows-per-batch", type=int, default=0, help="flood: 2000, fleet: 160")
    parser.add_argument("--peers", type=int, default=10, help="whose clocks each agent measures")
    parser.add_argument("--ill", action="store_true", help="a part of each agent is down")
    parser.add_argument("--askers", type=int, default=0, help="clients with heavy questions")
    parser.add_argument("--settle", type=float, default=3.0, help="seconds after attaching")
    arguments = parser.parse_args()
    for load in (arguments.load,) if arguments.load else ("flood", "fleet"):
        outcome = _measure(load, argparse.Namespace(**vars(arguments)))
        print(json.dumps(outcome._asdict(), indent=2))
    return 0


def _measure(load: str, arguments: argparse.Namespace) -> Outcome:
    flood = load == "flood"
    arguments.load, arguments.interval = load, 1.0
    arguments.agents = arguments.agents or (8 if flood else 1000)
    arguments.rows_per_batch = arguments.rows_per_batch or (2000 if flood else 160)
    with tempfile.TemporaryDirectory(prefix="syntony-bench-") as directory:
        controller = ControllerProcess(Path(directory))
        controller.start()
        try:
            return asyncio.run(drive(controller, arguments))
        finally:
            controller.end()


if __name__ == "__main__":
    sys.exit(main())
