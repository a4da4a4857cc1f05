"""Lets an operator on this host inspect a protected job, and drain ranks.

The coordinator listens on a Unix socket in a directory that only its own user can enter. One JSON
object a line each way. Requests are `{"do": "show"}`, `{"do": "drain", "rank": N}` and
`{"do": "drain", "host": NAME, "keep": BOOL}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syntony.torch.membership import Membership

MAX_LINE = 4096
ANSWER_S = 5.0


class ControlError(Exception):
    """There is no such job, or it does not answer."""


def overview(
    state: Membership, pids: Mapping[str, int], hosts: Mapping[str, str]
) -> dict[str, Any]:
    """Describe a job for operators.

    Args:
        pids: of workers' programs, by name.
        hosts: their hosts' names, by name.
    """
    ranks = [
        {
            "rank": rank,
            "worker": name,
            "pid": pids.get(name),
            "host": hosts.get(name),
            "address": state.workers[name].host if name in state.workers else None,
            "step": state.records.get(rank),
            "state": _state_of(state, rank, name),
        }
        for rank, name in sorted(state.holders.items())
    ]
    missing = sorted(set(state.keepers) - set(state.holders) - set(state.ended))
    return {
        "generation": state.generation,
        "replaced": state.replaced,
        "protected": not (state.unprotected or state.fixed or state.over),
        "reason": state.unprotected or state.fixed,
        "ranks": ranks,
        "lost": missing,
        "spares": [
            {"worker": each.name, "pid": pids.get(each.name), "ready": each.waiting}
            for each in state.workers.values()
            if each.rank is None
        ],
    }


def _state_of(state: Membership, rank: int, name: str) -> str:
    worker = state.workers.get(name)
    if rank in state.ended or worker is None:
        return "ended"
    if worker.stopped_ns is not None:
        return "stopped"
    if worker.joining:
        return "joining"
    return "finished" if worker.finished else "running"


def directory() -> Path:
    """Directory of this user's job sockets."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    shared = Path(tempfile.gettempdir()) / f"syntony-{os.geteuid()}"
    return (Path(base) / "syntony" if base else shared) / "protected"


def _private(place: Path) -> bool:
    """Whether no other user can have created files there."""
    for each in (place.parent, place):
        found = each.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        if found.st_mode & 0o077:
            return False
    return True


async def listen(
    job: str, show: Callable[[], dict[str, Any]], drain: Callable[[int], str],
    drain_host: Callable[[str, bool], str],
) -> asyncio.Server:  # fmt: skip
    """Answer operators until the server is closed.

    Args:
        job: its name.
        show: returns the output of `overview`, and more.
        drain: replaces a rank's process; returns why not, or an empty string.
        drain_host: the same for all ranks of a host; on request, ends the job with its state kept.

    Raises:
        OSError: another job of that name runs, or other users can write to the directory.
    """
    place = directory()
    for each in (place.parent, place):  # the first is shared with labs, which need the same
        each.mkdir(mode=0o700, exist_ok=True)
    if not _private(place):
        raise PermissionError(f"{place} is not private to this user")
    path = place / job
    if _answers(path):
        raise FileExistsError(f"a protected job {job} runs already")
    path.unlink(missing_ok=True)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                answer = _answer(json.loads(await reader.readline()), show, drain, drain_host)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    return await asyncio.start_unix_server(serve, path, limit=MAX_LINE)


def _answer(
    request: Any, show: Callable[[], dict[str, Any]], drain: Callable[[int], str],
    drain_host: Callable[[str, bool], str],
) -> dict[str, Any]:  # fmt: skip
    match request:
        case {"do": "show"}:
            return show()
        case {"do": "drain", "rank": int(rank)}:
            refused = drain(rank)
            return {"error": refused} if refused else {"rank": rank}
        case {"do": "drain", "host": str(host), "keep": bool(keep)}:
            refused = drain_host(host, keep)
            return {"error": refused} if refused else {"host": host}
        case _:
            return {"error": "ask for show or drain"}


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(ANSWER_S)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def ask(job: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request to a job's coordinator and return its answer. Raises `ControlError`: there is
    none, or it refuses."""
    place = directory()
    none = ControlError(f"no protected job {job} of this user runs on this host")
    if "/" in job or not place.is_dir() or not _private(place):
        raise none
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(ANSWER_S)
        try:
            asking.connect(str(place / job))
        except OSError:
            raise none from None
        try:
            asking.sendall(json.dumps(request).encode() + b"\n")
            with asking.makefile("rb") as answers:
                answer = json.loads(answers.readline())
        except (OSError, ValueError) as error:
            raise ControlError(f"job {job} does not answer: {error}") from error
    if not isinstance(answer, dict):
        raise ControlError(f"job {job} does not answer")
    if "error" in answer:
        raise ControlError(str(answer["error"]))
    return answer
