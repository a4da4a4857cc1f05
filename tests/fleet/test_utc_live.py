"""Fleet time led to UTC, in a lab the machine's clock, by anchors that lie and that die."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.live import LiveLab, eventually, live, syntony

from syntony.errors import MissingError
from syntony.io.clock_page import Reading
from syntony.io.clocks import SyntheticClock
from syntony.io.fleet_clock import FleetClock
from syntony.lab.state import clock_directory
from syntony.lab.world import unshare_argv
from syntony.model import MS, US, ClockState, S

pytestmark = [pytest.mark.lab, pytest.mark.slow]

ANCHORS = ("h0", "h1", "h2")
FOLLOWER = "h3"
NAME = "t-utc"
PATIENCE_S = 240.0
"""Five agents, of which three are anchors, are synchronized first: minutes on a busy machine."""
FASTEST = 200e-9
"""Twice the rate at which fleet time is led at most (`MAX_LEAD_PPB`): what an anchor may do."""


@pytest.fixture(scope="module")
def lab() -> Iterator[LiveLab]:
    try:
        unshare_argv()
    except MissingError as error:
        pytest.skip(f"no lab here: {error}: UTC of a live fleet is NOT tested")
    words = [word for host in ANCHORS for word in ("--utc", host)]
    with live(NAME, "--hosts", "5", *words, agents=True) as made:
        yield made


def soon(true: Callable[[], bool], what: str) -> None:
    eventually(true, what, within_s=PATIENCE_S)


def utc() -> dict[str, Any]:
    """No anchors while nobody answers."""
    done = syntony("clock", "utc", "--lab", NAME, "--json")
    if done.returncode in {0, 1}:
        return dict(json.loads(done.stdout))
    return {"state": "UNKNOWN", "anchors": [], "reason": ""}


def look(lab: LiveLab, host: str) -> tuple[int, Reading]:
    """An instant of UTC, and what `host` tells of it."""
    utc_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    clock = SyntheticClock(host, lab.file().clocks[host])
    return utc_ns, FleetClock(clock_directory(lab.directory, host)).to_fleet(clock.map_ns(utc_ns))


def led(lab: LiveLab) -> bool:
    if utc()["state"] != ClockState.SYNCHRONIZED or set(utc()["anchors"]) != set(ANCHORS):
        return False
    return look(lab, FOLLOWER)[1].status is ClockState.SYNCHRONIZED


def check_went_on(before: tuple[int, Reading], after: tuple[int, Reading]) -> None:
    """Fleet time made no jump and ran at UTC's rate, as far as both bounds can tell."""
    (first_ns, one), (last_ns, two) = before, after
    assert one.bound_ns is not None
    assert two.bound_ns is not None
    moved_ns = (two.fleet_ns - last_ns) - (one.fleet_ns - first_ns)
    assert abs(moved_ns) <= one.bound_ns + two.bound_ns + FASTEST * (last_ns - first_ns)
    assert two.steps == one.steps


def test_fleet_time_is_led_to_utc_and_a_lying_anchor_is_outvoted(lab: LiveLab) -> None:
    soon(lambda: led(lab), "fleet time led by all anchors")
    utc_ns, before = look(lab, FOLLOWER)
    assert before.bound_ns is not None
    assert abs(before.fleet_ns - utc_ns) <= before.bound_ns + utc()["bound_ns"] + US
    syntony("lab", "fault", "--lab", NAME, "clock-step", "h1", "--by", "10ms")
    try:
        soon(lambda: "h1 outvoted: off by 10 ms" in utc()["reason"], "it is named")
        assert utc()["state"] == ClockState.SYNCHRONIZED
        assert utc()["anchors"] == ["h0", "h2"]
        check_went_on((utc_ns, before), look(lab, FOLLOWER))
    finally:
        syntony("lab", "fault", "--lab", NAME, "--clear", "all")


def test_fleet_time_keeps_its_rate_when_all_anchors_die(lab: LiveLab) -> None:
    soon(lambda: led(lab), "fleet time led by all anchors")
    before = look(lab, FOLLOWER)
    for host in ANCHORS[:2]:
        syntony("lab", "fault", "--lab", NAME, "agent-kill", host)
    try:
        soon(lambda: utc()["anchors"] == ["h2"], "one anchor is left")
        check_went_on(before, look(lab, FOLLOWER))
        syntony("lab", "fault", "--lab", NAME, "agent-kill", "h2")
        soon(lambda: utc()["state"] == ClockState.HOLDOVER, "nobody is left")
        since_ns = time.monotonic_ns()
        bound_ns = utc()["bound_ns"]
        soon(lambda: time.monotonic_ns() - since_ns > 3 * S, "held for a while")
        assert bound_ns <= utc()["bound_ns"] < 1 * MS
        check_went_on(before, look(lab, FOLLOWER))
    finally:
        syntony("lab", "fault", "--lab", NAME, "--clear", "all")
    soon(lambda: led(lab), "led again")
    check_went_on(before, look(lab, FOLLOWER))
