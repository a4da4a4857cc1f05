"""Rows of the store about jobs that are one pipeline: ranks that send to their neighbours only, one
forward and one backward (1F1B), as the PyTorch hook records them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from tests.workload import stored_rows as store

from syntony.model import MS, S
from syntony.wire.tables import COLLECTIVE, JOB_PROCESS, STEP

Way = tuple[int, int]
"""Sending and receiving rank."""
Action = tuple[str, Any]
"""`send` or `recv` with its way, `compute` with ns, `step` with its number, or `stop`."""
Program = Callable[[int], Iterator[Action]]


class Pipeline:
    """A job whose ranks call, one after the other, what their programs say.

    Args:
        stages: number of ranks, each on a host of its own.
        draw: of what varies.
        eager: a send ends when it has begun, as gloo's of little data; else with its receive.
    """

    def __init__(self, stages: int, draw: random.Random, *, eager: bool = True) -> None:
        self.stages, self.draw, self.eager = stages, draw, eager
        self.micro = draw.randrange(2, 2 * stages)
        self.work_ns = [draw.uniform(8, 16) * MS for _ in range(stages)]
        """Of a micro-batch; stages need not be alike."""
        self.times: Callable[[int, int], float] = lambda _rank, _step: 1.0
        """How many times as long a rank computes in a step."""
        self.change: Callable[[int, int, list[Action]], list[Action]] = lambda _r, _s, actions: (
            actions
        )
        """Replaces what a rank does in a step."""
        self.begun: dict[tuple[Way, int, str], int] = {}
        self.ended: dict[tuple[Way, int, str], int] = {}
        self.steps: list[tuple[int, int, int, int]] = []

    def step(self, rank: int) -> list[Action]:
        warm = min(self.stages - rank - 1, self.micro)
        forward = [("compute", 1), *[("send", (rank, rank + 1))] * (rank < self.stages - 1)]
        forward = [*[("recv", (rank - 1, rank))] * (rank > 0), *forward]
        backward = [("compute", 2), *[("send", (rank, rank - 1))] * (rank > 0)]
        backward = [*[("recv", (rank + 1, rank))] * (rank < self.stages - 1), *backward]
        both = (forward + backward) * (self.micro - warm)
        return forward * warm + both + backward * warm

    def run(self, steps: int) -> int:
        """Run until all ranks have done so many steps or cannot go on; returns when, ns."""
        todo = {rank: self._program(rank, steps) for rank in range(self.stages)}
        at = {rank: store.T0 + S + self.draw.randrange(MS) for rank in todo}
        next_of = {rank: next(program) for rank, program in todo.items()}
        numbers: defaultdict[tuple[Way, str], int] = defaultdict(int)
        moved = True
        while moved:
            moved = False
            for rank, program in todo.items():
                while (action := next_of[rank]) is not None and self._do(rank, action, at, numbers):
                    next_of[rank], moved = next(program), True
        return max(at.values())

    def _program(self, rank: int, steps: int) -> Iterator[Action | None]:
        for step in range(steps):
            for kind, what in self.change(rank, step, self.step(rank)):
                if kind == "compute":
                    took = what * self.work_ns[rank] * self.times(rank, step)
                    yield kind, took * self.draw.lognormvariate(0, 0.03)
                else:
                    yield kind, what
            yield "step", step
        yield None

    def _do(
        self, rank: int, action: Action, at: dict[int, int], numbers: defaultdict[Any, int]
    ) -> bool:
        """Whether it could be done."""
        kind, what = action
        if kind == "compute":
            at[rank] += round(what)
        elif kind == "step":
            before = [each[2] for each in self.steps if each[0] == rank]
            self.steps.append((rank, what, at[rank], before[-1] if before else at[rank]))
        elif kind == "stop":
            return False
        else:
            return self._transfer(rank, kind, what, at, numbers)
        return True

    def _transfer(
        self, rank: int, kind: str, way: Way, at: dict[int, int], numbers: defaultdict[Any, int]
    ) -> bool:
        number = numbers[way, kind]
        key, other = (way, number, kind), (way, number, "send")
        self.begun.setdefault(key, at[rank])
        if kind == "recv" and other not in self.begun:
            return False
        numbers[way, kind] += 1
        took_ns = self.draw.randrange(50_000, 200_000)
        if kind == "send":
            at[rank] += took_ns // 10
            if self.eager:
                self.ended[key] = at[rank]
            return True
        at[rank] = max(at[rank], self.begun[other]) + took_ns
        self.ended[key] = at[rank]
        self.ended.setdefault(other, at[rank])
        return True

    def rows(self, *, until_s: int, ranks: set[int] | None = None) -> store.Rows:
        """Args: `ranks`: those that have agents."""
        seen = range(self.stages) if ranks is None else ranks
        operations = []
        for (way, number, kind), begun_ns in self.begun.items():
            rank = way[kind == "recv"]
            operations.append({
                "ts_ns": begun_ns, "host": f"h{rank}", "job": "night", "pid": 7, "rank": rank,
                "comm": f"0.p2p {way[0]}>{way[1]}", "ranks": 2, "seq": number,
                "op": kind if self.eager or kind == "recv" else "isend",
                "bytes": 4096, "done_ns": self.ended.get((way, number, kind), 0),
            })  # fmt: skip
        return {
            COLLECTIVE.name: [each for each in operations if each["rank"] in seen],
            STEP.name: [
                {"ts_ns": before_ns, "host": f"h{rank}", "job": "night", "rank": rank,
                 "step": step, "end_ns": at_ns}
                for rank, step, at_ns, before_ns in self.steps if step and rank in seen
            ],
            JOB_PROCESS.name: processes(seen, until_s, self.stages),
        }  # fmt: skip


def processes(ranks: Any, until_s: int, count: int) -> list[dict[str, Any]]:
    return [
        store.process(f"h{rank}", rank, second, ranks=count, state="S", cpu_ns=S // 10)
        for rank in ranks for second in range(0, until_s, 2)
    ]  # fmt: skip


def meeting(
    ranks: int, until_s: int, *, places: dict[int, str], stores: set[int], formed: set[int]
) -> store.Rows:
    """A job that begins.

    Args:
        ranks: of the job.
        until_s: of the recording.
        places: where each rank that has come looks for the others.
        stores: ranks that have reached the store, as far as they know.
        formed: ranks that have formed the first group.
    """
    operations = []
    for rank, place in places.items():
        row = {
            "ts_ns": store.T0 + S + rank, "host": f"h{rank}", "job": "night", "pid": 7,
            "rank": rank, "comm": f"rendezvous {place}", "ranks": ranks, "op": "rendezvous",
            "done_ns": store.T0 + 2 * S if rank in stores else 0,
        }  # fmt: skip
        operations.append(row)
        if rank in stores:
            done_ns = store.T0 + 4 * S if rank in formed else 0
            again = {"ts_ns": store.T0 + 2 * S + rank, "op": "init_process_group", "seq": 1}
            operations.append(row | again | {"done_ns": done_ns})
    rows = processes(range(ranks), until_s, ranks)
    return {COLLECTIVE.name: operations, JOB_PROCESS.name: rows}
