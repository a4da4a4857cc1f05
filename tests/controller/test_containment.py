"""What may hold what, found by roots: nothing that holds is overlooked.

Names, learnt paths and homes are drawn, and the seed is printed; compared with are
`PathContainment.holds` and a book that compares all incidents with all.
"""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest
from tests.controller.judged import CROSSING

from syntony.alerts import causes
from syntony.alerts.incident_book import Book
from syntony.alerts.incidents import Incident
from syntony.alerts.observations import Observation, measured
from syntony.alerts.rules import Rule
from syntony.controller.containment import FLEET, NameContainment, PathContainment
from syntony.fabric.names import hosts_at, replies_name
from syntony.model import S
from syntony.model.names import host_of

T0 = 1_000 * S


def fabric(rng: random.Random) -> PathContainment:
    hosts = [f"h{number}" for number in range(5)]
    nics = [f"{host}/rail{rail}" for host in hosts for rail in range(rng.randint(1, 2))]
    homes = {nic: f"leaf{rng.randrange(3)}" for nic in nics if rng.random() < 0.8}
    crossing = {
        f"{a}->{b}": frozenset(
            {a, b, f"{a}->leaf0", "leaf0", f"leaf{rng.randrange(3)}->spine{rng.randrange(2)}"}
            | {f"spine{rng.randrange(2)}", f"leaf{rng.randrange(3)}..leaf{rng.randrange(3)}"}
        )
        for a, b in itertools.permutations(nics, 2)
        if rng.random() < 0.4
    }
    return PathContainment(crossing, homes)


def name(rng: random.Random) -> str:
    """Of one of the kinds of subjects that incidents have."""
    nic, other = (f"h{rng.randrange(5)}/rail{rng.randrange(2)}" for _ in range(2))
    leaf, spine = f"leaf{rng.randrange(3)}", f"spine{rng.randrange(2)}"
    ends = rng.choice(
        [
            (leaf, spine), (spine, leaf), (nic, leaf), (leaf, nic), (leaf, "*"), ("*", "*"),
            (nic, other), (leaf, f"leaf{rng.randrange(3)}"),
        ]
    )  # fmt: skip
    one = rng.choice(
        [
            nic, host_of(nic), leaf, spine, f"{nic}->{other}", f"{nic}<->{other}",
            *("->".join(ends), "--".join(sorted(ends)), "..".join(ends), replies_name(nic)),
            f"{leaf}/port1", FLEET, "job train", hosts_at(leaf),
        ]
    )  # fmt: skip
    return f"{one} or {name(rng)}" if rng.random() < 0.15 else one


def drawn() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


def test_whatever_holds_or_mirrors_shares_a_root() -> None:
    rng = drawn()
    held = included = 0
    for _ in range(20):
        places = fabric(rng)
        for _ in range(400):
            wider, narrower = name(rng), name(rng)
            touch = (places.holds, places.may_hold, places.mirrors, places.names)
            if wider == narrower or any(each(wider, narrower) for each in touch):
                held += 1
                assert places.roots(wider) & places.around(narrower), (wider, narrower)
            elif places.may_include(wider, narrower):
                included += 1
                found = places.roots(wider) & places.around(narrower)
                assert found or places.roots(narrower) & places.around(wider), (wider, narrower)
    assert held > 400
    assert included > 50


def rule(number: int, **settings: object) -> Rule:
    fields: dict[str, object] = {
        "name": f"r{number}", "metric": f"r{number}", "severity": "warning", "above": 0.5,
        "summary": "{subject}", "remedy": "mend it", "open_after": 1, "clear_after": 1,
        "stable": "0s", "wait": "2s",
    }  # fmt: skip
    return msgspec.convert(fields | settings, Rule)


RULES = (
    rule(0),
    rule(1, explained_by=("r0",), joins=("r2",), proven=True),
    rule(2, explained_by=("r1", "r0"), joins=("r1", "r2")),
    rule(3, explained_by=("r2", "r0"), counts=True),
)


def life(seed: int) -> list[list[Incident]]:
    """All incidents of a book after each evaluation of drawn subjects of a drawn fabric."""
    rng = random.Random(seed)
    places, book = fabric(rng), Book(RULES)
    subjects = [(rng.choice(RULES).metric, name(rng)) for _ in range(60)]
    after = []
    for second in range(8):
        seen = [
            Observation(
                metric, subject, float(rng.random() < 0.6), span_ns=rng.choice([0, 5]) * S,
                members=tuple(name(rng) for _ in range(rng.choice([0, 0, 0, 2]))),
            )
            for metric, subject in subjects
        ]  # fmt: skip
        book.evaluate(T0 + second * S, measured(seen, [each.metric for each in RULES]), places)
        after.append([msgspec.structs.replace(each) for each in book.incidents])
    return after


def test_causes_are_those_that_comparing_all_with_all_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds = [drawn().randrange(1 << 32) for _ in range(12)]
    found = [life(seed) for seed in seeds]
    assert sum(each.cause > 0 for after in found for each in after[-1]) > len(seeds)

    def every(
        self: causes.Related, incident: Incident, rule: str, since_ns: int = -1, **_: bool
    ) -> list[Incident]:
        others = (each for each in self._incidents if each.rule == rule)
        return [each for each in others if each is not incident and each.resolved_ns > since_ns]

    monkeypatch.setattr(causes.Related, "to", every)
    assert found == [life(seed) for seed in seeds]


def test_no_incident_explains_itself_by_way_of_others() -> None:
    for after in life(drawn().randrange(1 << 32)):
        causes_of = {each.number: each.cause for each in after if each.live}
        for number in causes_of:
            seen, at = set[int](), number
            while at := causes_of.get(at, 0):
                assert at not in seen, number
                seen.add(at)


def test_few_are_compared_where_thousands_are_ill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet whose every agent is an incident."""
    compared = 0
    holds = PathContainment.holds

    def counting(self: PathContainment, wider: str, narrower: str) -> bool:
        nonlocal compared
        compared += 1
        return holds(self, wider, narrower)

    monkeypatch.setattr(PathContainment, "holds", counting)
    book = Book(RULES)
    seen = [Observation("r0", f"h{number}", 1.0) for number in range(2_000)]
    seen += [Observation("r1", f"h{number}/rail0", 1.0) for number in range(2_000)]
    book.evaluate(T0, measured(seen, ["r0", "r1"]), PathContainment({}))
    assert sum(each.cause > 0 for each in book.incidents) == 2_000
    assert compared < 20_000


@pytest.mark.parametrize(
    ("wider", "narrower", "holds"),
    [
        ("h0", "h0/rail0", True), ("h0", "h01/rail0", False), ("spine1", "leaf0->spine1", True),
        ("spine1", "leaf0--spine1", True), ("spine1", "leaf0->spine11", False),
        ("h0", "h0/rail0->leaf0", True), ("h0/rail0", "h0/rail0->leaf0", True),
        ("h0", "h0", False), ("leaf0--spine1", "leaf0->spine1", True),
        ("leaf0--spine1", "spine1->leaf0", True), ("leaf0--spine1", "leaf0--spine1", False),
        ("leaf0->spine1", "leaf0--spine1", False),
        ("leaf0 or leaf1", "leaf0", True), ("leaf0", "leaf0 or leaf1", False),
        ("leaf0 or leaf1", "leaf1 or leaf0", True), ("leaf1 or leaf0", "leaf0 or leaf1", False),
        ("leaf0 or leaf1", "leaf1->spine0 or leaf0", True), ("leaf0 or leaf1", "leaf2", False),
        ("a..b or a..* or *..b", "b..a or b..* or *..a", True),
        ("b..a or b..* or *..a", "a..b or a..* or *..b", False),
        ("leaf0..*", "leaf0->spine0", True), ("leaf0..*", "leaf0--h0/rail0", False),
        ("*..leaf0", "h0/rail0->leaf0", False), ("h0/rail0..*", "h0/rail0->leaf0", True),
        ("leaf0..*", "leaf0..h2/rail0", True),
    ],
)  # fmt: skip
def test_what_contains_what(wider: str, narrower: str, holds: bool) -> None:
    assert NameContainment.holds(wider, narrower) is holds


@pytest.mark.parametrize(
    ("wider", "narrower", "holds"),
    [
        ("spine0", "h0/rail0->h2/rail0", True), ("spine0", "h0/rail0->h1/rail0", False),
        ("leaf0->spine0", "h0/rail0->h2/rail0", True),
        ("leaf0->spine0", "h2/rail0->h0/rail0", False),
        ("leaf0--spine0", "h2/rail0->h0/rail0", True), ("h0", "h0/rail0->h2/rail0", True),
        ("spine0", "h5/rail0->h6/rail0", False),
        ("h5/rail0", "h5", True), ("h6/rail0", "h6", False), ("leaf9", "h6", True),
        ("silent switch at leaf0, leaf1", "leaf0..leaf1", True),
        ("silent switch at leaf0, leaf1", "leaf0..* or *..leaf1", True),
        ("silent switch at leaf0, leaf1", "leaf2..*", True),
        ("silent switch at leaf0, leaf1", "leaf2..leaf3", False),
        ("silent switch at leaf0, leaf1", "leaf0", False),
        ("silent switch at leaf0, leaf1", "leaf0..leaf1 or leaf0->spine0", False),
    ],
)  # fmt: skip
def test_a_pair_suffers_with_what_its_paths_cross(wider: str, narrower: str, holds: bool) -> None:
    homes = {"h5/rail0": "leaf9", "h6/rail0": "leaf9", "h6/rail1": "leaf9"}
    assert PathContainment(CROSSING, homes).holds(wider, narrower) is holds


@pytest.mark.parametrize(
    ("wider", "narrower", "holds"),
    [
        ("hosts at leaf9 or leaf9", "h6", True), ("hosts at leaf9 or leaf9", "h6/rail0", True),
        ("hosts at leaf9", "h6/rail1", True), ("hosts at leaf9", "h5/rail0", False),
        ("hosts at leaf9 or leaf9", "leaf9->spine0", True), ("hosts at leaf9", "leaf9", False),
        ("leaf9", "h6", False),
    ],
)  # fmt: skip
def test_the_hosts_of_a_switch_are_those_with_a_nic_at_it(
    wider: str, narrower: str, holds: bool
) -> None:
    homes = {"h5/rail0": "leaf8", "h6/rail0": "leaf9", "h6/rail1": "leaf8"}
    assert PathContainment({}, homes).holds(wider, narrower) is holds


@pytest.mark.parametrize(
    ("page", "found", "named"),
    [
        ("leaf9", "leaf9", True), ("hosts at leaf9 or leaf9", "leaf9", True),
        ("leaf9", "leaf9 or spine0", False), ("leaf9->spine0", "leaf9--spine0", True),
        ("spine0->leaf9", "leaf9->spine0", True), ("leaf9->spine0", "leaf9", False),
        ("leaf9->h6/rail0", "h6/rail0", True), ("h6/rail0--leaf9 or leaf9", "h6/rail0", True),
        ("h6/rail0", "h6/rail1", False), ("h6/rail0", "h6", False),
        ("a or b or c", "c or a", True),
    ],
)  # fmt: skip
def test_which_pages_have_named_what_is_found(page: str, found: str, named: bool) -> None:
    assert PathContainment({}, {}).names(page, found) is named


@pytest.mark.parametrize(
    ("group", "part", "inside"),
    [
        # A switch next to an end, or a link of an end.
        ("leaf0..leaf1", "spine0", True), ("leaf1..leaf0", "spine0", True),
        ("leaf0..leaf1", "leaf0--spine1", True), ("leaf0..leaf1", "spine1->leaf1", True),
        ("leaf0..leaf1", "leaf2--spine0 or spine0", True), ("leaf0..*", "spine0", True),
        ("*..leaf1 or leaf0..* or leaf0..leaf1", "leaf0--spine0", True),
        # Elsewhere, at an end, or behind one.
        ("leaf0..leaf1", "spine9", False), ("leaf0..leaf1", "leaf2--spine0", False),
        ("leaf0..leaf1", "leaf0", False), ("leaf0..leaf1", "h0/rail0", False),
        ("leaf0..leaf1", "h0/rail0--leaf0", False), ("leaf0..*", "leaf0->h0/rail0", False),
        ("leaf0..leaf1", "h0", False),
        # Everything unknown: all but leaves and what is behind them.
        ("*..*", "spine0", True), ("*..*", "leaf0->spine0", True), ("*..*", "leaf0", False),
        ("*..*", "h0/rail0", False), ("*..*", "h0", False), ("*..*", "h0/rail0->leaf0", False),
        # Groups.
        ("*..*", "leaf0..*", True), ("leaf0..*", "*..*", False), ("leaf0..*", "leaf0..leaf1", True),
        ("leaf0..leaf1", "leaf1..leaf0", True), ("leaf0..leaf1", "leaf0..leaf2", False),
        ("leaf0..leaf1", "leaf0..*", False), ("leaf0..*", "leaf1..*", False),
        # Between NICs: also what is between their leaves.
        ("h0/rail0..h2/rail0", "h0/rail0->leaf0", True), ("h0/rail0..h2/rail0", "leaf0", True),
        ("h0/rail0..h2/rail0", "leaf0->spine0", True), ("h0/rail0..h2/rail0", "spine0", True),
        ("h0/rail0..h2/rail0", "leaf0..leaf1", True), ("h0/rail0..h2/rail0", "h0/rail0", False),
        # Not a group.
        ("spine0", "leaf0--spine0", False), ("spine0", "leaf0..leaf1", False),
    ],
)  # fmt: skip
def test_what_may_be_in_a_group(group: str, part: str, inside: bool) -> None:
    homes = {"h0/rail0": "leaf0", "h1/rail0": "leaf0", "h2/rail0": "leaf1"}
    assert PathContainment(CROSSING, homes).may_include(group, part) is inside


@pytest.mark.parametrize(
    ("subject", "parts"),
    [
        ("leaf9", {"leaf9"}), ("leaf8->leaf9", {"leaf8->leaf9", "leaf8", "leaf9"}),
        ("h6/rail0", {"h6/rail0", "leaf9"}), ("h6", {"h6"}),
        ("hosts at leaf9 or leaf9", {"hosts at leaf9", "leaf9"}),
        ("leaf9..*", {"leaf9..*", "leaf9", "*"}),
        ("h6/rail0<->h7/rail0", {"h6/rail0<->h7/rail0", "h6/rail0", "h7/rail0", "leaf9"}),
        ("gateway g1", {"gateway g1", "g1"}), ("job train", {"job train", "train"}),
    ],
)  # fmt: skip
def test_what_a_silence_of_a_part_covers(subject: str, parts: set[str]) -> None:
    assert PathContainment({}, {"h6/rail0": "leaf9"}).parts(subject) == parts


@pytest.mark.parametrize(
    ("host", "nic", "named"),
    [("h0", "h0/rail0", True), ("h0", "h0/rail1", False), ("h1", "h1/rail0", False)],
)
def test_the_page_of_a_host_has_named_its_only_nic(host: str, nic: str, named: bool) -> None:
    homes = {"h0/rail0": "leaf0", "h1/rail0": "leaf0", "h1/rail1": "leaf1"}
    assert PathContainment({}, homes).names(host, nic) is named
