"""Many connections at once, from threads, from a forked child and from a program it executes.

serve ADDRESS, or ask ADDRESS PORT COUNT: COUNT connections are open at the same time and each
carries its own number there and back.
"""

from __future__ import annotations

import os
import resource
import selectors
import socket
import subprocess
import sys
import threading

THREADS = 8
FEW = 10


def more_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))


def serve(address: str) -> None:
    """One thread, one epoll set, until killed."""
    listener = socket.create_server((address, 0), backlog=4096)
    print(listener.getsockname()[1], flush=True)
    with selectors.EpollSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is listener:
                    accepted = listener.accept()[0]
                    # gloo does this to what it accepts
                    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    ready.register(accepted, selectors.EVENT_READ)
                    continue
                stream = key.fileobj
                assert isinstance(stream, socket.socket)
                if data := stream.recv(64):
                    stream.sendall(data)
                else:
                    ready.unregister(stream)
                    stream.close()


def ask(address: str, port: int, count: int) -> None:
    streams = [socket.create_connection((address, port)) for _ in range(count)]
    for number, stream in enumerate(streams):
        stream.sendall(b"%8d" % number)
    for number, stream in enumerate(streams):
        assert stream.recv(8, socket.MSG_WAITALL) == b"%8d" % number
        stream.close()


def from_everywhere(address: str, port: int, count: int) -> None:
    workers = [
        threading.Thread(target=ask, args=(address, port, count // THREADS)) for _ in range(THREADS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    child = os.fork()
    if child == 0:
        ask(address, port, FEW)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    subprocess.run([sys.executable, __file__, "ask", address, str(port), str(FEW)], check=True)


more_descriptors()
match sys.argv[1:]:
    case ["serve", address]:
        serve(address)
    case ["ask", address, port, count]:
        ask(address, int(port), int(count))
    case ["everywhere", address, port, count]:
        from_everywhere(address, int(port), int(count))
