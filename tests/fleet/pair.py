"""Two ends of one connection that exchange checked steps until told to stop.

``pair.py client|server CLIENT-ADDRESS SERVER-ADDRESS PORT [plain]``: MPTCP unless plain TCP is
asked for; the client ends when its stdin does
and prints one JSON line: steps, longest step in seconds, wrong answers.
"""

from __future__ import annotations

import hashlib
import json
import select
import socket
import sys
import time

MPTCP = 262
PROTOCOL = socket.IPPROTO_TCP if sys.argv[5:] == ["plain"] else MPTCP
STEP_BYTES = 200_000


def receive(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            break
        data += part
    return bytes(data)


def serve(address: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM, PROTOCOL) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1)
        peer, _ = listener.accept()
    with peer:
        while len(data := receive(peer, STEP_BYTES)) == STEP_BYTES:
            peer.sendall(hashlib.blake2b(data).digest())


def connect(client: str, server: str, port: int) -> socket.socket:
    while True:
        sock = socket.socket(
            socket.AF_INET6 if ":" in client else socket.AF_INET, socket.SOCK_STREAM, PROTOCOL
        )
        sock.bind((client, 0))
        try:
            sock.connect((server, port))
        except ConnectionRefusedError:
            sock.close()
            time.sleep(0.05)
        else:
            return sock


def ask(sock: socket.socket) -> dict[str, object]:
    steps = 0
    wrong: list[str] = []
    longest_s = 0.0
    while not select.select([sys.stdin], [], [], 0)[0]:
        data = steps.to_bytes(8, "big") * (STEP_BYTES // 8)
        began_s = time.monotonic()
        sock.sendall(data)
        answer = receive(sock, 64)
        if answer != hashlib.blake2b(data).digest():
            wrong.append(f"step {steps}: {len(answer)} bytes {answer[:8].hex()}")
        longest_s = max(longest_s, time.monotonic() - began_s)
        steps += 1
        time.sleep(0.01)
    return {"steps": steps, "longest_s": longest_s, "wrong": len(wrong), "which": wrong}


if __name__ == "__main__":
    role, client, server, port = sys.argv[1:5]
    if role == "server":
        serve(server, int(port))
    else:
        with connect(client, server, int(port)) as sock:
            print(json.dumps(ask(sock)), flush=True)
