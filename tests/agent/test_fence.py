"""Decisions of earlier controllers are refused, also after a restart of the agent."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from syntony.agent.fence import FILE, Fence
from syntony.errors import WireError
from syntony.wire.coding import encode
from syntony.wire.control import MAX_EPOCH
from syntony.wire.failover import Switch
from syntony.wire.messages import (
    Ack,
    ControllerMessage,
    Decision,
    Refuse,
)

SWITCH = Switch(stopped=True, at_ns=1, by="ann")


def decided(epoch: int, message: ControllerMessage = SWITCH) -> Decision:
    return Decision(issuer="c1", epoch=epoch, message=encode(message))


def test_the_highest_epoch_seen_is_obeyed_and_no_lower_one(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    highest = 0
    for _ in range(200):
        if rng.random() < 0.1:
            fence = Fence(tmp_path)  # the agent is started again
        elif highest == 0:
            fence = Fence(tmp_path)
        epoch = max(1, highest + rng.randint(-3, 2))
        if epoch < highest:
            with pytest.raises(WireError, match=f"epoch {highest} has been in charge"):
                fence.admit(decided(epoch))
        else:
            assert fence.admit(decided(epoch)) == SWITCH, seed
        highest = max(highest, epoch)
        assert fence.highest == Fence(tmp_path).highest == highest, seed


def test_a_decision_without_an_epoch_is_refused(tmp_path: Path) -> None:
    fence = Fence(tmp_path)
    for _ in range(2):
        with pytest.raises(WireError, match="without the controller's epoch"):
            fence.admit(SWITCH)
        fence.admit(decided(3))


@pytest.mark.parametrize("message", [Ack(seq=1), Refuse(reason="no")])
def test_what_decides_nothing_is_always_taken(tmp_path: Path, message: ControllerMessage) -> None:
    fence = Fence(tmp_path)
    fence.admit(decided(3))
    assert fence.admit(message) == message


@pytest.mark.parametrize("epoch", [-1, MAX_EPOCH + 1])
def test_what_is_no_epoch(tmp_path: Path, epoch: int) -> None:
    fence = Fence(tmp_path)
    with pytest.raises(WireError, match="is not an epoch"):
        fence.admit(decided(epoch))
    assert fence.highest == 0


def test_nonsense_inside(tmp_path: Path) -> None:
    with pytest.raises(WireError, match="not a message"):
        Fence(tmp_path).admit(Decision(issuer="c1", epoch=1, message=b"\xff"))


@pytest.mark.parametrize("damage", [b"", b"x", b"-5", b"9" * 100])
def test_a_damaged_file_lets_the_next_controller_count(tmp_path: Path, damage: bytes) -> None:
    """To obey nobody would take the stop switch from the operator."""
    (tmp_path / FILE).write_bytes(damage)
    fence = Fence(tmp_path)
    fence.admit(decided(2))
    assert Fence(tmp_path).highest == 2


def test_a_full_disk_does_not_stop_the_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    fence = Fence(tmp_path / "file")
    assert fence.admit(decided(2)) == SWITCH
    with pytest.raises(WireError):
        fence.admit(decided(1))
    assert "cannot be saved for a restart" in caplog.text
