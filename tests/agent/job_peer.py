"""job_peer.py MODE: a job's process that connects to an agent and behaves, or not.

Says `ready` when it has done so, then waits for a line.
"""

from __future__ import annotations

import array
import ctypes
import errno
import mmap
import os
import random
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATH = os.environ["SYNTONY_AGENT"]
SEED = int(os.environ.get("PEER_SEED", "1"))
PAGE_BYTES = 128 + 64 * 64 + 128 * 512
FLOWS_AT = 128 + 64 * 64
PATIENCE_S = 300
LATER: list[threading.Thread] = []


def connect() -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(PATH)
    return sock


def page_of(sock: socket.socket) -> tuple[int, mmap.mmap]:
    data, fds, _, _ = socket.recv_fds(sock, 16, 1)
    assert data == b"\x01", data
    return fds[0], mmap.mmap(fds[0], PAGE_BYTES)


def tell() -> Any:
    """As programs do, through the library: one queue pair, and what came of it."""
    from syntony.io._library import ffi, library

    job = ffi.new("struct syn_job *")
    while (failed := library().syn_job_connect(job, ffi.NULL)) == errno.ETIMEDOUT:
        pass  # the agent is busy: programs try again later
    if failed:
        print(f"refused {os.strerror(failed)}", flush=True)
        sys.exit(1)
    flow = ffi.new("struct syn_job_flow *", {"mechanism": 1, "number": 17, "nic": b"mlx5_0"})
    flow.local = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1])
    flow.remote = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 2])
    flow.local_port, flow.remote_port = 49152, 4791
    place = library().syn_job_open_flow(job, flow)
    progress = {"bytes_done": 1 << 20, "bytes_outstanding": 4096, "last_done_ns": 1}
    progress |= {"outstanding": 3, "errors": 2, "last_error": 12}
    library().syn_job_tell(job, place, ffi.new("struct syn_job_progress *", progress))
    return job


def hear() -> Any:
    """Prints every notice that comes."""
    from syntony.io._library import ffi, library

    job, notice = tell(), ffi.new("struct syn_job_notice *")

    def listen() -> None:
        while True:
            if library().syn_job_take(job, notice):
                ends = [bytes(each)[-4:].hex() for each in (notice.local, notice.remote)]
                rate = f" {notice.rate_bps}" if notice.subject == 5 else ""
                print(f"notice {notice.subject} {' '.join(ends)}{rate}", flush=True)

    LATER.append(threading.Thread(target=listen, daemon=True))
    return job


def named() -> Any:
    """Calls itself what a terminal would obey."""
    Path("/proc/self/comm").write_bytes(b"\x1b[2J\xffx\n")
    return connect()


def silent() -> Any:
    return connect()


def talk() -> Any:
    """Fills its socket with words nobody asked for, and with descriptors."""
    sock = connect()
    sock.setblocking(False)
    try:
        while True:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 8))]
            sock.sendmsg([os.urandom(512)], rights)
    except OSError:
        return sock


def shrink() -> Any:
    sock = connect()
    fd, page = page_of(sock)
    for size in (0, 1, PAGE_BYTES - 1, 2 * PAGE_BYTES):
        try:
            os.ftruncate(fd, size)
            print("resized", flush=True)
        except PermissionError:
            pass
    page[12:16] = b"\0" * 4  # the size that the page tells
    page[16:20] = b"\xff" * 4  # flows in use
    libc = ctypes.CDLL(None)
    libc.fallocate64(fd, 3, ctypes.c_int64(0), ctypes.c_int64(PAGE_BYTES))  # punch it all out
    page[16:20] = b"\xff" * 4
    return sock, page


def scribble() -> Any:
    sock = connect()
    _, page = page_of(sock)
    rng = random.Random(SEED)

    def work() -> None:
        while True:
            at = rng.choice([rng.randrange(PAGE_BYTES - 300), FLOWS_AT, 8 * rng.randrange(16)])
            page[at : at + 300] = rng.randbytes(300)
            page[16:20] = b"\xff" * 4

    threading.Thread(target=work, daemon=True).start()
    return sock


def half() -> Any:
    """Dies in the middle of a record."""
    sock = connect()
    _, page = page_of(sock)
    page[16:20] = (1).to_bytes(4, sys.byteorder)
    page[FLOWS_AT : FLOWS_AT + 8] = b"\x01\0\0\0\x01\0\x01\0"
    return sock, page


def fork() -> Any:
    """Ends, and leaves a child that holds its socket."""
    job = tell()
    if os.fork():
        print("ready", flush=True)
        sys.stdin.readline()
        os.kill(os.getpid(), signal.SIGKILL)
    signal.alarm(PATIENCE_S)  # a child begins without its parent's
    signal.pause()
    return job


def many() -> Any:
    """Holds as many connections as it can."""
    socks = []
    for _ in range(int(os.environ["PEER_COUNT"])):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(PATH)  # waits where the agent does not keep up
        socks.append(sock)
    return socks


def come_and_go() -> None:
    for _ in range(int(os.environ["PEER_COUNT"])):
        connect().close()


MODES: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (tell, hear, named, silent, talk, shrink, scribble, half, fork, many, come_and_go)
}

if __name__ == "__main__":
    signal.alarm(PATIENCE_S)  # nobody waits for us for ever
    kept = MODES[sys.argv[1]]()
    print("ready", flush=True)
    for thread in LATER:
        thread.start()
    sys.stdin.readline()
