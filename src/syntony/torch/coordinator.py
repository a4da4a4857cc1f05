"""The coordinator of one job, in `syntony run`: carries out what `membership` decides."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import hmac
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.torch import control, membership
from syntony.torch.membership import Forget, Log, Membership, Send, Settings, Spawn, Worker
from syntony.torch.messages import (
    HEADER,
    SPARE_VARIABLE,
    VARIABLE,
    FrameError,
    decode,
    encode,
    sizes,
)
from syntony.torch.recovery import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

TICK_S = 0.1
RECENT = 12
"""Events that operators are shown."""
HELLO_S = 20.0
"""A connection that has not introduced itself by then is closed."""
_LAUNCHER_OWN = ("LD_PRELOAD", "PYTHONPATH")


class Coordinator:
    """Serves the keepers and workers of one job; starts its spares."""

    def __init__(self, settings: Settings, *, audit: Path | None, say: Any) -> None:
        """`say` prints a line for the operator; `audit` is appended to, a JSON object a line."""
        self._state = Membership(settings)
        self._audit = audit.open("a", buffering=1) if audit is not None else None
        self._say = say
        self._token = secrets.token_hex(16)
        self._records: dict[tuple[int, int], bytes] = {}
        self._prologues: dict[int, bytes] = {}
        self._streams: dict[tuple[str, bool], asyncio.StreamWriter] = {}
        """(worker, whether of its keeper) to where it is written to."""
        self._held: dict[tuple[str, bool], list[bytes]] = {}
        """For those that are not connected yet."""
        self._spares: list[subprocess.Popen[bytes]] = []
        self._start: dict[str, Any] | None = None
        """How a spare is started, by the word of a rank's keeper."""
        self._due = settings.spares
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._pids: dict[str, int] = {}
        """Of workers' programs, by name."""
        self._program: dict[str, Any] = {}
        self._recent: collections.deque[dict[str, Any]] = collections.deque(maxlen=RECENT)

    async def open(self, address: str = "127.0.0.1") -> str:
        """Listen; what belongs into `SYNTONY_RESILIENCE`."""
        server = await asyncio.start_server(self._serve, address, 0)
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        task = asyncio.create_task(self._tick())
        self._tasks.add(task)
        return f"{address}:{port}:{self._token}"

    async def answer_operators(self, job: str) -> None:
        """Let `syntony jobs show` and `drain` ask; without that, the job runs all the same."""
        try:
            self._servers.append(await control.listen(job, self._show, self._drain))
        except OSError as error:
            self._say(f"`syntony jobs show {job}` will not find it: {error}")

    def _show(self) -> dict[str, Any]:
        events = {"program": self._program, "events": list(self._recent)}
        return control.overview(self._state, self._pids) | events

    def _drain(self, rank: int) -> str:
        orders = self._state.on_drain(rank, time.monotonic_ns())
        self._carry_out(orders)
        refused = (o.event for o in orders if isinstance(o, Log) and "drain" in o.event["event"])
        return next((str(event["reason"]) for event in refused), "")

    async def close(self) -> None:
        """The job has ended: so do the spares."""
        for task in self._tasks:
            task.cancel()
        for server in self._servers:
            server.close()
        for writer in self._streams.values():
            writer.close()
        for process in self._spares:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.to_thread(process.wait)
        if self._audit is not None:
            self._audit.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for process in self._spares:
                process.poll()
            self._carry_out(self._state.on_tick(time.monotonic_ns()))

    # --- connections ---

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place: tuple[str, bool] | None = None
        try:
            async with asyncio.timeout(HELLO_S):
                hello, _ = await self._read(reader)
            if not hmac.compare_digest(str(hello.get("token", "")), self._token):
                return
            place = str(hello["name"]), hello["role"] == "keeper"
            self._streams[place] = writer
            if place[1]:
                self._introduce(hello)
            for frame in self._held.pop(place, []):
                writer.write(frame)
            while True:
                message, record = await self._read(reader)
                self._handle(place, message, record)
        except (OSError, EOFError, FrameError, KeyError, TypeError, ValueError, TimeoutError):
            pass  # one connection's harm is its own
        finally:
            writer.close()
            if place is not None and self._streams.get(place) is writer:
                del self._streams[place]
                self._gone(place[0])

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
        text_size, record_size = sizes(await reader.readexactly(HEADER.size))
        text = await reader.readexactly(text_size)
        return decode(text), await reader.readexactly(record_size)

    def _introduce(self, hello: dict[str, Any]) -> None:
        rank = hello["rank"]
        name, world = str(hello["name"]), int(hello["world"])
        self._pids[name] = int(hello["pid"])
        self._log({
            "event": "worker", "worker": name, "rank": rank, "pid": hello["pid"],
            "host": hello["host"],
        })  # fmt: skip
        self._carry_out(self._state.on_keeper(name, rank, world, time.monotonic_ns()))
        if rank is not None and self._start is None:
            self._start = hello
            for _ in range(self._due):
                self._spawn()

    def _gone(self, name: str) -> None:
        both = (name, False) in self._streams or (name, True) in self._streams
        worker = self._state.workers.get(name)
        if worker is not None and not both:
            self._carry_out(self._state.on_gone(worker, time.monotonic_ns()))

    def _handle(self, place: tuple[str, bool], message: dict[str, Any], record: bytes) -> None:
        worker = self._state.workers.get(place[0])
        if worker is None:  # given up: nothing that it says counts
            if not place[1]:
                self._send(Send(place[0], False, {"kind": "fenced"}))
            return
        if message["kind"] == "boundary" and worker.rank is not None:
            self._records[worker.rank, int(message["boundary"])] = record
        if message["kind"] == "prologue" and worker.rank is not None:
            self._prologues[worker.rank] = record
            return
        orders = self._event(worker, message, time.monotonic_ns())
        self._carry_out(orders)

    def _event(  # noqa: PLR0911, PLR0912, C901 - one line for each kind of message
        self, worker: Worker, message: dict[str, Any], now_ns: int
    ) -> list[membership.Order]:
        state = self._state
        match message:
            case {"kind": "heard"}:
                return state.on_heard(worker, now_ns)
            case {"kind": "state", "stopped": bool(stopped)}:
                return state.on_state(worker, stopped, now_ns)
            case {"kind": "exit", "code": int(code)}:
                return state.on_exit(worker, code, now_ns)
            case {"kind": "waiting"}:
                return state.on_waiting(worker)
            case {"kind": "arrived", "generation": int(generation)}:
                return state.on_arrived(worker, generation)
            case {"kind": "boundary", "boundary": int(boundary)}:
                return state.on_boundary(worker, boundary, now_ns)
            case {"kind": "frozen", "generation": int(generation), **rest}:
                report = Report(int(rest["boundary"]), bool(rest["stepped"]), bool(rest["gives"]))
                return state.on_frozen(worker, generation, report)
            case {"kind": "hosted", "generation": int(generation), "address": str(address)}:
                return state.on_hosted(generation, address)
            case {"kind": "formed", "generation": int(generation)}:
                return state.on_formed(worker, generation, now_ns)
            case {"kind": "failed", "generation": int(generation)}:
                return state.on_failed(generation, now_ns)
            case {"kind": "unprotected", "reason": str(reason), **rest}:
                return state.on_unprotected(worker, reason, harms=bool(rest.get("harms")))
            case {"kind": "digest", "boundary": int(boundary), "digest": str(digest)}:
                return state.on_digest(worker, boundary, digest)
            case {"kind": "finished"}:
                return state.on_finished(worker)
            case {"kind": "event", "event": str(event), **rest}:
                return [Log({"event": event, "rank": worker.rank, **rest})]
            case _:
                raise FrameError(f"an unknown message {message['kind']}")

    # --- orders ---

    def _carry_out(self, orders: Sequence[membership.Order]) -> None:
        for order in orders:
            match order:
                case Send():
                    self._send(order)
                case Spawn():
                    self._spawn()
                case Log(event):
                    self._log(event)
                case Forget(rank, before):
                    for each in [key for key in self._records if key[0] == rank]:
                        if each[1] < before:
                            del self._records[each]

    def _send(self, order: Send) -> None:
        frame = encode(order.message)
        if order.record is not None:
            frame = encode({"kind": "prologue"}, self._prologues.get(order.record[0], b""))
            frame += encode(order.message, self._records[order.record])
        place = order.worker, order.to_keeper
        writer = self._streams.get(place)
        if writer is None:
            self._held.setdefault(place, []).append(frame)
        else:
            writer.write(frame)

    def _spawn(self) -> None:
        start = self._start
        if start is None:
            self._due += 1
            return
        environ = {**start["environ"], SPARE_VARIABLE: "1", VARIABLE: os.environ[VARIABLE]}
        for name in _RANK_NAMES:
            environ.pop(name, None)
        keeper = Path(__file__).with_name("keeper.py")
        self._spares.append(
            subprocess.Popen(
                [start["python"], "-I", "-S", str(keeper), *start["argv"]],
                env=environ,
                cwd=start["directory"],
                stdin=subprocess.DEVNULL,
            )
        )

    def _log(self, event: dict[str, Any]) -> None:
        line = {"at_ns": time.monotonic_ns(), **event}
        if event["event"] == "program":
            self._program = {"file": event["file"], "loops": event["loops"]}
        self._recent.append(line)
        if self._audit is not None:
            self._audit.write(json.dumps(line) + "\n")
        text = _line(event)
        if text:
            self._say(text)


_RANK_NAMES = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "SLURM_PROCID", "SLURM_LOCALID",
               "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK")  # fmt: skip


def _line(event: dict[str, Any]) -> str:  # noqa: PLR0911 - one line for each event
    """What the operator is told of an event; nothing of most."""
    match event:
        case {"event": "program", "file": str(file), "loops": list(loops)}:
            return f"protected: {file}, training loops {', '.join(map(str, loops))}"
        case {"event": "lost", "rank": rank, "reason": reason, "boundary": boundary}:
            return f"rank {rank} lost at step {boundary}: {reason}"
        case {"event": "formed", "lost": dict(lost), "took_ns": took_ns, "boundary": boundary}:
            who = ", ".join(f"rank {rank}" for rank in lost) or "connections"
            return f"{who} replaced at step {boundary}, {took_ns / 1e9:.2f} s"
        case {"event": "unprotected", "reason": reason}:
            return f"not protected from now on: {reason}"
        case {"event": "gave-up", "reason": reason}:
            return f"the job ends, for no rank can be replaced: {reason}"
        case {"event": "spare-exit", "code": int(code)} if code > 0:
            return f"a spare ended with exit code {code}; the next loss starts another"
        case {"event": "no-spare", "rank": rank}:
            return f"rank {rank} waits for a spare to start"
        case {"event": "digest", "equal": True, "boundary": boundary}:
            return f"parameters of all ranks are the same at step {boundary}"
        case {"event": "drain-refused", "rank": rank, "reason": reason}:
            return f"rank {rank} is not drained: {reason}"
        case _:
            return ""


async def run_job(
    argv: Sequence[str],
    environ: dict[str, str],
    settings: Settings,
    audit: Path | None,
    say: Any,
    *,
    job: str,
) -> int:
    """Run the launcher under a coordinator; its exit code.

    `job`: its name, by which operators ask for it.

    Raises:
        OSError: the launcher cannot be executed.
    """
    coordinator = Coordinator(settings, audit=audit, say=say)
    os.environ[VARIABLE] = await coordinator.open()
    await coordinator.answer_operators(job)
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, env=environ | {VARIABLE: os.environ[VARIABLE]}
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, process.send_signal, number)
        return await process.wait()
    finally:
        await coordinator.close()


def fits() -> bool:
    """Whether this interpreter can run a worker."""
    return sys.version_info >= (3, 11)
