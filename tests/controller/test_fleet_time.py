"""Fleet time as the controller estimates it from what hosts send."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syntony.controller.fleet_time import FORGET_NS, FleetTime
from syntony.model import S


def test_fleet_time_runs_on_between_data() -> None:
    time = FleetTime()
    assert time.now(5) is None
    time.observe("h0", 1000 * S, 10 * S)
    assert time.now(12 * S) == 1002 * S
    time.observe("h0", 900 * S, 13 * S)  # a backlog says nothing of now
    assert time.now(13 * S) == 1003 * S


@given(lie=st.integers(-(1 << 62), 1 << 62))
def test_one_liar_does_not_move_the_fleets_now(lie: int) -> None:
    time = FleetTime()
    for host in ("h0", "h1", "h2", "h3"):
        time.observe(host, 1000 * S, 0)
    time.observe("liar", lie, 0)
    assert time.now(0) == 1000 * S


def test_the_past_counts_only_until_there_is_something_newer() -> None:
    """A store that was left 80 s ago, and one host back."""
    time = FleetTime()
    time.remember(920 * S, 0)
    assert time.now(S) == 921 * S
    time.observe("h0", 1000 * S, S)
    assert time.now(S) == 1000 * S


def test_what_is_long_silent_is_forgotten() -> None:
    time = FleetTime()
    time.observe("h0", 1000 * S, 0)
    assert time.now(FORGET_NS) == 1000 * S + FORGET_NS
    assert time.now(FORGET_NS + 1) is None


@given(window_ns=st.integers(S, FORGET_NS), behind_ns=st.integers(1, 10**6 * S))
def test_a_backlog_after_a_window_says_nothing_of_now(window_ns: int, behind_ns: int) -> None:
    """As after a pause: what waited is read first."""
    time = FleetTime(window_ns)
    for now_ns, said_ns in ((0, 0), (window_ns + 1, -behind_ns), (window_ns + 2, -behind_ns)):
        time.observe("h0", 10**7 * S + now_ns + said_ns, now_ns)
        assert time.now(now_ns) == 10**7 * S + now_ns


@given(window_ns=st.integers(S, FORGET_NS), back_ns=st.integers(1, 10**6 * S))
def test_a_step_back_of_fleet_time_is_followed(window_ns: int, back_ns: int) -> None:
    """Or a clock that runs slower than the one here: after two windows at most."""
    time = FleetTime(window_ns)
    for now_ns in range(0, window_ns, window_ns // 7):
        time.observe("h0", 10**7 * S + now_ns, now_ns)
    assert time.now(window_ns) == 10**7 * S + window_ns
    for now_ns in range(window_ns, 4 * window_ns, window_ns // 7):
        time.observe("h0", 10**7 * S + now_ns - back_ns, now_ns)
    assert time.now(4 * window_ns) == 10**7 * S + 4 * window_ns - back_ns


@given(data=st.data())
def test_now_is_the_median_of_those_who_are_heard(data: st.DataObject) -> None:
    """However often it is asked for between what is said."""
    time, heard, now_ns = FleetTime(), dict[str, tuple[int, int]](), 0
    steps = st.sampled_from([0, 1, S, FORGET_NS // 12])
    for _ in range(data.draw(st.integers(1, 12))):
        now_ns += data.draw(steps)
        if data.draw(st.booleans()):
            host = data.draw(st.sampled_from("abc"))
            said_ns = data.draw(st.integers(-(10**12), 10**12))
            heard[host] = (max(said_ns, heard.get(host, (said_ns, 0))[0]), now_ns)
            time.observe(host, now_ns + said_ns, now_ns)
        fresh = sorted(said for said, at_ns in heard.values() if now_ns - at_ns <= FORGET_NS)
        assert time.now(now_ns) == (now_ns + fresh[(len(fresh) - 1) // 2] if fresh else None)
