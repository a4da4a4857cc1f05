"""A server that accepts late: ``late_server.py ADDRESS PORT SECONDS``; then as ``pair.py``'s."""

from __future__ import annotations

import hashlib
import socket
import sys
import time

MPTCP, STEP_BYTES = 262, 200_000


def receive(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (part := sock.recv(size - len(data))):
        data += part
    return bytes(data)


if __name__ == "__main__":
    address, port, seconds = sys.argv[1:]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM, MPTCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, int(port)))
        listener.listen(1)
        time.sleep(float(seconds))
        peer, _ = listener.accept()
    with peer:
        while len(data := receive(peer, STEP_BYTES)) == STEP_BYTES:
            peer.sendall(hashlib.blake2b(data).digest())
