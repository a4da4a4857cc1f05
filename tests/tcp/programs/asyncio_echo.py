"""An asyncio server and its clients: serve ADDRESS, or ask ADDRESS PORT COUNT.

asyncio sets options on every stream it makes or accepts, and looks at the socket's protocol.
"""

from __future__ import annotations

import asyncio
import socket
import sys

BYTES = 300_000


def nodelay(writer: asyncio.StreamWriter) -> bool:
    sock: socket.socket = writer.get_extra_info("socket")
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    assert nodelay(writer)
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(address: str) -> None:
    server = await asyncio.start_server(echo, address, 0, reuse_address=True, reuse_port=True)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def ask_once(address: str, port: int, number: int) -> None:
    reader, writer = await asyncio.open_connection(address, port)
    assert nodelay(writer)
    sent = bytes((number + i) % 256 for i in range(256)) * (BYTES // 256)
    writer.write(sent)
    writer.write_eof()
    assert await reader.read(-1) == sent
    writer.close()
    await writer.wait_closed()


async def ask(address: str, port: int, count: int) -> None:
    await asyncio.gather(*(ask_once(address, port, number) for number in range(count)))


if sys.argv[1] == "serve":
    asyncio.run(serve(sys.argv[2]))
else:
    asyncio.run(ask(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
