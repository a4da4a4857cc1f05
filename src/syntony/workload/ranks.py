"""Ranks in their communicators: how long each takes by itself, who is late, who is missing."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from syntony.workload.bundle import NULL
from syntony.workload.grid import Episode, Flags, median, no_accidents

if TYPE_CHECKING:
    from syntony.workload.bundle import Floats, Ints, Table

LATE_MADS = 3.0
"""A rank is late beyond so many median absolute deviations of its peers (taxonomy)."""
LATE_SHARE = 0.02
"""… and so much of a step (taxonomy)."""
MIN_STEPS = 3
"""… on so many steps (taxonomy)."""
MAX_OPERATIONS = 20_000
"""Of one communicator: the newest; older ones are left out."""


class Comm(NamedTuple):
    """One communicator as matrices of (ranks, operations)."""

    name: str
    job: str
    ranks: Ints
    seqs: Ints
    enqueue: Ints
    """NULL: that rank never enqueued it."""
    done: Ints
    """NULL: not done."""
    row: Ints
    """Row in the table; -1 for none."""

    @property
    def present(self) -> Flags:
        """Where a rank enqueued an operation."""
        present: Flags = self.enqueue != NULL
        return present


class Slow(NamedTuple):
    """A rank that takes longer by itself than its peers."""

    rank: int
    begin_ns: int
    last_ns: int
    share: float
    excess_ns: float
    usual_ns: float
    operations: int


class Ranks:
    """All communicators of a bundle."""

    def __init__(self, table: Table, step_ns: float) -> None:
        self.table = table
        self.step_ns = step_ns
        rows = np.arange(table.rows)
        self.host: dict[int, str] = {}
        self.gpu: dict[int, str] = {}
        hosts, gpus, ranks = table.codes("host"), table.codes("gpu"), table.ints("rank")
        _, firsts = np.unique(ranks, return_index=True)
        for row in firsts:
            self.host[int(ranks[row])] = str(hosts.at(row))
            self.gpu[int(ranks[row])] = str(gpus.at(row) or "")
        comms, jobs = table.codes("comm"), table.codes("job")
        keys = comms.codes * (len(jobs.values) + 1) + jobs.codes + 1
        self.comms = [self._comm(rows[keys == key]) for key in np.unique(keys)]

    def _comm(self, rows: Ints) -> Comm:
        table = self.table
        every = np.unique(table.ints("seq")[rows])[-MAX_OPERATIONS:]
        rows = rows[table.ints("seq")[rows] >= every[0]]
        ranks, rank = np.unique(table.ints("rank")[rows], return_inverse=True)
        seqs, seq = np.unique(table.ints("seq")[rows], return_inverse=True)
        shape = len(ranks), len(seqs)
        enqueue = np.full(shape, NULL, dtype=np.int64)
        done = enqueue.copy()
        place = np.full(shape, -1, dtype=np.int64)
        enqueue[rank, seq] = table.ints("enqueue_ns")[rows]
        done[rank, seq] = table.ints("done_ns")[rows]
        place[rank, seq] = rows
        name = str(table.codes("comm").at(rows[0]))
        return Comm(
            name, str(table.codes("job").at(rows[0]) or ""), ranks, seqs, enqueue, done, place
        )

    def waits(self, comm: Comm, name: str) -> Floats:
        """A wait of the proxies, (ranks, operations); NaN where it was not recorded."""
        values = self.table.numbers(name)
        return np.where(comm.row >= 0, values[comm.row], np.nan)

    @cached_property
    def slow(self) -> dict[int, Slow]:
        """Ranks that take longer by themselves than their peers, from the end of one operation to
        the begin of the next, by more than noise and by a part of a step that counts."""
        found: dict[int, Slow] = {}
        for comm in self.comms:
            for slow in self._slow_of(comm):
                if slow.rank not in found or slow.excess_ns > found[slow.rank].excess_ns:
                    found[slow.rank] = slow
        return found

    def _slow_of(self, comm: Comm) -> list[Slow]:
        if len(comm.ranks) < 3 or len(comm.seqs) < 4:
            return []
        known = comm.present[:, 1:] & (comm.done[:, :-1] != NULL)
        own = np.where(known, comm.enqueue[:, 1:] - comm.done[:, :-1], 0).astype(float)
        own[~known] = np.nan
        usual = median(own, axis=0)
        excess = own - usual
        spread = float(median(np.abs(excess))) * 1.4826
        floor = max(LATE_MADS * spread, LATE_SHARE * self.step_ns)
        excess = _steady(excess)
        found = []
        with np.errstate(invalid="ignore"):
            stretches = no_accidents(excess > floor, np.isfinite(excess))
        for row, stretch in stretches.items():
            part = slice(stretch.first, stretch.last + 1)
            if stretch.last - stretch.first + 1 < MIN_STEPS:
                continue
            found.append(
                Slow(
                    int(comm.ranks[row]), int(comm.enqueue[row, stretch.first + 1]),
                    int(comm.enqueue[row, stretch.last + 1]), stretch.share,
                    float(median(excess[row, part])), float(median(usual[part])),
                    stretch.last - stretch.first + 1,
                )
            )  # fmt: skip
        return found

    def ratio_of_wait(self, name: str, rank: int, begin_ns: int, last_ns: int) -> float | None:
        """A rank's wait over the median of its peers' at the same time; None: not recorded."""
        own, others = [], []
        for comm in self.comms:
            if rank not in comm.ranks:
                continue
            wait = self.waits(comm, name)
            during = comm.present & (comm.enqueue >= begin_ns) & (comm.enqueue <= last_ns)
            wait = np.where(during, wait, np.nan)
            mine = comm.ranks == rank
            own.append(float(median(wait[mine])))
            others.append(float(median(wait[~mine])))
        if not own or not np.isfinite(own).any() or not np.isfinite(others).any():
            return None
        return float(np.nanmean(own) / max(float(np.nanmean(others)), 1.0))

    def comms_of(self, ranks: frozenset[int]) -> list[Comm]:
        """Communicators in which any of these ranks is."""
        return [comm for comm in self.comms if ranks & set(comm.ranks.tolist())]


def _steady(excess: Floats) -> Floats:
    """Mean of each operation and the one after it: one enqueued late and one early are no lag."""
    after = np.concatenate((excess[:, 1:], excess[:, -1:]), axis=1)
    return (excess + after) / 2


def step_length(steps: Table, collectives: Table) -> float:
    """The usual length of a step in ns; without steps that of the time between operations."""
    if steps.rows:
        return float(median((steps.ints("end_ns") - steps.ints("begin_ns")).astype(float)))
    if not collectives.rows:
        return 0.0
    rank = collectives.ints("rank")
    mine = np.sort(collectives.ints("enqueue_ns")[rank == rank[0]])
    return float(np.median(np.diff(mine))) if len(mine) > 1 else 0.0


def stretch_ns(comm: Comm, stretch: Episode) -> tuple[int, int]:
    """Begin and end of an episode of operations."""
    row = comm.enqueue[:, [stretch.first, stretch.last]]
    known = np.where(row == NULL, np.iinfo(np.int64).max, row)
    return int(known[:, 0].min()), int(known[:, 1].min())
