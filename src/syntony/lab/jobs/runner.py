"""Starts a job's ranks in a lab's hosts, collects their output, ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self

from syntony.errors import RemoteError
from syntony.lab.client import Lab
from syntony.lab.jobs import programs
from syntony.lab.jobs.records import (
    RankDone,
    RankFailed,
    Record,
    StepRecord,
    on_arrival_clock,
    parse_line,
)
from syntony.lab.relay import pipe

START_TIMEOUT_S = 90.0
"""Importing torch four times on two busy cores takes 10 s."""
_LOOK_S = 0.02
_TAIL_LINES = 50
_LAST_WORDS_S = 5.0
"""How long to read on after a process has ended: on a busy machine its last output comes late."""


class _Rank:
    """One process and the thread that reads it."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,  # one signal reaches whatever the wrapper starts
        )
        self.received: list[tuple[int, Record]] = []
        """With the instant at which it was read."""
        self.unparsed: deque[str] = deque(maxlen=_TAIL_LINES)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in pipe(self.process.stdout):
            record = parse_line(line)
            if record is None:
                self.unparsed.append(line.decode(errors="replace").rstrip())
            else:
                self.received.append((time.monotonic_ns(), record))

    def listen(self, timeout_s: float) -> None:
        """Wait until all its output is read, or time is up."""
        self._reader.join(timeout_s)

    def tell(self, line: str) -> None:
        try:
            stream = pipe(self.process.stdin)
            stream.write(f"{line}\n".encode())
            stream.flush()
        except BrokenPipeError:  # it has ended already
            return

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):  # an unread wish to end
                pipe(stream).close()


class LabJob:
    """A running job; leaving the `with` block kills what is left of it."""

    def __init__(self, lab: Lab, spec: programs.JobSpec, *, wrap: Sequence[str] = ()) -> None:
        """`wrap` is put before every rank's command line, ``("syntony", "run", "--")``."""
        self.spec = spec
        self._ranks: list[_Rank] = []
        self._own_clocks = bool(lab.file().image)
        try:
            for rank, host in enumerate(spec.hosts):
                argv = lab.enter_argv(host, (*wrap, *programs.argv(spec, rank)))
                own = {**os.environ, **programs.environment(spec, rank)}
                self._ranks.append(_Rank(argv, own))
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def records(self) -> list[Record]:
        """All records so far, rank by rank."""
        if self._own_clocks:
            return [each for rank in self._ranks for each in on_arrival_clock(list(rank.received))]
        return [record for rank in self._ranks for _, record in list(rank.received)]

    def steps_done(self) -> int:
        """How many steps every rank has completed."""
        return min(
            sum(isinstance(record, StepRecord) for _, record in list(rank.received))
            for rank in self._ranks
        )

    def alive(self) -> tuple[int, ...]:
        """Ranks whose process still runs."""
        return tuple(i for i, rank in enumerate(self._ranks) if rank.process.poll() is None)

    def groups(self) -> tuple[int, ...]:
        return tuple(rank.process.pid for rank in self._ranks)

    def wait_steps(self, steps: int, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until every rank has done so many. Raises `RemoteError`: a rank ended before, or
        time is up; with its last output."""

        def enough() -> bool:
            if len(self.alive()) < len(self._ranks):
                raise RemoteError(f"the job did not start: {self.last_output()}")
            return self.steps_done() >= steps

        if not _within(enough, timeout_s):
            raise RemoteError(
                f"the job did not do {steps} steps within {timeout_s:.0f} s: {self.last_output()}"
            )

    def request_end(self) -> None:
        """Ask the job to end after the next step."""
        for rank in self._ranks:
            rank.tell("end")

    def let_all_send(self) -> None:
        """End the time in which rank 1 sends alone (`JobSpec.alone`)."""
        for rank in self._ranks:
            rank.tell("all")

    def wait_end(self, timeout_s: float) -> bool:
        """Wait for every rank to end by itself and read its last output; return whether all did in
        time."""
        ended = _within(lambda: not self.alive(), timeout_s)
        for rank in self._ranks:
            rank.listen(_LAST_WORDS_S if ended else 0)
        return ended

    def kill(self) -> None:
        for rank in self._ranks:
            rank.kill()

    def last_output(self) -> str:
        """The last output of a rank that failed, or else of any rank."""
        for record in self.records():
            if isinstance(record, RankFailed):
                return f"rank {record.rank}: {record.error}"
        for number, rank in enumerate(self._ranks):
            if rank.unparsed:
                return f"rank {number}: {rank.unparsed[-1]}"
        return "it said nothing"

    def unparsed(self) -> list[str]:
        """Lines that are not records, the last few of every rank."""
        return [line for rank in self._ranks for line in list(rank.unparsed)]

    def finished(self) -> bool:
        """Every rank ended because it was asked to."""
        return all(
            any(isinstance(record, RankDone) for _, record in list(rank.received))
            for rank in self._ranks
        )


def _within(true: Callable[[], bool], timeout_s: float) -> bool:
    end_s = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > end_s:
            return False
        time.sleep(_LOOK_S)
    return True
