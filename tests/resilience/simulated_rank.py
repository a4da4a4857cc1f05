"""One worker of a simulated job: what `syntony.torch.collectives` does, in code of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syntony.torch.recovery import START, RankReport

if TYPE_CHECKING:
    from tests.resilience.simulated import Job

COLLECTIVES, STEP_AT = 4, 3
"""Per step; the optimizer steps after so many of them."""


def mix(*parts: Any) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest())


class Rank:
    """One simulated process."""

    def __init__(self, job: Job, name: str, rank: int | None) -> None:
        self.job, self.name, self.rank = job, name, rank
        self.alive, self.stopped = True, False
        self.backlog: list[Callable[[], None]] = []
        self.generation, self.wanted = -1, 0
        self.plan: dict[str, Any] | None = None
        self.record: tuple[int, ...] | None = None
        self.boundary, self.op = START, 0
        self.params, self.undo, self.previous = job.first_params(rank), 0, 0
        self.shadows: dict[int, int] = {}
        """Boundary to the parameters of the rank before this one."""
        self.after: int | None = None
        self.stepped = self.frozen = self.finished = self.warm = False
        self.exit_code: int | None = None
        self.carry = 0
        """What only this rank knows: goes into records."""
        self.grad = 0
        self.log: list[tuple[int, int, int, int]] = []
        """(boundary, operation, input, result) of completed collectives."""
        self.replaying: list[tuple[int, int, int, int]] = []
        self.waiting: tuple[int, int] | None = None
        self.acked = START
        self.floor = START
        self.seen: dict[int, int] = {}
        """Step to what the program computed in it."""
        self.began_with: dict[int, int] = {}
        """Step to the parameters at its begin."""

    # --- the program ---

    def go(self) -> None:
        """Proceed until something must be waited for."""
        if self.generation != self.wanted or self.replaying or self.waiting is not None:
            return
        if self.op == STEP_AT + self.job.exchanges and not self.stepped:
            if self.frozen:
                return
            part = self.job.part(self.rank)
            self.undo, self.params = self.params, mix("step", self.params, self.grad, part)
            self.stepped = True
            if self.after is not None:
                self.params, self.after = self.after, None
        if self.boundary == START or self.op == COLLECTIVES + self.job.exchanges:
            self._pass()
            return
        self._contribute(self.boundary, self.op, self._input())

    def _input(self) -> int:
        if self.op < self.job.exchanges:
            return self.params
        return mix("in", self.rank, self.boundary, self.op, self.params, self.carry)

    def _pass(self) -> None:
        if self.frozen:
            return
        if self.boundary + 1 == self.job.steps:
            if not self.finished:
                self.finished = True
                self.job.tell(self, "finished")
            return
        self.boundary, self.op, self.stepped = self.boundary + 1, 0, False
        if self.boundary == 0 and self.job.parts > 1:
            self.job.tell(self, "sharded", part=f"{self.job.part(self.rank)}/{self.job.parts}")
        self.seen[self.boundary] = mix("loss", self.rank, self.params, self.carry)
        self.began_with[self.boundary] = self.params
        self.job.tell(self, "boundary", boundary=self.boundary, record=(self.carry,))
        self.job.later(self, self.go)

    def _contribute(self, boundary: int, op: int, value: int) -> None:
        if self.acked < boundary:
            self.job.later(self, self.go)
            return
        self.waiting = boundary, op
        self.job.contribute(self, boundary, op, value)

    def completed(
        self, generation: int, boundary: int, op: int, result: int, others: dict[int, int]
    ) -> None:
        if generation != self.generation or self.generation != self.wanted:
            return
        if self.replaying:
            known = self.replaying.pop(0)
            assert (boundary, op, result) == (known[0], known[1], known[3]), "another result"
            self._replay()
            return
        if self.waiting != (boundary, op):
            return
        self.waiting = None
        self.log.append((boundary, op, self._input(), result))
        self.log = [each for each in self.log if each[0] >= self.floor]
        first = self.job.exchanges
        if op < first:
            self.shadows[boundary] = others[self.job.before(self.rank)]
            self.shadows = dict(sorted(self.shadows.items())[-2:])
        elif op < STEP_AT + first:
            self.grad = mix(self.grad if op > first else 0, result)
        self.carry = mix(self.carry, result, self.rank)
        self.op += 1
        self.job.later(self, self.go)

    def _replay(self) -> None:
        if self.replaying:
            boundary, op, value, _ = self.replaying[0]
            self.job.contribute(self, boundary, op, value)
        elif self.waiting is not None:
            self.job.contribute(self, *self.waiting, self._input())
        else:
            self.job.later(self, self.go)

    # --- the coordinator's messages ---

    def receive(self, message: dict[str, Any], record: tuple[int, ...] | None) -> None:
        kind = message["kind"]
        if kind == "ack":
            self.acked, self.floor = message["boundary"], message["floor"]
        elif kind == "assign":
            self.rank = message["rank"]
            if self.boundary == START:
                self.params = self.job.first_params(self.rank)
        elif kind == "freeze" and message["generation"] > self.wanted:
            self.wanted = message["generation"]
            self._freeze()
        elif kind == "plan" and "preserve" in message:
            self._preserve(message)
        elif kind == "plan":
            self.wanted = max(self.wanted, message["generation"])
            if message["generation"] == self.wanted:
                self._planned(message, record)
        elif kind == "host" and message["generation"] == self.wanted:
            self.job.tell(self, "hosted", generation=self.wanted)
        elif kind == "form" and message["generation"] == self.wanted:
            self._form()

    def _freeze(self) -> None:
        self.replaying = []
        if self.generation < 0:
            return  # it has nothing yet: it waits for the next plan
        self.frozen = True
        self.job.tell(
            self, "frozen", generation=self.wanted,
            report=RankReport(
                self.boundary, self.stepped, gives=self.after is None, shadows=self._held()
            ),
        )  # fmt: skip

    def _preserve(self, plan: dict[str, Any]) -> None:
        if plan["generation"] != self.wanted:
            return
        written = {}
        for name, of, undo in plan["files"]:
            own = self.undo if undo else self.params
            value = own if of == self.rank else self.shadows[plan["boundary"]]
            written[name] = 1, str(value)
        self.job.tell(self, "preserved", generation=self.wanted, files=written)

    def _held(self) -> dict[int, tuple[int, ...]]:
        return {self.job.before(self.rank): tuple(self.shadows)} if self.shadows else {}

    def _planned(self, plan: dict[str, Any], record: tuple[int, ...] | None) -> None:
        started = self.plan is not None and self.generation < 0
        if started and self.plan is not None and self.plan["boundary"] != plan["boundary"]:
            self.job.die(self, 97)
            return
        self.plan, self.record = plan, record
        self.job.tell(self, "arrived", generation=self.wanted)

    def _form(self) -> None:
        assert self.plan is not None
        plan = self.plan
        for joiner, source, undo in plan["sources"] if plan["boundary"] > START else ():
            if self.rank == source:
                copied = plan["boundary"] in self._held().get(joiner, ())
                params = self.shadows[plan["boundary"]] if copied else self.params
                before = self.undo if undo and not copied else None
                self.job.hand_over(self.wanted, joiner, params, before)
        if plan["boundary"] > START and self.rank in plan["joiners"]:
            return  # waits for the state
        self._formed()

    def take(self, generation: int, params: int, before: int | None) -> None:
        if generation != self.wanted:
            return
        assert self.plan is not None
        assert self.record is not None
        self.boundary, self.op, self.stepped = self.plan["boundary"], 0, False
        self.acked = self.boundary
        self.params = params if before is None else before
        self.after = None if before is None else params
        (self.carry,) = self.record
        self.seen[self.boundary] = mix("loss", self.rank, self.params, self.carry)
        self._formed()

    def _formed(self) -> None:
        assert self.plan is not None
        self.generation, self.frozen = self.wanted, False
        self.job.tell(self, "formed", generation=self.generation)
        self.replaying = [each for each in self.log if each[0] >= self.plan["boundary"]]
        self._replay()
