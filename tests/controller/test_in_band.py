"""Hosts whose only way to the controller is the fabric: what dies there also silences them."""

from __future__ import annotations

import pytest
from tests.controller.judged import Control, finding, port

from syntony.model import S
from syntony.model.findings import Finding

PER_LEAF = 3


def _fleet(control: Control, leaves: int) -> list[str]:
    hosts = [f"h{number}" for number in range(PER_LEAF * leaves)]
    control.homes = {
        f"{host}/rail0": f"leaf{number // PER_LEAF}" for number, host in enumerate(hosts)
    }
    control.silent = dict.fromkeys(hosts, 0)
    control.answering = frozenset(hosts)
    control.store.links.seen = tuple(map(port, control.homes))
    control.tick(3)
    return hosts


def _nothing_from(leaf: str) -> Finding:
    return finding(
        leaf, "leaf", fault="blackhole", loss=1.0, confidence=0.5, twins=1,
        alternatives=(f"hosts at {leaf}",), probabilities=(0.5,),
    )  # fmt: skip


@pytest.mark.parametrize("leaves", [3, 5])
def test_leaves_that_die_at_once_are_a_page_each_and_the_silence_is_none(
    control: Control, leaves: int
) -> None:
    """Of three leaves two silence most of the fleet, of five some hosts together."""
    hosts = _fleet(control, leaves)
    cut = hosts[: 2 * PER_LEAF]
    control.answering = frozenset(hosts) - {*cut}
    for second in range(4, 40, 2):
        control.silent |= dict.fromkeys(cut, second * S)
        control.findings = (_nothing_from("leaf0"), _nothing_from("leaf1"))
        control.tick()
    named = "switch-or-hosts hosts at {0} or {0}"
    assert sorted(control.pages()) == [named.format("leaf0"), named.format("leaf1")]
    by_rule = {each["rule"]: each for each in control.live_incidents()}
    silence = by_rule["fleet-silent" if leaves == 3 else "silent-together"]
    assert silence["cause"] in {each["number"] for each in by_rule.values()}


def test_a_host_elsewhere_that_falls_silent_with_two_leaves_is_a_page(control: Control) -> None:
    hosts = _fleet(control, 5)
    cut = [*hosts[: 2 * PER_LEAF], hosts[-1]]
    control.answering = frozenset(hosts) - {*cut}
    for second in range(4, 40, 2):
        control.silent |= dict.fromkeys(cut, second * S)
        control.findings = (_nothing_from("leaf0"), _nothing_from("leaf1"))
        control.tick()
    assert any(each.startswith("silent-together") for each in control.pages())


@pytest.mark.parametrize("back_after_s", [16, 30])
@pytest.mark.parametrize("rails", [1, 2])
def test_a_hosts_only_nic_that_dies_is_one_page(
    control: Control, rails: int, back_after_s: int
) -> None:
    """Its host is silent; then it is back by another network, and its port is down."""
    hosts = _fleet(control, 2)
    if rails == 2:
        control.homes |= {f"{host}/rail1": "leaf9" for host in hosts}
        control.store.links.seen = tuple(map(port, control.homes))
    up = control.store.links.seen
    down = tuple(
        port(each.nic, state="no-peer" if each.nic == "h0/rail0" else "active") for each in up
    )
    control.answering = frozenset(hosts[1:])
    for second in range(2, back_after_s, 2):
        control.silent["h0"] = second * S
        control.tick()
    assert control.pages() == ["host-silent h0"]
    control.silent["h0"] = 0
    control.store.links.seen = down
    control.tick(20)
    if rails == 2:
        assert control.pages() == ["host-silent h0", "port-down h0/rail0"], "a host has two NICs"
        return
    assert control.pages() == ["host-silent h0"]
    (paged,) = (each for each in control.live_incidents() if not each["cause"])
    assert paged["summary"] == "h0/rail0: a compute port is down"
    assert "h0: no report from its agent" in paged["former_words"][0]
    control.store.links.seen = up
    control.answering = frozenset(hosts)
    control.tick(20)
    assert control.live() == {}
    assert control.pages() == ["host-silent h0"]
