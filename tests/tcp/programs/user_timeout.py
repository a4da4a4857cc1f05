"""Asks for TCP_USER_TIMEOUT, sends until the connection dies, and says after how long and of what:
``user_timeout.py ADDRESS PORT MS``. "ready" when connected; then it waits for a line of stdin."""

from __future__ import annotations

import socket
import sys
import time

if __name__ == "__main__":
    address, port, timeout_ms = sys.argv[1:]
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timeout_ms))
        sock.connect((address, int(port)))
        print("ready", flush=True)
        sys.stdin.readline()
        began_s = time.monotonic()
        try:
            while True:
                sock.sendall(bytes(1000))
                time.sleep(0.05)
        except OSError as error:
            print(f"{error.errno} {time.monotonic() - began_s:.1f}", flush=True)
