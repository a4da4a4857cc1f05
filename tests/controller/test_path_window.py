"""No learnt path is missed, however late it reaches the store and whatever fails in between."""

from __future__ import annotations

import random

import pytest

from syntony.controller.path_window import PathWindow
from syntony.errors import StoreError
from syntony.model import S

BACK_NS = 900 * S
T0 = 1_700_000_000 * S


def test_every_row_is_read_once_it_is_stored() -> None:
    """Rows arrive up to five minutes late; the store fails now and then."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    window = PathWindow(BACK_NS)
    stored: list[int] = []
    due: list[tuple[int, int]] = []
    read: set[int] = set()
    now_ns = T0
    for _ in range(400):
        now_ns += chance.randrange(1, 20 * S)
        due += [(now_ns + chance.choice([0, S, 300 * S]), now_ns - chance.randrange(S))]
        arrived = [learnt_ns for at_ns, learnt_ns in due if at_ns <= now_ns]
        due = [(at_ns, learnt_ns) for at_ns, learnt_ns in due if at_ns > now_ns]
        stored += arrived
        if arrived:
            window.stored(min(arrived))
        try:
            with window.next(now_ns) as (first_ns, last_ns):
                if chance.random() < 0.2:
                    raise StoreError("busy")
                read |= {at_ns for at_ns in stored if first_ns <= at_ns < last_ns}
        except StoreError:
            continue
        assert read == set(stored), f"seed {seed}"


def test_what_was_read_is_not_read_over_and_over() -> None:
    window = PathWindow(BACK_NS)
    with window.next(T0) as (first_ns, _):
        assert first_ns == T0 - BACK_NS
    window.stored(T0 - 100 * S)
    with window.next(T0 + S) as (first_ns, _):
        assert first_ns == T0 - 100 * S
    with window.next(T0 + 2 * S) as (first_ns, _):
        assert first_ns > T0 - 100 * S


def test_rows_stored_while_others_are_read_are_next() -> None:
    window = PathWindow(BACK_NS)
    with window.next(T0):
        pass
    with window.next(T0 + S):
        window.stored(T0 - 50 * S)
    with window.next(T0 + 2 * S) as (first_ns, _):
        assert first_ns == T0 - 50 * S


def test_a_failed_first_look_goes_as_far_back_again() -> None:
    window = PathWindow(BACK_NS)
    with pytest.raises(StoreError), window.next(T0):
        raise StoreError("down")
    with window.next(T0 + S) as (first_ns, _):
        assert first_ns <= T0 - BACK_NS + S
