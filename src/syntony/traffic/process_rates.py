"""Rates at which jobs' processes send by queue pairs, by path, from their own reports. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from syntony.model import S
from syntony.model.paths import FourTuple
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.meter import WINDOW_NS
from syntony.traffic.process_flows import Mechanism, ProcessFlow

PacedPath = tuple[int, str, str]
"""Process, local and remote address."""


MAX_BPS = 100 * 10**12
"""Maximum rate of one path, above what any host can send: limits the effect of a process that
writes 2^64 - 1 bytes into its page."""


class SentBy(NamedTuple):
    job: str
    process: int
    """Its PID on this host."""
    flows: tuple[ProcessFlow, ...]


class _Known(NamedTuple):
    job: str
    since_ns: int
    """Start of the present window."""
    bits: int
    """Done in it so far."""
    bps: int
    """In the last whole one."""
    windows: int
    left: bool = False
    """As in `ReportedFlow`."""


class ProcessRates:
    """Rates of one host. A path continues when its queue pairs are replaced."""

    def __init__(self) -> None:
        self._done: dict[tuple[PacedPath, int], int] = {}
        """Path and queue pair → bytes that it had completed."""
        self._paths: dict[PacedPath, _Known] = {}

    def take(self, reported: Iterable[SentBy], now_ns: int) -> None:
        """Take the reports of all processes; a process without one has ended.

        Args:
            reported: by process.
            now_ns: CLOCK_MONOTONIC when it was read.
        """
        jobs: dict[PacedPath, str] = {}
        bits: defaultdict[PacedPath, int] = defaultdict(int)
        done: dict[tuple[PacedPath, int], int] = {}
        left: dict[PacedPath, bool] = {}
        for job, process, flows in reported:
            for each in flows:
                if each.mechanism is not Mechanism.RDMA or not each.local or not each.remote:
                    continue
                path = (process, each.local, each.remote)
                jobs[path] = job
                before = self._done.get((path, each.number), each.bytes_done)
                # A number that is used again counts from 0.
                bits[path] += 8 * (each.bytes_done - before if each.bytes_done >= before else 0)
                done[path, each.number] = each.bytes_done
                if each.bytes_done:  # what only receives is left by its peer
                    left[path] = left.get(path, True) and each.failed
        self._done = done
        self._paths = {
            path: self._next(path, job, bits[path], now_ns)._replace(left=left.get(path, False))
            for path, job in jobs.items()
        }

    def _next(self, path: PacedPath, job: str, bits: int, now_ns: int) -> _Known:
        known = self._paths.get(path)
        if known is None or known.job != job:
            return _Known(job, now_ns, 0, 0, 0)
        bits += known.bits
        elapsed_ns = now_ns - known.since_ns
        if elapsed_ns < WINDOW_NS:
            return known._replace(bits=bits)
        return _Known(job, now_ns, 0, min(bits * S // elapsed_ns, MAX_BPS), known.windows + 1)

    def flows(self, nics: Mapping[str, str]) -> tuple[ReportedFlow, ...]:
        """Paths that begin at local NICs.

        Args:
            nics: address to NIC.
        """
        return tuple(
            ReportedFlow(
                job=known.job,
                token=0,
                nic=nics[local],
                flow=FourTuple(local, 0, remote, 0),
                dialled=True,
                movable=False,
                moving=False,
                tx_bps=known.bps,
                rx_bps=0,
                windows=known.windows,
                process=process,
                left=known.left,
            )
            for (process, local, remote), known in self._paths.items()
            if local in nics
        )
