"""Two agents of one name at once: the first is kept, the other refused; restarts are no such."""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.link import hello

from syntony.controller.agent_hub import MAX_STREAMS, DuplicateAgents
from syntony.controller.hello_check import RefusedError


def test_the_first_is_kept_and_the_other_refused() -> None:
    names = DuplicateAgents()
    names.check(hello("h0", "first"), attached=False)
    names.check(hello("h0", "copy"), attached=True)  # as a restart would look
    names.check(hello("h0", "first"), attached=True)  # both live
    for _ in range(3):
        with pytest.raises(RefusedError, match="two machines have one name"):
            names.check(hello("h0", "copy"), attached=True)
        names.check(hello("h0", "first"), attached=True)
    names.check(hello("h1", "copy"), attached=True)  # another name: another matter


def test_the_other_is_served_while_it_is_alone_and_the_first_restarts_as_ever() -> None:
    names = DuplicateAgents()
    for stream in ("first", "copy", "first"):
        names.check(hello("h0", stream), attached=True)
    names.check(hello("h0", "copy"), attached=False)
    names.check(hello("h0", "first-again"), attached=True)
    with pytest.raises(RefusedError):
        names.check(hello("h0", "copy"), attached=True)
    names.check(hello("h0", "first-again"), attached=True)


def test_one_agent_is_never_its_own_namesake() -> None:
    """Restarts, backlogs of earlier streams, lost and half-open connections, in any order."""
    seed = random.randrange(1 << 30)
    draw = random.Random(seed)
    names, streams = DuplicateAgents(), ["s0"]
    for step in range(500):
        if draw.random() < 0.3:
            streams.append(f"s{step}")
        usual = hello("h0", streams[-1])
        if draw.random() < 0.3:
            usual = msgspec.structs.replace(usual, stream=draw.choice(streams), backlog=True)
        try:
            names.check(usual, attached=draw.random() < 0.5)
        except RefusedError as error:
            raise AssertionError(f"seed {seed} step {step}") from error


def test_a_copy_that_starts_again_and_again_is_told_each_time() -> None:
    names = DuplicateAgents()
    names.check(hello("h0", "first"), attached=False)
    for number in range(2 * MAX_STREAMS):
        names.check(hello("h0", f"copy{number}"), attached=True)
        names.check(hello("h0", "first"), attached=True)
        with pytest.raises(RefusedError):
            names.check(hello("h0", f"copy{number}"), attached=True)
