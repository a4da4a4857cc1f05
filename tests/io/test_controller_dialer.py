"""Which controller is dialled after a stream was lost."""

from __future__ import annotations

import random

import pytest

from syntony.io.dialling import LOST_NS, STANDBY_BACKOFF_MAX_NS, ControllerDialer
from syntony.model import S


def _dialled(dialer: ControllerDialer, draw: random.Random, for_ns: int) -> list[tuple[int, str]]:
    """What is dialled, and when, while nobody answers."""
    found, now_ns = list[tuple[int, str]](), 100 * S
    dialer.next_controller(now_ns, established=True)
    established = True
    while now_ns < 100 * S + for_ns:
        now_ns += dialer.wait_ns(draw.uniform, established=established)
        found.append((now_ns - 100 * S, dialer.controller))
        dialer.next_controller(now_ns, established=False)
        established = False
    return found


@pytest.mark.parametrize("others", [1, 2, 4])
def test_a_controller_that_was_lost_is_left_alone_for_a_while(others: int) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    names = ["lost", *(f"c{each}" for each in range(others))]
    found = _dialled(ControllerDialer(names), random.Random(seed), 10 * S)
    assert all(at_ns >= LOST_NS for at_ns, name in found if name == "lost")
    early = {name for at_ns, name in found if at_ns < LOST_NS}
    assert early == set(names) - {"lost"}
    # Each is dialled again and again, the lost one as well.
    for name in names:
        gap_ns = len(names) * STANDBY_BACKOFF_MAX_NS
        assert [at_ns for at_ns, each in found if each == name][-1] > 10 * S - gap_ns


def test_an_only_controller_is_dialled_at_once() -> None:
    found = _dialled(ControllerDialer(["only"]), random.Random(1), S)
    assert len(found) > 2
    assert {name for _, name in found} == {"only"}
