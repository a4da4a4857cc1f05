"""From where on a difference of UDP and verbs is a disagreement: both sides of each limit."""

from __future__ import annotations

import pytest

from syntony.mesh.planes import (
    Absence,
    Disagreement,
    DisagreementKind,
    Place,
    absences,
    disagreements,
    without_rdma,
)
from syntony.model import US
from syntony.model.sla import Latency
from syntony.wire.probes import Plane

PLACE = ("a/0", "b/0", 0)


def seen(sent: int, lost: int = 0, p50_ns: int | None = None, measured: int = 0) -> Latency:
    return Latency(
        sent=sent, lost=lost, measured=measured, p50_ns=p50_ns, p90_ns=p50_ns, p99_ns=p50_ns
    )


def losses(udp: tuple[int, int], verbs: tuple[int, int]) -> tuple[Disagreement, ...]:
    """Of probes and of those that were lost, over each plane."""
    return disagreements({PLACE: seen(*udp)}, {PLACE: seen(*verbs)})


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("few", "many", "found"),
    [
        ((100, 0), (100, 50), True),
        ((99, 0), (1_000, 500), False),
        # Of 20,000 probes a hundredth, whatever both lose.
        ((20_000, 0), (20_000, 200), True),
        ((20_000, 0), (20_000, 199), False),
        ((2_000_000, 1_000_000), (2_000_000, 1_019_000), False),
        ((2_000_000, 1_000_000), (2_000_000, 1_020_000), True),
        # By chance, once in 100,000 times.
        ((200, 0), (200, 18), False),
        ((200, 0), (200, 19), True),
        ((200, 200), (200, 182), False),
        ((200, 200), (200, 181), True),
        ((400, 0), (100, 8), False),
        ((400, 0), (100, 9), True),
    ],
)
def test_a_loss_is_one_of_a_plane_from_there_on(
    few: tuple[int, int], many: tuple[int, int], found: bool, turned: bool
) -> None:
    assert bool(losses(many, few) if turned else losses(few, many)) == found


def test_a_loss_says_the_shares_and_the_largest_difference_is_first() -> None:
    small, large = ("a/0", "c/0", 0), ("a/0", "d/0", 0)
    udp = {small: seen(1_000, 100), large: seen(1_000, 900)}
    verbs = {small: seen(1_000, 300), large: seen(1_000, 100)}
    assert disagreements(udp, verbs) == (
        Disagreement(DisagreementKind.LOSS, *large, 0.9, 0.1),
        Disagreement(DisagreementKind.LOSS, *small, 0.1, 0.3),
    )


def delays(*excess_us: float, probes: int = 100, dscp: int = 0) -> dict[Place, Latency]:
    """Delays over verbs of pairs that have 100 µs over UDP."""
    return {
        (f"h{number}/0", "b/0", dscp): seen(
            probes, p50_ns=round((100 + each) * US), measured=probes
        )
        for number, each in enumerate(excess_us)
    }


def udp(pairs: int, probes: int = 100) -> dict[Place, Latency]:
    return delays(*[0] * pairs, probes=probes)


@pytest.mark.parametrize(
    ("excess_us", "found"),
    [
        ((0, 0, 0, 0, 50), [50]),
        ((0, 0, 0, 0, 49.9), []),
        ((80, 80, 80, 80, 30), [-50]),
        ((0, 0, 0, 50), [50]),
        ((0, 0, 50), []),
        # A class that varies: six median deviations, of 10 µs.
        ((-10, 10, -10, 10, 0, 0, 60), [60]),
        ((-10, 10, -10, 10, 0, 0, 59), []),
    ],
)
def test_a_delay_is_odd_among_those_of_its_class(
    excess_us: tuple[float, ...], found: list[float]
) -> None:
    reported = disagreements(udp(len(excess_us)), delays(*excess_us))
    assert {each.what for each in reported} <= {DisagreementKind.DELAY}
    assert [(each.verbs - each.udp - each.usual_ns) / US for each in reported] == found


@pytest.mark.parametrize(("probes", "found"), [(99, False), (100, True)])
@pytest.mark.parametrize("few_over_verbs", [False, True])
def test_a_median_of_few_probes_is_none(probes: int, found: bool, few_over_verbs: bool) -> None:
    plain = udp(5, 500 if few_over_verbs else probes)
    over = delays(0, 0, 0, 0, 90, probes=probes if few_over_verbs else 500)
    assert bool(disagreements(plain, over)) == found


@pytest.mark.parametrize(("excess_us", "found"), [(49, False), (50, True)])
def test_a_class_is_late_against_the_least_late_one(excess_us: int, found: bool) -> None:
    over = delays(10, 10, 10, 10) | delays(*[10 + excess_us] * 4, dscp=26)
    late = disagreements(udp(4), over)
    assert [(each.what, each.src, each.dst, each.dscp) for each in late] == (
        [(DisagreementKind.CLASS, "", "", 26)] if found else []
    )
    if found:
        assert (late[0].udp, late[0].verbs, late[0].usual_ns) == (100 * US, 160 * US, 10 * US)


def test_the_latest_is_first() -> None:
    reported = disagreements(udp(6), delays(0, 0, 0, 0, 70, -90))
    assert [each.verbs - each.udp for each in reported] == [-90 * US, 70 * US]


# --- planes that are absent ---


@pytest.mark.parametrize(
    ("over_udp", "over_verbs", "absent"),
    [
        (100, 0, Plane.VERBS), (99, 0, None), (100, 1, None),
        (0, 100, Plane.UDP), (0, 99, None), (1, 100, None), (0, 0, None),
    ],
)  # fmt: skip
def test_a_plane_is_absent_if_the_other_one_alone_is_probed(
    over_udp: int, over_verbs: int, absent: Plane | None
) -> None:
    found = absences([PLACE], {PLACE: seen(over_udp)}, {PLACE: seen(over_verbs)})
    sent = max(over_udp, over_verbs)
    assert found == (() if absent is None else (Absence(PLACE, absent, sent),))


def test_what_was_not_planned_over_both_is_absent_nowhere() -> None:
    assert absences([], {PLACE: seen(500)}, {}) == ()
    assert absences([PLACE], {PLACE: seen(500)}, {}) == (Absence(PLACE, Plane.VERBS, 500),)


def test_of_a_class_that_udp_does_not_probe_its_class_0_counts() -> None:
    place = (*PLACE[:2], 26)
    assert absences([place], {PLACE: seen(500)}, {}) == (Absence(place, Plane.VERBS, 500),)
    assert absences([place], {PLACE: seen(500)}, {place: seen(500)}) == ()


@pytest.mark.parametrize(
    ("having", "lacking", "found"),
    [(3, 2, True), (3, 3, False), (2, 1, False), (3, 1, True), (4, 3, True), (4, 0, False)],
)
def test_a_nic_lacks_an_rdma_port_where_most_of_its_rail_have_one(
    having: int, lacking: int, found: bool
) -> None:
    rail = [(f"h{number}/0", 0, "roce") for number in range(having)]
    rail += [(f"x{number}/0", 0, "") for number in range(lacking)]
    other = [(f"h{number}/1", 1, "") for number in range(9)]
    expected = {name: (having, having + lacking) for name, _, layer in rail if found and not layer}
    assert without_rdma([*rail, *other]) == expected
