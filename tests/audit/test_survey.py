"""Surveys of large fleets, with the conductor itself and simulated hosts."""

from __future__ import annotations

import math

import pytest
from tests.audit.simulated import Fleet

from syntony.audit.reach import HostNic
from syntony.audit.reach_judge import judge
from syntony.audit.reach_plan import CROSS_HOSTS_SAMPLED, SurveyPlan
from syntony.audit.result import Result, Status
from syntony.io.audit.survey import SurveyOptions, conduct
from syntony.model.names import host_of

HOSTS, RAILS, PORTS = 256, 2, 4
USUAL = SurveyOptions(ports=PORTS)


def survey(fleet: Fleet, requested: SurveyOptions = USUAL) -> tuple[int, tuple[Result, ...]]:
    """Its rounds and what is wrong."""
    seen = conduct(fleet.hosts, {}, requested, lambda _: None)
    bad = {Status.FAIL, Status.WARN, Status.UNKNOWN}
    return seen.rounds, tuple(each for each in judge(seen) if each.status in bad)


def test_one_bad_nic_of_a_large_fleet_is_named_in_few_rounds() -> None:
    def passes(src: HostNic, dst: HostNic, _port: int, _size: int) -> bool:
        return "h77/rail1" not in {str(src), str(dst)}

    fleet = Fleet(HOSTS, RAILS, passes)
    rounds, bad = survey(fleet)
    assert [(each.check, each.subject) for each in bad] == [("be.conn.rail", "h77/rail1")]
    log = math.ceil(math.log2(HOSTS))
    assert log < rounds <= log + 2  # suspects were tested again, with hosts known good
    # N log N requests, not N²: nothing a host is asked grows with the fleet but its logarithm.
    rails = RAILS * (log + 2) + CROSS_HOSTS_SAMPLED * RAILS**2
    assert fleet.largest <= rails


def test_a_good_large_fleet_takes_the_planned_rounds_and_no_more() -> None:
    rounds, bad = survey(Fleet(HOSTS, RAILS))
    assert not bad
    assert rounds == math.ceil(math.log2(HOSTS))


def test_a_small_mtu_in_a_large_fleet_is_named() -> None:
    def passes(src: HostNic, dst: HostNic, _port: int, size: int) -> bool:
        return size < 1500 or "h200/rail0" not in {str(src), str(dst)}

    _, bad = survey(Fleet(HOSTS, RAILS, passes))
    assert [(each.check, each.subject) for each in bad] == [("be.conn.mtu", "h200/rail0")]


def test_a_number_of_rounds_can_be_asked_for() -> None:
    assert survey(Fleet(40, 1), SurveyOptions(ports=PORTS, rounds=3))[0] == 3
    assert survey(Fleet(40, 1), SurveyOptions(ports=PORTS, rounds=500))[0] == 39
    assert survey(Fleet(40, 1))[0] == 39


def test_a_filter_for_all_is_one_verdict() -> None:
    _, bad = survey(Fleet(80, RAILS, lambda *_: False))
    (said,) = [each for each in bad if each.status is Status.FAIL]
    assert (said.check, said.subject, said.got) == (
        "be.conn.rail", "fleet", "no NIC answers another"
    )  # fmt: skip


def test_rails_that_are_separate_everywhere_are_right_and_one_that_is_not_is_named() -> None:
    def rail_only(src: HostNic, dst: HostNic, _port: int, _size: int) -> bool:
        leaks = {src.host, dst.host} & {"h9"}
        return src.name == dst.name or bool(leaks)

    _, bad = survey(Fleet(24, RAILS, lambda src, dst, *_: src.name == dst.name))
    assert not bad
    _, bad = survey(Fleet(24, RAILS, rail_only))
    assert {each.subject for each in bad} == {"h9/rail0", "h9/rail1"}
    assert {each.check for each in bad} == {"be.conn.cross"}


def test_what_a_spec_says_of_rails_counts() -> None:
    from syntony.audit.checks.network import CrossRails

    seen = conduct(Fleet(8, RAILS).hosts, {}, SurveyOptions(ports=2), lambda _: None)
    separate = {CrossRails.id: CrossRails.Input(rails="separate")}
    (bad,) = [r for r in judge(seen, limits=separate) if r.status is Status.FAIL]
    assert (bad.check, bad.subject, bad.got, bad.expected) == (
        "be.conn.cross", "fleet", "rails are joined", "rails are separate"
    )  # fmt: skip


def test_a_host_that_falls_silent_is_unknown_and_blames_nobody() -> None:
    fleet = Fleet(12, RAILS, mute=frozenset({"h4"}))
    _, bad = survey(fleet)
    assert [(each.check, each.subject, each.status.value) for each in bad] == [
        ("be.conn.rail", "h4", "unknown")
    ]
    assert "the program ended" in bad[0].evidence


@pytest.mark.parametrize("hosts", [0, 1, 2, 3, 65])
def test_every_host_has_one_partner_a_round(hosts: int) -> None:
    nics = [HostNic(f"h{n}", "rail0", f"10.0.0.{n}", 1500) for n in range(hosts)]
    course = SurveyPlan(nics)
    asking = course.next_turn()
    legs = [leg for host in asking for leg in course.legs(host)]
    assert len({(leg.src, leg.dst) for leg in legs}) == len(legs)
    assert all(leg.src != leg.dst for leg in legs)
    if 2 <= hosts <= 64:
        assert len(legs) == hosts * (hosts - 1)
    course.report([])
    assert course.next_turn() == []


@pytest.mark.parametrize(
    ("hosts", "requested"), [(2, 1), (5, 4), (9, 8), (40, 8), (64, 8), (65, 2)]
)
def test_a_nic_asks_other_rails_of_a_majority_of_peers_and_of_no_more(
    hosts: int, requested: int
) -> None:
    """However large the fleet, so that this part of a survey does not grow with it."""
    nics = [HostNic(f"h{h}", f"rail{r}", f"10.{r}.0.{h}", 9000)
            for h in range(hosts) for r in range(3)]  # fmt: skip
    course = SurveyPlan(nics)
    for host in course.next_turn():
        across = [leg for leg in course.legs(host) if leg.src == f"{host}/rail1"
                  and not leg.dst.endswith("rail1")]  # fmt: skip
        assert len({host_of(leg.dst) for leg in across}) == requested
        assert len({leg.dst for leg in across}) == len(across) == 2 * requested
        assert f"{host}/" not in "".join(leg.dst for leg in across)
