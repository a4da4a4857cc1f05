"""Many MPTCP connections at once: ``crowd.py server|client COUNT CLIENT SERVER PORT``.

The client says "ready" when all stand, ends when its stdin does, and then asks every one of them
for an answer: prints how many gave it.
"""

from __future__ import annotations

import socket
import sys
import time

MPTCP = 262


def serve(address: str, port: int, count: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(2048)
        peers = [listener.accept()[0] for _ in range(count)]
    for peer in peers:
        peer.sendall(b"hello")
    for peer in peers:
        peer.sendall(peer.recv(1))


def connect(client: str, server: str, port: int) -> socket.socket:
    while True:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
        sock.bind((client, 0))
        try:
            sock.connect((server, port))
        except ConnectionRefusedError:
            sock.close()
            time.sleep(0.05)
        else:
            return sock


def ask(client: str, server: str, port: int, count: int) -> None:
    socks = [connect(client, server, port) for _ in range(count)]
    for sock in socks:
        sock.recv(5)
    print("ready", flush=True)
    sys.stdin.read()
    for sock in socks:
        sock.sendall(b"?")
    print(sum(sock.recv(1) == b"?" for sock in socks), flush=True)


if __name__ == "__main__":
    role, count, client, server, port = sys.argv[1:]
    if role == "server":
        serve(server, int(port), int(count))
    else:
        ask(client, server, int(port), int(count))
