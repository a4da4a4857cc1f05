"""Lists the processes of jobs on this host: identity, rank, CPU time and waiting time.

A process is of a job if its environment said so when its program began; nothing is asked of it. A
rank that a scheduler started, without `syntony run`, is of the scheduler's job.
"""

from __future__ import annotations

import math
import os
import re
import signal
import time
from collections import defaultdict, deque
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from syntony.errors import UsageError
from syntony.io.cores import Interrupts, allowed
from syntony.io.jobs import environment
from syntony.io.oom_kills import OomKills
from syntony.io.process import read_stat
from syntony.io.process_exits import ExitSource, ProcessExit
from syntony.io.run_directory import SOCKET_VARIABLE
from syntony.model import S
from syntony.model.jobs import JOB_VARIABLE, job_from_environment, job_name

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
RANKS_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
FRESH_LOOKS, SELDOM = 5, 15
"""A process of no job is read again in each of its first looks, for it may be about to execute one;
later only in one look of so many."""
_LATE_S = 0.001
"""Interval of further readings of how processes ended that are gone already."""
_LATE_READS = 5
"""Maximum number of these."""
OOM_LOOKS = 15
"""A process that was killed for lack of memory may be waited for so many looks later, 30 s."""
MAX_PROCESSES = 1_024
MAX_THREADS = 512
"""Whose waiting is counted, of one process."""
MAX_RANKS = 1 << 20
_UNPRINTABLE = re.compile(r"[^ -~]")


class JobProcess(NamedTuple):
    """One process of a job. Durations are since the look before; 0 in its first."""

    pid: int
    uid: int
    job: str
    program: str
    rank: int
    """By its launcher's word; -1: that says nothing."""
    ranks: int
    began_ns: int
    """CLOCK_MONOTONIC."""
    threads: int
    cpu_ns: int = 0
    runq_ns: int = 0
    """Its threads were ready and had no core, all together."""
    irq_ns: float = math.nan
    """Interrupts took of the cores that its job's processes here may run on, all together; NaN:
    not known."""
    ended: bool = False
    state: str = ""
    """Of its first thread, see `ProcStat`; of one that has ended: unknown."""
    handles_term: bool = False
    """It handles SIGTERM, at the last look while it ran."""
    exit: ProcessExit | None = None
    """How it ended; None: it runs, or not visible."""
    oom: bool | None = False
    """The kernel killed it for lack of memory; None: it may have."""


class _Known:
    def __init__(self, who: JobProcess, cgroup: Path | None) -> None:
        self.who = who
        self.cgroup = cgroup
        self.exit: ProcessExit | None = None
        """Of its first thread, while others run."""
        self.cpu_ns = 0
        self.waits: dict[str, int] = {}
        """Thread to its waiting since it began."""


class JobTable:
    """Not thread-safe.

    Args:
        socket: where this host's agent serves jobs: processes that were given another agent's are
            not ours.
        exits: opens what tells how processes end, once there are some; None: that is not visible.
        oom: tells which were killed for lack of memory.
    """

    def __init__(
        self,
        socket: Path,
        proc: Path = Path("/proc"),
        exits: Callable[[], ExitSource | None] = lambda: None,
        oom: OomKills | None = None,
    ) -> None:
        self._socket, self._proc = socket, proc
        self._open_exits, self._oom = exits, oom or OomKills()
        self._exits: ExitSource | None = None
        self._opened = False
        self._kills: defaultdict[Path, deque[int]] = defaultdict(
            lambda: deque(maxlen=MAX_PROCESSES)
        )
        """Cgroup → in which looks kills were counted whose processes are not known yet."""
        self._known: dict[tuple[int, int], _Known] = {}
        """(pid, inode of /proc/PID)."""
        self._strange: dict[tuple[int, int], int] = {}
        """Processes of no job to the number of the look that found them first."""
        self._looks = 0
        self._interrupts = Interrupts(proc)
        self.left_out = 0
        """Processes beyond `MAX_PROCESSES` in the last look."""

    @property
    def lost_exits(self) -> int:
        """How often ends of processes were lost, one or more each time."""
        return self._exits.lost if self._exits else 0

    def close(self) -> None:
        """Close what tells how processes end. Idempotent; a later look may open it again."""
        if self._exits is not None:
            self._exits.close()
        self._exits, self._opened = None, False

    def look(self) -> list[JobProcess]:
        """The present processes, and once more those that have ended since the last call."""
        self._looks += 1
        self.left_out = 0
        present = self._present()
        ended = self._ended(present)
        self._strange = {key: at for key, at in self._strange.items() if key in present}
        for key in present:
            if key not in self._known and self._is_worth_a_look(key):
                self._read(key)
        found = []
        for key, known in list(self._known.items()):
            with suppress(OSError, ValueError, IndexError):
                found.append(self._account(key[0], known))
        return self._interrupted(found) + ended

    def _ended(self, present: set[tuple[int, int]]) -> list[JobProcess]:
        """Forget the processes that have ended, even if nobody has waited for them yet."""
        exits = self._how({pid for pid, _ in self._known.keys() - present})
        cgroups = {each.cgroup for each in self._known.values() if each.cgroup}
        kills = self._oom.look(cgroups)
        for cgroup, count in kills.items():
            self._kills[cgroup].extend([self._looks] * min(count, MAX_PROCESSES))
        gone = []
        for key, known in list(self._known.items()):
            before, known.exit = known.exit, exits.get(key[0], known.exit)
            if key not in present or (known.exit and self._is_zombie(key[0])):
                gone.append(self._known.pop(key))
            elif before and before.status == 0:
                known.exit = None  # its first thread ended alone
        ended = [self._last(each, kills) for each in sorted(gone, key=_instant)]
        for cgroup in self._kills.keys() - cgroups:
            del self._kills[cgroup]
        return ended

    def _last(self, known: _Known, counted: Container[Path | None]) -> JobProcess:
        """What is to be said of a process that has ended. The kernel kills before anybody can kill
        others because of it: of those that SIGKILL ended the first ones count.

        Args:
            known: the process.
            counted: cgroups whose kills are known.
        """
        who = known.who._replace(ended=True, exit=known.exit)
        if known.exit is None or known.exit.status != -signal.SIGKILL:
            return who
        if known.cgroup and (kills := self._kills[known.cgroup]):
            return who._replace(oom=self._looks - kills.pop() < OOM_LOOKS or None)
        return who._replace(oom=False if known.cgroup in counted else None)

    def _how(self, gone: set[int]) -> dict[int, ProcessExit]:
        """How processes ended since the last call. The kernel may say so a little after a process
        that is waited for is gone."""
        if self._exits is None:
            return {}
        found = self._exits.read()
        for _ in range(_LATE_READS):
            if gone <= found.keys():
                break
            time.sleep(_LATE_S)
            found |= self._exits.read()
        return found

    def _is_zombie(self, pid: int) -> bool:
        """Whether nothing of a process runs any more; also if it is gone by now."""
        try:
            stat = read_stat(self._proc / str(pid))
        except (OSError, ValueError, IndexError):
            return True
        return stat.state in {"Z", "X"} and stat.threads <= 1

    def _interrupted(self, found: list[JobProcess]) -> list[JobProcess]:
        spent_ns = self._interrupts.look()
        if not spent_ns:
            return found
        members: defaultdict[str, list[Path]] = defaultdict(list)
        for each in found:
            members[each.job].append(self._proc / str(each.pid))
        took_ns = {
            job: float(sum(spent_ns.get(core, 0) for core in allowed(processes)))
            for job, processes in members.items()
        }
        return [each._replace(irq_ns=took_ns[each.job]) for each in found]

    def _present(self) -> set[tuple[int, int]]:
        with os.scandir(self._proc) as entries:
            return {(int(each.name), each.inode()) for each in entries if each.name.isdigit()}

    def _is_worth_a_look(self, key: tuple[int, int]) -> bool:
        first = self._strange.setdefault(key, self._looks)
        return self._looks - first < FRESH_LOOKS or (self._looks - first) % SELDOM == 0

    def _read(self, key: tuple[int, int]) -> None:
        place = self._proc / str(key[0])
        try:
            reported = environment(place)
            rank, ranks = _place(reported)
            job = _job(reported, rank)
            socket = str(self._socket)
            if job is None or reported.get(SOCKET_VARIABLE, socket) != socket:
                return
            program, stat = _program(place), read_stat(place)
            uid = place.stat().st_uid
        except (OSError, UsageError):
            return
        if len(self._known) >= MAX_PROCESSES:
            self.left_out += 1
            return
        began_ns = _monotonic_ns(stat.started_ticks)
        self._strange.pop(key, None)
        who = JobProcess(key[0], uid, job, program, rank, ranks, began_ns, 0)
        self._known[key] = _Known(who, self._oom.of(place))
        if not self._opened:
            self._exits, self._opened = self._open_exits(), True
        if self._exits:
            self._exits.watch(key[0])

    def _account(self, pid: int, known: _Known) -> JobProcess:
        place, first = self._proc / str(pid), not known.waits
        waits: dict[str, int] = {}
        for thread in islice(os.scandir(place / "task"), MAX_THREADS):
            with suppress(OSError):
                text = Path(thread.path, "schedstat").read_text(encoding="ascii")
                waits[thread.name] = int(text.split()[1])
        stat, program = read_stat(place), _program(place)
        waited_ns = sum(max(0, now - known.waits.get(each, 0)) for each, now in waits.items())
        used_ns = max(0, stat.cpu_ns - known.cpu_ns)
        known.waits, known.cpu_ns = waits, stat.cpu_ns
        known.who = known.who._replace(
            program=program, threads=stat.threads, handles_term=stat.handles_term
        )
        return known.who._replace(
            cpu_ns=0 if first else used_ns, runq_ns=0 if first else waited_ns, state=stat.state
        )


def _instant(known: _Known) -> int:
    """When it ended; the last of all if that is not known."""
    at_ns = known.exit.at_ns if known.exit else None
    return 1 << 63 if at_ns is None else at_ns


def _job(reported: Mapping[str, str], rank: int) -> str | None:
    """None: of no job. Of what a scheduler started ranks alone count: not its shells and daemons.
    Raises `UsageError`: what it says cannot name a job."""
    if JOB_VARIABLE in reported:
        return job_name(reported[JOB_VARIABLE])
    return job_from_environment(reported) if rank >= 0 else None


def _program(process: Path) -> str:
    return _UNPRINTABLE.sub("?", (process / "comm").read_text(errors="replace").strip())


def _place(reported: Mapping[str, str]) -> tuple[int, int]:
    """Rank and number of ranks, as launchers tell their processes."""
    rank, ranks = (_number(reported, names) for names in (RANK_VARIABLES, RANKS_VARIABLES))
    return (rank, ranks) if 0 <= rank < ranks else (rank, 0) if rank >= 0 else (-1, 0)


def _number(reported: Mapping[str, str], names: tuple[str, ...]) -> int:
    text = next((reported[name] for name in names if reported.get(name)), "")
    return int(text) if text.isdecimal() and len(text) < 8 and int(text) <= MAX_RANKS else -1


def _monotonic_ns(ticks: int) -> int:
    """When a process began (CLOCK_BOOTTIME, ticks), on CLOCK_MONOTONIC."""
    slept_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return ticks * S // os.sysconf("SC_CLK_TCK") - slept_ns
