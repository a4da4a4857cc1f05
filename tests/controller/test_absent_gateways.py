"""A gateway that is gone is one incident and one page, whatever becomes of the agents behind it."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

import pytest
from tests.controller.judged import Control

from syntony.controller.containment import FLEET
from syntony.controller.silent_agents import of_gateways
from syntony.model import S

HOSTS = [f"h{number}" for number in range(12)]
BEHIND = {host: "g1" if number < 4 else "g2" for number, host in enumerate(HOSTS)}


class Fleet:
    """Two gateways, of which some are heard no longer, and the agents behind them."""

    def __init__(self, control: Control, rng: random.Random) -> None:
        self._control = control
        self._rng = rng
        self.absent_ns = {"g1": 0, "g2": 0}
        self.behind: Mapping[str, str] = BEHIND
        self.seen: Collection[str] = {"g1", "g2"}
        control.silent = dict.fromkeys(HOSTS, 0)
        control.answering = frozenset(HOSTS)

    def go_on(self, seconds: int, gone: Collection[str] = (), silent: Collection[str] = ()) -> None:
        """Agents speak every two seconds, gateways every one."""
        control = self._control
        for host in HOSTS:
            if host not in silent:
                control.silent[host] = 0
            elif not control.silent[host]:
                control.silent[host] = self._rng.randrange(2 * S)
        for _ in range(seconds // 2):
            for name in self.absent_ns:
                self.absent_ns[name] = self.absent_ns[name] + 2 * S if name in gone else 0
            for host in silent:
                control.silent[host] += 2 * S
            control.gateways = of_gateways(
                self.absent_ns, self.seen, self.behind, control.silent, control.answering
            )
            control.tick()


@pytest.fixture
def fleet(control: Control) -> Fleet:
    seed = random.randrange(10_000)
    print(f"seed {seed}")
    return Fleet(control, random.Random(seed))


def evidence(control: Control) -> str:
    found = next(each for each in control.live_incidents() if each["rule"] == "gateway-absent")
    return " ".join(found["evidence"])


def test_a_gateway_whose_agents_attach_to_others_is_one_page(
    control: Control, fleet: Fleet
) -> None:
    fleet.go_on(20)
    fleet.go_on(40, gone={"g1"})
    assert control.pages() == ["gateway-absent gateway g1"]
    assert control.live() == {"gateway g1": "gateway-absent"}
    assert "have attached to others" in evidence(control)
    fleet.go_on(30)
    assert control.live() == {}
    assert len(control.pages()) == 1


def test_one_that_is_started_again_is_no_page(control: Control, fleet: Fleet) -> None:
    fleet.go_on(14, gone={"g1"})
    fleet.go_on(40)
    assert control.pages() == []
    assert control.live() == {}


@pytest.mark.parametrize("probed", [True, False])
def test_agents_that_stay_with_a_gateway_without_a_leader_are_its_evidence(
    control: Control, fleet: Fleet, probed: bool
) -> None:
    """Their NICs answer probes, or nobody probes: it is not their hosts that died."""
    control.answering = frozenset(HOSTS) if probed else frozenset()
    fleet.go_on(20)
    fleet.go_on(60, gone={"g1"}, silent=HOSTS[:4])
    assert control.pages() == ["gateway-absent gateway g1"]
    assert "h0, h1, h2 and 1 more" in evidence(control)
    fleet.go_on(60)
    assert control.live() == {}
    assert len(control.pages()) == 1


def test_a_host_that_dies_with_its_gateway_is_a_page_of_its_own(
    control: Control, fleet: Fleet
) -> None:
    control.answering = frozenset(HOSTS[1:])
    fleet.go_on(60, gone={"g1"}, silent=HOSTS[:1])
    assert sorted(control.pages()) == ["gateway-absent gateway g1", "host-silent h0"]


def test_a_host_of_another_gateway_is_a_page_of_its_own(control: Control, fleet: Fleet) -> None:
    fleet.go_on(60, gone={"g1"}, silent=HOSTS[5:6])
    assert sorted(control.pages()) == ["gateway-absent gateway g1", "host-silent h5"]


def test_gateways_that_are_lost_at_one_instant_are_one_page(control: Control, fleet: Fleet) -> None:
    """Agents of both that find no other are its evidence, also those that fell silent together."""
    fleet.go_on(20)
    fleet.go_on(60, gone={"g1", "g2"}, silent=HOSTS[2:6])
    assert control.pages() == ["gateways-absent-together gateways g1, g2"]
    assert control.live()["gateway g1"] == control.live()["gateway g2"] == "gateway-absent"
    control.start()  # the next leader goes on with it
    fleet.go_on(20, gone={"g1", "g2"}, silent=HOSTS[2:6])
    fleet.go_on(14, gone={"g2"})  # one of them is back
    fleet.go_on(60)
    assert control.pages() == ["gateways-absent-together gateways g1, g2"]
    assert control.live() == {}


@pytest.mark.parametrize("apart_s", [4, 30])
def test_gateways_that_are_lost_one_after_the_other_are_two_pages(
    control: Control, fleet: Fleet, apart_s: int
) -> None:
    fleet.go_on(20)
    fleet.go_on(apart_s, gone={"g1"})
    fleet.go_on(60, gone={"g1", "g2"})
    assert control.pages() == ["gateway-absent gateway g1", "gateway-absent gateway g2"]
    fleet.go_on(60)
    assert control.live() == {}


def test_one_that_was_lost_with_another_and_stopped_then_leaves_the_other(
    control: Control, fleet: Fleet
) -> None:
    fleet.go_on(20)
    fleet.go_on(40, gone={"g1", "g2"})
    del fleet.absent_ns["g2"]
    fleet.go_on(40, gone={"g1"})
    assert control.live() == {"gateway g1": "gateway-absent"}


def test_all_gateways_without_a_leader_are_the_networks(control: Control, fleet: Fleet) -> None:
    fleet.go_on(20)
    fleet.go_on(60, gone={"g1", "g2"}, silent=HOSTS)
    assert control.pages() == [f"fleet-silent {FLEET}"]
    assert {"gateway g1", "gateway g2"} <= control.live().keys()


def test_one_that_is_stopped_on_purpose_is_missed_no_longer(control: Control, fleet: Fleet) -> None:
    fleet.go_on(40, gone={"g1"})
    assert control.live() == {"gateway g1": "gateway-absent"}
    del fleet.absent_ns["g1"]
    fleet.go_on(20)
    assert control.live() == {}


def test_a_new_leader_neither_ends_nor_repeats_it(control: Control, fleet: Fleet) -> None:
    fleet.go_on(40, gone={"g1"})
    control.start()
    fleet.seen = {"g2"}
    fleet.absent_ns["g1"] = 0
    fleet.go_on(30)  # it is waited for: nothing is known of it
    assert control.live() == {"gateway g1": "gateway-absent"}
    fleet.go_on(60, gone={"g1"})
    assert control.pages() == ["gateway-absent gateway g1"]
    fleet.seen = {"g1", "g2"}
    fleet.go_on(20)
    assert control.live() == {}


@pytest.mark.parametrize(
    ("seen", "age_s", "value"),
    [({"g"}, 0, 0.0), (set(), 0, None), (set(), 7, None), (set(), 9, 9.0)],
)
def test_of_one_that_was_not_heard_yet_nothing_is_known_while_it_is_waited_for(
    seen: set[str], age_s: int, value: float | None
) -> None:
    (found,) = of_gateways({"g": age_s * S}, seen, {}, {}, ())
    assert (found.value, found.members) == (value, ())
