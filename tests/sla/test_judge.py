"""Verdicts: what is promised, what is usual, what its like have, and what nobody knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.model import US
from syntony.model.sla import Latency, SlaStatus
from syntony.sla.judge import ENOUGH, class_of, judge, peers_by_class
from syntony.sla.terms import Objective, Terms

PAIR = "h0/rail0->h1/rail0"
TERMS = Terms(
    objective=(
        Objective(path_class="leaf", p50="10us", p99="50us", loss=0.001),
        Objective(path_class="any", p99="200us"),
    )
)


def latency(p50_us: int = 5, p99_us: int = 20, **fields: int | None) -> Latency:
    values: dict[str, int | None] = {
        "sent": 1000, "lost": 0, "measured": 1000, "p50_ns": p50_us * US, "p90_ns": p99_us * US,
        "p99_ns": p99_us * US, "clk_err_ns": 100,
    }  # fmt: skip
    return Latency(**(values | fields))  # type: ignore[arg-type]


DARK = Latency(sent=100, lost=100, measured=0)


@pytest.mark.parametrize(
    ("now", "path_class", "status", "says"),
    [
        (latency(), "leaf", SlaStatus.OK, ""),
        (latency(p50_us=11), "leaf", SlaStatus.BREACH, "p50 11 µs, promised 10 µs"),
        (latency(p99_us=51), "leaf", SlaStatus.BREACH, "p99 51 µs, promised 50 µs"),
        (latency(p99_us=51), "spine", SlaStatus.OK, ""),
        (latency(p99_us=201), "spine", SlaStatus.BREACH, "promised 200 µs"),
        (latency(p99_us=201), "", SlaStatus.BREACH, "promised 200 µs"),
        (latency(lost=3), "leaf", SlaStatus.BREACH, "0.30% of 1000 probes lost, promised 0.10%"),
        (latency(lost=2), "leaf", SlaStatus.OK, ""),
        (latency(lost=30), "spine", SlaStatus.OK, ""),
        (DARK, "leaf", SlaStatus.BREACH, "100.00% of 100 probes lost"),
        (DARK, "spine", SlaStatus.UNKNOWN, "0 delays measured of 100 probes"),
        (latency(sent=0, measured=0), "leaf", SlaStatus.UNKNOWN, "nothing was probed"),
        (latency(measured=ENOUGH - 1), "leaf", SlaStatus.UNKNOWN, "are needed"),
        (latency(clk_err_ns=None), "leaf", SlaStatus.UNKNOWN, "clocks' error is not known"),
        (latency(p50_us=11, clk_err_ns=500), "leaf", SlaStatus.UNKNOWN, "known to 2 µs only"),
        (latency(p50_us=13, clk_err_ns=500), "leaf", SlaStatus.BREACH, "p50 13 µs"),
    ],
)
def test_verdicts(now: Latency, path_class: str, status: SlaStatus, says: str) -> None:
    row = judge(PAIR, path_class, now, TERMS)
    assert (row.status, says in "; ".join(row.reasons)) == (status, True), row.reasons
    assert bool(row.reasons) == (status is not SlaStatus.OK)


@pytest.mark.parametrize(
    ("p99_us", "usual_us", "status"),
    [(100, 40, SlaStatus.WARNING), (100, 60, SlaStatus.OK), (15, 2, SlaStatus.OK)],
    ids=["twice and 20 µs more", "less than twice", "less than 20 µs more"],
)
def test_its_own_past(p99_us: int, usual_us: int, status: SlaStatus) -> None:
    row = judge(PAIR, "", latency(p99_us=p99_us), Terms(), usual=latency(p99_us=usual_us))
    assert row.status is status


def test_too_little_past_says_nothing() -> None:
    usual = latency(p99_us=1, measured=ENOUGH - 1)
    assert judge(PAIR, "", latency(p99_us=100), Terms(), usual=usual).status is SlaStatus.OK


def test_its_like() -> None:
    slow = {"a": latency(p50_us=60)}
    latencies = slow | {name: latency() for name in "bcde"}
    classes = dict.fromkeys(latencies, "leaf")
    peers = peers_by_class(latencies, classes)
    assert peers["leaf"].p50_ns == 5 * US
    row = judge("a", "leaf", slow["a"], Terms(), peers=peers["leaf"])
    assert (row.status, row.reasons) == (SlaStatus.WARNING, ("p50 60 µs, its like have 5 µs",))
    assert judge("b", "leaf", latency(), Terms(), peers=peers["leaf"]).status is SlaStatus.OK
    assert peers_by_class(slow, classes) == {}, "one alone has no like"


@pytest.mark.parametrize(
    ("switches", "name"),
    [(None, ""), (0, ""), (1, "leaf"), (2, "spine"), (3, "spine"), (5, "core")],
)
def test_classes(switches: int | None, name: str) -> None:
    assert class_of(switches) == name


@given(
    p50=st.integers(0, 10**8), p99=st.integers(0, 10**8), error=st.integers(0, 10**6),
    more=st.integers(1, 10**8),
)  # fmt: skip
def test_slower_is_never_better(p50: int, p99: int, error: int, more: int) -> None:
    """… and what was in breach stays in breach."""
    now = latency(p50_ns=p50, p99_ns=p99, clk_err_ns=error)
    slower = latency(p50_ns=p50 + more, p99_ns=p99 + more, clk_err_ns=error)
    order = [SlaStatus.OK, SlaStatus.WARNING, SlaStatus.UNKNOWN, SlaStatus.BREACH]
    before, after = (judge(PAIR, "leaf", each, TERMS).status for each in (now, slower))
    assert order.index(after) >= order.index(before)
