"""The init program of a guest: sets up interfaces and RDMA devices, then serves commands.

    python -m syntony.lab.verbs.guest CONFIG

As process 1 it reaps orphans, and the guest ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
import traceback
from pathlib import Path

import msgspec

from syntony.lab import netns
from syntony.lab.verbs.frames import CHUNK, PORT, FrameKind, RunOrder, frame, read


class GuestNic(msgspec.Struct, frozen=True):
    name: str
    mac: str
    verbs: bool
    """Whether it gets a Soft-RoCE device, named `rdma_name`."""


class GuestConfig(msgspec.Struct, frozen=True):
    """The configuration that a guest applies to itself."""

    host: str
    nics: tuple[GuestNic, ...]
    sysctls: dict[str, str]
    ip: list[str]
    """Lines for `ip -batch`, as in a lab's namespaces."""
    rules: dict[int, list[str]]
    """The same by family."""
    routes: list[str]
    address: str
    """Where it listens for commands: the front-end network."""


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def rdma_name(nic: str) -> str:
    return f"rxe_{nic}"


def prepare(config: GuestConfig) -> None:
    """Names, addresses, routes and RDMA devices. Raises `MissingError`."""
    Path("/proc/sys/kernel/hostname").write_text(config.host, encoding="ascii")
    for path, value in config.sysctls.items():
        with contextlib.suppress(OSError):  # this kernel lacks it
            Path("/proc/sys", path).write_text(value, encoding="ascii")
    by_mac = {(nic / "address").read_text().strip(): nic.name
              for nic in Path("/sys/class/net").iterdir()}  # fmt: skip
    names = [f"link set {by_mac[nic.mac]} name {nic.name}" for nic in config.nics]
    netns.batch(None, ["ip"], names)
    netns.batch(None, ["ip"], config.ip)
    for family, lines in config.rules.items():
        netns.batch(None, ["ip", f"-{family}"], lines)
    netns.batch(None, ["ip"], config.routes)
    for nic in config.nics:
        if nic.verbs:
            add = ["rdma", "link", "add", rdma_name(nic.name), "type", "rxe", "netdev", nic.name]
            netns.tool(None, add)


async def serve(address: str) -> None:
    """Runs commands for anyone who connects, for ever."""
    server = await asyncio.start_server(_client, address, PORT)
    async with server:
        await server.serve_forever()


async def _client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        kind, body = await read(reader)
        if kind is FrameKind.RUN:
            await _run(msgspec.json.decode(body, type=RunOrder), reader, writer)
    except (EOFError, ConnectionError, ValueError, msgspec.DecodeError) as error:
        print(f"guest: a client went: {error}", flush=True)
    finally:
        writer.close()


async def _run(order: RunOrder, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *order.argv, env=order.env, cwd=order.cwd,
            stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        writer.write(frame(FrameKind.ERRORS, f"{order.argv[0]}: {error.strerror}\n".encode()))
        writer.write(frame(FrameKind.ENDED, bytes([127])))
        await writer.drain()
        return
    orders = asyncio.ensure_future(_orders(process, reader))
    outputs = ((process.stdout, FrameKind.OUTPUT), (process.stderr, FrameKind.ERRORS))
    try:
        await asyncio.gather(
            *(_forward(stream, kind, writer) for stream, kind in outputs if stream)
        )
        code = await process.wait()
        writer.write(frame(FrameKind.ENDED, bytes([code if code >= 0 else 128 - code])))
        await writer.drain()
    finally:
        orders.cancel()
        if process.returncode is None:
            process.kill()


async def _forward(
    stream: asyncio.StreamReader, kind: FrameKind, writer: asyncio.StreamWriter
) -> None:
    while data := await stream.read(CHUNK):
        writer.write(frame(kind, data))
        await writer.drain()


async def _orders(process: asyncio.subprocess.Process, reader: asyncio.StreamReader) -> None:
    """Forward input and signals; if the client disconnects, the command is killed."""
    stdin = process.stdin
    try:
        while True:
            kind, body = await read(reader)
            if kind is FrameKind.INPUT and stdin and body:
                with contextlib.suppress(ConnectionError):
                    stdin.write(body)
                    await stdin.drain()
            elif kind is FrameKind.INPUT and stdin:
                stdin.close()
            elif kind is FrameKind.SIGNAL and process.returncode is None:
                process.send_signal(body[0])
    except (EOFError, ConnectionError, ValueError):
        if process.returncode is None:
            process.kill()


def main(path: Path) -> None:
    """See above."""
    os.environ.update(PATH=PATH, HOME="/root", LC_ALL="C.UTF-8", PYTHONDONTWRITEBYTECODE="1")
    config = msgspec.json.decode(path.read_bytes(), type=GuestConfig)
    prepare(config)
    up_s = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    print(f"guest: {config.host} is ready after {up_s:.1f} s", flush=True)
    asyncio.run(serve(config.address))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except BaseException:  # noqa: BLE001 - process 1: say it, and end the machine
        traceback.print_exc()
        sys.stdout.flush()
    time.sleep(0.5)
    Path("/proc/sysrq-trigger").write_text("o", encoding="ascii")
    time.sleep(60)
