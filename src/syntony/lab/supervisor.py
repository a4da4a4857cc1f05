"""Runs a lab from inside its world: builds the fabric, then serves its control socket."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from syntony.errors import SyntonyError
from syntony.lab import commands, ecmp, fabric, netns, state
from syntony.lab.control import ControlPlane
from syntony.lab.daemons import Daemons
from syntony.lab.faults import FaultContext, Registry, parse_order
from syntony.lab.linkwatch import NamespaceLinkWatch
from syntony.lab.messages import (
    Cleared,
    ClearRequest,
    DownRequest,
    Going,
    Injected,
    InjectRequest,
    LabEvent,
    LabFile,
    LabLink,
    LabRefusal,
    LabStatus,
    PathReply,
    PathRequest,
    Reply,
    Request,
    StatusRequest,
)
from syntony.lab.plan import ROUTER, make_plan
from syntony.lab.ports import LabPorts
from syntony.lab.provision import machine_daemon, provision

_GRACE_S = 3.0
"""How long daemons have to end by themselves; they spool to disk, so a kill loses nothing."""
_MAX_LINE = 1 << 20


class Supervisor:
    def __init__(self, directory: Path, file: LabFile, note: Callable[[str], None]) -> None:
        self._directory = directory
        self._file = file
        self._note = note
        self._plan = make_plan(file.spec)
        self._control = ControlPlane(self._plan)
        self._daemons = Daemons(note)
        self._faults = Registry(
            FaultContext(
                self._plan,
                LabPorts(self._plan, guests=bool(file.image)),
                self._daemons,
                file.clocks,
                directory,
            ),
            note,
        )
        self._ports = {p.index: p for link in self._plan.links for p in (link.a, link.b)}
        self._timer: asyncio.TimerHandle | None = None
        self._started_ns = time.monotonic_ns()
        self._watches: list[NamespaceLinkWatch] = []
        self._server: asyncio.Server | None = None
        self.stop = asyncio.Event()

    async def start(self) -> None:
        """Raises `SyntonyError` or `OSError`: the lab cannot be."""
        daemons = provision(self._directory, self._file, self._plan) if self._file.agents else []
        fabric.build(self._plan, guests=bool(self._file.image))
        loop = asyncio.get_running_loop()
        for node in (*self._plan.switches, ROUTER):
            watch = NamespaceLinkWatch(node)
            self._watches.append(watch)
            loop.add_reader(watch.fileno(), self._links_changed, watch)
        path = self._directory / state.CONTROL_SOCKET
        self._server = await asyncio.start_unix_server(self._serve, path, limit=_MAX_LINE)
        machines = self._plan.hosts if self._file.image else ()
        for spec in (*(machine_daemon(self._directory, host) for host in machines), *daemons):
            self._daemons.start(spec)

    async def finish(self) -> None:
        """End the daemons and faults in order."""
        if self._server is not None:
            self._server.close()
        self._faults.clear(0)
        await self._daemons.close(_GRACE_S)
        for watch in self._watches:
            watch.close()

    # --- links and routes -------------------------------------------------------------------

    def _links_changed(self, watch: NamespaceLinkWatch) -> None:
        now_ns = time.monotonic_ns()
        for seen in watch.read():
            port = self._ports.get(seen.ifindex)
            if port is None or port.node != watch.node:
                continue
            if self._control.observe(port.node, port.name, seen.up, now_ns):
                self._note(f"{port} is {'up' if seen.up else 'down'}")
        self._schedule()

    def _schedule(self) -> None:
        due_ns = self._control.next_due_ns()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ns is not None:
            delay_s = max(0, due_ns - time.monotonic_ns()) / 1e9
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._converge)

    def _converge(self) -> None:
        self._timer = None
        updates = self._control.advance(time.monotonic_ns())
        for update in updates:
            lines = commands.route_lines("del", update.withdraw)
            lines += commands.route_lines("replace", update.install)
            netns.batch_forced(update.node, ["ip"], lines)
        if updates:
            avoided = ", ".join(sorted(self._control.failed)) or "nothing"
            self._note(f"routes converged in {len(updates)} switches, avoiding {avoided}")
        self._schedule()

    # --- the control socket -----------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            reply = await self._reply(line)
            writer.write(msgspec.json.encode(reply) + b"\n")
            await writer.drain()
            if isinstance(reply, Going):
                self.stop.set()
        except (ConnectionError, ValueError) as error:  # gone, or a line over the limit
            self._note(f"control socket: {error}")
        finally:
            writer.close()

    async def _reply(self, line: bytes) -> Reply:
        try:
            return await self._answer(msgspec.json.decode(line, type=Request))
        except msgspec.DecodeError as error:
            return LabRefusal(kind="WireError", reason=f"not a request of this version: {error}")
        except SyntonyError as error:
            return LabRefusal(kind=type(error).__name__, reason=str(error))
        except OSError as error:  # the kernel refused something a fault needed
            return LabRefusal(kind="MissingError", reason=str(error))

    async def _answer(self, request: Request) -> Reply:
        match request:
            case StatusRequest():
                return self._status()
            case InjectRequest():
                order = parse_order(self._plan, request.kind, request.target, request.options)
                return Injected(fault=self._faults.inject(order, request.for_ns))
            case ClearRequest():
                return Cleared(faults=self._faults.clear(request.fault))
            case PathRequest():
                # Tracing waits for packets while routes must still converge.
                return PathReply(paths=await asyncio.to_thread(ecmp.paths, self._plan, request))
            case DownRequest():
                return Going()

    def _status(self) -> LabStatus:
        plan = self._plan
        return LabStatus(
            name=self._file.name,
            directory=str(self._directory),
            age_ns=time.monotonic_ns() - self._started_ns,
            spec=plan.spec,
            hosts=plan.hosts,
            leaves=plan.leaves,
            spines=plan.spines,
            links=tuple(
                LabLink(
                    name=link.name,
                    kind=link.kind,
                    ends=(str(link.a), str(link.b)),
                    up=all(self._control.is_up(p.node, p.name) for p in (link.a, link.b)),
                )
                for link in plan.links
            ),
            avoided=tuple(sorted(self._control.failed)),
            faults=self._faults.statuses(),
            daemons=self._daemons.statuses(),
        )


class _EventOutput:
    """Writes events to standard output, for the command line, and to the log."""

    def __init__(self) -> None:
        self._listening = True

    def emit(self, kind: str, text: str) -> None:
        sys.stderr.write(f"{time.monotonic():.3f} {kind}: {text}\n")
        sys.stderr.flush()
        if self._listening:
            try:
                os.write(1, msgspec.json.encode(LabEvent(kind=kind, text=text)) + b"\n")
            except BlockingIOError:
                return  # nobody reads just now: the log has it
            except BrokenPipeError:
                self._listening = False

    def note(self, text: str) -> None:
        self.emit("note", text)

    def close_output(self) -> None:
        """Close the pipe, so that its reader sees the end."""
        self._listening = False
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)


def run(directory: str, *, detach: bool) -> int:
    """The supervisor's whole life; its exit code."""
    place = Path(directory)
    log = os.open(place / state.LOGS / "supervisor.log", os.O_WRONLY | os.O_CREAT, 0o600)
    events = _EventOutput()
    os.dup2(log, 2)
    os.set_blocking(1, False)
    _close_inherited()
    try:
        netns.mount("none", "/run", "tmpfs")
        netns.mount_sys()
        file = msgspec.json.decode((place / state.LAB_FILE).read_bytes(), type=LabFile)
        asyncio.run(_run_lab(place, file, events, detach))
    except (SyntonyError, OSError) as error:
        events.emit("failed", str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - supervisor boundary: say it, end the world
        traceback.print_exc()
        events.emit("failed", f"internal error: {type(error).__name__}: {error}")
        return 1
    return 0


def _close_inherited() -> None:
    """Daemons must not inherit the lab's lock."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > 2 and entry.exists():
            os.set_inheritable(int(entry.name), False)


async def _run_lab(place: Path, file: LabFile, events: _EventOutput, detach: bool) -> None:
    supervisor = Supervisor(place, file, events.note)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop.set)
    loop.add_reader(0, _lifeline, supervisor.stop)
    await supervisor.start()
    if not supervisor.stop.is_set():
        if detach:
            loop.remove_reader(0)
        events.emit("ready", file.name)
        if detach:
            events.close_output()
        await supervisor.stop.wait()
    await supervisor.finish()


def _lifeline(stop: asyncio.Event) -> None:
    """Standard input was closed: the process that started this lab has ended."""
    if not os.read(0, 4096):
        asyncio.get_running_loop().remove_reader(0)
        stop.set()
