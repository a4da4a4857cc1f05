"""Which process holds which rank of a job, and how a lost one is replaced: events in, orders out.

Each rank is held by one *worker* process. Beside it a *keeper*, which the launcher started, waits
for the worker's death, kills it when ordered, and stays until the rank has ended, whoever holds it
by then. Each set of workers that exchange data is a *generation*: when one is lost the survivors
close all connections of the old generation, so a worker that was given up can never write into the
job again, and the replacement and they connect anew.

Nothing here reads a clock or a socket. Messages are small dictionaries with a `kind`; what each
means stands beside the method that handles it (`on_KIND`) or the order that sends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syntony.torch import suspicion
from syntony.torch.hangs import NO_PROGRESS, Progress, locate
from syntony.torch.orders import (
    PRESERVED,
    Forget,
    Forming,
    Log,
    Order,
    Origin,
    Preserve,
    S,
    Send,
    Settings,
    Spawn,
    Worker,
)
from syntony.torch.recovery import START, Refusal, Report, make_plan

if TYPE_CHECKING:
    from collections.abc import Collection

PAUSE_NS = 1 * S
"""A coordinator that was itself away for longer starts all waiting anew."""
MAX_SAME_STEP = 3
"""Deaths of one rank at one step before the program is blamed, not the host."""
ENDING = (1, 2, 15)
"""SIGHUP, SIGINT, SIGTERM: somebody ends the job; a worker that dies of one is not replaced."""


class Membership:
    """The coordinator's state. Every method returns orders, to be carried out in sequence."""

    def __init__(self, settings: Settings, origin: Origin | None = None) -> None:
        self.settings = settings
        self.origin = origin
        self.generation = 0
        self.world = 0
        self.workers: dict[str, Worker] = {}
        self.holders: dict[int, str] = {}
        """Rank to the worker that holds it."""
        self.keepers: dict[int, str] = {}
        """Rank to the worker whose keeper the launcher waits for."""
        self.records: dict[int, int] = {}
        """Rank to the last boundary of which there is a record."""
        self.floor = START
        self.forming: Forming | None = Forming({}, 0)
        self.ended: dict[int, int] = {}
        """Exit codes of ranks."""
        self.fenced: set[str] = set()
        """Workers that were given up: nothing that they say counts."""
        self.offers: dict[str, int] = {}
        """Spares that other hosts have for the job, by the host's name."""
        self._resumed = False
        self._awaited: set[str] = set()
        """Workers that have not connected again since this coordinator began."""
        self._ends_with: dict[int, int] = {}
        """Ranks whose keepers were told to end, and with which code."""
        self.over = False
        """No rank is replaced any more."""
        self.unprotected = ""
        self.replaced = 0
        self._deaths: dict[tuple[int, int], int] = {}
        self._digests: dict[int, dict[int, str]] = {}
        self._ticked_ns = 0
        self._hang: tuple[str, int] | None = None
        """The operation that was reported last as not ending."""
        self._starting = settings.spares
        """Spares of whom nothing was heard yet."""

    # --- arrivals ---

    def on_keeper(
        self, name: str, rank: int | None, world: int, now_ns: int, host: str = ""
    ) -> list[Order]:
        """A keeper started its worker; `rank` is None for spares."""
        worker = self.workers[name] = Worker(name, rank, heard_ns=now_ns, host=host)
        if rank is None:
            self._starting = max(0, self._starting - 1)
            return []
        if rank in self.keepers:  # the launcher starts ranks again: that is its own recovery
            return [*self._give_up("the launcher restarted the ranks"), self._end(name, 1)]
        self.world = self.world or world
        unfit = self._unfit(world)
        if unfit:
            return [*self._give_up(unfit), self._end(name, 1)]
        self.holders[rank] = self.keepers[rank] = name
        worker.joining = True
        return self._advance()

    def _unfit(self, world: int) -> str:
        """Why a job of so many ranks cannot go on from the checkpoint."""
        if self.origin is None or world == self.origin.world:
            return ""
        least = self.settings.min_ranks
        if least and least <= world < self.origin.world:
            return ""
        return f"the checkpoint has {self.origin.world} ranks, the job {world} (see --min-ranks)"

    def on_waiting(self, worker: Worker) -> list[Order]:
        """A spare is warm."""
        if worker.rank is not None:
            return []
        worker.waiting = True
        return [Log({"event": "spare-ready", "worker": worker.name}), *self._assign()]

    def on_offer(self, name: str, count: int) -> list[Order]:
        """Another host has so many spares for the job; 0: not any more."""
        self.offers[name] = max(0, count)
        return self._respawn()

    @property
    def wanted_spares(self) -> int:
        """How many are to be warm, on all hosts."""
        return self.settings.spares + sum(self.offers.values())

    def on_arrived(self, worker: Worker, generation: int) -> list[Order]:
        """A worker that joins is at the point from which it can take part."""
        forming = self.forming
        if forming is None or worker.rank is None or generation != self.generation:
            return []
        forming.arrived.add(worker.rank)
        return self._advance()

    # --- running ---

    def on_boundary(self, worker: Worker, boundary: int, now_ns: int) -> list[Order]:
        """A worker passed a boundary, and its record is stored."""
        if worker.rank is None:
            return []
        if boundary <= worker.boundary:  # the acknowledgement was lost with a coordinator
            return [Send(worker.name, False, self._ack(boundary))]
        worker.boundary = boundary
        worker.heard_ns = now_ns
        self.records[worker.rank] = max(self.records.get(worker.rank, START), boundary)
        orders: list[Order] = []
        if len(self.records) == self.world:
            self.floor = min(self._boundaries())
            orders = [Forget(worker.rank, self.floor)]
        return [Send(worker.name, False, self._ack(boundary)), *orders]

    def _ack(self, boundary: int) -> dict[str, Any]:
        return {"kind": "ack", "boundary": boundary, "floor": self.floor}

    def _boundaries(self) -> list[int]:
        """Of every rank: what its holder passed, or where its replacement must begin."""
        return [
            min(self.records.get(rank, START), self.workers[name].boundary)
            for rank, name in self.holders.items()
        ]

    def on_unprotected(self, worker: Worker, reason: str, *, harms: bool = False) -> list[Order]:
        """Something that the job does cannot be repeated exactly, or (`harms`) was not."""
        if self.unprotected:
            return []
        self.unprotected = reason
        event = Log({"event": "unprotected", "rank": worker.rank, "reason": reason})
        if harms and self.replaced:
            return [event, *self._give_up(f"a rank was replaced before, and {reason}")]
        return [event]

    def on_digest(self, worker: Worker, boundary: int, digest: str) -> list[Order]:
        """Hash of a worker's parameters at a boundary: replicas must agree."""
        if worker.rank is None:
            return []
        digests = self._digests.setdefault(boundary, {})
        digests[worker.rank] = digest
        if len(digests) < self.world - len(self.ended):
            return []
        del self._digests[boundary]
        equal = len(set(digests.values())) == 1
        event = {"event": "digest", "boundary": boundary, "equal": equal, "sha256": digests}
        orders: list[Order] = [Log(event)]
        if equal:
            return orders
        if self.replaced == 0 and self.origin is None:
            return orders + self.on_unprotected(
                worker, "parameters differ between ranks (tensor, pipeline or sharded)"
            )
        return orders + self._give_up("parameters differ after a replacement")

    # --- ends and losses ---

    def on_heard(
        self,
        worker: Worker,
        now_ns: int,
        progress: Progress = NO_PROGRESS,
    ) -> list[Order]:
        """A worker speaks for itself."""
        worker.heard_ns, worker.progress = now_ns, progress
        return []

    def on_state(self, worker: Worker, stopped: bool, now_ns: int) -> list[Order]:
        """The keeper looked at its worker."""
        worker.heard_ns = now_ns
        if not stopped:
            worker.stopped_ns = None
        elif worker.stopped_ns is None:
            worker.stopped_ns = now_ns
        return []

    def on_exit(self, worker: Worker, code: int, now_ns: int) -> list[Order]:
        """A worker's process ended; `code` is negative for a signal."""
        rank = worker.rank
        del self.workers[worker.name]
        if rank is None:
            event = Log({"event": "spare-exit", "worker": worker.name, "code": code})
            return [event, *(self._respawn() if code < 0 else self._stranded(code))]
        if self.holders.get(rank) != worker.name:
            return []  # it was given up before
        if code < 0 and -code not in ENDING and not worker.finished and not self.over:
            return self._lose({rank: f"killed by signal {-code}"}, now_ns)
        if code > 0 and worker.joining and self.generation and not self.over:
            return self._lose({rank: f"replacement failed with exit code {code}"}, now_ns)
        self.ended[rank] = code
        if code:
            self.over = True
        return [Log({"event": "exit", "rank": rank, "code": code}), *self._ends(rank, code)]

    def on_finished(self, worker: Worker) -> list[Order]:
        """A worker's program ended well; it stays until all have, for others may need it."""
        worker.finished = True
        holders = [self.workers.get(name) for name in self.holders.values()]
        if any(each is not None and not each.finished for each in holders):
            return []
        self.over = True
        return self._release()

    def _release(self) -> list[Order]:
        return [Send(name, False, {"kind": "release"}) for name in self.holders.values()]

    def on_failed(self, generation: int, now_ns: int) -> list[Order]:
        """A collective failed at a worker: connect anew. Its keeper reports a lost process."""
        if self.forming is not None or generation != self.generation or self.over:
            return []
        return self._lose({}, now_ns)

    def on_drain(self, rank: int, now_ns: int) -> list[Order]:
        """An operator wants the process of a rank gone."""
        name = self.holders.get(rank)
        if name is None or name not in self.workers or rank in self.ended:
            return [Log({"event": "drain-refused", "rank": rank, "reason": "no such running rank"})]
        refusal = "the job ends" if self.over else self._refusal([rank])
        if not refusal and not any(each.waiting for each in self.workers.values()):
            refusal = "no spare is ready"
        if refusal:
            return [Log({"event": "drain-refused", "rank": rank, "reason": refusal})]
        return self._lose({rank: "drained"}, now_ns)

    def on_tick(self, now_ns: int) -> list[Order]:
        """Call some ten times a second."""
        away = now_ns - self._ticked_ns > PAUSE_NS
        self._ticked_ns = now_ns
        ranked = [each for each in self.workers.values() if each.rank is not None]
        if away:
            for each in self.workers.values():
                each.heard_ns = now_ns
                each.stopped_ns = None if each.stopped_ns is None else now_ns
            return []
        if self.over:
            return []
        lost = suspicion.of_ranks(ranked, self.settings.stopped_ns, now_ns)
        orders = self._drop_silent_spares(now_ns)
        if lost:
            return orders + self._lose(lost, now_ns)
        if orders:
            return orders
        return self._look_for_hangs(ranked, now_ns) if self.forming is None else []

    def _drop_silent_spares(self, now_ns: int) -> list[Order]:
        spares = [each for each in self.workers.values() if each.rank is None]
        gone = [each.name for each in spares if suspicion.is_silent(each, now_ns)]
        for name in gone:
            del self.workers[name]
            self.fenced.add(name)
        return self._respawn() if gone else []

    def _look_for_hangs(self, ranked: list[Worker], now_ns: int) -> list[Order]:
        """Report an operation that does not end once; give the absent up if told so."""
        if any(each.stopped_ns is not None or each.finished for each in ranked):
            return []
        hang = locate({each.rank: each.progress for each in ranked if each.rank is not None})
        if hang is None:
            self._hang = None
            return []
        orders: list[Order] = []
        place = hang.operation.group, hang.operation.number
        if place != self._hang:
            self._hang = place
            orders.append(Log({"event": "hang", "absent": hang.absent, "reason": hang.text}))
        late = self.settings.hung_ns and hang.operation.for_ns >= self.settings.hung_ns
        if late and 0 < 2 * len(hang.absent) < len(ranked) and not self._refusal(hang.absent):
            lost = dict.fromkeys(hang.absent, f"hung: {hang.operation.text} not called")
            return orders + self._lose(lost, now_ns)
        return orders

    def on_gone(self, worker: Worker, now_ns: int) -> list[Order]:
        """Keeper and worker have both closed their connections: their host, or both, are gone."""
        if worker.name not in self.workers:
            return []
        if worker.rank is None:
            del self.workers[worker.name]
            return self._respawn()
        if self.over or self.holders.get(worker.rank) != worker.name:
            return []
        return self._lose({worker.rank: "gone"}, now_ns)

    # --- a coordinator that is started again ---

    def restore_record(self, rank: int, boundary: int) -> None:
        """There is a record of this boundary that may be newer than this state."""
        self.records[rank] = max(self.records.get(rank, START), boundary)

    def on_resumed(self, now_ns: int) -> list[Order]:
        """This is the state of a coordinator that died; none of its last orders need have arrived.

        Everybody connects anew, in a generation after all that it can have ordered.
        """
        self._resumed, self._awaited = True, set(self.workers)
        self._starting = 0  # those that were will be more than are needed
        for each in self.workers.values():
            each.heard_ns, each.stopped_ns = now_ns, None
        orders = [
            order for rank, code in self._ends_with.items() for order in self._ends(rank, code)
        ]
        if self.over:
            return orders + (self._release() if not self._ends_with else [])
        for rank, name in self.holders.items():
            if self.workers[name].joining and name not in self.keepers.values():
                orders.append(self._assignment(rank, name))
        orders += self._respawn()
        if self.forming is None and self._refusal([]):
            return orders  # it runs as it would without us
        return orders + self._lose({}, now_ns)

    def on_returned(self, worker: Worker, said: dict[str, Any], now_ns: int) -> list[Order]:
        """A worker has connected again; `said`: what may not have arrived before."""
        orders: list[Order] = []
        worker.heard_ns = now_ns
        if int(said["generation"]) >= 0:
            worker.joining = False
        if said["reason"]:
            orders += self.on_unprotected(worker, str(said["reason"]), harms=bool(said["harms"]))
        if said["finished"]:
            orders += self.on_finished(worker)
        if said["waiting"]:
            orders += self.on_waiting(worker)
        if worker.name in self._awaited:
            self._awaited.discard(worker.name)
            return orders + self._advance()
        if worker.rank is None or self.over or self._refusal([]):
            return orders
        return orders + self._lose({}, now_ns)

    # --- how a generation is formed ---

    def _lose(self, lost: dict[int, str], now_ns: int) -> list[Order]:
        known = self.forming is not None and self.forming.lost
        began_ns = self.forming.began_ns if known and self.forming is not None else now_ns
        pending = {} if self.forming is None else dict(self.forming.lost)
        orders: list[Order] = []
        for each in self.workers.values():
            each.progress = NO_PROGRESS
        for rank, reason in lost.items():
            orders += self._fence(rank, reason)
        refusal = self._refusal(lost)
        if refusal:
            return orders + self._give_up(refusal, lost)
        shortage = self._shortage(lost)
        if shortage and not self.settings.checkpoint:
            return orders + self._give_up(shortage, lost)
        before = "" if self.forming is None else self.forming.shortage
        self.generation += 1
        self.forming = Forming(pending | lost, began_ns, shortage=before or shortage)
        self._digests.clear()
        for rank in lost:
            self.holders.pop(rank, None)
        for name in self.holders.values():
            orders.append(Send(name, False, {"kind": "freeze", "generation": self.generation}))
        return orders + self._assign()

    def _fence(self, rank: int, reason: str) -> list[Order]:
        """Its keeper kills it; should both be out of reach, nobody of the job listens to it."""
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
        if lost and self.wanted_spares == 0:
            return "there are no spares"
        return ""

    def _assign(self) -> list[Order]:
        """Give ranks that nobody holds to spares that wait."""
        if self.forming is None or self.over:
            return []
        orders: list[Order] = []
        if self.forming.shortage:
            return self._advance()
        for rank in sorted(set(self.forming.lost) - set(self.holders)):
            ready = [e for e in self.workers.values() if e.waiting and e.stopped_ns is None]
            # One that was heard last: others may be on a host that was lost as well.
            spare = max(ready, key=lambda each: each.heard_ns, default=None)
            if spare is None:
                orders.append(Log({"event": "no-spare", "rank": rank}))
                break
            spare.rank, spare.waiting, spare.joining = rank, False, True
            self.holders[rank] = spare.name
            self.replaced += 1
            place = {"event": "assigned", "rank": rank, "worker": spare.name}
            orders += [self._assignment(rank, spare.name), Log(place), *self._respawn()]
        return orders + self._advance()

    def _assignment(self, rank: int, name: str) -> Order:
        return Send(name, False, {"kind": "assign", "rank": rank, "world": self.world})

    def _respawn(self) -> list[Order]:
        missing = 0 if self.over else max(0, self.wanted_spares - self._spares())
        self._starting += missing
        return [Spawn()] * missing

    def _spares(self) -> int:
        """That wait or start."""
        return self._starting + sum(each.rank is None for each in self.workers.values())

    def _stranded(self, code: int) -> list[Order]:
        """A spare could not be one: whoever waits for it waits in vain if it was the last."""
        forming = self.forming
        if forming is None or self._spares() or set(forming.lost) <= set(self.holders):
            return []
        forming.shortage = f"no spare is left: the last ended with code {code}"
        if self.settings.checkpoint:
            return self._advance()
        return self._give_up(forming.shortage, forming.lost)

    def on_frozen(self, worker: Worker, generation: int, report: Report) -> list[Order]:
        """A survivor's state does not change any more until it hears of a plan."""
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
        """Have a survivor write what all ranks share, of the earliest step that any is at."""
        survivors = self._survivors()
        if forming.boundary is not None or set(forming.reports) < survivors:
            return []
        places = {rank: self.records.get(rank, START) for rank in range(self.world)}
        lost = {rank: place for rank, place in places.items() if rank not in survivors}
        plan = make_plan(forming.reports, lost)
        if isinstance(plan, Refusal):
            return self._give_up(f"{forming.shortage}; {plan.reason}", forming.lost)
        if plan.boundary == START:
            return self._give_up(f"{forming.shortage}; no step was done yet", forming.lost)
        forming.boundary, forming.undo = plan.boundary, plan.undo
        message = {
            "kind": "plan", "generation": self.generation, "boundary": plan.boundary,
            "provider": plan.provider, "undo": plan.undo, "joiners": [], "world": self.world,
            "verify": False, "preserve": f"{self.settings.checkpoint}/step-{plan.boundary}",
        }  # fmt: skip
        log = Log({"event": "preserve", "boundary": plan.boundary, "reason": forming.shortage})
        return [log, Send(self.holders[plan.provider], False, message)]

    def on_preserved(self, generation: int, state: tuple[int, str], failure: str) -> list[Order]:
        """A survivor has written it, or why not."""
        forming = self.forming
        if forming is None or generation != self.generation or forming.boundary is None:
            return []
        if failure:
            reason = f"{forming.shortage}; the checkpoint was not written: {failure}"
            return self._give_up(reason, forming.lost)
        self.over = True
        orders: list[Order] = [Preserve(forming.boundary, forming.undo, state)]
        for rank in self.keepers:
            orders += self._ends(rank, PRESERVED)
        return orders

    def _survivors(self) -> set[int]:
        """Ranks whose holders have taken part in a generation."""
        return {
            rank
            for rank, name in self.holders.items()
            if name in self.workers and not self.workers[name].joining
        }

    def _plan(self, forming: Forming) -> list[Order]:
        joiners = set(self.holders) - self._survivors()
        if self.generation == 0 or not forming.reports:
            if any(self.records.get(rank, START) > START for rank in joiners):
                return self._give_up("no rank is left that has the parameters")
            forming.boundary, forming.provider, undo = START, min(self.holders), False
        else:
            lost = {rank: self.records.get(rank, START) for rank in joiners}
            plan = make_plan(forming.reports, lost)
            if isinstance(plan, Refusal):
                return self._give_up(plan.reason, forming.lost)
            forming.boundary, forming.provider, undo = plan.boundary, plan.provider, plan.undo
        message = {
            "kind": "plan", "generation": self.generation, "boundary": forming.boundary,
            "provider": forming.provider, "undo": undo, "joiners": sorted(joiners),
            "world": self.world, "verify": bool(joiners) or self._resumed,
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
        """The provider serves the store in which the workers find each other."""
        if self.forming is None or generation != self.generation:
            return []
        message = {"kind": "form", "generation": generation, "address": address}
        return [Send(name, False, message) for name in self.holders.values()]

    def on_formed(self, worker: Worker, generation: int, now_ns: int) -> list[Order]:
        """A worker is connected, and has what it needs to go on."""
        forming = self.forming
        if forming is None or worker.rank is None or generation != self.generation:
            return []
        worker.joining = False
        forming.formed.add(worker.rank)
        if forming.formed < set(self.holders):
            return []
        self.forming = None
        event = {"event": "formed", "generation": generation, "boundary": forming.boundary}
        took = {"lost": forming.lost, "took_ns": now_ns - forming.began_ns}
        return [Log(event | (took if generation else {}) | {"holders": dict(self.holders)})]

    # --- giving up ---

    def _give_up(self, reason: str, lost: dict[int, str] | None = None) -> list[Order]:
        """The launcher hears of a dead rank, as it would have without us."""
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
