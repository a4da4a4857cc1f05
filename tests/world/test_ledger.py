"""What the ledger of a world makes of a spool's losses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from tests.world.ledger import Ledger

from syntony.agent.spool import Spool


class _Host:
    """A spool, life after life, and the store that its batches reach."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loop = SimpleNamespace(broken=None)
        self._store = SimpleNamespace(batches=set())
        world = SimpleNamespace(
            loop=self._loop, store=self._store, log=SimpleNamespace(say=lambda *_: None)
        )
        self.ledger = Ledger(cast("Any", world))
        self.agent = self.life()

    @property
    def broken(self) -> str:
        return str(self._loop.broken or "")

    def life(self) -> Any:
        """The next one; the one before was killed."""
        if hasattr(self, "agent"):
            self.agent.spool.close()
        spool = Spool(self._directory, 1 << 20)
        spool.open()
        self.agent = SimpleNamespace(host=SimpleNamespace(name="h0"), spool=spool)
        self.ledger.opened(self.agent)
        return self.agent

    def append(self) -> None:
        self.ledger.appended(self.agent, self.agent.spool.append("agent", 1, b"row" * 9))

    def flip_second_batch(self) -> None:
        (file,) = self._directory.glob("*.spool")
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        self.ledger.flipped("h0")

    def store(self, *numbers: int) -> None:
        """Stored, and the last one acknowledged."""
        stream, _ = self.agent.spool.oldest_stream()
        self._store.batches |= {("h0", stream, number) for number in numbers}
        before = self.agent.spool.acknowledged
        self.agent.spool.acknowledge(numbers[-1])
        self.ledger.acknowledged(self.agent, before)


def _three(directory: Path) -> _Host:
    host = _Host(directory)
    for _ in range(3):
        host.append()
    return host


def test_a_loss_may_be_counted_lives_before_its_number_is_passed(tmp_path: Path) -> None:
    host = _three(tmp_path)
    host.flip_second_batch()
    host.life()
    assert host.agent.spool.dropped_rows == 1
    host.life()
    host.store(1, 3)
    assert not host.broken


def test_a_loss_excuses_no_other_one(tmp_path: Path) -> None:
    host = _three(tmp_path)
    host.flip_second_batch()
    host.life()
    host.store(3)
    assert host.broken.startswith("h0: 1 batches are neither in the spool nor in the store, 0 are")


def test_a_start_that_counts_nothing_is_found(tmp_path: Path) -> None:
    host = _three(tmp_path)
    host.flip_second_batch()
    with mock.patch.object(Spool, "_count_lost"):
        host.life()
    assert host.broken.startswith("h0: 1 batches are neither in the spool nor in the store, 0 are")


def test_a_row_refused_before_a_power_failure_excuses_no_loss_after_it(tmp_path: Path) -> None:
    host = _three(tmp_path)
    with mock.patch.object(Spool, "_writable", side_effect=OSError(28, "full")):
        host.append()
    host.ledger.snapshot("h0")
    host.ledger.restored("h0")
    host.flip_second_batch()
    with mock.patch.object(Spool, "_count_lost"):
        host.life()
    assert host.broken
