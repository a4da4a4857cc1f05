"""Work that was announced by silences pages nobody, neither in its window nor after that."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.controller.judged import Control, finding, port, standing

from syntony.controller.fabric_changes import Misplaced
from syntony.controller.silent_agents import gateway_subject, of_gateways
from syntony.fabric.names import hosts_at
from syntony.model import S
from syntony.wire.control import Issuer
from syntony.wire.incidents import SilenceAction

ANN = Issuer("ann", "unix")
HOUR_S = 3600


def announce(control: Control, *subjects: str, for_s: int = HOUR_S) -> None:
    for each in subjects:
        action = SilenceAction(subject=each, for_ns=for_s * S, by="ann")
        control.service.silence(action, ANN, control.now_ns)


def fall_silent(control: Control, hosts: Sequence[str], *, of: int) -> None:
    control.silent = {f"h{n}": 0 for n in range(of)}
    control.tick(3)
    control.silent |= dict.fromkeys(hosts, 9 * S)
    control.tick(2)
    control.silent |= dict.fromkeys(hosts, 60 * S)
    control.tick(10)


@pytest.mark.parametrize(
    ("of", "page"), [(12, "silent-together h0, h1, h2 and 1 more"), (6, "fleet-silent all agents")]
)
def test_hosts_that_are_announced_one_by_one_may_fall_silent_together(
    control: Control, of: int, page: str
) -> None:
    hosts = [f"h{n}" for n in range(4)]
    announce(control, *hosts)
    fall_silent(control, hosts, of=of)
    assert control.pages() == []
    assert page.split(" ", 1)[0] in control.live().values()
    control.service.silence(SilenceAction(end=4, by="ann"), ANN, control.now_ns)
    control.tick(3)
    assert control.pages() == [page], "one of them is not announced any more"


def test_hosts_whose_uplink_is_announced_may_fall_silent(control: Control) -> None:
    """A leaf is rebooted; their agents report over it."""
    control.homes = {f"h{n}/rail0": f"leaf{n % 2}" for n in range(8)}
    control.in_band = {f"h{n}": f"h{n}/rail0" for n in range(8)}
    announce(control, "leaf0")
    fall_silent(control, ["h0"], of=8)
    assert control.pages() == []
    control.silent["h1"] = 60 * S
    control.tick(2)
    assert control.pages() == ["host-silent h1"]


@pytest.mark.parametrize("missed", ["", "h4"])
def test_all_hosts_at_a_switch_may_be_powered_off(control: Control, missed: str) -> None:
    """Then they cannot be told from the switch."""
    control.homes = {f"h{n}/rail0": f"leaf{n % 2}" for n in range(6)}
    announce(control, *({"h0", "h2", "h4"} - {missed}))
    control.findings = (finding("leaf0", "leaf", alternatives=(hosts_at("leaf0"),), twins=1,
                                probabilities=(0.5,), confidence=0.5),)  # fmt: skip
    control.silent = {f"h{n}": 0 if n % 2 else 60 * S for n in range(6)}
    control.tick(20)
    assert len(control.pages()) == bool(missed), control.pages()
    assert "switch-or-hosts" in control.live().values()


def test_a_gateway_is_announced_by_its_name(control: Control) -> None:
    announce(control, "g1")
    control.gateways = of_gateways({"g1": 60 * S}, {"g1"}, {}, {"h0": 0}, ())
    control.tick(20)
    assert control.live() == {gateway_subject("g1"): "gateway-absent"}
    assert control.pages() == []


def test_hosts_without_a_gateway_do_not_announce_it(control: Control) -> None:
    announce(control, "h0")
    control.silent["h0"] = 60 * S
    control.gateways = of_gateways({"g1": 60 * S}, {"g1"}, {"h0": "g1"}, control.silent, ())
    control.tick(20)
    assert control.pages() == ["gateway-absent gateway g1"]


def test_flaps_of_a_window_do_not_page_after_it_and_new_ones_do(control: Control) -> None:
    """A cable was replaced: its port flapped, which counts for an hour."""
    announce(control, "h0", for_s=120)
    control.store.links.seen = (port("h0/rail0", flaps=5), port("h1/rail0"))
    control.tick(100)
    assert control.live() == {"h0/rail0": "link-flaps"}
    assert control.pages() == []
    control.store.links.seen = (port("h0/rail0", flaps=4), port("h1/rail0"))
    control.tick(20)
    assert control.pages() == []
    control.store.links.seen = (port("h0/rail0", flaps=5), port("h1/rail0"))
    control.tick(20)
    assert control.pages() == ["link-flaps h0/rail0"]


@pytest.mark.parametrize("planned", [False, True])
def test_a_host_may_move_to_another_leaf(control: Control, planned: bool) -> None:
    """Without a topology its new place is accepted; with one, that must be corrected."""
    announce(control, "h0", for_s=120)
    at = Misplaced("h0/rail0", "leaf1", "leaf0", planned=planned)
    control.fabric = standing(misplaced=(at,))
    control.tick(100)
    assert control.live() == {"h0/rail0": "nic-misplaced"}
    assert control.pages() == (["nic-misplaced h0/rail0"] if planned else [])


@pytest.mark.parametrize("case", range(2))
def test_work_at_the_store_hides_no_silent_host(control: Control, case: int) -> None:
    """What is read from the store is unknown then: ports neither fail nor recover."""
    down = (port("h0/rail0", state="no-peer" if case else "active"), port("h1/rail0"))
    control.store.links.seen = down
    control.tick(20)
    before = ["port-down h0/rail0"] if case else []
    assert control.pages() == before
    control.store.links.away = True
    control.silent["h1"] = 60 * S
    control.tick(300)
    assert control.pages() == [*before, "host-silent h1"]
    assert control.live() == dict.fromkeys(["h0/rail0"] * case, "port-down") | {"h1": "host-silent"}
    control.store.links.away = False
    control.store.links.seen = (port("h0/rail0"), port("h1/rail0"))
    control.silent["h1"] = 0
    control.tick(30)
    assert control.live() == {}
