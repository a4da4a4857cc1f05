"""When what was broken is back, nobody is paged for what it left in counts and windows."""

from __future__ import annotations

import random

import pytest
from tests.controller.judged import Control, finding, port

from syntony.model.findings import Queue

TICK_S = 2


def draw() -> random.Random:
    seed = random.randrange(10_000)
    print(f"seed {seed}")
    return random.Random(seed)


def pull(control: Control, nics: list[str], flaps: dict[str, int], seconds: int) -> None:
    """Down for a while; each loss of carrier is counted when it comes."""
    for nic in nics:
        flaps[nic] += 1
    show(control, flaps, down=nics)
    control.tick(seconds // TICK_S)
    show(control, flaps)
    control.tick(30 // TICK_S)


def waiting(link: str) -> Queue:
    return Queue(
        component=link, delay_ns=390_000.0, since_ns=0, confidence=0.9, alternatives=(), pairs=()
    )


def show(control: Control, flaps: dict[str, int], down: list[str] | None = None) -> None:
    control.store.links.seen = tuple(
        port(nic, flaps=count, state="no-peer" if nic in (down or []) else "active")
        for nic, count in flaps.items()
    )


def test_flaps_of_a_port_that_was_paged_for_are_its_own(control: Control) -> None:
    rng = draw()
    flaps = {"h0/rail0": 0, "h1/rail0": 0}
    times = rng.randint(3, 8)
    for _ in range(times):
        pull(control, ["h0/rail0"], flaps, rng.randrange(12, 60))
    assert control.pages() == ["port-down h0/rail0"] * 2, "one that returns at once pages twice"
    control.tick(300)
    assert control.pages() == ["port-down h0/rail0"] * 2
    # One that nobody was informed of is news.
    flaps["h0/rail0"] += 1
    show(control, flaps)
    control.tick(10)
    expected = "link-flapping" if flaps["h0/rail0"] > 8 else "link-flaps"
    assert control.pages()[2:] == [f"{expected} h0/rail0"]


def test_flaps_that_keep_a_port_down_for_no_time_page_by_themselves(control: Control) -> None:
    flaps = {"h0/rail0": 3}
    show(control, flaps)
    control.tick(20)
    assert control.pages() == ["link-flaps h0/rail0"]


@pytest.mark.parametrize("deaths", [3, 9])
def test_a_leaf_that_dies_again_and_again_leaves_no_flapping_hosts(
    control: Control, deaths: int
) -> None:
    nics = [f"h{number}/rail0" for number in range(6)]
    control.homes = dict.fromkeys(nics, "leaf0")
    flaps = dict.fromkeys(nics, 0)
    for _ in range(deaths):
        pull(control, nics, flaps, 20)
    control.tick(300)
    assert control.pages() == ["switch-down leaf0"] * 2


@pytest.mark.parametrize("window", ["10s", "30s", "60s"])
@pytest.mark.parametrize("opened_before", [True, False])
def test_a_leaf_that_is_back_is_not_blamed_for_the_time_it_was_away(
    control: Control, window: str, opened_before: bool
) -> None:
    nics = ["h0/rail0", "h1/rail0"]
    control.homes = dict.fromkeys(nics, "leaf0")
    lossy = (finding("leaf0", "leaf", window=window),)
    flaps = dict.fromkeys(nics, 0)
    show(control, flaps, down=nics)
    control.findings = lossy if opened_before else ()
    control.tick(10)
    show(control, flaps)
    control.tick(6)
    assert [each["rule"] for each in control.live_incidents() if not each["cause"]] == []
    control.findings = lossy
    span_s = int(window.removesuffix("s"))
    control.tick(span_s // TICK_S - 1)
    assert control.pages() == ["switch-down leaf0"]
    # What began when it was back for longer than the window is not of its absence.
    control.tick(10)
    assert control.pages() == ["switch-down leaf0", "switch-loss leaf0"]


def test_loss_that_a_short_window_shows_after_a_recovery_pages_as_ever(control: Control) -> None:
    nics = ["h0/rail0", "h1/rail0"]
    control.homes = dict.fromkeys(nics, "leaf0")
    flaps = dict.fromkeys(nics, 0)
    show(control, flaps, down=nics)
    control.tick(10)
    show(control, flaps)
    control.tick(6)
    control.findings = (finding("leaf0", "leaf", window="3s"),)
    control.tick(4)
    assert control.pages() == ["switch-down leaf0", "switch-loss leaf0"]


def test_a_delay_that_lasts_stays_the_incident_that_it_was(control: Control) -> None:
    """A change of delay is news for a minute; what waits there is reported as long as it does, and
    may be reported by another of the names that it had."""
    cable = finding(
        "leaf0--spine0", "cable", fault="delay", loss=0.0, delay_ns=400_000.0,
        alternatives=("leaf0->spine0",),
    )  # fmt: skip
    slas = control.slas
    control.findings = (cable,)
    control.tick(20)
    control.slas = slas._replace(queues=(waiting("leaf0->spine0"),))
    control.tick(20)
    control.findings = ()
    control.tick(200)
    assert control.live() == {"leaf0--spine0": "component-delay"}
    assert control.pages() == ["component-delay leaf0--spine0"]
    control.slas = slas._replace(queues=())
    control.tick(60)
    assert control.live() == {}
    assert len(control.pages()) == 1
    # Elsewhere it is another one.
    control.slas = slas._replace(queues=(waiting("leaf9->spine0"),))
    control.tick(9)
    assert control.live() == {"leaf9->spine0": "component-delay"}
