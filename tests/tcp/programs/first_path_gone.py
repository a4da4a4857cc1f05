"""What TCP_INFO says once the first of two subflows is gone: ADDRESS PORT PROTOCOL.

Prints "two" when a second subflow exists; when stdin says so, sends on, and prints TCP_INFO's state
as soon as the data has come back.
"""

from __future__ import annotations

import socket
import sys
import time

SOL_MPTCP, MPTCP_INFO = 284, 1
BYTES = 200_000

address, port, protocol = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as stream:
    stream.settimeout(300)
    stream.connect((address, port))
    end_s = time.monotonic() + 300
    while stream.getsockopt(SOL_MPTCP, MPTCP_INFO, 64)[0] < 1:  # subflows beside the first
        assert time.monotonic() < end_s, "no second subflow"
        stream.sendall(b"x")
        stream.recv(1)
        time.sleep(0.01)
    print("two", flush=True)
    input()
    stream.sendall(bytes(BYTES))
    back = 0
    while back < BYTES:
        back += len(stream.recv(65536))
    print(stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)[0])
