"""Decides which process holds which rank of a job, and how a lost one is replaced. Pure.

Each rank is held by one *worker* process. Its *keeper*, which the launcher started, waits for the
worker's death, kills it when ordered, and stays until the rank has ended, no matter which worker
holds it by then. Each set of workers that exchange data is a *generation*. When a worker is lost,
the survivors close all connections of the old generation, so that it can never write into the job
again; then the survivors and the replacement connect again.

Events go in, orders come out; nothing here reads a clock or a socket. Messages are small
dictionaries with a `kind`. The method that handles a kind (`on_KIND`), or the order that sends it,
describes it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from syntony.torch import suspicion
from syntony.torch.formation import Formation
from syntony.torch.hangs import NO_PROGRESS, RankProgress, locate
from syntony.torch.orders import Forget, Log, Order, S, Send, Worker
from syntony.torch.recovery import START
from syntony.torch.stragglers import REPEAT_NS, REPORT_NS

FORMING = "ranks are being connected; try again"
"""Phases in which the holder of the parameters is unknown."""
PAUSE_NS = 1 * S
"""A coordinator that did not run for longer restarts all timeouts."""
ENDING = (1, 2, 15)
"""SIGHUP, SIGINT, SIGTERM: a request to end the job; a worker that dies of one is not replaced."""


class Membership(Formation):
    """Handles reports of keepers, workers and operators."""

    # --- arrivals ---

    def on_keeper(
        self, name: str, rank: int | None, world: int, now_ns: int, host: str = ""
    ) -> list[Order]:
        """A keeper started its worker; `rank` is None for spares."""
        worker = self.workers[name] = Worker(name, rank, last_received_ns=now_ns, host=host)
        if rank is None:
            self._starting = max(0, self._starting - 1)
            return [*self._drop_spare(name), *self._respawn()] if host in self.drained else []
        if rank in self.keepers:  # the launcher restarts ranks: that is its own recovery
            return [*self._give_up("the launcher restarted the ranks"), self._end(name, 1)]
        self.world = self.world or world
        unfit = self._unfit(world)
        if unfit:
            return [*self._give_up(unfit), self._end(name, 1)]
        self.holders[rank] = self.keepers[rank] = name
        worker.joining = True
        return self._advance()

    def _unfit(self, world: int) -> str:
        """Why a job with this number of ranks cannot resume from the checkpoint."""
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
        """Another host offers this number of spares for the job; 0: no longer."""
        self.offers[name] = max(0, count)
        return self._respawn()

    def on_arrived(self, worker: Worker, generation: int) -> list[Order]:
        """A joining worker has reached the point from which it can take part."""
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
        worker.last_received_ns = now_ns
        self.records[worker.rank] = max(self.records.get(worker.rank, START), boundary)
        orders: list[Order] = []
        if len(self.records) == self.world:
            self.floor = max(START, min(self._boundaries()) - self.shadowed)
            orders = [Forget(worker.rank, self.floor)]
        return [Send(worker.name, False, self._ack(boundary)), *orders]

    def _ack(self, boundary: int) -> dict[str, Any]:
        return {"kind": "ack", "boundary": boundary, "floor": self.floor}

    def _boundaries(self) -> list[int]:
        """Boundary of every rank: the last that its holder passed, or where its replacement must
        begin."""
        found = []
        for rank in range(self.world):
            worker = self.workers.get(self.holders.get(rank, ""))
            kept = self.records.get(rank, START)
            found.append(kept if worker is None else min(kept, worker.boundary))
        return found

    def on_unprotected(self, worker: Worker, reason: str, *, harms: bool = False) -> list[Order]:
        """Something in the job cannot be repeated exactly, or (`harms`) was not."""
        if self.unprotected:
            return []
        self.unprotected = reason
        event = Log({"event": "unprotected", "rank": worker.rank, "reason": reason})
        if harms and self.replaced:
            return [event, *self._give_up(f"a rank was replaced before, and {reason}")]
        return [event]

    def on_fixed(self, reason: str) -> list[Order]:
        """A worker reports that no rank can be replaced, but the job's state can be kept."""
        if self.fixed:
            return []
        self.fixed = reason
        return [Log({"event": "fixed", "reason": reason, "keeps": bool(self.settings.checkpoint)})]

    def on_sharded(self, worker: Worker, shard: str, *, shadowed: bool) -> list[Order]:
        """A rank reports its part of the parameters; `shadowed`: no other rank has the same."""
        if worker.rank is None:
            return []
        self.shards[worker.rank] = shard
        self.shadowed = self.shadowed or shadowed
        return []

    def on_digest(self, worker: Worker, boundary: int, digest: str) -> list[Order]:
        """Hash of a worker's parameters at a boundary: replicas must agree."""
        if worker.rank is None:
            return []
        digests = self._digests.setdefault(boundary, {})
        digests[worker.rank] = digest
        if len(digests) < self.world - len(self.ended):
            return []
        del self._digests[boundary]
        parts = {self.shards.get(rank, "") for rank in digests}
        equal = len({(self.shards.get(rank, ""), each) for rank, each in digests.items()}) == len(
            parts
        )
        event = {"event": "digest", "boundary": boundary, "equal": equal, "sha256": digests}
        if len(parts) > 1:
            event["alike"] = len(digests) // len(parts)
        orders: list[Order] = [Log(event)]
        if equal:
            return orders
        if self.replaced == 0 and self.origin is None:
            return orders + self.on_unprotected(
                worker, "parameters differ between ranks that should have the same"
            )
        return orders + self._give_up("parameters differ after a replacement")

    # --- ends and losses ---

    def on_heard(
        self,
        worker: Worker,
        now_ns: int,
        progress: RankProgress = NO_PROGRESS,
    ) -> list[Order]:
        """A worker reports."""
        worker.last_received_ns, worker.progress = now_ns, progress
        return []

    def on_state(self, worker: Worker, stopped: bool, now_ns: int) -> list[Order]:
        """A keeper reports its worker's state."""
        worker.last_received_ns = now_ns
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
        """A worker's program ended well; it stays until all have, because others may need it."""
        worker.finished = True
        holders = [self.workers.get(name) for name in self.holders.values()]
        if any(each is not None and not each.finished for each in holders):
            return []
        self.over = True
        return self._end_lateness() + self._release()

    def _release(self) -> list[Order]:
        return [Send(name, False, {"kind": "release"}) for name in self.holders.values()]

    def on_failed(self, generation: int, now_ns: int, why: str = "") -> list[Order]:
        """A collective failed at a worker: connect again. Its keeper reports a lost process."""
        if self.forming is not None or generation != self.generation or self.over:
            return []
        return self._lose({}, now_ns, why=why)

    def on_drain(self, rank: int, now_ns: int) -> list[Order]:
        """An operator drains a rank."""
        runs = self.holders.get(rank) in self.workers and rank not in self.ended
        refusal = self._unswappable([rank], self._ready()) if runs else "no such running rank"
        if refusal:
            return [Log({"event": "drain-refused", "rank": rank, "reason": refusal})]
        return self._lose({rank: "drained"}, now_ns, left=self._hosts_of([rank]))

    def on_drain_host(self, host: str, now_ns: int, *, keep: bool, fixed: str = "") -> list[Order]:
        """An operator drains a host.

        Args:
            now_ns: the coordinator's time.
            keep: if its ranks cannot move to other hosts, keep the job's state and end it.
            fixed: why they cannot move, for any number of spares.
        """
        here = {each.name: each for each in self.workers.values() if each.host == host}
        ranks = [rank for rank, name in self.holders.items()
                 if name in here and rank not in self.ended]  # fmt: skip
        ready = [each for each in self._ready() if each.host != host]
        refusal = fixed or self._undivided(ranks) or self._unswappable(ranks, ready)
        if not ranks:
            refusal = f"no rank runs on {host}"
        elif self.forming is not None:
            refusal = FORMING
        elif refusal and keep and not self._unkeepable():
            return self._lose({}, now_ns, shortage=f"host {host} is drained: {refusal}")
        elif refusal and keep:
            refusal = f"{refusal}, and {self._unkeepable()}"
        if refusal:
            return [Log({"event": "drain-refused", "host": host, "reason": refusal})]
        self.drained.add(host)
        orders: list[Order] = [Log({"event": "drain-host", "host": host, "ranks": ranks})]
        for name in here.keys() - set(self.holders.values()):
            orders += self._drop_spare(name)
        return orders + self._lose(dict.fromkeys(ranks, "drained"), now_ns, left=frozenset({host}))

    def _unswappable(self, ranks: Collection[int], ready: Collection[Worker]) -> str:
        """Why these running workers cannot be replaced by spares; empty: they can."""
        if self.forming is not None:
            return FORMING
        fixed = f"ranks cannot be replaced: {self.fixed}" if self.fixed else ""
        refusal = "the job ends" if self.over else self._refusal(ranks)
        refusal = refusal or fixed or self._shortage(ranks)
        if not refusal and self.shadowed and min(self._boundaries()) < self._copied_from:
            return "a replacement has no copies of its neighbour's parameters yet; try again"
        if refusal or len(ready) >= len(ranks):
            return refusal
        if not ready:
            return "no spare is ready"
        return f"{len(ranks)} ranks run there; ready spares of other hosts: {len(ready)}"

    def _undivided(self, ranks: Collection[int]) -> str:
        """Why these ranks cannot leave at once: no remaining rank has their parameters."""
        stay = self.holders.keys() - set(ranks)
        if not stay:
            return "all ranks run there"
        parts = {self.shards.get(rank, "") for rank in stay}
        alone = any(self.shards.get(rank, "") not in parts for rank in ranks)
        if alone and len(ranks) > 1:
            words = ", ".join(map(str, sorted(ranks)))
            return f"parameters are split: drain its ranks one after another: {words}"
        return ""

    def _unkeepable(self) -> str:
        """Why the job cannot end with its state kept."""
        if not self.settings.checkpoint:
            return "the job has no --checkpoint"
        if self.over or self._refusal([]):
            return self._refusal([]) or "the job ends"
        return "no step was done yet" if min(self._boundaries()) == START else ""

    def _hosts_of(self, ranks: Collection[int]) -> frozenset[str]:
        return frozenset(self.workers[self.holders[rank]].host for rank in ranks)

    def on_tick(self, now_ns: int) -> list[Order]:
        """Call about ten times a second."""
        paused = now_ns - self._ticked_ns > PAUSE_NS
        self._ticked_ns = now_ns
        ranked = [each for each in self.workers.values() if each.rank is not None]
        if paused:
            for each in self.workers.values():
                each.last_received_ns = now_ns
                each.stopped_ns = None if each.stopped_ns is None else now_ns
            return []
        if self.over:
            return []
        lost = suspicion.of_ranks(ranked, self.settings.stopped_ns, now_ns)
        orders = self._drop_lost_spares(now_ns)
        if lost:
            return orders + self._lose(lost, now_ns)
        if orders:
            return orders
        if self.forming is not None:
            return []
        return self._look_for_hangs(ranked, now_ns) or self._look_for_stragglers(ranked, now_ns)

    def _drop_lost_spares(self, now_ns: int) -> list[Order]:
        gone = suspicion.of_spares(self.workers.values(), self.settings.stopped_ns, now_ns)
        orders = [order for name in gone for order in self._drop_spare(name)]
        return [*orders, *self._respawn()] if gone else []

    def _drop_spare(self, name: str) -> list[Order]:
        del self.workers[name]
        self.fenced.add(name)
        return [Send(name, True, {"kind": "kill"})]

    def _look_for_hangs(self, ranked: list[Worker], now_ns: int) -> list[Order]:
        """Report an operation that does not end, once; replace the absent ranks if configured."""
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

    def _look_for_stragglers(self, ranked: list[Worker], now_ns: int) -> list[Order]:
        """Report ranks that all others wait for; replace a single one if configured, by a spare
        that is ready.

        Several late ranks are not replaced: they have a common cause, which spares may share. A
        rank that is late again after it was replaced has more work than others, and another process
        would have as much.
        """
        paces = {each.rank: each.progress.pace for each in ranked if each.rank is not None}
        if not self._lateness.look(paces, now_ns):
            return []
        late, slow_ns = self._lateness.late, self.settings.slow_ns
        still = late is not None and self._slow is not None and late.ranks == self._slow.ranks
        orders = [] if still else self._end_lateness()
        if late is None or late.for_ns < REPORT_NS:
            return orders
        if self._slow is None or late.for_ns - self._slow.for_ns >= REPEAT_NS:
            self._slow = late
            again = "; it was replaced before" if self._swapped.issuperset(late.ranks) else ""
            workers = [self.holders[rank] for rank in late.ranks]
            event = {"event": "straggler", "workers": workers, "reason": late.text + again}
            orders.append(Log(late._asdict() | event))
        alone = len(late.ranks) == 1 and not self._swapped.issuperset(late.ranks)
        if not slow_ns or late.for_ns < slow_ns or not alone:
            return orders
        if self._unswappable(late.ranks, self._ready()):
            return orders
        self._swapped.update(late.ranks)
        reason = f"slow: all others waited for it {late.lateness:.0%} of the time"
        left = self._hosts_of(late.ranks)
        return orders + self._lose(dict.fromkeys(late.ranks, reason), now_ns, left=left)

    def _end_lateness(self) -> list[Order]:
        """Ranks that were reported as late no longer are."""
        ended, self._slow = self._slow, None
        return [] if ended is None else [Log({"event": "no-straggler", "ranks": ended.ranks})]

    def on_disconnected(self, worker: Worker, now_ns: int) -> list[Order]:
        """Keeper and worker have both closed their connections: the host, or both processes, are
        gone."""
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
        """A record of this boundary exists that may be newer than this state."""
        self.records[rank] = max(self.records.get(rank, START), boundary)

    def on_resumed(self, now_ns: int) -> list[Order]:
        """Restore the state of a coordinator that died; any of its last orders may be lost.

        All workers connect again, in a generation above any that it can have ordered.
        """
        self._resumed, self._awaited = True, set(self.workers)
        self._starting = 0  # waiting spares may become more than needed
        for each in self.workers.values():
            each.last_received_ns, each.stopped_ns = now_ns, None
        orders = self._completed() if self.over else []
        for rank, code in self._ends_with.items():
            orders += self._ends(rank, code)
        if self.over:
            return orders + (self._release() if not self._ends_with else [])
        for rank, name in self.holders.items():
            if self.workers[name].joining and name not in self.keepers.values():
                orders.append(self._assignment(rank, name))
        orders += self._respawn()
        if self.forming is None and (self._refusal([]) or self.fixed):
            return orders  # it runs as it would without Syntony
        return orders + self._lose({}, now_ns)

    def on_returned(self, worker: Worker, message: dict[str, Any], now_ns: int) -> list[Order]:
        """A worker has reconnected; `message`: state that may have been lost."""
        orders: list[Order] = []
        worker.last_received_ns = now_ns
        if int(message["generation"]) >= 0:
            worker.joining = False
        if message["reason"]:
            orders += self.on_unprotected(
                worker, str(message["reason"]), harms=bool(message["harms"])
            )
        if message["finished"]:
            orders += self.on_finished(worker)
        if message["waiting"]:
            orders += self.on_waiting(worker)
        if worker.name in self._awaited:
            self._awaited.discard(worker.name)
            return orders + self._advance()
        if worker.rank is None or self.over or self._refusal([]) or self.fixed:
            return orders
        return orders + self._lose({}, now_ns)
