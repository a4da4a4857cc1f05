"""A job of two tasks: task 0 sends blocks to task 1 over rail 0 and checks what comes back.

    python steps_job.py ADDRESS FILE

Each finished step is a line of FILE: when it ended, in ns. It goes on until FILE.enough exists. No
library of ours is imported.
"""

import hashlib
import os
import socket
import sys
import time
from pathlib import Path

PORT, BLOCK = 7070, 1 << 16


def receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionError("the other task is gone")
        data += more
    return data


def serve(address: str) -> None:
    with socket.create_server((address, PORT)) as server:
        peer, _ = server.accept()
        with peer:
            while peer.recv(1, socket.MSG_PEEK):
                peer.sendall(hashlib.sha256(receive(peer, BLOCK)).digest())


def connect(address: str) -> socket.socket:
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=600)
        except ConnectionRefusedError:  # the other task is not there yet
            time.sleep(0.1)


def main(address: str, file: str) -> None:
    if os.environ["SLURM_PROCID"] == "1":
        serve(address)
        return
    step = 0
    with connect(address) as peer, Path(file).open("w", buffering=1) as log:
        while not Path(f"{file}.enough").exists():
            block = hashlib.sha256(b"%d" % step).digest() * (BLOCK // 32)
            peer.sendall(block)
            if receive(peer, 32) != hashlib.sha256(block).digest():
                sys.exit(f"step {step}: the data are not what was sent")
            log.write(f"{time.monotonic_ns()}\n")
            step += 1
            time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
