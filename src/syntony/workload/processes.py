"""Ends and states of the ranks' processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np

from syntony.model import MS, S
from syntony.workload.bundle import BundleTable
from syntony.workload.exits import Ended, Manner, causes, end_line, manner

SILENT_NS = 5 * S
"""A host without a report of processes for longer is silent: there is one every two seconds."""
SAME_TIME_NS = 50 * MS
"""Ends of processes that are less apart than this count as simultaneous: agents notice each within
10 ms."""
GRACE_NS = 35 * S
"""Who ends a job waits this long at most between the request and the kill: Slurm (`KillWait`),
Kubernetes and torchrun 30 s by default, PBS 10 s, Open MPI 5 s; and 5 s for late notice of an
end."""
FEW_READINGS = 3
"""Minimum readings in a row that show a process as stopped, or waiting for a disk; fewer may do so
by chance."""
NEWEST = 2
"""Readings of which the processor time counts: the newest four seconds."""
NOT_BY_ITSELF = {Manner.ORDERLY, Manner.ASKED}
"""How a rank ends for another reason than that a process which it started lacked memory."""
STATES = {
    "T": "stopped (SIGSTOP, or by a terminal)",
    "t": "held by a debugger",
    "D": "waiting for a disk, a file server or a driver (state D)",
}
"""States in which a process does nothing, by their letter in proc_pid_stat(5)."""


class Held(NamedTuple):
    """A state of `STATES` in which a process remains until the recording ends."""

    state: str
    since_ns: int


class Computed(NamedTuple):
    """Processor time of a rank's processes in some readings, as shares of their time."""

    cpu: float
    queued: float
    """Threads waited for a core."""
    runnable: bool
    """Its first thread was found in state R at the end of each: it ran, or waited for a core."""


class RankEnd(NamedTuple):
    """How a rank ended, for people and for JSON."""

    rank: int
    host: str
    at_ns: int
    """By then, if it is not `exact`."""
    exact: bool
    exit_status: int | None
    """Below 0 the signal that ended it; None: not visible."""
    oom_killed: bool
    text: str
    """All of it in one line."""


class Processes:
    """The table `processes`; several processes of a rank count as one."""

    def __init__(self, table: BundleTable, end_ns: int) -> None:
        self._table, self._end_ns = table, end_ns
        self._at_ns, self._rank = table.ints("at_ns"), table.ints("rank")
        self._last_ns = self._at_ns + table.ints("window_ns")
        self._rows: defaultdict[int, dict[tuple[int, int], list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        """Rank → its processes by host and number → rows in order."""
        hosts = table.codes("host").codes.tolist()
        self._pid = np.nan_to_num(table.numbers("pid"))
        self._cpu_ns = table.numbers("cpu_ns")
        self._queued_ns = np.nan_to_num(table.numbers("runq_ns"))
        for row in np.argsort(self._at_ns, kind="stable").tolist():
            process = hosts[row], int(self._pid[row])
            self._rows[int(self._rank[row])][process].append(row)

    @cached_property
    def ended(self) -> dict[int, Ended]:
        """Ranks of which no process is left."""
        ended = self._table.numbers("ended") > 0
        lived_ns, status, oom, term = (
            self._table.numbers(name)
            for name in ("lived_ns", "exit_status", "oom_killed", "handles_term")
        )
        found = {}
        for rank, processes in self._rows.items():
            if not all(ended[rows[-1]] for rows in processes.values()):
                continue
            own = self._own(processes.values())
            last = own[-1]
            begin_ns, lived = int(self._at_ns[last]), lived_ns[last]
            exact = np.isfinite(lived)
            end = Ended(
                begin_ns + int(lived) if exact else begin_ns,
                begin_ns + int(lived) if exact else int(self._last_ns[last]),
                int(status[last]) if np.isfinite(status[last]) else None,
                handles_term=bool(term[last] > 0),
            )
            killed = any(oom[rows[-1]] > 0 and self._at_ns[rows[0]] >= self._at_ns[own[0]]
                         for rows in processes.values())  # fmt: skip
            found[rank] = end._replace(oom=killed and manner(end) not in NOT_BY_ITSELF)
        return found

    def _own(self, processes: Iterable[list[int]]) -> list[int]:
        """Rows of the process that is the rank, and has not started the others: the first, or that
        which was started again once it had ended. All have ended."""
        first, *others = sorted(
            processes, key=lambda rows: (self._at_ns[rows[0]], self._pid[rows[0]])
        )
        for rows in others:
            if self._at_ns[rows[0]] >= self._at_ns[first[-1]]:
                first = rows
        return first

    def ends(self) -> list[RankEnd]:
        """Of all ranks that have ended, those that ended first first."""
        order = sorted(self.ended.items(), key=lambda each: (each[1].last_ns, each[0]))
        return [RankEnd(rank, self.host(rank), end.last_ns, end.exact, end.status, end.oom,
                        end_line(rank, self.host(rank), end)) for rank, end in order]  # fmt: skip

    def has(self, rank: int) -> bool:
        """Whether a process of a rank is recorded."""
        return rank in self._rows

    def host(self, rank: int) -> str:
        """Where a rank's newest process runs, or ran."""
        return str(self._table.codes("host").at(self._newest(rank)))

    def pid(self, rank: int) -> int:
        """The number of a rank's newest process on its host; 0: not known."""
        return 0 if rank not in self._rows else int(self._pid[self._newest(rank)])

    @cached_property
    def frames(self) -> dict[int, str]:
        """Ranks whose programs report nothing else → where their Python is."""
        frames = self._table.codes("frame")
        found = {rank: frames.at(self._newest(rank)) for rank in self._rows}
        return {rank: str(at) for rank, at in found.items() if at}

    def _newest(self, rank: int) -> int:
        rows = (each[-1] for each in self._rows[rank].values())
        return max(rows, key=lambda row: int(self._last_ns[row]))

    @property
    def all_ended(self) -> bool:
        """Whether no rank is left."""
        return bool(self.ended) and self.ended.keys() == self._rows.keys()

    @property
    def orderly(self) -> bool:
        """Whether all ranks ended by themselves, without an error."""
        return self.all_ended and {manner(each) for each in self.ended.values()} == {Manner.ORDERLY}

    @cached_property
    def ended_together(self) -> bool:
        """Whether all ranks have ended, and within `GRACE_NS`: a launcher that ends the rest once
        one rank has failed leaves the same ends as somebody who ends the job."""
        if not self.all_ended:
            return False
        spread_ns = max(each.first_ns for each in self.ended.values()) - self.first_end_ns
        return spread_ns <= GRACE_NS

    @cached_property
    def ended_first(self) -> list[int]:
        """Of the ranks that have ended the first; several if their order is not known, without
        those whose ends others of them explain."""
        return causes(self.ended, first(self.ended, self.ended))

    @property
    def ended_within_ns(self) -> int:
        """From the first end of a rank to the last."""
        return max(each.last_ns for each in self.ended.values()) - self.first_end_ns

    def crashed(self, ranks: Iterable[int]) -> bool:
        """Whether all of these ended by a fault of their own."""
        return all(rank in self.ended and manner(self.ended[rank]) is Manner.CRASHED
                   for rank in ranks)  # fmt: skip

    @property
    def first_end_ns(self) -> int:
        """By when the first rank that ended had ended."""
        return min(each.last_ns for each in self.ended.values())

    @cached_property
    def silent(self) -> dict[int, int]:
        """Ranks whose host does not report any more, and that are not known to have ended → since
        when."""
        return {rank: at_ns for rank, at_ns in self._heard_ns.items()
                if self._end_ns - at_ns > SILENT_NS}  # fmt: skip

    @cached_property
    def _heard_ns(self) -> dict[int, int]:
        """Ranks that are not known to have ended → their newest reading."""
        return {rank: max(int(self._last_ns[rows[-1]]) for rows in processes.values())
                for rank, processes in self._rows.items() if rank not in self.ended}  # fmt: skip

    def unheard(self, ranks: Collection[int], since_ns: int) -> set[int]:
        """Those of these ranks that have not ended, and of which no later reading is there: their
        host may have failed before."""
        return {rank for rank in ranks if self._heard_ns.get(rank, since_ns) < since_ns}

    def computed(self, rank: int, since_ns: int) -> Computed | None:
        """Processor time in the newest `NEWEST` readings of a rank, all of which began after an
        instant; None: there are fewer, or it is not recorded."""
        known = (self._rank == rank) & (self._at_ns >= since_ns) & np.isfinite(self._cpu_ns)
        begins = np.unique(self._at_ns[known])[-NEWEST:]
        rows = np.flatnonzero(known & np.isin(self._at_ns, begins))
        if len(begins) < NEWEST:
            return None
        length_ns = (self._last_ns - self._at_ns)[rows].sum() * NEWEST / len(rows)
        cpu, queued = (float(each[rows].sum() / length_ns)
                       for each in (self._cpu_ns, self._queued_ns))  # fmt: skip
        states = self._table.codes("state")
        found = {int(self._at_ns[row]) for row in rows if states.at(row) == "R"}
        return Computed(cpu, queued, len(found) == len(begins))

    def unread(self, rank: int, since_ns: int) -> bool:
        """Whether readings of a rank that runs will tell its processor time since an instant, and
        are too few yet: they are seldom where agents are short of CPU."""
        runs = rank in self._heard_ns and rank not in self.silent
        read = np.isfinite(self._cpu_ns[self._rank == rank]).any()
        return bool(runs and read) and self.computed(rank, since_ns) is None

    @cached_property
    def held(self) -> dict[int, Held]:
        """Ranks all of whose processes are held → the state that began last."""
        states, found = self._table.codes("state"), {}
        for rank, processes in self._rows.items():
            some = [held for rows in processes.values()
                    if (held := self._held([states.at(row) for row in rows], rows))]  # fmt: skip
            if len(some) == len(processes) and rank not in self.ended:
                found[rank] = max(some, key=lambda each: each.since_ns)
        return found

    def _held(self, states: list[str | None], rows: list[int]) -> Held | None:
        """The state at the end of these readings, in order."""
        last = states[-1]
        since = len(states)
        while since and states[since - 1] == last:
            since -= 1
        if last not in STATES or len(states) - since < FEW_READINGS:
            return None
        return Held(last, int(self._last_ns[rows[since]]))

    def share(self, rank: int, state: str, begin_ns: int, last_ns: int) -> float | None:
        """Share of the readings of a rank in an interval that show a state; None: none is
        recorded."""
        states = self._table.codes("state")
        inside = (self._rank == rank) & (self._last_ns >= begin_ns) & (self._last_ns <= last_ns)
        read = [states.at(row) for row in np.flatnonzero(inside & (states.codes >= 0))]
        return sum(each == state for each in read) / len(read) if read else None

    @cached_property
    def _all_gone(self) -> dict[int, Ended]:
        return self.ended | {rank: Ended(at_ns, at_ns) for rank, at_ns in self.silent.items()}

    def gone(self, ranks: Collection[int], progress_ns: int) -> dict[int, Ended]:
        """Those of these ranks that cannot take part any more → since when: their processes have
        ended, or their hosts do not report, and they have done nothing since.

        Args:
            ranks: of a communicator.
            progress_ns: when it made progress last.
        """
        return {rank: end for rank in ranks if (end := self._all_gone.get(rank))
                and (rank in self.ended or progress_ns - end.last_ns <= SILENT_NS)}  # fmt: skip

    def earliest(self, ranks: Collection[int]) -> set[int]:
        """Of ranks that are `gone`, from whichever communicator, the first. An error may follow
        from a host that fell silent at the same time, as far as is known, but not the other way
        round. All of them if none is."""
        known = self._all_gone.keys() & ranks
        found = set(first(self._all_gone, known)) if known else set(ranks)
        if found & self.silent.keys():
            found -= {rank for rank, end in self.ended.items() if manner(end) is Manner.FAILED}
        return found


def first(gone: Mapping[int, Ended], among: Iterable[int]) -> list[int]:
    """Those of these ranks that ended first; several if they ended at the same time, or if the
    order is not known."""
    known = {rank: gone[rank] for rank in among}
    by_ns = min(each.last_ns for each in known.values()) + SAME_TIME_NS
    return sorted(rank for rank, each in known.items() if each.first_ns <= by_ns)
