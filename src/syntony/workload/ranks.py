"""Ranks in their communicators: how long each takes by itself, which are late, which are absent."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import NamedTuple

import numpy as np

from syntony.workload.bundle import NULL, BundleTable, Floats, Ints
from syntony.workload.grid import MAD_SIGMA, Flags, median, significant_episodes
from syntony.workload.stages import stages

LATE_MADS = 3.0
"""A rank is late beyond this many median absolute deviations of its peers (taxonomy)."""
LATE_SHARE = 0.02
"""… and this share of a step (taxonomy)."""
MIN_STEPS = 3
"""… in this number of steps (taxonomy), of each of which one operation counts."""
PART_OF_STEP = 0.5
"""Minimum time between operations of different steps, as a share of a step, as steps vary."""
MIN_LATE_NS = 1_000_000_000
"""… and for this long, unless a device shows why: a process that other programs keep off its cores
is late for some tenths of a second."""
SYMMETRIC = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""Operations in which all ranks do the same."""
AS_MANY = 1.2
"""Ratio of numbers of operations at which communicators do the same work: recordings begin and end
in the middle of a step."""
MIN_RANKS, MIN_OPERATIONS = 3, 4
"""Minimum number of ranks and operations with which one can stand out."""
LONGER = 1.3
"""Minimum ratio of the time that operations take while a proxy waits to that at other times."""
OTHER_WORK = 0.1
"""Maximum ratio of its lag before operations of other communicators, if the rank has other work."""
MAX_OPERATIONS = 20_000
MAX_CELLS = 10_000_000
"""Limits of one communicator: operations, and operations times ranks. Older ones are left out."""


class Comm(NamedTuple):
    """One communicator as matrices of (ranks, operations)."""

    name: str
    job: str
    ranks: Ints
    seqs: Ints
    enqueue: Ints
    """NULL: that rank has not enqueued it."""
    done: Ints
    """NULL: not done."""
    row: Ints
    """Row in the table; -1 for none."""

    @property
    def present(self) -> Flags:
        """Where a rank enqueued an operation."""
        present: Flags = self.enqueue != NULL
        return present


class SlowRank(NamedTuple):
    """A rank that takes longer by itself than its peers."""

    rank: int
    begin_ns: int
    last_ns: int
    share: float
    excess_ns: float
    """Median over the operations in which it is late; also its peers' usual time."""
    usual_ns: float
    late: int
    """Operations in which it is late, and the number in its interval."""
    operations: int
    peers: frozenset[int]
    """The other ranks with which it is compared; empty: with itself, earlier."""
    other_work: bool = False
    """Whether it is in time before operations of other communicators, for which it computes as
    long: then it is not slow itself."""

    @property
    def cost_ns(self) -> float:
        """For how long the others waited for it."""
        return self.late * self.excess_ns

    @property
    def brief(self) -> bool:
        """Whether it may be a process that was kept off its cores."""
        return self.last_ns - self.begin_ns < MIN_LATE_NS


class LongWait(NamedTuple):
    """Operations in which the proxy of a rank waits longer than its peers'."""

    begin_ns: int
    last_ns: int
    share: float
    wait_ns: float
    """Median; also its peers'."""
    usual_ns: float
    longer: float
    """Ratio of the time that operations take to that before or after."""


class _Group(NamedTuple):
    """Ranks that do the same work at the same time."""

    kind: tuple[str, int]
    """Job and size; below 0: pooled from communicators of that size."""
    ranks: Ints
    enqueue: Ints
    """(ranks, operations)."""
    own: Floats
    """Result of `own_time`."""


class Ranks:
    """All communicators of a bundle."""

    def __init__(self, table: BundleTable, step_ns: float) -> None:
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
        self.left_out = 0
        """Operations of communicators that have too many."""
        self.untrusted: set[int] = set()
        """Ranks on hosts whose clock is uncertain."""
        self.freed = _freed(table)
        comms, jobs = table.codes("comm"), table.codes("job")
        keys = comms.codes * (len(jobs.values) + 1) + jobs.codes + 1
        self.comms = [self._comm(rows[keys == key]) for key in np.unique(keys)]

    def _comm(self, rows: Ints) -> Comm:
        table = self.table
        every = np.unique(table.ints("seq")[rows])
        members = len(np.unique(table.ints("rank")[rows]))
        kept = every[-max(1, min(MAX_OPERATIONS, MAX_CELLS // members)) :]
        self.left_out += len(every) - len(kept)
        rows = rows[table.ints("seq")[rows] >= kept[0]]
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

    def distrust(self, host: str) -> None:
        """Do not compare instants of ranks on this host with those of others."""
        self.untrusted |= {rank for rank, name in self.host.items() if name == host}

    def own_time(self, comm: Comm) -> Floats:
        """Time from the end of the previous operation, in any communicator of the rank, to the
        begin of each, (ranks, operations) in ns. If ends were not recorded and there is one
        communicator, time since the first of its ranks began."""
        free = np.where(comm.row >= 0, self.freed[comm.row], NULL)
        known = comm.present & (free != NULL)
        if not known.any() and len(self.comms) == 1 and "done_ns" not in self.table:
            latest = np.iinfo(np.int64).max
            known = comm.present & ~np.isin(comm.ranks, [*self.untrusted])[:, None]
            first = np.where(known, comm.enqueue, latest).min(axis=0, keepdims=True)
            free = np.broadcast_to(first, comm.enqueue.shape)
        own = np.where(known, comm.enqueue - np.where(known, free, 0), 0).astype(float)
        own[~known] = np.nan
        return own

    def waits(self, comm: Comm, name: str) -> Floats:
        """A wait of the proxies, (ranks, operations); NaN where not recorded."""
        values = self.table.numbers(name)
        return np.where(comm.row >= 0, values[comm.row], np.nan)

    @cached_property
    def slow(self) -> dict[int, SlowRank]:
        """Ranks of `late` that are so for `MIN_LATE_NS`."""
        return {rank: each for rank, each in self.late.items() if not each.brief}

    @cached_property
    def late(self) -> dict[int, SlowRank]:
        """Ranks that take longer by themselves than their peers, from the end of one operation to
        the begin of the next, by more than noise and by a relevant share of a step; where it costs
        most."""
        found: dict[int, SlowRank] = {}
        groups = self._groups()
        tried = float(sum(np.isfinite(each.own).sum() for each in groups))
        spreads: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
        for each in groups:
            spread_ns = float(median(np.abs(each.own - median(each.own, axis=0))))
            # Many operations tell more of it than few, such as those of an evaluation.
            spreads[each.kind] += [spread_ns] * each.own.shape[1]
        for each in groups:
            usual_ns = float(median(np.array(spreads[each.kind])))
            for slow in self._slow_of(each, usual_ns, tried):
                if slow.rank not in found or slow.cost_ns > found[slow.rank].cost_ns:
                    found[slow.rank] = slow._replace(other_work=_has_other_work(slow, each, groups))
        return found

    def _groups(self) -> list[_Group]:
        """Ranks that do the same work: those of each communicator. Of two ranks none stands out:
        each is compared with those of other such communicators, at its place if places differ."""
        groups = []
        pairs: defaultdict[tuple[object, ...], list[tuple[Comm, int]]] = defaultdict(list)
        roles = self._roles()
        for comm in self.comms:
            if len(comm.seqs) < MIN_OPERATIONS:
                continue
            if len(comm.ranks) >= MIN_RANKS:
                groups += self._of_one_stage(comm)
                continue
            for place, rank in enumerate(comm.ranks.tolist()):
                op, first_bytes = self._first(comm, place)
                part = -1 if op in SYMMETRIC else place
                alike = comm.job, len(comm.ranks), part, roles[comm.job, rank], op, first_bytes
                pairs[alike].append((comm, place))
        for members in pairs.values():
            groups += [each for alike in _as_often(members) if (each := self._pooled(alike))]
        return groups

    def _of_one_stage(self, comm: Comm) -> list[_Group]:
        """Ranks of a communicator; those of a pipeline by its stages, which end a step one after
        the other."""
        places = [self.stages.get((comm.job, rank)) for rank in comm.ranks.tolist()]
        own, groups = self.own_time(comm), []
        for place in dict.fromkeys(places):
            rows = np.flatnonzero([each == place for each in places])
            if len(rows) >= MIN_RANKS:
                kind = comm.job, len(rows)
                groups.append(_Group(kind, comm.ranks[rows], comm.enqueue[rows], own[rows]))
        return groups

    def _roles(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Sizes of the communicators of each rank, and where it is in a pipeline: they distinguish
        stages."""
        found: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for comm in self.comms:
            for rank in comm.ranks.tolist():
                found[comm.job, rank].append(len(comm.ranks))
        return {each: (*sorted(sizes), *self.stages.get(each, ()))
                for each, sizes in found.items()}  # fmt: skip

    @cached_property
    def stages(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Job and rank → its place in a pipeline; none for other ranks."""
        return {(job, rank): place for job in {comm.job for comm in self.comms}
                for rank, place in stages(each.name for each in self.comms
                                          if each.job == job).items()}  # fmt: skip

    def _first(self, comm: Comm, place: int) -> tuple[object, float]:
        """The kind of a rank's operations, from the first of them; -1: size unknown."""
        row = int(comm.row[place][comm.row[place] >= 0].min())
        size = float(self.table.numbers("bytes")[row])
        return self.table.codes("op").at(row), -1.0 if np.isnan(size) else size

    def _pooled(self, members: list[tuple[Comm, int]]) -> _Group | None:
        """One rank of each communicator, over the operations that all of these have; None: too
        few."""
        seqs = members[0][0].seqs
        for comm, _ in members[1:]:
            seqs = np.intersect1d(seqs, comm.seqs)
        ranks = np.array([comm.ranks[place] for comm, place in members])
        if len(members) < MIN_RANKS or len({*ranks.tolist()}) < len(ranks):
            return None
        if len(seqs) < MIN_OPERATIONS:
            return None
        parts = [(comm, place, np.searchsorted(comm.seqs, seqs)) for comm, place in members]
        enqueue = np.stack([comm.enqueue[place, part] for comm, place, part in parts])
        own = np.stack([self.own_time(comm)[place, part] for comm, place, part in parts])
        first = members[0][0]
        return _Group((first.job, -len(first.ranks)), ranks, enqueue, own)

    def _slow_of(self, group: _Group, spread_ns: float, tried: float) -> list[SlowRank]:
        """Late ranks of one group.

        Args:
            group: the ranks to compare.
            spread_ns: the usual scatter in groups of the same size: with very few ranks some are
                close together by chance.
            tried: number of operations of ranks in all groups, of which some are late by chance.
        """
        own = group.own
        usual = median(own, axis=0)
        excess = own - usual
        # Some operations follow much computation and some none: each has its own scatter.
        overall = np.fmax(median(np.abs(excess)), spread_ns)
        spread = np.fmax(median(np.abs(excess), axis=0), overall) * MAD_SIGMA
        floor = np.fmax(LATE_MADS * spread, LATE_SHARE * self.step_ns)
        with np.errstate(invalid="ignore"):
            behind = excess > floor
        mean, floor = _steady(excess), _steady(floor[None, :])
        found = []
        with np.errstate(invalid="ignore"):
            stretches = significant_episodes(
                mean > floor, np.isfinite(mean), outliers=behind, tried=tried, lasting=True
            )
        for row, stretch in stretches.items():
            part = slice(stretch.first, stretch.last + 1)
            late = behind[row, part]
            enqueued = group.enqueue[row, part][late]
            if _apart(enqueued, PART_OF_STEP * self.step_ns) < MIN_STEPS:
                continue
            first_ns, last_ns = group.enqueue[row, stretch.first], group.enqueue[row, stretch.last]
            rank = int(group.ranks[row])
            found.append(
                SlowRank(
                    rank, int(first_ns), int(last_ns), stretch.share,
                    float(median(excess[row, part][late])), float(median(usual[part][late])),
                    len(enqueued), stretch.last - stretch.first + 1,
                    frozenset(group.ranks.tolist()) - {rank},
                )
            )  # fmt: skip
        return found

    def ratio_of_wait(self, name: str, rank: int, begin_ns: int, last_ns: int) -> float | None:
        """Ratio of a rank's wait to the median of its peers' at the same time; None: not
        recorded."""
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

    def long_waits(self, name: str, times: float) -> dict[int, LongWait]:
        """Ranks whose proxies wait `times` as long as their peers', by a relevant share of a step,
        while operations take longer than at other times."""
        found: dict[int, LongWait] = {}
        for comm in self.comms if name in self.table else ():
            if len(comm.ranks) < MIN_RANKS or len(comm.seqs) < MIN_OPERATIONS:
                continue
            wait = self.waits(comm, name)
            usual = median(wait, axis=0)
            with np.errstate(invalid="ignore"):
                long = (wait > times * usual) & (wait - usual > LATE_SHARE * self.step_ns)
            for row, stretch in significant_episodes(long, np.isfinite(wait)).items():
                part = slice(stretch.first, stretch.last + 1)
                took = np.where(
                    (comm.done != NULL) & comm.present, comm.done - comm.enqueue, np.nan
                )
                longest = np.where(np.isfinite(took), took, -np.inf).max(axis=0)
                longest[~np.isfinite(longest)] = np.nan
                during, before = median(longest[part]), median(np.delete(longest, part))
                if not during >= LONGER * before:
                    continue
                rank, begin = int(comm.ranks[row]), comm.enqueue[row, part]
                found[rank] = LongWait(
                    int(begin[0]), int(begin[-1]), stretch.share, float(median(wait[row, part])),
                    float(median(usual[part])), float(during / before),
                )  # fmt: skip
        return found

    def comms_of(self, ranks: frozenset[int]) -> list[Comm]:
        """Communicators of any of these ranks."""
        return [comm for comm in self.comms if ranks & set(comm.ranks.tolist())]


def _has_other_work(slow: SlowRank, group: _Group, groups: list[_Group]) -> bool:
    """Whether a rank is late only before operations of one communicator, by more than its peers
    take, but not of others, before which they compute for as long: it writes a report or a
    checkpoint. What slows a rank slows it in proportion to its work."""
    if slow.excess_ns <= slow.usual_ns:
        return False
    longer = []
    for each in groups:
        (place,) = np.nonzero(each.ranks == slow.rank)
        if each is group or not len(place):
            continue
        usual, enqueue = median(each.own, axis=0), each.enqueue[place[0]]
        inside = (enqueue >= slow.begin_ns) & (enqueue <= slow.last_ns)
        longer.append((each.own[place[0]] - usual)[inside & (usual >= slow.usual_ns)])
    known = np.concatenate([np.zeros(0), *longer])
    known = known[np.isfinite(known)]
    if len(known) < MIN_OPERATIONS:
        return False
    return bool(np.quantile(known, 1 - slow.share / 2) < OTHER_WORK * slow.excess_ns)


def _freed(table: BundleTable) -> Ints:
    """When the rank of each row had finished its previous operation, in any communicator of its
    job, (rows,); NULL if it had none or its end was not recorded."""
    enqueue, done = table.ints("enqueue_ns"), table.ints("done_ns")
    rank, job = table.ints("rank"), table.codes("job").codes
    order = np.lexsort((table.ints("seq"), enqueue, rank, job))
    freed = np.full(table.rows, NULL, dtype=np.int64)
    same = (rank[order[1:]] == rank[order[:-1]]) & (job[order[1:]] == job[order[:-1]])
    timed = done > enqueue  # else it ended at an unknown time
    freed[order[1:]] = np.where(same & timed[order[:-1]], done[order[:-1]], NULL)
    return freed


def _as_often(members: list[tuple[Comm, int]]) -> list[list[tuple[Comm, int]]]:
    """Groups of those whose communicators have about the same number of operations."""
    found: list[list[tuple[Comm, int]]] = []
    for each in sorted(members, key=lambda one: len(one[0].seqs)):
        if found and len(each[0].seqs) <= AS_MANY * len(found[-1][0][0].seqs):
            found[-1].append(each)
        else:
            found.append([each])
    return found


def _apart(instants: Ints, least_ns: float) -> int:
    """How many of these instants, ascending, are at least this far apart."""
    count, last_ns = 0, -np.inf
    for each in instants:
        if each - last_ns >= least_ns:
            count, last_ns = count + 1, float(each)
    return count


def _steady(excess: Floats) -> Floats:
    """Mean of each operation and the next: one enqueued late and one early are not a lag."""
    after = np.concatenate((excess[:, 1:], excess[:, -1:]), axis=1)
    return (excess + after) / 2


def step_length(steps: BundleTable, collectives: BundleTable) -> float:
    """The usual length of a step in ns; without steps the time between operations."""
    if steps.rows:
        return float(median((steps.ints("end_ns") - steps.ints("begin_ns")).astype(float)))
    if not collectives.rows:
        return 0.0
    rank = collectives.ints("rank")
    mine = np.sort(collectives.ints("enqueue_ns")[rank == rank[0]])
    return float(np.median(np.diff(mine))) if len(mine) > 1 else 0.0
