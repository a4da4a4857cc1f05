"""A whole job in one thread: the real coordinator state, simulated workers, network and faults.

Workers do real arithmetic on integers that stand for parameters. Every step has collectives before
and after the optimizer's step; a collective completes at each rank at another time, so a loss finds
some ranks with its result and some without. What each rank has seen is compared with a run without
faults. Parameters may be split: then some ranks, or none, have the same as another, and each sends
a neighbour what it has before a step's other collectives. The workers follow the rules of
`syntony.torch.collectives` in code of their own.
"""

from __future__ import annotations

import heapq
import pickle
import random
from collections.abc import Callable
from typing import Any

from tests.resilience.simulated_rank import Rank, mix

from syntony.torch.membership import Membership
from syntony.torch.orders import Forget, Log, Preserve, Send, Settings, Spawn, Worker

MS, S = 1_000_000, 1_000_000_000


class Job:
    """The simulated machine room."""

    def __init__(
        self, seed: int, ranks: int, spares: int, steps: int, parts: int = 1, *, keeps: bool = False
    ) -> None:
        """`parts`: that parameters are split into; ranks with the same have the same remainder.

        `keeps`: the job's state is kept when no spare is left.
        """
        self.random = random.Random(seed)
        self.parts = parts
        self.exchanges = int(parts > ranks // 2 and parts > 1)
        """Collectives at a step's begin in which ranks send neighbours what they have."""
        self.steps, self.world = steps, ranks
        self.now_ns = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.state = Membership(Settings(spares, checkpoint="/kept" if keeps else ""))
        self.kept: Preserve | None = None
        self._saved = pickle.dumps(self.state)
        """What a coordinator that is started again finds."""
        self._life = 0
        """Of the coordinator: what was sent to or by an earlier one and did not arrive is lost."""
        self._dies_next = self._down = False
        self.crashes = 0
        self.processes: dict[str, Rank] = {}
        self._links: dict[tuple[str, str], int] = {}
        self._paused_until_ns = 0
        self.records: dict[tuple[int, int], tuple[int, ...]] = {}
        self.network: dict[tuple[int, int, int], dict[int, int]] = {}
        self.events: list[dict[str, Any]] = []
        self.at_fault: set[str] = set()
        """Processes that faults were done to."""
        self.ended = False
        for rank in range(ranks):
            self._start(rank)
        for _ in range(spares):
            self._start(None)
        self._every(100 * MS, self._tick)
        self._every(200 * MS, self._look)

    # --- parts ---

    def part(self, rank: int | None) -> int:
        return 0 if rank is None else rank % self.parts

    def before(self, rank: int | None) -> int:
        """Whose parameters a rank keeps."""
        assert rank is not None
        return (rank - 1) % self.world

    def first_params(self, rank: int | None) -> int:
        return 7 + self.part(rank)

    # --- time ---

    def at(self, when_ns: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (when_ns, self._count, action))

    def _every(self, period_ns: int, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self.at(self.now_ns + period_ns, again)

        self.at(period_ns, again)

    def later(self, rank: Rank, action: Callable[[], None]) -> None:
        """A worker computes a little."""
        self.at(self.now_ns + self.random.randrange(1, 8) * MS, lambda: self._do(rank, action))

    def _do(self, rank: Rank, action: Callable[[], None]) -> None:
        if rank.stopped:
            rank.backlog.append(action)
        elif rank.alive:
            action()

    def run(self, limit_ns: int = 600 * S) -> None:
        while self._queue and not self.ended and self.now_ns < limit_ns:
            self.now_ns, _, action = heapq.heappop(self._queue)
            action()

    # --- processes ---

    def _start(self, rank: int | None) -> None:
        name = f"w{len(self.processes)}"
        process = self.processes[name] = Rank(self, name, rank)

        def up() -> None:
            if self.now_ns < self._paused_until_ns:
                self.at(self._paused_until_ns + 1, up)
                return
            host = f"of {name}" if rank is None else f"h{rank // 2}"
            self._carry_out(self.state.on_keeper(name, rank, self.world, self.now_ns, host))
            if rank is None:
                self.at(self.now_ns + self.random.randrange(100, 900) * MS, ready)

        def ready() -> None:
            process.warm = True
            self._do(process, lambda: self.tell(process, "waiting"))

        self.at(self.now_ns + self.random.randrange(1, 50) * MS, up)

    def die(self, process: Rank, code: int) -> None:
        if process.alive:
            process.alive, process.exit_code = False, code
            name = process.name
            self._to_coordinator(name, lambda w: self.state.on_exit(w, code, self.now_ns))

    def holder(self, rank: int) -> Rank | None:
        name = self.state.holders.get(rank)
        return None if name is None else self.processes[name]

    def fault(self, kind: str) -> None:
        """Do something to a random rank or spare."""
        if kind == "pause":
            self._paused_until_ns = self.now_ns + self.random.randrange(1, 40) * 500 * MS
            return
        if kind == "crash":
            self._dies_next = True
            return
        alive = [each for each in self.processes.values() if each.alive and not each.stopped]
        victim = self.random.choice(alive)
        if kind == "drain":
            rank = self.random.randrange(self.world)
            found = self.holder(rank)
            if found is not None:
                self.at_fault.add(found.name)
            self._carry_out(self.state.on_drain(rank, self.now_ns))
        elif kind == "drain-host":
            name = self.state.holders.get(self.random.randrange(self.world), "")
            if name in self.state.workers:
                host = self.state.workers[name].host
                here = {each.name for each in self.state.workers.values() if each.host == host}
                self.at_fault |= here
                self._carry_out(self.state.on_drain_host(host, self.now_ns, keep=False))
        elif kind == "cut" and victim.generation >= 0 and victim.wanted == victim.generation:
            self.tell(victim, "failed", generation=victim.generation)
        elif kind == "kill":
            self.at_fault.add(victim.name)
            self.die(victim, -9)
        elif kind == "stop" and victim.rank is not None:
            self.at_fault.add(victim.name)
            victim.stopped = True

    def resume(self) -> None:
        """The operator lets stopped processes go on."""
        for process in self.processes.values():
            if process.alive and process.stopped:
                process.stopped = False
                backlog, process.backlog = process.backlog, []
                for action in backlog:
                    self._do(process, action)

    # --- messages ---

    def _link(self, source: str, target: str) -> int:
        """When what is sent now arrives: late, never before what was sent earlier."""
        late = self.random.choice((1, 1, 1, 2, 5, 40)) * self.random.randrange(1, 10) * MS // 4
        when_ns = max(self.now_ns + late, self._links.get((source, target), 0))
        self._links[source, target] = when_ns
        return when_ns

    def _to_coordinator(
        self, name: str, event: Callable[[Worker], list[Any]], *, save: bool = True
    ) -> None:
        life = self._life
        if self._down:
            return

        def arrive() -> None:
            if life != self._life:
                return
            if self.now_ns < self._paused_until_ns:
                self.at(self._paused_until_ns + 1, arrive)
                return
            worker = self.state.workers.get(name)
            if worker is not None:
                self._carry_out(event(worker), save=save)

        self.at(self._link(name, "c"), arrive)

    def tell(self, process: Rank, kind: str, **rest: Any) -> None:
        if kind == "boundary":
            record = rest["record"]

            def stored(worker: Worker) -> list[Any]:
                if worker.rank is not None:
                    self.records[worker.rank, rest["boundary"]] = record
                return list(self.state.on_boundary(worker, rest["boundary"], self.now_ns))

            self._to_coordinator(process.name, stored, save=False)
            return
        state = self.state
        events: dict[str, Callable[[Worker], Any]] = {
            "waiting": state.on_waiting,
            "finished": state.on_finished,
            "arrived": lambda w: state.on_arrived(w, rest["generation"]),
            "frozen": lambda w: state.on_frozen(w, rest["generation"], rest["report"]),
            "hosted": lambda _: state.on_hosted(rest["generation"], "somewhere"),
            "formed": lambda w: state.on_formed(w, rest["generation"], self.now_ns),
            "preserved": lambda _: state.on_preserved(rest["generation"], rest["files"], ""),
            "failed": lambda _: state.on_failed(rest["generation"], self.now_ns),
            "sharded": lambda w: state.on_sharded(w, rest["part"], shadowed=bool(self.exchanges)),
        }
        self._to_coordinator(process.name, events[kind])

    def _tick(self) -> None:
        if self.now_ns >= self._paused_until_ns:
            self._carry_out(self.state.on_tick(self.now_ns))

    def _look(self) -> None:
        for process in self.processes.values():
            if process.alive:
                stopped = process.stopped
                self._to_coordinator(
                    process.name,
                    lambda w, s=stopped: self.state.on_state(w, s, self.now_ns),  # type: ignore[misc]
                    save=False,
                )

    def _crash(self) -> None:
        """The coordinator dies; another one follows it."""
        self._dies_next, self.crashes = False, self.crashes + 1
        self._life += 1
        self._down = True
        self._paused_until_ns = self.now_ns + self.random.randrange(100, 3000) * MS
        self.at(self._paused_until_ns, self._resume)

    def _resume(self) -> None:
        self.state, self._down = pickle.loads(self._saved), False  # noqa: S301
        for rank, boundary in self.records:
            self.state.restore_record(rank, boundary)
        self._carry_out(self.state.on_resumed(self.now_ns))
        for process in list(self.processes.values()):
            if process.name in self.state.fenced:
                process.alive = False
            elif process.exit_code is not None:
                code = process.exit_code
                self._to_coordinator(
                    process.name,
                    lambda w, c=code: self.state.on_exit(w, c, self.now_ns),  # type: ignore[misc]
                )
            elif process.alive:
                self._do(process, lambda p=process: self._return(p))  # type: ignore[misc]

    def _return(self, process: Rank) -> None:
        said = {
            "generation": process.generation, "wanted": process.wanted, "reason": "",
            "harms": False, "finished": process.finished, "waiting": process.warm,
        }  # fmt: skip
        state = self.state
        self._to_coordinator(process.name, lambda w: state.on_returned(w, said, self.now_ns))
        if process.boundary > process.acked:
            self.tell(process, "boundary", boundary=process.boundary, record=(process.carry,))

    def _carry_out(self, orders: list[Any], *, save: bool = True) -> None:
        if save:
            self._saved = pickle.dumps(self.state)
        if self._dies_next and orders:
            orders = orders[: self.random.randrange(len(orders) + 1)]
            self._crash()
        self._send_all(orders)

    def _send_all(self, orders: list[Any]) -> None:  # noqa: C901 - a line for each kind
        for order in orders:
            match order:
                case Send(worker, True, message):
                    if message["kind"] == "kill":
                        self.processes[worker].alive = False
                case Send(worker, False, message, record):
                    if message["kind"] == "release":
                        self.ended = True
                    self._send(worker, message, record)
                case Spawn():
                    self._start(None)
                case Preserve():
                    self.kept, self.ended = order, True
                case Log(event):
                    self.events.append(event)
                    self.ended = self.ended or event["event"] == "gave-up"
                case Forget(rank, before):
                    for key in [k for k in self.records if k[0] == rank and k[1] < before]:
                        del self.records[key]

    def _send(self, name: str, message: dict[str, Any], record: tuple[int, int] | None) -> None:
        data = None if record is None else self.records[record]
        process, life = self.processes[name], self._life

        def arrive() -> None:
            if life == self._life:
                self._do(process, lambda: process.receive(message, data))

        self.at(self._link("c", name), arrive)

    # --- collectives ---

    def contribute(self, process: Rank, boundary: int, op: int, value: int) -> None:
        key = process.generation, boundary, op
        assert process.rank is not None
        parts = self.network.setdefault(key, {})
        assert parts.get(process.rank, value) == value, "two owners of one rank"
        parts[process.rank] = value
        if len(parts) < self.world:
            return
        result = mix(sorted(parts.items()))
        for each in list(self.processes.values()):
            if each.generation == key[0]:
                self.at(
                    self.now_ns + self.random.randrange(1, 30) * MS // 10,
                    lambda r=each: self._do(r, lambda: r.completed(*key, result, parts)),  # type: ignore[misc]
                )

    def hand_over(self, generation: int, rank: int, params: int, before: int | None) -> None:
        process = self.holder(rank)
        if process is not None:
            self.at(
                self.now_ns + self.random.randrange(1, 60) * MS,
                lambda: self._do(process, lambda: process.take(generation, params, before)),
            )

    # --- results ---

    def seen(self) -> list[list[int]]:
        """Of each rank, what its program saw in each step, the last word on each counting."""
        whole: list[dict[int, int]] = [{} for _ in range(self.world)]
        for process in self.processes.values():
            if process.rank is not None:
                for step, value in process.seen.items():
                    known = whole[process.rank].setdefault(step, value)
                    assert known == value, f"step {step} of rank {process.rank} had two results"
        return [[each[step] for step in sorted(each)] for each in whole]
