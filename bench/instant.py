"""When a fault of the lab really begins: the kernel's own word, in the namespace where it is made.

Putting a fault in takes 3 ms on a quiet machine and 300 on a busy one, and packets stop somewhere
within. So a process in the switch listens to what nftables and the links commit there:

    with watching(lab, "leaf0-0") as instants:
        lab.inject("blackhole", "h0/rail0")
        began_ns = instants.since(before_ns)
"""

from __future__ import annotations

import json
import os
import queue
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

from syntony.lab.plan import LinkKind
from syntony.model import S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Protocol

    from syntony.lab.plan import Link

    class Enterable(Protocol):
        """A lab, of which a namespace can be entered."""

        def enter_argv(self, node: str, command: Sequence[str]) -> list[str]: ...


NETLINK_NETFILTER, NFNLGRP_NFTABLES = 12, 7
RTMGRP_LINK = 1
REALTIME = 1
SOL_NETLINK, ADD_MEMBERSHIP = 270, 1
READ_BYTES = 1 << 16
PATIENCE_S = 2.0


def switch_of(link: Link) -> str:
    """Where a fault of a link is made: in its leaf (`syntony.lab.faults.base.passing`)."""
    return (link.a if link.kind is LinkKind.FABRIC else link.b).node


def listen() -> None:
    """Inside the namespace: one line for each thing committed, until standard input ends."""
    tables = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    tables.bind((0, 0))
    tables.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, NFNLGRP_NFTABLES)
    links = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    links.bind((0, RTMGRP_LINK))
    print(json.dumps({"at_ns": 0}), flush=True)
    ended = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([tables, links, ended], [], [])
        at_ns = time.monotonic_ns()
        if ended in ready:
            return
        for each in (tables, links):
            if each in ready:
                each.recv(READ_BYTES)
        print(json.dumps({"at_ns": at_ns}), flush=True)


class Instants:
    """What the process has told. All CLOCK_MONOTONIC, which all namespaces share."""

    def __init__(self, stream: IO[str]) -> None:
        self._reported: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()
        self._reported.get(timeout=PATIENCE_S * 10)  # it listens

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            reported: dict[str, Any] = json.loads(line)
            self._reported.put(int(reported["at_ns"]))

    def since(self, from_ns: int) -> int:
        """The first instant from then on. Raises `TimeoutError`: nothing was committed."""
        end_ns = time.monotonic_ns() + int(PATIENCE_S * S)
        while True:
            left_s = max(0, end_ns - time.monotonic_ns()) / S
            try:
                at_ns = self._reported.get(timeout=left_s)
            except queue.Empty:
                raise TimeoutError("the fault did not show in its namespace") from None
            if at_ns >= from_ns:
                return at_ns


@contextmanager
def listener(command: list[str]) -> Iterator[IO[str]]:
    """What a process writes; it ends, with all that it has started, with the block."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            yield cast("IO[str]", running.stdout)
        finally:
            os.killpg(running.pid, signal.SIGKILL)


@contextmanager
def watching(lab: Enterable, node: str) -> Iterator[Instants]:
    """Listen in this switch or host."""
    command = (sys.executable, "-m", "bench.instant")
    # Before entering: inside, where we are root in name only, the kernel refuses it.
    first = ("chrt", "--fifo", str(REALTIME)) if os.geteuid() == 0 and shutil.which("chrt") else ()
    with listener([*first, *lab.enter_argv(node, command)]) as stream:
        yield Instants(stream)


if __name__ == "__main__":
    listen()
