"""What it costs a controller to tell agents: acknowledgements and timelines, an agent and second.

The controller's own edge (`FleetService`, `Outbox`, TLS, gRPC) in this process, agents in another
that only listen. In turn: agents of the version before, with an acknowledgement and timelines each
second, and agents that read acknowledgements in timelines, which come every other second.

    python -m bench.downlink --agents 40 --seconds 20 --rounds 5
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import uvloop
from msgspec import structs
from tests.link import hello

from syntony.controller.leadership import Leadership
from syntony.controller.pki import Authority, create_authority
from syntony.controller.service import FleetService, Hub
from syntony.controller.sessions import AgentSession
from syntony.io.transport import grpc
from syntony.model import ClockState, Timeline
from syntony.wire.clocks import Timelines
from syntony.wire.coding import encode
from syntony.wire.messages import ATTACH, ControllerMessage, Hello
from syntony.wire.roles import Role

PAUSE_S = 0.1
"""Between what is sent, so that each message goes by itself."""
TOLD = Timelines(
    timelines=tuple(
        Timeline(
            node=f"b{number}", ref_ns=1, offset_ns=1.5, drift_ppb=2.5, sigma_ns=20.0,
            drift_sigma_ppb=5.0, state=ClockState.SYNCHRONIZED, component="b0",
        )
        for number in range(11)
    )
)  # fmt: skip


class _Hub:
    """Takes everybody, and remembers their sessions."""

    def __init__(self, agents: int) -> None:
        self.sessions: list[AgentSession] = []
        self._agents, self.complete = agents, asyncio.Event()
        self.sent = 0
        self._leadership = Leadership(cast(Any, SimpleNamespace(epoch=3)))

    def admit(self, _: object) -> None:
        pass

    def check(self, _: Hello) -> None:
        pass

    def seal(self, message: ControllerMessage, stored: int) -> bytes:
        self.sent += 1
        return self._leadership.seal(message, stored)

    def attached(self, session: AgentSession, _: Hello, __: Sequence[str]) -> None:
        self.sessions.append(session)
        session.outbox.acknowledge(0)
        if len(self.sessions) == self._agents:
            self.complete.set()

    def detached(self, _: AgentSession) -> None:
        pass


async def _listen(port: int, directory: Path, agents: int) -> None:
    async def one(host: str) -> None:
        files = [(directory / f"{host}.{part}").read_bytes() for part in ("ca", "key", "cert")]
        options = (("grpc.use_local_subchannel_pool", 1),)
        credentials = grpc.ssl_channel_credentials(*files)
        channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options)
        call = channel.stream_stream(ATTACH)()
        await call.write(encode(structs.replace(hello(host, "s"), reads_stored=True)))
        async for _ in call:
            pass

    await asyncio.gather(*(one(f"b{number}") for number in range(agents)))


async def _measure(hub: _Hub, arguments: argparse.Namespace) -> None:
    seq = 0
    for number in range(2 * arguments.rounds):
        after = bool(number % 2)
        for session in hub.sessions:
            session.outbox._patient = after
        hub.sent, began_s = 0, time.process_time()
        for second in range(arguments.seconds):
            seq += 1
            for session in hub.sessions:
                session.outbox.acknowledge(seq)
            await asyncio.sleep(PAUSE_S)
            for session in hub.sessions:
                if not after or second % 2:
                    session.outbox.put(TOLD)
            await asyncio.sleep(PAUSE_S)
        each = arguments.agents * arguments.seconds
        spent_us = (time.process_time() - began_s) / each * 1e6
        name = "after" if after else "before"
        print(f"{name:6} {spent_us:4.0f} us, {hub.sent / each:.2f} messages", flush=True)


def _issue(authority: Authority, directory: Path, name: str, role: Role) -> list[bytes]:
    tls = authority.issue(
        name, role, addresses=["127.0.0.1"], lifetime_ns=10**13, directory=directory
    )
    files = [Path(tls.ca).read_bytes(), Path(tls.key).read_bytes(), Path(tls.cert).read_bytes()]
    for part, data in zip(("ca", "key", "cert"), files, strict=True):
        (directory / f"{name}.{part}").write_bytes(data)
    return files


async def _run(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="syntony-bench-") as temporary:
        directory = Path(temporary)
        authority = create_authority(directory / "ca")
        for number in range(arguments.agents):
            _issue(authority, directory, f"b{number}", Role.AGENT)
        ca, key, cert = _issue(authority, directory, "c", Role.CONTROLLER)
        hub, server = _Hub(arguments.agents), grpc.aio.server()
        server.add_generic_rpc_handlers((FleetService(cast(Hub, hub)).handlers(),))
        credentials = grpc.ssl_server_credentials([(key, cert)], ca, True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        words = ["--agents", str(arguments.agents), "--listen", str(port), temporary]
        command = [sys.executable, "-m", "bench.downlink", *words]
        listener = await asyncio.create_subprocess_exec(*command)
        try:
            await hub.complete.wait()
            await asyncio.sleep(1.0)
            await _measure(hub, arguments)
        finally:
            for session in hub.sessions:
                session.outbox.close()
            await listener.wait()
            await server.stop(1.0)


def main() -> int:
    """Print a line for each round: processor time, and messages, of an agent and second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=40)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--listen", nargs=2, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.listen:
        port, directory = arguments.listen
        asyncio.run(_listen(int(port), Path(directory), arguments.agents))
    else:
        uvloop.run(_run(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
