"""Evaluates running jobs by the rules of `syntony why`, one at a time, at a bounded cost."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import msgspec

from syntony.controller.batches import BatchPiece
from syntony.controller.diagnosis_worker import LENGTH_BYTES
from syntony.controller.recorded_paths import RecordedPaths
from syntony.errors import StoreError, UsageError
from syntony.model import S
from syntony.store import Store
from syntony.wire.job_diagnosis import JobResult, JobRows
from syntony.wire.tables import JOB_PROCESS

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

WINDOW_NS, LEAST_NS = 60 * S, 15 * S
"""Length of the evaluated window; shorter, down to the second value, if it has too many rows."""
MAX_ROWS = 100_000
"""Of one table of one job."""
RUNS_NS = 15 * S
"""A job runs if one of its processes was seen this recently. After a start, jobs are known by
then."""
LIMIT_NS = 60 * S
"""Time limit for evaluating one job; then the process is killed."""
SHARE = 0.2
"""Share of time for reading and evaluating jobs, on one core."""
REFUSED_NS = 600 * S
"""A job with too many rows, or that took too long, is skipped for this long."""
STALE_NS = 120 * S
"""An older verdict no longer counts."""
PROCESS_COLUMNS = ("job", "host", "pid", "ts_ns", "window_ns", "ended")
"""Columns of `job_process` that show which jobs run."""
JOB_RESULTS = ("judged", "failed", "too-large", "too-slow")


class _LastVerdict(NamedTuple):
    at_ns: int
    """Monotonic."""
    result: JobResult


class JobDiagnosis:
    """Judges running jobs by the rules of `syntony why`, at a bounded cost.

    One per controller; used on its event loop.

    Args:
        store: recordings of jobs; read for running jobs only.
        paths: of probes.
        fleet_now: fleet time; None while unknown.
    """

    def __init__(
        self, store: Store, paths: RecordedPaths, fleet_now: Callable[[], int | None]
    ) -> None:
        self._store, self._paths, self._fleet_now = store, paths, fleet_now
        self._threads = concurrent.futures.ThreadPoolExecutor(1, "jobs")
        self._worker: asyncio.subprocess.Process | None = None
        self._processes: dict[tuple[str, str, int], int] = {}
        """(job, host, number) of each running process → when it was seen, fleet time."""
        self._verdicts: dict[str, _LastVerdict] = {}
        self._tried: dict[str, int] = {}
        """Running job → when it was last evaluated, or refused; monotonic."""
        self._refused: dict[str, int] = {}
        """Job → until when it is skipped; monotonic."""
        self._windows: dict[str, int] = {}
        self._due_ns = 0
        self._since_ns: int | None = None
        """When fleet time was first known, monotonic."""
        self.counts: Counter[str] = Counter()
        """By `JOB_RESULTS`."""
        self.spent_ns = 0

    def known(self, now_ns: int) -> tuple[JobResult, ...] | None:
        """Verdicts on the running jobs; old ones count as unknown. None: not all jobs may be known
        yet."""
        since_ns = self._since_ns
        if not self._verdicts and (since_ns is None or now_ns - since_ns < RUNS_NS):
            return None
        return tuple(
            each.result
            if now_ns - each.at_ns < STALE_NS
            else msgspec.structs.replace(each.result, error="not judged lately")
            for each in self._verdicts.values()
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Jobs that were running at the last evaluation."""
        return tuple(self._tried)

    @property
    def running(self) -> int:
        """Number of jobs that were running at the last evaluation."""
        return len(self._tried)

    def put(self, pieces: Iterable[BatchPiece]) -> None:
        """Take stored rows: they show which jobs run."""
        for piece in pieces:
            if piece.table is JOB_PROCESS:
                columns = (piece.rows.column(name).to_pylist() for name in PROCESS_COLUMNS)
                for job, host, pid, ts_ns, window_ns, ended in zip(*columns, strict=True):
                    if ended:
                        self._processes.pop((job, host, pid), None)
                    else:
                        self._processes[job, host, pid] = ts_ns + window_ns

    async def judge_jobs(self) -> None:
        """Evaluate the running job that has waited longest, if the budget allows."""
        now_ns, fleet_ns = time.monotonic_ns(), self._fleet_now()
        if now_ns < self._due_ns or fleet_ns is None:
            return
        try:
            await self._next(now_ns, fleet_ns)
        except StoreError as error:
            _log.error("jobs not judged reason=%s", error)
        spent_ns = time.monotonic_ns() - now_ns
        self.spent_ns += spent_ns
        self._due_ns = time.monotonic_ns() + round(spent_ns * (1 / SHARE - 1))

    async def close(self) -> None:
        """End the evaluating process."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._kill()

    async def _next(self, now_ns: int, fleet_ns: int) -> None:
        if self._since_ns is None:
            self._since_ns = now_ns
        self._tried = {job: self._tried.get(job, 0) for job in self._running(fleet_ns)}
        for kept in (self._verdicts, self._windows, self._refused):
            for job in kept.keys() - self._tried.keys():
                del kept[job]
        due = [job for job in self._tried if now_ns >= self._refused.get(job, 0)]
        if not due:
            return
        job = min(due, key=lambda each: (self._tried[each], each))
        self._tried[job] = now_ns
        window_ns = self._windows.get(job, WINDOW_NS)
        try:
            data = await self._off(self._read, job, fleet_ns, window_ns)
        except UsageError:
            self._windows[job] = window_ns // 2
            if window_ns // 2 < LEAST_NS:
                self._refuse(job, now_ns, "too-large")
            return
        found = await self._evaluate(data)
        if found is None:
            self._refuse(job, now_ns, "too-slow")
            return
        if found.error:
            _log.warning("job not judged job=%s reason=%s", job, found.error)
        self.counts["failed" if found.error else "judged"] += 1
        self._keep(job, found)

    def _keep(self, job: str, found: JobResult) -> None:
        """A job that could not be evaluated keeps its last verdicts, as unknown; a lasting verdict
        keeps its onset, because no window goes back so far."""
        before = self._verdicts.get(job)
        if before is not None and found.error:
            found = msgspec.structs.replace(before.result, error=found.error)
        elif before is not None:
            found = _since_it_began(found, before.result)
        self._verdicts[job] = _LastVerdict(time.monotonic_ns(), found)

    def _refuse(self, job: str, now_ns: int, why: str) -> None:
        _log.warning("job not judged for 10 min job=%s reason=%s", job, why)
        self.counts[why] += 1
        self._windows.pop(job, None)
        self._refused[job] = now_ns + REFUSED_NS
        self._keep(job, JobResult(job=job, verdicts=(), flows=(), error=why))

    async def _off(self, work: Callable[..., _T], *args: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    def _running(self, fleet_ns: int) -> set[str]:
        oldest_ns = fleet_ns - RUNS_NS
        self._processes = {each: at for each, at in self._processes.items() if at > oldest_ns}
        return {job for job, _, _ in self._processes}

    def _read(self, job: str, fleet_ns: int, window_ns: int) -> bytes:
        first_ns = fleet_ns - window_ns
        rows = self._paths.added(self._store.jobs.recording(job, first_ns, fleet_ns, MAX_ROWS))
        request = JobRows(
            job=job, first_ns=first_ns, last_ns=fleet_ns, now_ns=fleet_ns,
            rows={table: dict(columns) for table, columns in rows.items()},
        )  # fmt: skip
        return msgspec.msgpack.encode(request)

    async def _evaluate(self, data: bytes) -> JobResult | None:
        """The answer of the evaluating process, which is started if necessary; None: too late, or
        it ended."""
        try:
            async with asyncio.timeout(LIMIT_NS / S):
                source, sink = await self._pipes()
                sink.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
                await sink.drain()
                length = int.from_bytes(await source.readexactly(LENGTH_BYTES), "big")
                answer = await source.readexactly(length)
        except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            _log.warning("killing the process that judges jobs reason=%r", error)
            await self._kill()
            return None
        except asyncio.CancelledError:
            await self._kill()
            raise
        return msgspec.msgpack.decode(answer, type=JobResult)

    async def _pipes(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._worker is None or self._worker.returncode is not None:
            self._worker = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "syntony.controller.diagnosis_worker",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
        source, sink = self._worker.stdout, self._worker.stdin
        if source is None or sink is None:
            raise OSError("no pipe to the process that judges jobs")
        return source, sink

    async def _kill(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()


def _since_it_began(found: JobResult, before: JobResult) -> JobResult:
    onsets = {(each.fault, each.subjects): each.onset_ns for each in before.verdicts}
    verdicts = (
        msgspec.structs.replace(
            each,
            onset_ns=min(each.onset_ns, onsets.get((each.fault, each.subjects), each.onset_ns)),
        )
        for each in found.verdicts
    )
    return msgspec.structs.replace(found, verdicts=tuple(verdicts))
