"""Which faults share a page in a fabric, by the rules that come with Syntony: what explains what,
and what is said again of a fault that was paged for."""

from __future__ import annotations

import random

import pytest
from tests.alerts.clos import Night, bad

from syntony.alerts.incidents import ChangeKind
from syntony.alerts.observations import Observation

DEAD_LEAF0, DEAD_LEAF1 = bad("switch-down", "leaf0"), bad("switch-down", "leaf1")


def silent(*hosts: str, **fields: object) -> Observation:
    return bad("silent-together", ", ".join(hosts), members=hosts, **fields)


def nic_loss(nic: str, **fields: object) -> Observation:
    return bad("nic-loss", nic, **fields)


def by_nics(*hosts: str) -> Observation:
    """Hosts that fell silent together, each of which reports over a NIC of the fabric."""
    return silent(*hosts, via=tuple(f"{host}/rail0" for host in hosts))


# --- two rules, one part ---


@pytest.mark.parametrize("trial", range(4))
def test_losses_at_a_nic_and_at_its_link_are_one_page_however_they_come_and_go(trial: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng, night = random.Random(seed), Night()
    link = rng.choice(["h0/rail0->leaf0", "leaf0->h0/rail0", "h0/rail0--leaf0"])
    both = nic_loss("h0/rail0"), bad("link-loss", link)
    for _ in range(10):
        night.run(rng.choice([2, 4, 10]), *rng.sample(both, rng.choice([0, 1, 1, 2])))
    night.run(10, *both)
    assert len(night.said(ChangeKind.PAGE)) == 1


def test_a_worse_loss_at_the_link_of_a_nic_that_paged_pages() -> None:
    night = Night()
    mild = nic_loss("h0/rail0", mild=True)
    link = "h0/rail0->leaf0"
    assert night.run(20, mild) == ["nic-loss h0/rail0"]
    assert night.run(20, mild, bad("link-loss", link)) == [f"link-loss {link}"]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (nic_loss("h0/rail0"), bad("ambiguous-loss", "h0/rail0 or h1/rail0")),
        (bad("ambiguous-loss", "h0/rail0 or h1/rail0"), nic_loss("h0/rail0")),
        (bad("ambiguous-loss", "h0/rail0--leaf0 or leaf0"), nic_loss("h0/rail0")),
    ],
)
def test_one_of_two_suspects_is_not_the_same_part(one: Observation, two: Observation) -> None:
    """Each loses packets while the other does."""
    night = Night()
    assert len(night.run(20, one)) == 1
    assert len(night.run(20, one, two)) == 1


def test_losses_at_the_links_of_two_nics_are_two_pages() -> None:
    night = Night()
    both = nic_loss("h0/rail0"), bad("link-loss", "h1/rail0->leaf0")
    assert len(night.run(20, *both)) == 2


# --- several hosts at once ---


@pytest.mark.parametrize(
    ("hosts", "dead", "pages"),
    [
        (("h0", "h1"), [DEAD_LEAF0], 1),
        (("h0", "h1", "h2"), [DEAD_LEAF0], 2),
        (("h0", "h1", "h2", "h3"), [DEAD_LEAF0, DEAD_LEAF1], 2),
        (("h0", "h1", "h2", "h3", "h4"), [DEAD_LEAF0, DEAD_LEAF1], 3),
    ],
)
def test_a_silence_is_evidence_if_dead_leaves_explain_all_of_its_hosts(
    hosts: tuple[str, ...], dead: list[Observation], pages: int
) -> None:
    night = Night()
    found = night.run(30, *dead, silent(*hosts))
    assert len(found) == pages
    assert night.find("silent-together").pages == pages - len(dead)


@pytest.mark.parametrize(
    ("hosts", "pages"), [(("h0", "h2"), []), (("h0", "h2", "h4"), ["silent-together h0, h2, h4"])]
)
def test_pages_for_every_nic_that_silent_hosts_report_over_are_enough(
    hosts: tuple[str, ...], pages: list[str]
) -> None:
    night = Night()
    lost = nic_loss("h0/rail0"), nic_loss("h2/rail0")
    assert night.run(20, *lost) == ["nic-loss h0/rail0", "nic-loss h2/rail0"]
    assert night.run(20, *lost, by_nics(*hosts)) == pages


def test_a_page_of_one_nic_is_not_one_of_two_hosts() -> None:
    night = Night()
    night.run(20, nic_loss("h0/rail0"))
    both = nic_loss("h0/rail0"), by_nics("h0", "h1")
    assert night.run(20, *both) == ["silent-together h0, h1"]


def test_a_warning_of_a_nic_is_too_little_for_silent_hosts() -> None:
    night = Night()
    lost = nic_loss("h0/rail0"), nic_loss("h2/rail0", mild=True)
    night.run(20, *lost)
    assert night.run(20, *lost, by_nics("h0", "h2")) == ["silent-together h0, h2"]


def test_a_silence_that_paged_stays_the_page_when_all_of_its_nics_are_known() -> None:
    night = Night()
    hosts = by_nics("h0", "h2")
    assert night.run(10, hosts) == ["silent-together h0, h2"]
    assert night.run(20, hosts, nic_loss("h0/rail0"), nic_loss("h2/rail0")) == []
    assert night.find("silent-together").cause == 0
    assert night.run(20, hosts, nic_loss("h1/rail0")) == ["nic-loss h1/rail0"], "another host's"


@pytest.mark.parametrize(
    ("leaves", "pages"),
    [((0, 1), []), ((0, 1, 2), ["switch-down leaf2"])],
)
def test_dead_leaves_join_the_page_of_a_fleet_that_reports_over_them(
    leaves: tuple[int, ...], pages: list[str]
) -> None:
    night = Night()
    fleet = bad(
        "fleet-silent", "all agents", members=("h0", "h1", "h2", "h3"),
        via=("h0/rail0", "h1/rail0", "h2/rail0", "h3/rail0", "leaf0", "leaf1"),
    )  # fmt: skip
    assert night.run(10, fleet) == ["fleet-silent all agents"]
    dead = [bad("switch-down", f"leaf{leaf}") for leaf in leaves]
    assert night.run(20, fleet, *dead) == pages
    assert night.find("fleet-silent").cause == 0
    assert night.run(20, *dead) == []
    night.run(120)
    assert night.live() == set()


def test_a_leaf_or_its_hosts_joins_the_page_of_a_fleet_that_reports_over_it() -> None:
    night = Night()
    fleet = bad("fleet-silent", "all agents", members=("h0", "h1"), via=("leaf0",))
    either = bad("switch-or-hosts", "hosts at leaf0 or leaf0")
    assert night.run(10, fleet) == ["fleet-silent all agents"]
    assert night.run(20, fleet, either) == []
    assert night.cause("switch-or-hosts") == "fleet-silent"
    assert night.find("fleet-silent").cause == 0


# --- proof of what was paged for ---


@pytest.mark.parametrize("mild", [False, True])
def test_a_silence_over_a_nic_that_was_paged_for_is_evidence_of_it(mild: bool) -> None:
    night = Night()
    lost, host = nic_loss("h0/rail0", mild=mild), bad("host-silent", "h0", via=("h0/rail0",))
    assert night.run(20, lost) == ["nic-loss h0/rail0"]
    assert night.run(20, lost, host) == (["host-silent h0"] if mild else [])
    if not mild:
        assert night.cause("host-silent") == "nic-loss"
        assert night.find("nic-loss").summary.startswith("h0/rail0: loses"), "a silence is no name"
        assert night.run(60, host) == []
        assert night.find("nic-loss").live, "it stays open with what continues it"
        night.run(60)
        assert night.said("clear") == ["nic-loss h0/rail0"]


def test_a_silence_over_another_nic_is_not() -> None:
    night = Night()
    lost = nic_loss("h5/rail0")
    night.run(20, lost)
    assert night.run(20, lost, bad("host-silent", "h5", via=("h5/rail1",))) == ["host-silent h5"]


@pytest.mark.parametrize(("host", "pages"), [("h0", []), ("h5", ["port-down h5/rail0"])])
def test_a_port_is_all_of_a_host_that_has_no_other(host: str, pages: list[str]) -> None:
    """Where it is known to be down only after the host reports again."""
    night = Night()
    assert night.run(10, bad("host-silent", host)) == [f"host-silent {host}"]
    assert night.run(40, bad("port-down", f"{host}/rail0")) == pages


@pytest.mark.parametrize(
    ("before", "again"),
    [
        (bad("switch-loss", "leaf0"), False),
        (bad("switch-loss", "leaf0", mild=True), True),
        (bad("ambiguous-loss", "leaf0 or spine0"), False),
        (bad("link-loss", "leaf0->spine0"), True),
        (bad("switch-loss", "leaf1"), True),
    ],
)
def test_a_dead_switch_pages_unless_a_page_as_severe_named_it(
    before: Observation, again: bool
) -> None:
    night = Night()
    (first,) = night.run(20, before)
    assert night.run(20, before, DEAD_LEAF0) == (["switch-down leaf0"] if again else [])
    summary = night.find(first.partition(" ")[0]).summary
    assert summary.startswith("leaf0: down") != again, "the page says what is known now"
    night.run(200)
    assert night.live() == set()


@pytest.mark.parametrize("silent_first", [True, False])
@pytest.mark.parametrize(
    "before",
    [
        nic_loss("h0/rail0"),
        bad("link-loss", "leaf0->h0/rail0"),
        bad("ambiguous-loss", "h0/rail0->leaf0 or leaf0->h0/rail0"),
    ],
)
def test_a_port_that_flaps_while_it_loses_packets_is_one_page(
    before: Observation, silent_first: bool
) -> None:
    """Also if its host is silent meanwhile. Flaps are counted for an hour; the page ends before,
    and what begins later is another fault."""
    night = Night()
    flaps, host = bad("link-flapping", "h0/rail0"), bad("host-silent", "h0", via=("h0/rail0",))
    assert len(night.run(20, before)) == 1
    assert night.run(20, before, host if silent_first else flaps) == []
    assert night.run(20, before, flaps, host) == []
    assert night.run(120, flaps) == []
    assert len(night.said("clear")) == 1
    assert night.run(20, flaps, host) == ["host-silent h0"]
    assert night.run(20, flaps) == []
    assert night.run(20, flaps._replace(value=20.0)) == ["link-flapping h0/rail0"]


def test_flaps_of_a_port_are_a_page_beside_the_warning_of_its_loss() -> None:
    night = Night()
    loss = nic_loss("h0/rail0", mild=True)
    night.run(20, loss)
    assert night.run(20, loss, bad("link-flapping", "h0/rail0")) == ["link-flapping h0/rail0"]


@pytest.mark.parametrize("other", ["leaf0--spine0", "spine1"])
@pytest.mark.parametrize("exact_first", [True, False])
def test_a_dead_switch_that_is_known_less_exactly_for_a_while_is_one_page(
    other: str, exact_first: bool
) -> None:
    night = Night()
    names = ["spine0", f"spine0 or {other}"]
    one, two = (bad("switch-down", name) for name in (names if exact_first else names[::-1]))
    assert night.run(20, one) == [f"switch-down {one.subject}"]
    assert night.run(60, two) == night.run(60, one) == []
    night.run(60)
    assert night.said("clear") == [f"switch-down {one.subject}"]


def test_a_page_that_takes_a_better_name_says_once_which_jobs_it_hurts() -> None:
    night, pair = Night(), "h0/rail0->h2/rail0"
    either = bad("ambiguous-loss", "leaf0->spine1 or spine1->leaf0")
    night.run(10, either, bad("job-slow-network", pair, jobs=("a",)))
    night.run(30, bad("link-loss", "leaf0->spine1"), bad("job-slow-network", pair, jobs=("a", "b")))
    assert night.find("ambiguous-loss").evidence == (f"hurts a, b: job-slow-network {pair}",)


# --- groups and their parts ---

GROUP, PART = "leaf0..leaf1", "leaf0->spine1"


@pytest.mark.parametrize("first", [GROUP, PART])
def test_a_group_and_its_part_are_one_page_whichever_is_first(first: str) -> None:
    night = Night()
    seen = {
        GROUP: bad("ambiguous-loss", GROUP),
        PART: bad("link-loss", PART),
    }
    assert len(night.run(20, seen[first])) == 1
    assert night.run(30, *seen.values()) == []
    assert night.said("page") == [f"{'ambiguous' if first == GROUP else 'link'}-loss {first}"]


@pytest.mark.parametrize("part_first", [False, True])
def test_of_a_group_and_its_part_that_are_due_together_the_part_pages(part_first: bool) -> None:
    night = Night()
    seen = [bad("ambiguous-loss", GROUP), bad("link-loss", PART)]
    assert night.run(40, *(seen[::-1] if part_first else seen)) == [f"link-loss {PART}"]


def test_a_critical_part_pages_beside_the_warning_of_its_group() -> None:
    night = Night()
    group, part = bad("ambiguous-loss", GROUP, mild=True), bad("link-loss", PART)
    assert night.run(20, group) == [f"ambiguous-loss {GROUP}"]
    assert night.run(20, group, part) == [f"link-loss {PART}"]
    assert night.run(60, group, part) == []


@pytest.mark.parametrize("measured_apart", ["link_loss", "ambiguous_loss"])
def test_a_part_that_was_measured_apart_from_its_group_is_another_fault(
    measured_apart: str,
) -> None:
    """Whichever of the two says so."""
    night = Night()
    apart = frozenset({measured_apart})
    group, part = bad("ambiguous-loss", GROUP), bad("link-loss", PART)
    if measured_apart == "ambiguous_loss":
        part = part._replace(apart_from=apart)
    else:
        group = group._replace(apart_from=apart)
    night.run(20, group)
    assert night.run(20, group, part) == [f"link-loss {PART}"]


def test_a_part_elsewhere_is_another_fault() -> None:
    night = Night()
    group, part = bad("ambiguous-loss", GROUP), bad("link-loss", "leaf2->spine1")
    night.run(20, group)
    assert night.run(20, group, part) == ["link-loss leaf2->spine1"]


# --- the same fault by another name ---


def test_a_loss_goes_on_under_the_name_that_was_paged_for_until_both_are_over() -> None:
    night = Night()
    one, other = bad("link-loss", "leaf0->spine1"), bad("ambiguous-loss", "leaf0->spine1 or spine1")
    night.run(20, one)
    assert night.run(90, other) == []
    assert night.live() == {"link-loss", "ambiguous-loss"}
    assert night.run(90, one) == []
    assert "link-loss" in night.live()
    night.run(90)
    assert night.live() == set()
    assert night.said("clear") == ["link-loss leaf0->spine1"]


def test_two_losses_at_a_time_that_are_no_groups_are_two_pages() -> None:
    night = Night()
    one, other = bad("link-loss", "leaf0->spine1"), bad("ambiguous-loss", "leaf0->spine0 or spine0")
    night.run(20, one)
    assert night.run(20, one, other) == ["ambiguous-loss leaf0->spine0 or spine0"]


def test_a_dead_part_of_a_switch_that_loses_a_little_pages() -> None:
    """A warning for working hours is no reason to leave a port that is down until then."""
    night = Night()
    little = bad("switch-loss", "leaf0", mild=True)
    assert night.run(20, little) == ["switch-loss leaf0"]
    assert night.run(20, little, bad("port-down", "h0/rail0")) == ["port-down h0/rail0"]
    # What is known of the switch now is as severe.
    night.run(20, bad("switch-loss", "leaf0"), bad("port-down", "h0/rail0"))
    assert night.cause("port-down") == "switch-loss"
