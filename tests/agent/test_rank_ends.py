"""Real ranks that end in several ways: from the kernel's word to the sentence for the user."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.workload.stored_rows import bundle, columns

from syntony.agent import operations as agent_operations
from syntony.agent.operations import JobTelemetry
from syntony.agent.queue_pairs import FleetOffset
from syntony.errors import MissingError
from syntony.io import process_exits
from syntony.io.process_exits import ExitEvents, ExitFiles, ExitSource, ProcessExit, exit_source
from syntony.model import S
from syntony.wire.tables import COLLECTIVE, JOB_PROCESS
from syntony.workload import Diagnosis, FaultClass, diagnose
from syntony.workload.recorded import recorded
from syntony.workload.sentences import sentences

PROGRAM = Path(__file__).with_name("star_rank.py")
AHEAD_NS = 1_000_000 * S
"""Of CLOCK_MONOTONIC, by our fleet time."""
RANKS, PATIENCE_S = 3, 300.0
SOURCES: list[type[ExitSource]] = [ExitEvents, ExitFiles]
MEMORY = Path("/sys/fs/cgroup/memory")
SYS_EXIT = {"x86_64": 60, "aarch64": 93}.get(os.uname().machine, 1)
"""exit(2) of a thread alone."""
ENDS = {
    "import os; os.kill(os.getpid(), 9)": -9,
    "import sys; sys.exit(3)": 3,
    "import os; os.abort()": -6,
    "": 0,
}


def opened(source: type[ExitSource]) -> ExitSource:
    try:
        return source()
    except MissingError as error:
        pytest.skip(f"{error}: how processes end is NOT tested by {source.__name__}")


@pytest.mark.parametrize("source", SOURCES)
def test_the_kernel_says_how_processes_ended(source: type[ExitSource]) -> None:
    with opened(source) as exits:
        begin_ns = time.monotonic_ns()
        running = {}
        for code in ENDS:
            words = [sys.executable, "-c", f"input()\n{code}"]
            process = subprocess.Popen(words, stdin=subprocess.PIPE)
            exits.watch(process.pid)
            running[process.pid] = process
        assert not exits.read().keys() & running.keys()
        for process in running.values():
            process.communicate(b"\n")
        found = {pid: each for pid, each in exits.read().items() if pid in running}
        end_ns = time.monotonic_ns()
        assert [each.status for each in found.values()] == list(ENDS.values())
        assert all(each.at_ns is None or begin_ns < each.at_ns < end_ns for each in found.values())
        assert not exits.read().keys() & running.keys()


def test_a_thread_that_ends_is_no_process_that_ends() -> None:
    code = (
        "import threading; t = threading.Thread(target=int); t.start(); t.join()\n"
        "print(flush=True); input()"
    )
    with opened(ExitEvents) as exits, subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        tasks = Path(f"/proc/{process.pid}/task")
        while len(list(tasks.iterdir())) > 1:  # it is joined a little before it has ended
            time.sleep(0.01)
        assert process.pid not in exits.read()
        process.communicate(b"\n")
        assert exits.read()[process.pid].status == 0


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("end", "status"), [("os.kill(os.getpid(), 9)", -9), ("os._exit(3)", 3), ("os._exit(0)", 0)]
)
def test_what_ends_a_process_whose_first_thread_has_ended(
    together: bool, end: str, status: int
) -> None:
    """pthread_exit leaves status 0; both ends may be in one reading, or not."""
    code = (
        "import ctypes, os, sys, threading\n"
        f"def last():\n sys.stdin.readline()\n {end}\n"
        "threading.Thread(target=last).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    with opened(ExitEvents) as exits, subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE
    ) as process:  # fmt: skip
        first = Path(f"/proc/{process.pid}/stat")
        while first.read_text().rsplit(")", 1)[1].split()[0] != "Z":
            time.sleep(0.01)
        if not together:
            assert exits.read()[process.pid].status == 0
        process.communicate(b"\n")
        found = exits.read().get(process.pid)
        assert found.status == status if found else (status, together) == (0, False)


def test_a_thread_that_ends_alone_with_a_number_does_not_say_how_its_process_ends() -> None:
    code = (
        "import ctypes, os, threading, time\n"
        "end = ctypes.CDLL(None).syscall\n"
        f"threading.Thread(target=end, args=({SYS_EXIT}, 7), daemon=True).start()\n"
        "while len(os.listdir('/proc/self/task')) > 1: time.sleep(0.01)\n"
        "os._exit(0)"
    )
    with opened(ExitEvents) as exits:
        process = subprocess.Popen([sys.executable, "-c", code])
        process.wait()
        assert exits.read()[process.pid].status == 0


def test_only_a_first_thread_that_ended_without_an_error_ended_alone() -> None:
    ended = (7, 7, 3), (8, 7, -9), (9, 9, 0), (10, 9, -9), (11, 9, -15), (13, 12, 4)
    found = process_exits._of_processes(
        (thread, pid, ProcessExit(status)) for thread, pid, status in ended
    )
    assert found == {7: ProcessExit(3), 9: ProcessExit(-9), 12: ProcessExit(4)}


class Ends(ExitSource):
    """In the place of pidfds."""

    def __init__(self) -> None:
        self.watched: list[int] = []
        self.ended: dict[int, ProcessExit] = {}

    def watch(self, pid: int) -> None:
        self.watched.append(pid)

    def read(self) -> dict[int, ProcessExit]:
        found, self.ended = self.ended, {}
        return found

    def close(self) -> None:
        pass


class Events:
    """A socket of process events, and what comes of it."""

    def __init__(self, come: list[bytes | OSError]) -> None:
        self._come = come

    def recv(self, _: int) -> bytes:
        one = self._come.pop(0) if self._come else BlockingIOError()
        if isinstance(one, bytes):
            return one
        raise one

    def send(self, _: bytes) -> None:
        pass

    def close(self) -> None:
        pass


def event(pid: int, status: int) -> bytes:
    """PROC_EVENT_EXIT of a process, as linux/cn_proc.h has it."""
    head = struct.pack("=IHHII", 76, 3, 0, 0, 0) + struct.pack("=IIIIHH", 1, 1, 0, 0, 40, 0)
    return head + struct.pack("=IIQIIII", 0x80000000, 0, 5 * S, pid, pid, status, 17)


def test_half_of_the_descriptors_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (6, 6))
    with opened(ExitFiles) as exits, ExitStack() as stack:
        for _ in range(5):
            child = subprocess.Popen(["sleep", "600"])
            stack.callback(child.wait)
            stack.callback(child.kill)
            exits.watch(child.pid)
        assert isinstance(exits, ExitFiles)
        assert len(exits._files) == 3


def test_an_end_between_two_questions_keeps_its_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pidfd says only how it ended."""
    monkeypatch.setattr(ExitEvents, "_listen", lambda _: None)
    come: list[bytes | OSError] = []

    class Late(Ends):
        def read(self) -> dict[int, ProcessExit]:
            come[:] = [event(7, 9), BlockingIOError()]
            return {7: ProcessExit(-9)}

    with ExitEvents(Late) as exits:
        exits._socket.close()
        exits._socket = Events(come)  # type: ignore[assignment]
        exits.watch(7)
        assert exits.read() == {7: ProcessExit(-9, 5 * S)}


def test_ends_that_the_kernel_had_no_room_for_are_counted_and_asked_of_pidfds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ExitEvents, "_listen", lambda _: None)
    others = Ends()
    with ExitEvents(lambda: others) as exits:
        exits._socket.close()
        for pid in (7, 8, 9):
            exits.watch(pid)
        assert others.watched == [7, 8, 9]
        full, empty = OSError(errno.ENOBUFS, "No buffer space available"), BlockingIOError()
        come: list[bytes | OSError] = [event(7, 9), full, event(5, 0), empty, empty]
        exits._socket = Events(come)  # type: ignore[assignment]
        others.ended = {7: ProcessExit(-9), 8: ProcessExit(1)}
        assert exits.read() == {
            7: ProcessExit(-9, 5 * S), 5: ProcessExit(0, 5 * S), 8: ProcessExit(1)
        }  # fmt: skip
        assert exits.lost == 1
        others.ended = {8: ProcessExit(1), 9: ProcessExit(2)}
        assert exits.read() == {9: ProcessExit(2)}


def test_without_permission_another_source_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(ExitEvents, "_listen", refused)
    source = exit_source()
    assert source is None or isinstance(source, ExitFiles)


def old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Linux 6.13: it does not say how processes ended, and refuses once they are waited for."""

    def call(file: int, _: int, asked: bytes) -> bytes:
        try:
            signal.pidfd_send_signal(file, 0)
        except ProcessLookupError as error:
            raise OSError(errno.ESRCH, "No such process") from error
        return bytes(len(asked))

    monkeypatch.setattr(fcntl, "ioctl", call)


def test_a_kernel_that_does_not_say_how_processes_ended_is_no_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old_kernel(monkeypatch)
    with pytest.raises(MissingError, match=r"6\.15"):
        ExitFiles()


def test_a_process_of_which_the_kernel_says_nothing_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(ExitFiles) as exits:
        process = subprocess.Popen([sys.executable, "-ISc", ""])
        exits.watch(process.pid)
        process.wait()
        old_kernel(monkeypatch)
        assert exits.read() == {}
        monkeypatch.undo()
        assert exits.read() == {}


def test_a_process_that_is_watched_twice_has_one_file() -> None:
    with opened(ExitFiles) as exits:
        exits.watch(os.getpid())
        before = len(list(Path("/proc/self/fd").iterdir()))
        exits.watch(os.getpid())
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


class Job:
    """Ranks of a job, and what the agent says of them."""

    def __init__(self, place: Path, how: str, cgroup: Path | None) -> None:
        self._place, self._how = place, how
        self.telemetry = JobTelemetry("gpu-2", place)
        self._readings: list[dict[str, Any]] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.ranks = [self._start(rank, port, cgroup) for rank in range(RANKS)]

    def _start(self, rank: int, port: int, cgroup: Path | None) -> subprocess.Popen[bytes]:
        def enter() -> None:
            if cgroup is not None and rank == RANKS - 1:
                (cgroup / "cgroup.procs").write_text(str(os.getpid()))

        environ = {
            "SYNTONY_AGENT": str(self._place / "agent"), "SYNTONY_JOB": "night", "RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
        }  # fmt: skip
        words = [sys.executable, str(PROGRAM), self._how, str(self._log(rank)), str(port)]
        return subprocess.Popen(
            words, env=os.environ | environ, stderr=subprocess.DEVNULL,
            preexec_fn=enter,  # noqa: PLW1509 - a write and no lock
        )  # fmt: skip

    def _log(self, rank: int) -> Path:
        return self._place / f"rank{rank}"

    def look(self) -> None:
        """Take the agent's readings."""
        for table, found in self.telemetry.rows(
            lambda: FleetOffset(time.monotonic_ns(), AHEAD_NS, 0)
        ):
            if table is JOB_PROCESS:
                rows = zip(*found.values(), strict=True)
                read = [dict(zip(found, map(plain, row), strict=True)) for row in rows]
                pids = {each.pid for each in self.ranks}  # other tests may run jobs, too
                self._readings += [each for each in read if each["pid"] in pids]

    def looks_until(self, holds: Callable[[], bool]) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end_s, self._readings
            self.look()
            time.sleep(0.05)

    def is_known(self) -> bool:
        """Whether the agent has found all ranks, and all have begun operations."""
        ranks = range(RANKS)
        found = {each["rank"] for each in self._readings} >= {*ranks}
        return found and all(self._log(rank).exists() for rank in ranks)

    def has_ended(self) -> bool:
        """Whether it has seen all of them end, each once."""
        ended = [each["pid"] for each in self._readings if each["ended"]]
        return sorted(ended) == sorted(each.pid for each in self.ranks)

    def judged(self) -> Diagnosis:
        now_ns = time.monotonic_ns() + AHEAD_NS + 60 * S
        rows = columns({COLLECTIVE.name: self._operations(), JOB_PROCESS.name: self._readings})
        return diagnose(bundle(recorded("night", rows, now_ns - 600 * S, now_ns, now_ns)))

    def _operations(self) -> list[dict[str, Any]]:
        found = {}
        for rank, process in enumerate(self.ranks):
            for line in self._log(rank).read_text().splitlines():
                seq, begin_ns, done_ns = map(int, line.split())
                found[rank, seq] = {
                    "ts_ns": begin_ns + AHEAD_NS, "host": "gpu-2", "job": "night", "seq": seq,
                    "pid": process.pid, "rank": rank, "comm": "0.abc", "ranks": RANKS,
                    "op": "all_reduce", "bytes": 1, "done_ns": done_ns + AHEAD_NS * bool(done_ns),
                }  # fmt: skip
        return list(found.values())


def end(ranks: Sequence[subprocess.Popen[bytes]], number: int = signal.SIGTERM) -> None:
    for each in ranks:
        if each.poll() is None:
            each.send_signal(number)


@pytest.fixture
def made() -> Iterator[list[Job]]:
    jobs: list[Job] = []
    yield jobs
    for job in jobs:
        end(job.ranks, signal.SIGKILL)
        for each in job.ranks:
            each.wait()
        job.telemetry.close()


def run(made: list[Job], place: Path, how: str, cgroup: Path | None = None) -> Job:
    """A job whose launcher ends the other ranks once one has failed, as torchrun does."""
    job = Job(place, how, cgroup)
    made.append(job)
    job.looks_until(job.is_known)
    if how == "operator":  # all at once: none may notice that another has gone
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
            end(job.ranks, number)
    job.looks_until(lambda: any(each.poll() is not None for each in job.ranks))
    if how == "error":  # with others the peers notice by themselves
        end(job.ranks)
    for each in job.ranks:
        each.wait()
    job.looks_until(job.has_ended)
    return job


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(request.param).close()
    monkeypatch.setattr(agent_operations, "exit_source", request.param)


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(
    ("how", "said"), [("kill", "was killed by SIGKILL"), ("segfault", "was ended by SIGSEGV")]
)
def test_a_rank_that_died_first_is_the_cause(
    made: list[Job], tmp_path: Path, how: str, said: str
) -> None:
    job = run(made, tmp_path, how)
    result = job.judged()
    text = sentences("night", result, 60 * S)[0]
    if how == "kill" and isinstance(
        job.telemetry._table._exits, ExitFiles
    ):  # in which order they ended
        assert "undetermined why" in text or "no fault" not in text
        return
    when = "by" if isinstance(job.telemetry._table._exits, ExitFiles) else "at"
    assert text.startswith(f"night stopped because rank 2 on gpu-2 {said} {when} "), text
    assert "; the other 2 ended" in text
    assert "waiting for it (ended with exit status 1)" in text


def test_an_error_of_one_rank_for_which_the_launcher_ends_the_others(
    made: list[Job], tmp_path: Path
) -> None:
    opened(ExitEvents).close()
    text = sentences("night", run(made, tmp_path, "error").judged(), 60 * S)[0]
    # Who is faster, the launcher or the closed socket, is left to chance.
    assert "rank 2 on gpu-2 ended with exit status 1" in text or "undetermined why" in text, text


@pytest.mark.usefixtures("source")
def test_a_job_that_an_operator_ended_has_no_fault(made: list[Job], tmp_path: Path) -> None:
    result = run(made, tmp_path, "operator").judged()
    assert [each.fault for each in result.verdicts if each.fault is FaultClass.HANG] == []
    assert "by SIGTERM" in result.ended
    assert sentences("night", result, 60 * S)[0] == "night was ended by somebody: no fault."


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A cgroup with 40 MiB, of either version."""
    group = MEMORY if MEMORY.is_dir() else Path("/sys/fs/cgroup")
    group /= f"syntony-test-{os.getpid()}-{tmp_path.name[-6:]}"
    limit = "memory.limit_in_bytes" if MEMORY.is_dir() else "memory.max"
    try:
        group.mkdir()
        (group / limit).write_text(str(40 << 20))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"no cgroup with a limit can be made ({error}): OOM kills are NOT tested")
    yield group
    for _ in range(50):
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


def test_a_rank_that_the_kernel_killed_for_lack_of_memory(
    made: list[Job], tmp_path: Path, small: Path
) -> None:
    opened(ExitEvents).close()
    job = run(made, tmp_path, "memory", small)
    text = sentences("night", job.judged(), 60 * S)[0]
    said = "night stopped because rank 2 on gpu-2 was killed by the kernel for lack of memory at "
    assert text.startswith(said), text


def test_the_kernels_answer_counts_however_late_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that was starved as it started said nothing of ends of ranks for its whole life."""
    opened(ExitEvents).close()
    seconds = itertools.count()
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(seconds) * S)
    ExitEvents().close()


def test_a_process_that_nobody_waits_for_has_ended() -> None:
    with opened(ExitEvents) as exits:
        process = subprocess.Popen([sys.executable, "-c", "import os; os._exit(7)"])
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert isinstance(found := exits.read()[process.pid], ProcessExit)
        assert found.status == 7
        process.wait()
