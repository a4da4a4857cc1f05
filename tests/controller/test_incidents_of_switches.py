"""Switches and what is at them, from what is known of both to one page."""

from __future__ import annotations

import random

import pytest
from tests.controller.judged import T0, Control, finding, port, standing

from syntony.controller.observe import APART
from syntony.controller.observe_switches import of_switches
from syntony.model import S
from syntony.wire.control import Issuer
from syntony.wire.incidents import IncidentsQuery, SilenceAction


@pytest.mark.parametrize("seed", range(8))
def test_a_dead_leaf_is_one_page_however_many_hosts_are_at_it(control: Control, seed: int) -> None:
    """Carriers are reported within two looks, in any order; what localisation says comes later."""
    rng = random.Random(seed)
    hosts = rng.randint(2, 40)
    homes = {
        f"h{host}/rail{rail}": f"leaf{rail}-{host % 2 if hosts > 3 else 0}"
        for host in range(hosts)
        for rail in range(rng.randint(1, 3))
    }
    dead = rng.choice(sorted({at for at in homes.values() if at.startswith("leaf0")}))
    control.homes = homes
    control.fabric = standing() if seed % 2 else None  # the first look at the fabric is not over
    control.store.links.seen = tuple(port(nic) for nic in homes)
    control.tick(3)
    assert not control.pages()
    below = [nic for nic, at in homes.items() if at == dead]
    early = set(rng.sample(below, rng.randint(0, len(below))))
    for gone in (early, set(below)):
        control.store.links.seen = tuple(
            port(nic, state="no-peer" if nic in gone else "active") for nic in homes
        )
        control.tick()
    control.tick(2)
    control.findings = (finding(dead, "leaf"), *(finding(nic, "nic") for nic in below[:3]))
    control.tick(10)
    assert control.pages() == [f"switch-down {dead}"], f"seed {seed}"
    (down,) = [each for each in control.live_incidents() if each["rule"] == "switch-down"]
    share = f"cuts off {len(below)} of {len(homes)} NICs, {len(below) / len(homes):.0%}"
    assert any(line.startswith(share) for line in down["evidence"])
    control.findings = ()
    control.store.links.seen = tuple(port(nic) for nic in homes)
    control.tick(20)
    assert control.live() == {}, f"seed {seed}"
    assert len(control.pages()) == 1, f"seed {seed}: none after it is back"


@pytest.mark.parametrize("seed", range(6))
def test_a_leaf_with_one_host_at_it_is_one_page_that_says_what_cannot_be_told(
    control: Control, seed: int
) -> None:
    """Localisation and the carrier may come in either order; NIC, cable and leaf are twins."""
    rng = random.Random(seed)
    hosts = rng.randint(3, 9)
    lone = rng.randrange(hosts)
    nic = f"h{lone}/rail0"
    homes = {
        f"h{n}/rail0": "leaf0-1" if n == lone else rng.choice(["leaf0-0", "leaf0-2"])
        for n in range(hosts)
    }
    names = [nic, f"{nic}--leaf0-1", "leaf0-1"]
    rng.shuffle(names)
    twins = finding(
        names[0], "cable", alternatives=tuple(names[1:]), probabilities=(0.3, 0.3), twins=2
    )
    control.homes = homes
    up, dead = (
        tuple(port(each, state=state if each == nic else "active") for each in homes)
        for state in ("active", "no-peer")
    )
    control.store.links.seen = up
    control.tick(3)
    control.findings = (twins,)
    control.tick(rng.randint(0, 2))
    control.store.links.seen = dead
    control.tick(20)
    assert control.pages() == [f"port-down {nic}"], f"seed {seed}"
    down = next(each for each in control.live_incidents() if each["rule"] == "port-down")
    assert "1 of 1 compute ports of its host, 100% of what it can send" in down["evidence"]
    suspects = f"no other host's port at leaf0-1 is up: {nic}, its cable or leaf0-1 is down"
    assert suspects in down["evidence"]


def test_a_leaf_with_one_host_is_not_said_of_leaves_that_others_are_at(control: Control) -> None:
    control.homes = {"h0/rail0": "leaf0", "h1/rail0": "leaf0"}
    control.store.links.seen = (port("h0/rail0", state="no-peer"), port("h1/rail0"))
    control.tick(5)
    (down,) = control.live_incidents()
    assert not any("no other host" in line for line in down["evidence"])


def test_ports_of_one_host_or_of_one_that_is_silent_say_nothing_of_a_switch(
    control: Control,
) -> None:
    homes = {"h0/rail0": "leaf0", "h0/rail1": "leaf0", "h1/rail0": "leaf0", "h2/rail0": "leaf1"}
    control.homes = homes
    down = [port(nic, state="no-peer") for nic in ("h0/rail0", "h0/rail1")]
    control.store.links.seen = (*down, port("h1/rail0"), port("h2/rail0"))
    control.tick(9)
    assert control.pages() == ["port-down h0/rail0", "port-down h0/rail1"]
    control.store.links.seen = (*down, port("h1/rail0", state="no-peer"), port("h2/rail0"))
    control.silent = {"h0": 0, "h1": 60 * S}
    control.tick(9)
    assert control.pages()[2:] == ["host-silent h1"]


def test_a_dead_spine_is_one_page_not_one_for_each_leaf(control: Control) -> None:
    lost = {f"leaf{leaf}--spine1": T0 for leaf in range(3)}
    control.homes = {"h0/rail0": "leaf0"}
    control.fabric = standing(lost=lost, gone={"spine1": 3})
    control.tick(3)
    assert control.pages() == ["switch-down spine1"]
    assert set(control.live()) == {"spine1", *lost}


def test_a_link_that_loses_beside_a_dead_spine_pages_although_its_leaf_was_suspected_at_first(
    control: Control,
) -> None:
    """Drawn case 18700008: the leaf's cable to the spine was a suspect, and is not any more."""
    control.homes = {"h0/rail0": "leaf0"}
    lost = {f"leaf{leaf}--spine0": T0 for leaf in range(3)}
    control.fabric = standing(lost=lost, gone={"spine0": 3})
    control.findings = (
        finding("leaf2", "leaf", alternatives=("leaf2--spine1", "leaf2--spine0"), twins=2,
                confidence=0.9, probabilities=(0.05, 0.05)),
    )  # fmt: skip
    control.tick(3)
    control.findings = (finding("spine1->leaf2", "link"),)
    control.tick(6)
    assert control.pages() == ["switch-down spine0", "link-loss spine1->leaf2"]
    control.findings = (finding("spine0->leaf2", "link"),)
    control.tick(20)
    assert len(control.pages()) == 2, "what the spine holds is its evidence"


def test_a_dead_spine_explains_its_links(control: Control) -> None:
    control.findings = (finding("leaf0-0->spine1", "link"),)
    control.tick()
    control.findings = (finding("spine1", "spine"), finding("leaf0-0->spine1", "link"))
    control.tick()
    reply = control.service.incidents(IncidentsQuery())
    causes = {each["subject"]: each["cause"] for each in reply.incidents}
    assert causes["spine1"] is None
    assert causes["leaf0-0->spine1"] is not None


def test_a_link_that_loses_more_than_its_lossy_switch_pages_for_itself(control: Control) -> None:
    switch, link = finding("spine1", "spine"), finding("leaf0->spine1", "link", loss=0.2)
    control.findings = (switch, link)
    control.tick(6)
    assert sorted(control.pages()) == ["link-loss leaf0->spine1", "switch-loss spine1"]


def test_what_a_link_loses_beyond_its_lossy_switch_is_said_where_the_switch_pages(
    control: Control,
) -> None:
    control.findings = (
        finding("spine1", "spine", loss=0.2), finding("leaf0->spine1", "link", loss=0.1),
        finding("leaf0->spine0", "link", loss=0.1),
        finding("leaf2->spine1", "link", loss=0.3, confidence=0.5, twins=1,
                alternatives=("spine1->leaf3",), probabilities=(0.5,)),
    )  # fmt: skip
    control.tick(6)
    assert {"link-loss leaf0->spine0", "switch-loss spine1"} <= {*control.pages()}
    evidence = {each["subject"]: each["evidence"] for each in control.live_incidents()}
    assert "leaf0->spine1 loses another 10% of what crosses it" in evidence["spine1"]
    twins = "leaf2->spine1 or spine1->leaf3"
    assert f"{twins} loses another 30% of what crosses it" in evidence["spine1"]
    assert not any("another" in line for line in evidence["leaf0->spine0"])


EITHER = finding(
    "leaf1", "leaf", fault="blackhole", loss=1.0, confidence=0.5, twins=1,
    alternatives=("hosts at leaf1",), probabilities=(0.5,),
)  # fmt: skip


def stop(control: Control, *, silent: bool) -> None:
    """Three hosts at a leaf of which nothing comes any more, for twenty seconds."""
    hosts = [f"h{number}" for number in range(6)]
    control.homes = {f"{host}/rail0": f"leaf{number // 3}" for number, host in enumerate(hosts)}
    control.silent = dict.fromkeys(hosts, 0)
    control.answering = frozenset(hosts[:3])
    control.tick(3)
    for second in range(4, 24, 2):
        control.silent |= dict.fromkeys(hosts[3:], second * S if silent else S)
        control.findings = (EITHER,)
        control.tick()


def test_hosts_that_stop_together_are_one_page_that_names_their_leaf_as_well(
    control: Control,
) -> None:
    stop(control, silent=True)
    assert control.pages() == ["switch-or-hosts hosts at leaf1 or leaf1"]
    control.silent["h3"] = 0  # the first of them goes on: what was counted until now is not over
    control.tick(2)
    assert len(control.pages()) == 1
    assert "leaf1" not in control.live()
    control.findings = ()
    control.silent |= {"h4": 0, "h5": 0}
    control.tick(20)
    assert control.live() == {}
    assert len(control.pages()) == 1


def test_where_hosts_report_it_is_their_leaf_that_is_dead(control: Control) -> None:
    stop(control, silent=False)
    assert control.pages() == ["switch-loss leaf1"]


@pytest.mark.parametrize("back_first", [True, False])
def test_carriers_that_are_reported_late_are_evidence_of_the_page_that_named_their_leaf(
    control: Control, back_first: bool
) -> None:
    """Also when the losses are over sooner than the ports are up, or the reverse."""
    nics = ["h0/rail0", "h1/rail0"]
    control.homes = dict.fromkeys(nics, "leaf0") | {"h2/rail0": "leaf1"}
    down, up = (
        tuple(port(nic, state=state if nic in nics else "active") for nic in control.homes)
        for state in ("no-peer", "active")
    )
    control.store.links.seen = up
    control.findings = (finding("leaf0", "leaf", loss=1.0),)
    control.tick(5)
    assert control.pages() == ["switch-loss leaf0"]
    control.store.links.seen = down
    control.tick(9)
    causes = {each["rule"]: each["cause"] for each in control.live_incidents()}
    number = next(
        each["number"] for each in control.live_incidents() if each["rule"] == "switch-loss"
    )
    assert causes["switch-loss"] is None
    assert causes["switch-down"] == number
    shown = control.service.incidents(IncidentsQuery(number=number)).incidents[0]
    assert shown["summary"].startswith("leaf0: down: no known path")
    assert "power" in shown["remedy"]
    assert "leaf0: loses 100% of the packets" in shown["former_words"][0]
    if back_first:
        control.findings = ()
        control.tick(40)
        assert {"switch-loss", "switch-down"} <= {e["rule"] for e in control.live_incidents()}
        control.store.links.seen = up
    else:
        control.store.links.seen = up
        control.tick(20)
        control.findings = ()
    control.tick(40)
    assert control.live() == {}
    assert control.pages() == ["switch-loss leaf0"]


def test_a_dead_switch_pages_where_the_page_before_was_about_less(control: Control) -> None:
    """A warning of a switch that loses little, or a page about one of its cables."""
    control.homes = {f"h{number}/rail0": f"leaf{number // 2}" for number in range(6)}
    some = {f"h{number}/rail0->h5/rail0": frozenset({"leaf0"}) for number in range(20)}
    every = {f"h{number}/rail0->h5/rail1": frozenset({"leaf9"}) for number in range(9_000)}
    control.slas = control.slas._replace(crossing=some | every, jobs={})
    control.store.links.seen = tuple(port(nic) for nic in control.homes)
    control.findings = (finding("leaf0", "leaf", loss=0.1), finding("leaf1->spine0", "link"))
    control.tick(9)
    assert control.pages() == ["switch-loss leaf0", "link-loss leaf1->spine0"]
    (mild,) = [each for each in control.live_incidents() if each["subject"] == "leaf0"]
    assert mild["severity"] == "warning"
    control.store.links.seen = tuple(
        port(nic, state="active" if at == "leaf2" else "no-peer")
        for nic, at in control.homes.items()
    )
    control.tick(9)
    assert sorted(control.pages()[2:]) == ["switch-down leaf0", "switch-down leaf1"]


def test_a_port_that_is_known_late_to_be_down_is_evidence_of_its_nics_page(
    control: Control,
) -> None:
    control.homes = {"h0/rail0": "leaf0", "h1/rail0": "leaf0", "h1/rail1": "leaf1"}
    up = [port(nic) for nic in control.homes]
    control.store.links.seen = tuple(up)
    control.findings = (finding("leaf0->h1/rail0", "link", loss=1.0),)
    control.tick(5)
    assert control.pages() == ["link-loss leaf0->h1/rail0"]
    control.store.links.seen = (up[0], port("h1/rail0", state="no-peer"), up[2])
    control.tick(9)
    assert control.pages() == ["link-loss leaf0->h1/rail0"]
    control.store.links.seen = (*up[:2], port("h1/rail1", state="no-peer"))
    control.findings = ()
    control.tick(9)
    assert control.pages()[1:] == ["port-down h1/rail1"], "another NIC of the same host"


@pytest.mark.parametrize("subject", ["leaf0", "h0/rail0"])
def test_a_silence_of_a_part_covers_what_names_it(control: Control, subject: str) -> None:
    """Its links in either direction, the NICs at it, the hosts at it."""
    control.homes = {"h0/rail0": "leaf0", "h1/rail0": "leaf1"}
    action = SilenceAction(subject=subject, for_ns=3600 * S, by="ann")
    control.service.silence(action, Issuer("ann", "unix"), control.now_ns)
    control.store.links.seen = (port("h0/rail0", state="no-peer"), port("h1/rail0"))
    control.findings = (finding("leaf0->h0/rail0", "link"),)
    if subject == "leaf0":
        control.findings += (
            finding("spine0->leaf0", "link"), finding("leaf1--spine0", "cable", twins=1,
            alternatives=("leaf0--spine0",), probabilities=(0.5,), confidence=0.5),
        )  # fmt: skip
    control.tick(20)
    assert control.pages() == []
    assert len(control.live()) == (4 if subject == "leaf0" else 2)
    control.findings += (finding("spine1->leaf1", "link"),)
    control.tick(9)
    assert control.pages() == ["link-loss spine1->leaf1"]


@pytest.mark.parametrize("both", [True, False])
def test_a_cable_that_routes_have_left_is_the_one_that_lost_packets(
    control: Control, both: bool
) -> None:
    """It is not well because nobody uses it any more: one page, no end until it is back."""
    cable = "leaf0--spine0"
    other = {"twins": 1, "alternatives": ("spine0--leaf9",), "probabilities": (0.4,)}
    control.findings = (finding(cable, "cable", **(other if both else {}), confidence=0.6),)
    control.fabric = standing()
    control.tick(6)
    (page,) = control.pages()
    control.fabric = standing(lost={cable: control.now_ns})
    control.tick(10)
    control.findings = ()
    control.tick(200)
    assert control.pages() == [page]
    assert [each["rule"] for each in control.live_incidents() if not each["cause"]] == [
        page.partition(" ")[0]
    ]
    control.fabric = standing()
    control.tick(60)
    assert control.live() == {}
    assert control.pages() == [page]


@pytest.mark.parametrize(
    ("apart_s", "pages"), [(31, "port-down h1/rail0"), (30, "switch-down leaf0")]
)
def test_ports_that_go_down_one_after_the_other_are_no_dead_switch(
    control: Control, apart_s: int, pages: str
) -> None:
    """Although no port at it is up, and it loses all that is sent there."""
    control.homes = {f"h{number}/rail0": f"leaf{number // 2}" for number in range(4)}
    others = tuple(port(nic) for nic in control.homes)[2:]
    first = port("h0/rail0", state="no-peer", last_flap_ns=T0)
    control.store.links.seen = (first, port("h1/rail0"), *others)
    control.tick(10)
    assert control.pages() == ["port-down h0/rail0"]
    lost = port("h1/rail0", state="no-peer", last_flap_ns=T0 + apart_s * S)
    control.store.links.seen = (first, lost, *others)
    control.findings = (finding("leaf0", "leaf", fault="blackhole", loss=1.0),)
    control.tick(10)
    assert control.pages() == ["port-down h0/rail0", pages]
    if pages.startswith("port"):
        found = next(each for each in control.live_incidents() if each["subject"] == "h1/rail0")
        assert "h1/rail0, its cable or leaf0 is down" in " ".join(found["evidence"])


def test_a_dead_switch_is_known_although_one_of_its_ports_was_down_before(control: Control) -> None:
    control.homes = dict.fromkeys(("h0/rail0", "h1/rail0", "h2/rail0"), "leaf0")
    control.store.links.seen = (
        port("h0/rail0", state="no-peer", last_flap_ns=T0 - 3000 * S),
        port("h1/rail0", state="no-peer", last_flap_ns=T0),
        port("h2/rail0", state="no-peer", last_flap_ns=T0 + 20 * S),
    )
    control.tick(10)
    assert control.pages() == ["switch-down leaf0"]


def test_a_switch_or_its_cables_are_named_with_their_probabilities() -> None:
    suspects = ("leaf0--spine1", "leaf1--spine1", "spine1")
    (found,) = of_switches((), {}, {" or ".join(suspects): 2}, frozenset(), 0)
    assert found.evidence == (
        "no path that took it takes it any more",
        "cables at it that no path takes any more: 2",
        "spine1 58%, leaf0--spine1 21%, leaf1--spine1 21%",
        APART,
    )
    (found,) = of_switches((), {}, {"spine1": 3}, frozenset(), 0)
    assert found.evidence[2:] == (
        "spine1 is down, or all but one of its cables are lost: both look the same",
    )
    (found,) = of_switches((), {}, {"spine1": 0}, frozenset(), 0)
    assert len(found.evidence) == 1
