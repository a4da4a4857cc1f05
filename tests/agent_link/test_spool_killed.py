"""A spool whose process is killed at any of its steps on the disk."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from functools import partial, partialmethod
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.agent_link.spool_contents import delivered, pending
from tests.cases import mostly_slow
from tests.link import open_spool

from syntony.agent.delivery import Delivery
from syntony.agent.spool import Spool


class _KilledError(BaseException):
    """The process is killed: nothing catches it."""


class _DyingOs:
    """`os` of a process that is killed at one of its steps on the disk.

    Args:
        step: the number of that step, from 0.
        part: of the step that is carried out; of a write, of its bytes.
    """

    def __init__(self, step: int, part: float) -> None:
        self._step, self._part = step, part
        self.full = False

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def _do(self, act: Callable[[float], Any]) -> Any:
        self._step -= 1
        if self._step == -1:
            if self._part:
                act(self._part)
            raise _KilledError
        return act(1.0)

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        return int(self._do(lambda _: os.open(path, flags, mode)))

    def write(self, fd: int, data: bytes) -> int:
        if self.full and len(data) <= 8:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room = 8 if self.full else len(data)
        return int(self._do(lambda part: os.write(fd, data[: int(room * part)])))

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        return int(self._do(lambda part: os.pwrite(fd, data[: int(len(data) * part)], offset)))

    def ftruncate(self, fd: int, length: int) -> None:
        self._do(lambda _: os.ftruncate(fd, length))

    def unlink(self, path: Path, *, missing_ok: bool = False) -> None:
        self._do(lambda _: Path.unlink(path, missing_ok))


class _History:
    """What two processes, one after the other, do with a spool; drawn from a seed."""

    def __init__(self, place: Path, seed: int, limit: int) -> None:
        self._rng = random.Random(seed)
        self._open = partial(Spool, place, limit)
        self.spool = self._open()
        self.given: dict[int, tuple[str, int, bytes]] = {}
        self.appended_rows = self.appending_rows = self.refused_rows = 0
        self.released_rows = self.releasing_rows = 0
        self.acknowledged = self.acknowledging = 0

    def run(self, disk: _DyingOs) -> None:
        for _ in range(2):
            self.spool.close()
            self.spool = self._open()
            self.spool.open()
            delivery, sent = Delivery(self.spool), [0]
            for _ in range(15):
                match self._rng.choice("aaaaassskkf"):
                    case "a":
                        self._append()
                    case "s":
                        if delivery.over:
                            delivery, sent = Delivery(self.spool), [0]
                        while (batch := delivery.next_batch()) is not None:
                            sent.append(batch.seq)
                    case "k":
                        self._acknowledge(delivery, self._rng.choice(sent[-3:]))
                    case _:
                        disk.full = not disk.full

    def _append(self) -> None:
        rows, payload = self._rng.randint(1, 9), self._rng.randbytes(self._rng.randint(0, 300))
        self.given[self.spool.last_seq + 1] = (self.spool.stream, rows, payload)
        self.appending_rows = rows
        if self.spool.append("t", rows, payload) is None:
            self.refused_rows += rows
        self.appended_rows, self.appending_rows = self.appended_rows + rows, 0

    def _acknowledge(self, delivery: Delivery, seq: int) -> None:
        rows = sum(frame.rows for frame in pending(self.spool) if frame.seq <= seq)
        self.acknowledging, self.releasing_rows = max(self.acknowledged, seq), rows
        delivery.acknowledge(seq)
        self.acknowledged, self.releasing_rows = self.acknowledging, 0
        self.released_rows += rows


def _run_until_killed(history: _History, step: int, part: float) -> bool:
    """Whether it had so many steps."""
    disk = _DyingOs(step, part)
    unlink = partialmethod(lambda path, missing_ok=False: disk.unlink(path, missing_ok=missing_ok))
    with (
        mock.patch("syntony.agent.spool.os", disk),
        mock.patch("syntony.agent.spool.Path", type("_Path", (type(Path()),), {"unlink": unlink})),
    ):
        try:
            history.run(disk)
        except _KilledError:
            return True
        return False


def _check_what_is_left(history: _History, place: Path, limit: int) -> None:
    spool = open_spool(place, limit)
    assert spool.acknowledged in {history.acknowledged, history.acknowledging}
    released = history.released_rows
    if spool.acknowledged > history.acknowledged:
        released += history.releasing_rows
    found = delivered(spool)
    numbers = [number for _, number, _, _ in found]
    assert len(set(numbers)) == len(numbers), "doubled"
    assert min(numbers, default=1 << 60) > history.acknowledged, "delivered again"
    assert {number: (stream, *rest) for stream, number, *rest in found}.items() <= (
        history.given.items()
    ), "nobody has given this"
    known = released + sum(rows for _, _, rows, _ in found) + spool.dropped_rows
    # What is killed while it makes room may count a batch that is delivered.
    assert known >= history.appended_rows, "lost uncounted"
    if limit > 1 << 11:
        assert known <= history.appended_rows + history.appending_rows, "counted, and not lost"
        refused = history.refused_rows
        assert spool.dropped_rows in {refused, refused + history.appending_rows}
    spool.close()


@pytest.mark.parametrize("limit", [1 << 11, 1 << 14, 1 << 20])
@pytest.mark.parametrize("seed", mostly_slow(range(40), range(2)))
def test_killed_at_any_step_every_row_is_delivered_once_or_counted(
    tmp_path: Path, seed: int, limit: int
) -> None:
    """Before, within and after each open, write, truncation and removal of a history, including
    those of the second process's recovery."""
    for part in (0.0, 0.5, 1.0):
        step, killed = 0, True
        while killed:
            place = tmp_path / f"{part}-{step}"
            history = _History(place, seed, limit)
            killed = _run_until_killed(history, step, part)
            history.spool.close()
            _check_what_is_left(history, place, limit)
            step += 1
        assert step > 20
