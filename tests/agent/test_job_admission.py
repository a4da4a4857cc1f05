"""Bounds of connections: whatever users and processes do, nobody has more than his share."""

from __future__ import annotations

import random
from collections import Counter

from syntony.agent.job_admission import (
    BURST,
    MAX_CONNECTIONS,
    MAX_PER_PROCESS,
    REFILL_NS,
    Admission,
    AdmissionRefusal,
)
from syntony.model import S


def test_each_bound_has_its_reason() -> None:
    admission = Admission()
    for _ in range(MAX_PER_PROCESS):
        assert admission.try_enter(1, 1, 0) is None
    assert admission.try_enter(1, 1, 0) is AdmissionRefusal.PROCESS_FULL
    for pid in range(2, 2 + BURST - MAX_PER_PROCESS - 1):
        assert admission.try_enter(1, pid, 0) is None
    assert admission.try_enter(1, 999, 0) is AdmissionRefusal.TOO_OFTEN
    assert admission.try_enter(1, 999, 10 * REFILL_NS) is None
    assert admission.try_enter(1, 1000, 10 * REFILL_NS) is AdmissionRefusal.USER_FULL
    assert dict(admission.refused) == dict.fromkeys(
        (
            AdmissionRefusal.PROCESS_FULL,
            AdmissionRefusal.TOO_OFTEN,
            AdmissionRefusal.USER_FULL,
        ),
        1,
    )


def test_users_who_take_all_they_can_leave_places_for_others() -> None:
    """Two of them once had every place."""
    admission = Admission()

    def greedy(uid: int) -> int:
        pids = range(1000 * uid, 1000 * uid + MAX_CONNECTIONS)
        return sum(admission.try_enter(uid, pid, 0) is None for pid in pids)

    assert [greedy(uid) for uid in range(1, 11)] == [128, 64, 32, 16, 8, 4, 2, 1, 1, 0]
    for pid in range(1000, 1064):
        admission.leave(1, pid)
    assert admission.try_enter(11, 9999, 0) is None, "whoever lets go makes room"


def test_an_allowance_is_refilled_and_never_more_than_whole() -> None:
    admission = Admission()
    for _ in range(BURST):
        assert admission.try_enter(1, 1, 0) is not AdmissionRefusal.TOO_OFTEN
    assert admission.try_enter(1, 1, REFILL_NS - 1) is AdmissionRefusal.TOO_OFTEN
    assert admission.try_enter(1, 1, REFILL_NS) is not AdmissionRefusal.TOO_OFTEN
    assert admission.try_enter(1, 1, REFILL_NS) is AdmissionRefusal.TOO_OFTEN
    late_ns = 0
    for waited_ns in (BURST * REFILL_NS * 3 // 2, 3600 * S):
        late_ns += waited_ns
        got = [admission.try_enter(1, 1, late_ns) is AdmissionRefusal.TOO_OFTEN for _ in range(200)]
        assert got.count(False) == BURST


def test_random_crowds_stay_within_their_bounds() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    admission, now_ns = Admission(), 0
    here: list[tuple[int, int]] = []
    users = range(rng.choice([1, 3, 50]))
    for _ in range(5_000):
        now_ns += rng.choice([0, REFILL_NS // 3, REFILL_NS])
        if here and rng.random() < 0.3:
            admission.leave(*here.pop(rng.randrange(len(here))))
            continue
        uid = rng.choice(users)
        who = uid, 1000 * uid + rng.randrange(200)
        if admission.try_enter(*who, now_ns) is None:
            here.append(who)
        assert len(here) <= MAX_CONNECTIONS
        most = max(Counter(each for each, _ in here).values(), default=0)
        assert most <= MAX_CONNECTIONS // 2
        assert max(Counter(here).values(), default=0) <= MAX_PER_PROCESS
    for who in here:
        admission.leave(*who)
    assert not admission._users
    assert not admission._processes
