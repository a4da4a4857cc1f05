"""TCP that saturates the links between two hosts of a lab for as long as a bench runs."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from tests.live import LiveLab

from syntony.model.names import host_of

AWAY_S = 1.5
"""iperf3 reports each second: the load was away if no bytes were reported for longer."""
GIVEN_UP_S = 3
"""Seconds without bytes after which it starts again, rather than wait for TCP's backoff."""


class Load:
    """iperf3 between two NICs, started again whenever a fault has ended it."""

    def __init__(self, lab: LiveLab, rng: random.Random, family: int) -> None:
        self._lab, addresses = lab, lab.addresses(family)
        rail = [nic for nic in sorted(addresses) if nic.endswith("/rail0")]
        self._src, self._dst = rng.sample(rail, 2)
        at = addresses[self._dst]
        self._server = ["iperf3", "-s", "-1", "-B", at]
        self._client = [
            "iperf3", "-c", at, "-B", addresses[self._src], "-P", "2", "-t", "3600", "-i", "1",
            "--forceflush", "--connect-timeout", "2000",
        ]  # fmt: skip
        self._over = threading.Event()
        self._seen_s: list[float] = []
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def away_s(self, since_s: float) -> float:
        """For how long there was none since an instant of the monotonic clock."""
        now_s = time.monotonic()
        seen_s = [since_s, *(each for each in [*self._seen_s] if each > since_s), now_s]
        return sum(b - a for a, b in pairwise(seen_s) if b - a > AWAY_S)

    def is_there(self) -> bool:
        return bool(self._seen_s) and time.monotonic() - self._seen_s[-1] < AWAY_S

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._over.is_set():
            server = self._run(self._dst, self._server)
            self._over.wait(0.5)
            client = self._run(self._src, self._client)
            self._watch(client)
            for each in (client, server):
                os.killpg(each.pid, signal.SIGKILL)  # it, and what nsenter has started
                each.wait()
            self._over.wait(0.5)

    def _watch(self, client: subprocess.Popen[bytes]) -> None:
        """Note each second with bytes, until the client has ended or has sent none for a while."""
        out, last_s = client.stdout, time.monotonic()
        while not self._over.is_set() and time.monotonic() - last_s < GIVEN_UP_S:
            if out is None or not select.select([out], [], [], 0.5)[0]:
                continue
            told = os.read(out.fileno(), 1 << 16)
            if not told:
                return
            sums = [line for line in told.splitlines() if b"[SUM]" in line]
            if any(b" 0.00 bits/sec" not in line for line in sums):
                last_s = time.monotonic()
                self._seen_s.append(last_s)

    def _run(self, nic: str, command: list[str]) -> subprocess.Popen[bytes]:
        argv = self._lab.enter_argv(host_of(nic), command)
        return subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )


@contextmanager
def saturated(lab: LiveLab, rng: random.Random, family: int) -> Iterator[Load]:
    """TCP as fast as it goes between two NICs of one rail."""
    load = Load(lab, rng, family)
    load.start()
    try:
        yield load
    finally:
        load.stop()
