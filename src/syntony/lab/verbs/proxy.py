"""Runs a command in a guest as if it ran here: input, output, signals, exit status.

python -m syntony.lab.verbs.proxy ADDRESS [--] COMMAND…
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

import msgspec

from syntony.lab.netns import inside
from syntony.lab.plan import CONTROLLER
from syntony.lab.verbs.frames import CHUNK, PORT, FrameKind, RunOrder, frame, read

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
GUEST_UNREACHABLE = 125
"""Exit status when the guest does not answer, or has died."""
PATIENCE_S = 240.0
"""A guest boots in 10 s on an idle machine, in minutes at a load of 50 on two cores."""
RETRY_S = 0.25
SILENCE_S = 100
"""A guest that does not answer for this long is dead; one that has rebooted resets the
connection."""
PROBE_S = 10
"""Between two probes of an idle connection."""


def guest_entry(address: str) -> tuple[str, ...]:
    """The prefix of a command that runs in a guest; used inside a lab's world."""
    return (*inside(CONTROLLER), sys.executable, "-m", "syntony.lab.verbs.proxy", address, "--")


async def run(address: str, argv: list[str]) -> int:
    """The command's exit status, or `GUEST_UNREACHABLE`."""
    connection = await _connect(address)
    if connection is None:
        print(f"guest {address} does not answer", file=sys.stderr)
        return GUEST_UNREACHABLE
    reader, writer = connection
    order = RunOrder(argv, dict(os.environ), str(Path.cwd()))
    writer.write(frame(FrameKind.RUN, msgspec.json.encode(order)))
    _limit_silence(writer.get_extra_info("socket"))
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, writer.write, frame(FrameKind.SIGNAL, bytes([number])))
    _forward_input(loop, writer)
    try:
        while True:
            kind, body = await read(reader)
            if kind is FrameKind.ENDED:
                return body[0]
            if kind in (FrameKind.OUTPUT, FrameKind.ERRORS):
                _write(1 if kind is FrameKind.OUTPUT else 2, body)
    except (EOFError, OSError, ValueError):
        print(f"guest {address} has gone", file=sys.stderr)
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()  # else asyncio may report its error once more
        return GUEST_UNREACHABLE


def _limit_silence(connected: socket.socket) -> None:
    """End the connection after `SILENCE_S` without an answer, whether data is unacknowledged or
    not: keep-alive alone does not count while data is."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, PROBE_S),
        (socket.TCP_KEEPINTVL, PROBE_S),
        (socket.TCP_USER_TIMEOUT, SILENCE_S * 1000),
    ):
        connected.setsockopt(socket.IPPROTO_TCP, option, value)


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
    while asyncio.get_running_loop().time() < deadline_s:
        with contextlib.suppress(OSError, TimeoutError):
            return await asyncio.wait_for(asyncio.open_connection(address, PORT), 5)
        await asyncio.sleep(RETRY_S)
    return None


def _forward_input(loop: asyncio.AbstractEventLoop, writer: asyncio.StreamWriter) -> None:
    def ready() -> None:
        data = os.read(0, CHUNK)
        writer.write(frame(FrameKind.INPUT, data))
        if not data:
            loop.remove_reader(0)

    try:
        loop.add_reader(0, ready)
    except (PermissionError, OSError):  # a regular file is always ready, epoll has no use for it
        with contextlib.suppress(OSError):
            while data := os.read(0, CHUNK):
                writer.write(frame(FrameKind.INPUT, data))
        writer.write(frame(FrameKind.INPUT))


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


if __name__ == "__main__":
    words = sys.argv[2:]
    sys.exit(asyncio.run(run(sys.argv[1], words[1:] if words[:1] == ["--"] else words)))
