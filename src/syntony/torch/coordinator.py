"""The coordinator of one job, in `syntony run`: carries out the decisions of `membership`."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import hmac
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from syntony.torch import checkpoint, control
from syntony.torch.feed import Feed, Trail
from syntony.torch.hangs import RankProgress
from syntony.torch.lines import line
from syntony.torch.membership import Membership
from syntony.torch.messages import HEADER, VARIABLE, FrameError, decode, encode, sizes
from syntony.torch.orders import (
    Forget,
    Log,
    Order,
    Origin,
    Preserve,
    Send,
    Settings,
    Spawn,
    Worker,
)
from syntony.torch.recovery import RankReport
from syntony.torch.spare_host import start_spare
from syntony.torch.spool import PROLOGUE, JobSpool

TICK_S = 0.1
RECENT = 12
"""Number of recent events shown to operators."""
WITH_LAUNCHER = 137
"""Exit code of ranks whose launcher was killed."""
HELLO_S = 20.0
"""A connection that has not introduced itself within this time is closed."""
_OFTEN = {"boundary", "heard", "state", "event", "prologue"}
"""Messages after which the state need not be saved: it follows from later ones."""


class Coordinator:
    """Serves the keepers and workers of one job; starts its spares."""

    def __init__(
        self, settings: Settings, spool: JobSpool, *, audit: Path | None, say: Any,
        origin: Origin | None = None,
    ) -> None:  # fmt: skip
        """`say` prints a line for the operator; `audit` is appended to, a JSON object a line."""
        self._state = Membership(settings, origin)
        self._records: dict[tuple[int, int], bytes] = {}
        """By rank and boundary; `PROLOGUE`: results of a rank's prologue."""
        if origin is not None:
            for rank, record in checkpoint.records(Path(origin.path)).items():
                self._records[rank, origin.boundary] = record
                spool.keep(rank, origin.boundary, record)
        self._spool = spool
        self._audit = audit.open("ab", buffering=0) if audit is not None else None
        self._say = say
        self._token = os.environ[VARIABLE].rpartition(":")[2]
        self._streams: dict[tuple[str, bool], asyncio.StreamWriter] = {}
        """(worker, whether of its keeper) → its stream."""
        self._held: dict[tuple[str, bool], list[bytes]] = {}
        """Messages for processes that are not connected yet."""
        self._spares: list[subprocess.Popen[bytes]] = []
        self._start: dict[str, Any] | None = None
        """How to start a spare, as reported by a rank's keeper."""
        self._due = settings.spares
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._pids: dict[str, int] = {}
        """Of workers' programs, by name."""
        self._program: dict[str, Any] = {}
        self._unkept = self._closed = False
        self._here = os.environ[VARIABLE].rsplit(":", 2)[0]
        self._lent: dict[str, asyncio.StreamWriter] = {}
        """Connections of hosts that offer spares."""
        self._begun: collections.Counter[str] = collections.Counter()
        """Host → spares that were started there and have not connected yet."""
        self._hosts: dict[str, str] = {}
        """Of workers, by name."""
        self._trail = Trail(self._hosts, os.uname().nodename)
        self._feed = Feed(os.environ.get("SYNTONY_AGENT", ""))
        self._early: dict[str, dict[str, Any]] = {}
        """Messages of workers whose keepers have not connected yet."""
        self._recent: collections.deque[dict[str, Any]] = collections.deque(maxlen=RECENT)

    def resume(self) -> None:
        """Take over the job of a coordinator that died; call it before `open`."""
        kept = self._spool.state()
        if kept is not None:
            self._state, self._start, self._pids, self._program, hosts = kept
            self._hosts.update(hosts)
            self._due = 0
        self._records = self._spool.records()
        for rank, boundary in self._records:
            if boundary >= 0:
                self._state.restore_record(rank, boundary)
        self._carry_out(self._state.on_resumed(time.monotonic_ns()))

    @property
    def had_ranks(self) -> bool:
        """Whether any rank or spare has connected, also to a previous coordinator."""
        return bool(self._pids)

    async def open(self, listener: socket.socket) -> None:
        """Accept connections on this socket."""
        generation = self._state.generation
        self._log({"event": "coordinator", "pid": os.getpid(), "generation": generation})
        self._servers.append(await asyncio.start_server(self._serve, sock=listener))
        self._tasks.add(asyncio.create_task(self._tick()))

    async def wait_alone(self) -> None:
        """Wait until no keeper of a rank is left."""
        keepers = self._state.keepers
        while any((name, True) in self._streams for name in keepers.values()):  # noqa: ASYNC110
            await asyncio.sleep(TICK_S)

    async def answer_operators(self, job: str) -> None:
        """Serve `syntony jobs show` and `drain`; if that fails, the job runs without."""
        try:
            server = await control.listen(job, self._show, self._drain, self._drain_host)
            self._servers.append(server)
        except OSError as error:
            self._say(f"`syntony jobs show {job}` will not find it: {error}")

    def _show(self) -> dict[str, Any]:
        events = {"program": self._program, "events": list(self._recent)}
        return control.overview(self._state, self._pids, self._hosts) | events

    def _drain(self, rank: int) -> str:
        orders = self._state.on_drain(rank, time.monotonic_ns())
        self._carry_out(orders)
        return _refusal(orders)

    def _drain_host(self, name: str, keep: bool) -> str:
        workers = self._state.workers.values()
        found = {w.host for w in workers if name in {w.host, self._hosts.get(w.name)}}
        if len(found) > 1:
            return f"{name} is the name of several hosts: {', '.join(sorted(found))}"
        host = found.pop() if found else name
        fixed = "`syntony run` is on that host and cannot leave it" if host == self._here else ""
        orders = self._state.on_drain_host(host, time.monotonic_ns(), keep=keep, fixed=fixed)
        self._carry_out(orders)
        refusal = _refusal(orders)
        if not refusal:
            self._end_lending(host)
        return refusal

    def _end_lending(self, host: str) -> None:
        """A host no longer offers spares."""
        for name, writer in list(self._lent.items()):
            if _address(writer) == host:
                del self._lent[name]
                writer.write(encode({"kind": "end"}))
                self._carry_out(self._state.on_offer(name, 0))

    async def close(self, *, killed: bool = False) -> None:
        """The job has ended: end the spares, and (`killed`: its launcher was) all ranks."""
        self._closed = True
        ranks = set(self._state.keepers.values())
        for name, of_keeper in list(self._streams):
            code = WITH_LAUNCHER if name in ranks else 0
            if of_keeper and (killed or not code):
                self._send(Send(name, of_keeper, {"kind": "end", "code": code}))
        for writer in self._lent.values():
            writer.write(encode({"kind": "end"}))
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
        self._feed.flush()
        self._feed.close()
        if self._audit is not None:
            self._audit.close()
        self._audit = None

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for process in self._spares:
                process.poll()
            orders = self._state.on_tick(time.monotonic_ns())
            self._carry_out(orders, save=bool(orders))
            self._tell_spares()
            self._feed.flush()

    def _tell_spares(self) -> None:
        state = self._state
        if state.world:
            ready = sum(each.rank is None and each.waiting for each in state.workers.values())
            for message in self._trail.of_spares(state.generation, ready, time.monotonic_ns()):
                self._feed.tell(message)

    # --- connections ---

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place: tuple[str, bool] | None = None
        try:
            async with asyncio.timeout(HELLO_S):
                hello, _ = await self._read(reader)
            if not hmac.compare_digest(str(hello.get("token", "")), self._token):
                return
            if hello["role"] == "host":
                await self._lend(reader, writer, hello)
                return
            place = str(hello["name"]), hello["role"] == "keeper"
            hello["address"] = _address(writer)
            self._streams[place] = writer
            if hello.get("again"):
                self._returned(place, hello)
            elif place[1]:
                self._introduce(hello)
            for frame in self._held.pop(place, []):
                writer.write(frame)
            while True:
                message, record = await self._read(reader)
                self._handle(place, message, record)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # cancelled: the job has ended
        except (FrameError, KeyError, TypeError, ValueError) as error:
            self._log({"event": "refused", "worker": place and place[0], "reason": repr(error)})
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
        self._hosts[name] = str(hello["host"])
        self._log({
            "event": "worker", "worker": name, "rank": rank, "pid": hello["pid"],
            "host": hello["host"],
        })  # fmt: skip
        now_ns, address = time.monotonic_ns(), str(hello["address"])
        if rank is None and self._begun[address] > 0:
            self._begun[address] -= 1
        self._carry_out(self._state.on_keeper(name, rank, world, now_ns, address))
        early = self._early.pop(name, None)
        if early is not None:
            self._returned((name, False), early)
        if rank is not None and self._start is None:
            self._start = hello
            for _ in range(self._due):
                self._spawn()

    def _returned(self, place: tuple[str, bool], hello: dict[str, Any]) -> None:
        """A connection broke, or the previous coordinator died: repeat lost messages."""
        name, of_keeper = place
        worker = self._state.workers.get(name)
        now_ns = time.monotonic_ns()
        if name in self._state.fenced:
            self._send(Send(name, of_keeper, {"kind": "kill" if of_keeper else "fenced"}))
        elif worker is None and of_keeper and name not in self._state.keepers.values():
            self._introduce(hello)  # the previous coordinator died too early
        elif worker is not None and not of_keeper:
            self._carry_out(self._state.on_returned(worker, hello, now_ns))
        elif worker is None and not of_keeper:
            self._early[name] = hello
        elif worker is not None and hello["code"] is not None:
            self._carry_out(self._state.on_exit(worker, int(hello["code"]), now_ns))

    def _gone(self, name: str) -> None:
        both = (name, False) in self._streams or (name, True) in self._streams
        worker = self._state.workers.get(name)
        if worker is not None and not both:
            self._carry_out(self._state.on_disconnected(worker, time.monotonic_ns()))

    def _handle(self, place: tuple[str, bool], message: dict[str, Any], record: bytes) -> None:
        worker = self._state.workers.get(place[0])
        if place[1] and message["kind"] == "exit" and place[0] not in self._state.keepers.values():
            self._send(Send(*place, {"kind": "end", "code": 0}))
        if worker is None:
            if not place[1] and place[0] in self._state.fenced:
                self._send(Send(place[0], False, {"kind": "fenced"}))
            return
        if message["kind"] in {"boundary", "prologue"} and worker.rank is not None:
            number = int(message.get("boundary", PROLOGUE))
            self._records[worker.rank, number] = record
            self._keep(lambda: self._spool.keep(worker.rank or 0, number, record))
        orders = self._event(worker, message, time.monotonic_ns())
        self._carry_out(orders, save=message["kind"] not in _OFTEN)

    def _keep(self, action: Callable[[], None]) -> None:
        """Save the state for the next coordinator; if that fails, the job runs without."""
        try:
            action()
        except OSError as error:
            if not self._unkept:
                self._log({"event": "unkept", "reason": str(error)})
            self._unkept = True

    def _event(  # noqa: PLR0911, PLR0912, C901 - one line for each kind of message
        self, worker: Worker, message: dict[str, Any], now_ns: int
    ) -> list[Order]:
        state = self._state
        match message:
            case {"kind": "heard"}:
                return state.on_heard(worker, now_ns, RankProgress.parse(message))
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
                report = RankReport(
                    int(rest["boundary"]), bool(rest["stepped"]), bool(rest["gives"]),
                    {int(r): tuple(map(int, each)) for r, each in rest["shadows"].items()},
                )  # fmt: skip
                return state.on_frozen(worker, generation, report)
            case {"kind": "hosted", "generation": int(generation), "address": str(address)}:
                return state.on_hosted(generation, address)
            case {"kind": "formed", "generation": int(generation)}:
                return state.on_formed(worker, generation, now_ns)
            case {"kind": "failed", "generation": int(generation), "why": str(why)}:
                return state.on_failed(generation, now_ns, why)
            case {"kind": "unprotected", "reason": str(reason), **rest}:
                return state.on_unprotected(worker, reason, harms=bool(rest.get("harms")))
            case {"kind": "fixed", "reason": str(reason)}:
                return state.on_fixed(reason)
            case {"kind": "sharded", "part": str(part), "alone": bool(alone)}:
                return state.on_sharded(worker, part, shadowed=alone)
            case {"kind": "digest", "boundary": int(boundary), "digest": str(digest)}:
                return state.on_digest(worker, boundary, digest)
            case {"kind": "finished"}:
                return state.on_finished(worker)
            case {"kind": "preserved", "generation": int(generation), **rest}:
                files = {str(n): (int(size), str(d)) for n, (size, d) in rest["files"].items()}
                return state.on_preserved(generation, files, str(rest["failure"]))
            case {"kind": "prologue"}:
                return []
            case {"kind": "event", "event": str(event), **rest}:
                return [Log({"event": event, "rank": worker.rank, **rest})]
            case _:
                raise FrameError(f"an unknown message {message['kind']}")

    # --- orders ---

    def _carry_out(self, orders: Sequence[Order], *, save: bool = True) -> None:
        if save:
            kept = self._state, self._start, self._pids, self._program, self._hosts
            self._keep(lambda: self._spool.save(kept))
        for order in orders:
            match order:
                case Send():
                    self._send(order)
                case Spawn():
                    self._spawn()
                case Log(event):
                    self._log(event)
                case Preserve():
                    self._preserve(order)
                case Forget(rank, before):
                    old = [n for r, n in self._records if r == rank and PROLOGUE < n < before]
                    for number in old:
                        del self._records[rank, number]
                    self._keep(partial(self._spool.forget, [(rank, each) for each in old]))

    def _preserve(self, order: Preserve) -> None:
        place = Path(self._state.settings.checkpoint) / f"step-{order.boundary}"
        try:
            kept = {rank: self._records[rank, order.boundary] for rank in range(self._state.world)}
            checkpoint.write(place, order.boundary, kept, order.states)
        except (OSError, KeyError) as error:
            self._log({"event": "gave-up", "reason": f"the checkpoint was not written: {error}"})
            return
        advice = (
            f"no spare is left: the job's state at step {order.boundary} is kept; "
            f"go on with: syntony run --resume {place} -- …"
        )
        try:
            self._spool.conclude(advice)
        except OSError as error:  # `syntony run` does not learn of it: it ends as its launcher does
            self._say(f"{advice} ({error})")
        self._log({"event": "checkpoint", "path": str(place), "boundary": order.boundary,
                   "generation": self._state.generation})  # fmt: skip

    def _send(self, order: Send) -> None:
        frame = encode(order.message)
        if order.record is not None:
            frame = encode(
                {"kind": "prologue"}, self._records.get((order.record[0], PROLOGUE), b"")
            )
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
        lender = self._lender()
        if lender is not None:
            lender.write(encode({"kind": "start", "start": start}))
            return
        environ = {**start["environ"], VARIABLE: os.environ[VARIABLE]}
        self._spares.append(start_spare(start, environ))

    def _lender(self) -> asyncio.StreamWriter | None:
        """The connection of the host with the fewest spares relative to its offer; None: here."""
        used = self._begun + collections.Counter(
            each.host for each in self._state.workers.values() if each.rank is None
        )
        best, most = None, self._state.settings.spares - used[self._here]
        for name, writer in self._lent.items():
            left = self._state.offers[name] - used[_address(writer)]
            if left > most:
                best, most = writer, left
        self._begun[self._here if best is None else _address(best)] += 1
        return best

    async def _lend(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: dict[str, Any]
    ) -> None:
        """Another host offers spares, until its connection ends."""
        name, count, address = str(hello["name"]), int(hello["count"]), _address(writer)
        self._lent[name] = writer
        self._state.drained.discard(address)  # an operator offers it again
        self._log({"event": "spare-host", "host": address, "count": count})
        self._carry_out(self._state.on_offer(name, count))
        try:
            await reader.read()
        finally:
            if self._lent.get(name) is writer and not self._closed:
                del self._lent[name]
                self._log({"event": "spare-host", "host": address, "count": 0})
                self._carry_out(self._state.on_offer(name, 0))

    def _log(self, event: dict[str, Any]) -> None:
        entry = {"at_ns": time.monotonic_ns(), **event}
        if event["event"] == "program":
            self._program = {"file": event["file"], "loops": event["loops"]}
        self._recent.append(entry)
        if self._audit is not None:
            self._write(json.dumps(entry).encode() + b"\n")
        for message in self._trail.messages(entry):
            self._feed.tell(message)
        text = line(event)
        if text:
            self._say(text)

    def _write(self, text: bytes) -> None:
        """Append to the audit trail; the job continues if that fails."""
        assert self._audit is not None
        try:
            self._audit.write(text)
        except OSError as error:
            self._say(f"events are not written any more: {error.strerror}")
            self._audit.close()
            self._audit = None


def _refusal(orders: Sequence[Order]) -> str:
    """Why a drain is refused."""
    events = (each.event for each in orders if isinstance(each, Log))
    return next((str(e["reason"]) for e in events if e["event"] == "drain-refused"), "")


def _address(writer: asyncio.StreamWriter) -> str:
    """The address of the peer's host, which identifies the host."""
    return str(writer.get_extra_info("peername")[0])
