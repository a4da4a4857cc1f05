"""What the profiler plug-in makes of random work, read by the agent's reader, against a truth that
is worked out from the callbacks alone."""

from __future__ import annotations

import itertools
import random
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.nccl import profiler

from syntony.errors import MissingError
from syntony.io._library import dtype_of, ffi, library
from syntony.io.nccl_plugin import profiler_plugin
from syntony.model import S
from syntony.workload.nccl_operations import (
    OPERATION,
    OPERATIONS,
    PAGE_BYTES,
    WAITS,
    NcclOperation,
    NcclPageReader,
)

STATES = {8: 0, 20: 1, 9: 2, 10: 3, 11: 4, 12: 5}


class Step:
    def __init__(self, at_ns: int) -> None:
        self.begin_ns = at_ns
        self.end_ns: int | None = None
        self.states: list[tuple[int, int]] = []

    def state_at(self, at_ns: int) -> int | None:
        known = [state for since_ns, state in self.states if since_ns <= at_ns]
        return known[-1] if known else None


class Part:
    def __init__(self, operation: int, sends: bool) -> None:
        self.operation, self.sends = operation, sends
        self.end_ns: int | None = None
        self.steps: list[Step] = []

    def waits(self, until_ns: int) -> list[int]:
        """Gap by gap: what did the first step that had begun, and not ended, wait for?"""
        end_ns = self.end_ns if self.end_ns is not None else until_ns
        points = {end_ns}
        for step in self.steps:
            points |= {step.begin_ns, *(at for at, _ in step.states)}
            points |= {step.end_ns} if step.end_ns is not None else set()
        spent = [0] * WAITS
        ordered = sorted(at for at in points if at <= end_ns)
        for begin_ns, next_ns in itertools.pairwise(ordered):
            under_way = [
                step
                for step in self.steps
                if step.begin_ns <= begin_ns and (step.end_ns is None or step.end_ns > begin_ns)
            ]
            state = under_way[0].state_at(begin_ns) if under_way else None
            if state is not None:
                spent[STATES[state]] += next_ns - begin_ns
        return spent


class Work(NamedTuple):
    comm: int
    collective: bool
    op: str
    elements: int
    begin_ns: int


class Truth:
    """Of a generator's log."""

    def __init__(self, log: str) -> None:
        self.works: dict[int, Work] = {}
        self.parts: dict[int, Part] = {}
        self.steps: dict[int, Step] = {}
        self.enqueued: set[int] = set()
        self.end_ns = 0
        step_of: dict[int, Part] = {}
        for line in log.splitlines():
            first, what, *rest = line.split()
            at_ns = self.end_ns = int(first)
            match what, rest:
                case "o", [name, comm, kind, op, count]:
                    self.works[int(name)] = Work(int(comm), kind == "c", op, int(count), at_ns)
                case "p", [name, operation, direction]:
                    self.parts[int(name)] = Part(int(operation), direction == "s")
                case "s", [name, part]:
                    self.steps[int(name)] = Step(at_ns)
                    step_of[int(name)] = self.parts[int(part)]
                    self.parts[int(part)].steps.append(self.steps[int(name)])
                case "w", [name, state]:
                    self.steps[int(name)].states.append((at_ns, int(state)))
                case "c", [name]:
                    self._credit(self.parts[int(name)], at_ns)
                case "e", ["o", name]:
                    self.enqueued.add(int(name))
                case "e", ["p", name]:
                    self.parts[int(name)].end_ns = at_ns
                case "e", ["s", name]:
                    self.steps[int(name)].end_ns = at_ns

    @staticmethod
    def _credit(part: Part, at_ns: int) -> None:
        for step in part.steps:
            if step.end_ns is None and step.states and step.states[-1][1] == 8:
                step.states.append((at_ns, 20))
                return


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return profiler.build(
            tmp_path_factory.mktemp("profiler") / "generator", "generator", "clock"
        )
    except MissingError as error:
        pytest.skip(f"{error}: the profiler plug-in is NOT tested")


def test_the_reader_has_the_headers_layout() -> None:
    native = library()
    assert (native.SYN_NCCL_OPERATIONS, native.SYN_NCCL_WAITS) == (OPERATIONS, WAITS)
    declared, ours = dtype_of("syn_nccl_operation").fields, OPERATION.fields
    assert declared is not None
    assert ours is not None
    where = {name: (kind, at) for name, (kind, at, *_) in declared.items()}
    assert where == {name: (kind, at) for name, (kind, at, *_) in ours.items()}
    assert ffi.sizeof("struct syn_nccl_page") == PAGE_BYTES


@pytest.mark.parametrize("version", [2, 4, 5, 6, 7])
def test_random_work_is_reported_as_it_was(version: int, generator: Path, tmp_path: Path) -> None:
    seed = random.randrange(1, 1 << 32)
    print(f"seed {seed}")
    page = tmp_path / "page"
    words = [str(generator), str(profiler_plugin()), str(version), str(seed), "40000", str(page)]
    log = subprocess.run(words, capture_output=True, text=True, check=True, timeout=600).stdout
    truth = Truth(log)
    whole = page.read_bytes()
    reader = NcclPageReader()
    rows = reader.read(whole, whole, truth.end_ns + 100 * S)
    assert (reader.malformed, reader.lost) == (0, 0)
    assert len(rows) == len(truth.works) > 100
    by_operation = defaultdict(list)
    for part in truth.parts.values():
        by_operation[part.operation].append(part)
    sequences: Counter[tuple[int, bool]] = Counter()
    endings: Counter[bool] = Counter()
    # Operations are reported in the order in which they begin, as in the log.
    for (name, work), row in zip(truth.works.items(), rows, strict=True):
        key = work.comm, work.collective
        if version == 2:  # its communicators are in one: see `start_coll`
            assert row.comm == f"{0xFEED:016x}"
        else:
            assert row.comm == f"{100 + work.comm:016x}"
        assert (row.seq, row.collective) == (sequences[key], work.collective)
        sequences[key] += 1
        assert row.op.replace("_", "") == work.op.lower()
        assert row.enqueue_ns == work.begin_ns
        parts = by_operation[name]
        assert row.parts == len(parts)
        over = name in truth.enqueued and all(part.end_ns is not None for part in parts)
        _check_parts(row, parts, truth.end_ns, over)
        endings[over] += 1
    assert min(endings.values()) > 5


def _check_parts(row: NcclOperation, parts: list[Part], end_ns: int, over: bool) -> None:
    ended = [part.end_ns for part in parts if part.end_ns is not None]
    assert row.done_ns == (max(ended) if over and ended else None)
    means = (
        row.gpu_wait_ns, row.credit_wait_ns, row.net_wait_ns, row.recv_wait_ns, row.flush_wait_ns,
        row.consume_wait_ns,
    )  # fmt: skip
    for at in range(WAITS):
        mine = [part.waits(end_ns)[at] for part in parts if part.sends == (at < 3)]
        mean_ns = means[at]
        if not mine:
            assert mean_ns is None
            continue
        assert mean_ns is not None
        if over:
            assert mean_ns == sum(mine) // len(mine)
            assert row.waiting[at] == 0
        else:  # a wait that goes on is recorded when it changes
            assert 0 <= mean_ns <= sum(mine) // len(mine)
    if over:
        steps = sum(step.end_ns is not None for part in parts for step in part.steps)
        assert row.steps == steps
