"""Forms new generations of a job's workers, or ends a job that cannot have one.

Contains the state of a job's coordinator, and its orders once ranks are lost: fence, assign spares,
wait for survivors to freeze, plan, connect, continue; or keep the job's state; or give up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from syntony.torch.checkpoint import CheckpointFile, state_name
from syntony.torch.hangs import NO_PROGRESS
from syntony.torch.orders import (
    PRESERVED,
    Forming,
    Log,
    Order,
    Origin,
    Preserve,
    Send,
    Settings,
    Spawn,
    Worker,
)
from syntony.torch.recovery import (
    START,
    RankReport,
    RecoveryRefusal,
    make_plan,
    part_sources,
)
from syntony.torch.stragglers import LatenessWatch, Straggler

MAX_SAME_STEP = 3
"""Deaths of one rank at one step before the program is taken as the cause, not the host."""


COPIED_AFTER = 2
"""Ranks send copies at each boundary; ranks at the next one have received them."""


class Formation:
    """The coordinator's state. Every method returns orders, to be carried out in sequence."""

    def __init__(self, settings: Settings, origin: Origin | None = None) -> None:
        self.settings = settings
        self.origin = origin
        self.generation = 0
        self.world = 0
        self.workers: dict[str, Worker] = {}
        self.holders: dict[int, str] = {}
        """Rank → the worker that holds it."""
        self.keepers: dict[int, str] = {}
        """Rank → the worker whose keeper the launcher waits for."""
        self.records: dict[int, int] = {}
        """Rank → the last boundary with a record."""
        self.floor = START
        self.forming: Forming | None = Forming({}, 0)
        self.ended: dict[int, int] = {}
        """Exit codes of ranks."""
        self.fenced: set[str] = set()
        """Workers that were given up: their messages are ignored."""
        self.offers: dict[str, int] = {}
        """Number of spares that other hosts offer, by the host's name."""
        self.drained: set[str] = set()
        """Hosts that must have no process of the job: a spare that starts there is ended."""
        self._resumed = False
        self._awaited: set[str] = set()
        """Workers that have not reconnected since this coordinator began."""
        self._ends_with: dict[int, int] = {}
        """Ranks whose keepers were ordered to end, and the exit code."""
        self.over = False
        """Whether no rank is replaced any more."""
        self.unprotected = ""
        self.fixed = ""
        """Why no rank can be replaced, though the job's state can be kept while none is lost."""
        self.shards: dict[int, str] = {}
        """Rank → its part of the parameters, if ranks differ."""
        self.shadowed = False
        """Whether ranks keep copies of each other's state, which may be a boundary behind."""
        self._copied_from = START + COPIED_AFTER
        """Once all ranks are at this boundary, replacements have their neighbours' copies, too."""
        self.replaced = 0
        self._deaths: dict[tuple[int, int], int] = {}
        self._digests: dict[int, dict[int, str]] = {}
        self._ticked_ns = 0
        self._hang: tuple[str, int] | None = None
        """The hanging operation that was last reported."""
        self._lateness = LatenessWatch()
        self._slow: Straggler | None = None
        """The late ranks that were last reported."""
        self._swapped: set[int] = set()
        """Ranks that were replaced for being late: if they are late again, their work is the
        reason."""
        self._starting = settings.spares
        """Started spares that have not reported yet."""

    # --- how a generation is formed ---

    def _lose(
        self, lost: dict[int, str], now_ns: int, *, left: frozenset[str] = frozenset(),
        shortage: str = "", why: str = "",
    ) -> list[Order]:  # fmt: skip
        """Connect again, without these ranks' workers.

        Args:
            lost: ranks with the reason.
            now_ns: the coordinator's time.
            left: `Forming.left`.
            shortage: why the job's state is kept, though no rank is lost.
            why: what failed, though no rank is lost.
        """
        known = self.forming is not None and self.forming.lost
        began_ns = self.forming.began_ns if known and self.forming is not None else now_ns
        pending = {} if self.forming is None else dict(self.forming.lost)
        orders: list[Order] = []
        for each in self.workers.values():
            each.progress = NO_PROGRESS
        for rank, reason in lost.items():
            orders += self._fence(rank, reason)
        refusal = self._refusal(lost)
        if self.fixed and not shortage:
            refusal = refusal or self.fixed
        if refusal:
            return orders + self._give_up("; ".join(filter(None, (why, refusal))), lost)
        shortage = shortage or self._shortage(lost)
        if shortage and not self.settings.checkpoint:
            return orders + self._give_up(shortage, lost)
        if self.forming is not None:
            left, shortage = left | self.forming.left, self.forming.shortage or shortage
        self.generation += 1
        self.forming = Forming(pending | lost, began_ns, left=left, shortage=shortage)
        self._digests.clear()
        self._lateness.reset()
        for rank in lost:
            self.holders.pop(rank, None)
        for name in self.holders.values():
            orders.append(Send(name, False, {"kind": "freeze", "generation": self.generation}))
        return orders + self._assign()

    def _fence(self, rank: int, reason: str) -> list[Order]:
        """The keeper kills its worker; if both are unreachable, all processes of the job ignore
        them."""
        name = self.holders[rank]
        place = rank, self.records.get(rank, START)
        self._deaths[place] = self._deaths.get(place, 0) + (reason != "drained")
        event = {"event": "lost", "rank": rank, "reason": reason, "boundary": place[1]}
        self.workers.pop(name, None)
        self.fenced.add(name)
        return [Send(name, True, {"kind": "kill"}), Log(event | {"worker": name})]

    def _refusal(self, lost: Collection[int]) -> str:
        if self.unprotected:
            return f"not protected: {self.unprotected}"
        if any(each.finished for each in self.workers.values()):
            return "a rank has already ended"
        for rank in lost:
            if self._deaths.get((rank, self.records.get(rank, START)), 0) >= MAX_SAME_STEP:
                return f"rank {rank} died {MAX_SAME_STEP} times at the same step"
        return ""

    def _shortage(self, lost: Collection[int]) -> str:
        if self.replaced + len(lost) > self.settings.max_replacements:
            return f"{self.replaced} ranks were replaced, no more are allowed"
        if lost and self.spares_to_keep == 0:
            return "there are no spares"
        return ""

    def _assign(self) -> list[Order]:
        """Assign ranks without a holder to waiting spares."""
        if self.forming is None or self.over:
            return []
        orders: list[Order] = []
        if self.forming.shortage:
            return self._advance()
        for rank in sorted(set(self.forming.lost) - set(self.holders)):
            left, ready = self.forming.left, self._ready()
            # One heard from recently: others may be on a host that was lost as well.
            spare = max(ready, key=lambda e: (e.host not in left, e.last_received_ns), default=None)
            if spare is None:
                orders.append(Log({"event": "no-spare", "rank": rank}))
                break
            spare.rank, spare.waiting, spare.joining = rank, False, True
            self.holders[rank] = spare.name
            self.replaced += 1
            place = {"event": "assigned", "rank": rank, "worker": spare.name}
            orders += [self._assignment(rank, spare.name), Log(place), *self._respawn()]
        return orders + self._advance()

    def _ready(self) -> list[Worker]:
        """Spares that can take a rank at once."""
        return [e for e in self.workers.values() if e.waiting and e.stopped_ns is None]

    def _assignment(self, rank: int, name: str) -> Order:
        return Send(name, False, {"kind": "assign", "rank": rank, "world": self.world})

    @property
    def spares_to_keep(self) -> int:
        """Number of warm spares to have, on all hosts."""
        return self.settings.spares + sum(self.offers.values())

    def _respawn(self) -> list[Order]:
        missing = 0 if self.over else max(0, self.spares_to_keep - self._spares())
        self._starting += missing
        return [Spawn()] * missing

    def _spares(self) -> int:
        """Spares that wait or start."""
        return self._starting + sum(each.rank is None for each in self.workers.values())

    def _stranded(self, code: int) -> list[Order]:
        """A spare could not start: processes that wait for it wait in vain if it was the last."""
        forming = self.forming
        if forming is None or self._spares() or set(forming.lost) <= set(self.holders):
            return []
        forming.shortage = f"no spare is left: the last ended with code {code}"
        if self.settings.checkpoint:
            return self._advance()
        return self._give_up(forming.shortage, forming.lost)

    def on_frozen(self, worker: Worker, generation: int, report: RankReport) -> list[Order]:
        """A survivor's state is frozen until it receives a plan."""
        forming = self.forming
        if forming is None or worker.rank is None or generation != self.generation:
            return []
        if worker.joining:
            return []
        forming.reports[worker.rank] = report
        return self._advance()

    def _advance(self) -> list[Order]:  # noqa: PLR0911 - one line for each thing to wait for
        forming = self.forming
        if forming is None or self.over or not self.world:
            return []
        if forming.shortage:
            return self._preserve(forming)
        if len(self.holders) < self.world:
            return []
        if self._awaited & set(self.holders.values()):
            return []
        survivors = self._survivors()
        if forming.boundary is None and set(forming.reports) >= survivors:
            return self._plan(forming)
        everybody = set(self.holders)
        if forming.boundary is not None and not forming.hosted and forming.arrived >= everybody:
            forming.hosted = True
            message = {"kind": "host", "generation": self.generation}
            return [Send(self.holders[forming.provider], False, message)]
        return []

    # --- no spare is left ---

    def _preserve(self, forming: Forming) -> list[Order]:
        """Have survivors write each part of the state, at the earliest step of any rank."""
        survivors = self._survivors()
        if forming.boundary is not None or set(forming.reports) < survivors:
            return []
        places = {rank: self.records.get(rank, START) for rank in range(self.world)}
        lost = {rank: place for rank, place in places.items() if rank not in survivors}
        plan = make_plan(forming.reports, lost, self.shards)
        if isinstance(plan, RecoveryRefusal):
            return self._give_up(f"{forming.shortage}; {plan.reason}", forming.lost)
        if plan.boundary == START:
            return self._give_up(f"{forming.shortage}; no step was done yet", forming.lost)
        sources = part_sources(forming.reports, self.shards, plan.boundary)
        if isinstance(sources, RecoveryRefusal):
            return self._give_up(f"{forming.shortage}; {sources.reason}", forming.lost)
        forming.boundary = plan.boundary
        files: dict[int, list[tuple[str, int, bool]]] = {}
        for part, source in sources.items():
            name = state_name(part)
            forming.unwritten[name] = source.undo
            files.setdefault(source.rank, []).append((name, source.of, source.undo))
        message = {
            "kind": "plan", "generation": self.generation, "boundary": plan.boundary,
            "joiners": [], "verify": False,
            "preserve": f"{self.settings.checkpoint}/step-{plan.boundary}",
        }  # fmt: skip
        log = Log({"event": "preserve", "boundary": plan.boundary, "reason": forming.shortage})
        return [log, *(Send(self.holders[rank], False, message | {"files": each})
                       for rank, each in sorted(files.items()))]  # fmt: skip

    def on_preserved(
        self, generation: int, files: Mapping[str, tuple[int, str]], failure: str
    ) -> list[Order]:
        """A survivor has written these files (name → bytes and SHA-256), or why not."""
        forming = self.forming
        if forming is None or generation != self.generation or forming.boundary is None:
            return []
        if failure:
            reason = f"{forming.shortage}; the checkpoint was not written: {failure}"
            return self._give_up(reason, forming.lost)
        for name, (size, digest) in files.items():
            if name in forming.unwritten:
                forming.written[name] = CheckpointFile(size, digest, forming.unwritten.pop(name))
        if forming.unwritten:
            return []
        self.over = True
        orders = self._completed()
        for rank in self.keepers:
            orders += self._ends(rank, PRESERVED)
        return orders

    def _completed(self) -> list[Order]:
        """End the job with its state kept: complete the checkpoint, possibly repeated."""
        forming = self.forming
        if forming is None or forming.boundary is None or not forming.written or forming.unwritten:
            return []
        return [Preserve(forming.boundary, forming.written)]

    def _survivors(self) -> set[int]:
        """Ranks whose holders have taken part in a generation."""
        return {
            rank
            for rank, name in self.holders.items()
            if name in self.workers and not self.workers[name].joining
        }

    def _plan(self, forming: Forming) -> list[Order]:
        joiners, sources = set(self.holders) - self._survivors(), list[list[int]]()
        if self.generation == 0 or not forming.reports:
            if any(self.records.get(rank, START) > START for rank in joiners):
                return self._give_up("no rank is left that has the parameters")
            forming.boundary, forming.provider, undo = START, min(self.holders), False
        else:
            lost = {rank: self.records.get(rank, START) for rank in joiners}
            plan = make_plan(forming.reports, lost, self.shards)
            if isinstance(plan, RecoveryRefusal):
                return self._give_up(plan.reason, forming.lost)
            forming.boundary, forming.provider, undo = plan.boundary, plan.provider, plan.undo
            sources = [[rank, *plan.source(rank)] for rank in sorted(joiners)]
        message = {
            "kind": "plan", "generation": self.generation, "boundary": forming.boundary,
            "provider": forming.provider, "undo": undo, "joiners": sorted(joiners),
            "sources": sources, "world": self.world, "verify": bool(joiners) or self._resumed,
        }  # fmt: skip
        if self.origin is not None and forming.boundary == START:
            message["resume"] = self.origin._asdict()
        orders: list[Order] = [Log(message | {"event": "plan"})]
        for rank, name in sorted(self.holders.items()):
            record = (rank, forming.boundary) if rank in joiners else None
            if forming.boundary == START:
                record = None if self.origin is None else (rank, self.origin.boundary)
            orders.append(Send(name, False, message, record))
            if rank in joiners:
                self.workers[name].boundary = forming.boundary
        return orders

    def on_hosted(self, generation: int, address: str) -> list[Order]:
        """The provider serves the store through which the workers connect."""
        if self.forming is None or generation != self.generation:
            return []
        message = {"kind": "form", "generation": generation, "address": address}
        return [Send(name, False, message) for name in self.holders.values()]

    def on_formed(self, worker: Worker, generation: int, now_ns: int) -> list[Order]:
        """A worker is connected, and has what it needs to continue."""
        forming = self.forming
        if forming is None or worker.rank is None or generation != self.generation:
            return []
        worker.joining = False
        forming.formed.add(worker.rank)
        if forming.formed < set(self.holders):
            return []
        self.forming = None
        if forming.lost and forming.boundary is not None:
            self._copied_from = forming.boundary + COPIED_AFTER
        event = {"event": "formed", "generation": generation, "boundary": forming.boundary}
        took = {"lost": forming.lost, "took_ns": now_ns - forming.began_ns}
        return [Log(event | (took if generation else {}) | {"holders": dict(self.holders)})]

    # --- giving up ---

    def _give_up(self, reason: str, lost: dict[int, str] | None = None) -> list[Order]:
        """Give up: the launcher sees a dead rank, as it would without Syntony."""
        if self.over:
            return []
        self.over = True
        orders: list[Order] = [Log({"event": "gave-up", "reason": reason})]
        for rank in lost or list(self.keepers)[:1]:
            orders += self._ends(rank, 1)
        return orders

    def _ends(self, rank: int, code: int) -> list[Order]:
        name = self.keepers.get(rank)
        self._ends_with[rank] = code
        return [] if name is None else [self._end(name, code)]

    def _end(self, name: str, code: int) -> Order:
        return Send(name, True, {"kind": "end", "code": code})
