"""What holds of pages whatever happens: drawn fabrics, and histories of what is bad in them.

Faults that are planted have one page each, whatever they show. Of a history in which anything is
bad at any time, checked is what an engineer on call relies on, with a count of its own of what
waits for a page. Each draw prints its seed.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import msgspec
import pytest
from tests.alerts.clos import DEFAULTS, T0, bad

from syntony.alerts.incident_book import Book
from syntony.alerts.incidents import (
    BookState,
    ChangeKind,
    Incident,
    IncidentChange,
    IncidentState,
)
from syntony.alerts.observations import Observation, measured
from syntony.alerts.rules import Severity
from syntony.alerts.silences import Silence
from syntony.controller.containment import PathContainment
from syntony.model import S

RANK = {severity: number for number, severity in enumerate(Severity)}
STEP_S = 2
METRICS = frozenset(rule.metric for rule in DEFAULTS.values())


class Clos(NamedTuple):
    """A drawn fabric: hosts with one or two NICs, each at a leaf; every leaf at every spine."""

    homes: dict[str, str]
    leaves: list[str]
    spines: list[str]
    places: PathContainment

    @property
    def hosts(self) -> list[str]:
        return sorted({nic.partition("/")[0] for nic in self.homes})

    def nics(self, at: str) -> list[str]:
        """NICs of a host or at a leaf."""
        return [nic for nic, leaf in self.homes.items() if at in (leaf, nic.partition("/")[0])]


def clos(rng: random.Random) -> Clos:
    leaves = [f"leaf{number}" for number in range(rng.randint(3, 4))]
    spines = [f"spine{number}" for number in range(2)]
    homes: dict[str, str] = {}
    for place, leaf in enumerate(leaves):
        for number in range(rng.randint(2, 3)):
            homes[f"h{place}{number}/rail0"] = leaf
            if rng.random() < 0.3:
                homes[f"h{place}{number}/rail1"] = rng.choice(leaves)
    crossing = {}
    for a, one in homes.items():
        for b, other in homes.items():
            if a.partition("/")[0] == b.partition("/")[0] or rng.random() < 0.3:
                continue
            parts = {a, b, f"{a}->{one}", one, other, f"{other}->{b}"}
            for spine in spines if one != other else ():
                parts |= {f"{one}->{spine}", spine, f"{spine}->{other}"}
            crossing[f"{a}->{b}"] = frozenset(parts)
    return Clos(homes, leaves, spines, PathContainment(crossing, homes))


def drawn() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


# --- planted faults ---


class Symptom(NamedTuple):
    """What is bad from then on, in seconds after the fault."""

    after_s: int
    seen: Observation


def dead_leaf(rng: random.Random, fabric: Clos, leaf: str) -> tuple[str, list[Symptom]]:
    found = [Symptom(rng.randint(0, 2), bad("switch-down", leaf))]
    for nic in fabric.nics(leaf):
        host = nic.partition("/")[0]
        found += [
            Symptom(rng.randint(0, 6), bad("port-down", nic)),
            Symptom(rng.randint(0, 6), bad("nic-loss", nic)),
            Symptom(rng.randint(0, 6), bad("link-loss", f"{leaf}->{nic}")),
            Symptom(rng.randint(8, 20), bad("counter-errors", nic)),
        ]
        if len(fabric.nics(host)) == 1:
            found.append(Symptom(rng.randint(10, 20), bad("host-silent", host, via=(nic,))))
    for spine in fabric.spines:
        ends = rng.choice([(leaf, spine), (spine, leaf)])
        found.append(Symptom(rng.randint(0, 4), bad("link-loss", "->".join(ends))))
        cable = "--".join(sorted((leaf, spine)))
        found.append(Symptom(rng.randint(0, 30), bad("cable-lost", cable)))
    return f"switch-down {leaf}", found


def dead_host(rng: random.Random, fabric: Clos, leaf: str) -> tuple[str, list[Symptom]]:
    host = rng.choice(fabric.nics(leaf)).partition("/")[0]
    found = [Symptom(rng.randint(0, 2), bad("host-silent", host))]
    for nic in fabric.nics(host):
        found += [
            Symptom(rng.randint(1, 9), bad("port-down", nic)),
            Symptom(rng.randint(1, 9), bad("nic-loss", nic)),
            Symptom(rng.randint(1, 9), bad("link-loss", f"{fabric.homes[nic]}->{nic}")),
        ]
    return f"host-silent {host}", found


def worn_port(rng: random.Random, fabric: Clos, leaf: str) -> tuple[str, list[Symptom]]:
    nic = rng.choice(fabric.nics(leaf))
    return f"link-flapping {nic}", [
        Symptom(0, bad("link-flapping", nic)),
        Symptom(rng.randint(0, 9), bad("port-down", nic)),
        Symptom(rng.randint(0, 9), bad("nic-loss", nic)),
        Symptom(rng.randint(0, 9), bad("link-loss", f"{nic}->{leaf}")),
        Symptom(rng.randint(0, 9), bad("module-limit", nic)),
    ]


def lossy_cable(rng: random.Random, fabric: Clos, leaf: str) -> tuple[str, list[Symptom]]:
    spine = rng.choice(fabric.spines)
    ends = [(leaf, spine), (spine, leaf)]
    rng.shuffle(ends)
    one, other = ("->".join(each) for each in ends)
    pairs = [pair for pair in fabric.places._crossing if fabric.places.holds(one, pair)]
    found = [
        Symptom(0, bad("link-loss", one)),
        Symptom(rng.randint(8, 20), bad("link-loss", other)),
        Symptom(rng.randint(8, 20), bad("link-loss", "--".join(sorted((leaf, spine))))),
        Symptom(rng.randint(20, 40), bad("cable-lost", "--".join(sorted((leaf, spine))))),
    ]
    for pair in pairs[:3]:
        found.append(Symptom(rng.randint(0, 9), bad("latency-sla", pair, span_ns=60 * S)))
        found.append(Symptom(rng.randint(0, 9), bad("job-slow-network", pair, jobs=("train",))))
    return f"link-loss {one}", found


FAULTS = (dead_leaf, dead_host, worn_port, lossy_cable)


@pytest.mark.parametrize("trial", range(12))
def test_each_planted_fault_is_one_page_and_one_all_clear(trial: int) -> None:
    rng = drawn()
    fabric, book = clos(rng), Book(DEFAULTS.values())
    # Hosts with a NIC elsewhere would tie the faults of two leaves together.
    alone = [
        leaf for leaf in fabric.leaves
        if all(len(fabric.nics(nic.partition("/")[0])) == 1 for nic in fabric.nics(leaf))
    ]  # fmt: skip
    leaves = alone[: rng.randint(1, 2)] or fabric.leaves[:1]
    planted = [rng.choice(FAULTS)(rng, fabric, leaf) for leaf in leaves]
    symptoms = [each for _, shown in planted for each in shown]
    changes: list[IncidentChange] = []
    for step in range(120):
        at_s = step * STEP_S
        seen = [each.seen for each in symptoms if each.after_s <= at_s < 180]
        rng.shuffle(seen)
        what = measured(seen, METRICS)
        changes += book.evaluate(T0 + at_s * S, what, fabric.places)
    for minute in range(30):
        now_ns = T0 + (300 + 60 * minute) * S
        changes += book.evaluate(now_ns, measured([], METRICS), fabric.places)
    for kind in (ChangeKind.PAGE, ChangeKind.CLEAR):
        said = sorted(
            f"{each.incident.rule} {each.incident.subject}"
            for each in changes if each.kind is kind
        )  # fmt: skip
        assert said == sorted(root for root, _ in planted), kind
    assert not any(each.live for each in book.incidents)
    assert not book.state.streaks


# --- any history ---


def subjects(rng: random.Random, fabric: Clos) -> list[Observation]:
    """What may be bad in a fabric."""
    leaf, other = rng.sample(fabric.leaves, 2)
    spine = rng.choice(fabric.spines)
    nics = rng.sample(sorted(fabric.homes), 3)
    hosts = sorted({nic.partition("/")[0] for nic in nics})
    link, cable = f"{leaf}->{spine}", f"{leaf}--{spine}"
    found = [
        bad("switch-down", leaf), bad("switch-down", spine), bad("switch-loss", leaf),
        bad("switch-loss", spine), bad("switch-or-hosts", f"hosts at {leaf} or {leaf}"),
        bad("link-loss", link), bad("link-loss", f"{spine}->{leaf}"), bad("link-loss", cable),
        bad("link-loss", f"{spine}->{other}"), bad("ambiguous-loss", f"{leaf}..{other}"),
        bad("ambiguous-loss", f"{link} or {spine}->{other}"), bad("ambiguous-loss", f"{leaf}..*"),
        bad("congestion", link), bad("cable-lost", cable), bad("component-delay", link),
        bad("fleet-silent", "all agents", members=tuple(hosts), via=(leaf, other)),
        bad("silent-together", ", ".join(hosts), members=tuple(hosts), via=tuple(nics)),
    ]  # fmt: skip
    for nic in nics:
        host, at = nic.partition("/")[0], fabric.homes[nic]
        found += [
            bad("port-down", nic), bad("nic-loss", nic), bad("link-flapping", nic),
            bad("counter-errors", nic), bad("host-silent", host, via=(nic,)),
            bad("link-loss", f"{nic}->{at}"), bad("latency-sla", nic, span_ns=60 * S),
        ]  # fmt: skip
    return [
        each._replace(
            mild=rng.random() < 0.2,
            pending=rng.random() < 0.05,
            apart_from=frozenset(rng.sample(sorted(METRICS), 2) if rng.random() < 0.1 else ()),
        )
        for each in found
    ]


class Watch:
    """One book, checked after each evaluation, and another one that restarts each time."""

    def __init__(self, fabric: Clos) -> None:
        self.fabric = fabric
        self.book, self.stored = Book(DEFAULTS.values()), b""
        self.owed_s: Counter[int] = Counter()
        """For how long an incident could have paged and had not."""
        self.paged: dict[int, Severity] = {}
        self.pages = 0

    def evaluate(self, now_s: int, seen: list[Observation], metrics: frozenset[str]) -> None:
        before = {each.number: msgspec.structs.replace(each) for each in self.book.incidents}
        copy = Book(DEFAULTS.values(), msgspec.json.decode(
            msgspec.json.encode(self.book.state), type=BookState
        ))  # fmt: skip
        now_ns, what = T0 + now_s * S, measured(seen, metrics)
        changes = self.book.evaluate(now_ns, what, self.fabric.places)
        again = copy.evaluate(now_ns, what, self.fabric.places)
        assert again == changes, "a restart changes nothing"
        assert copy.state == self.book.state
        kinds: dict[int, list[ChangeKind]] = {}
        for change in changes:
            kinds.setdefault(change.incident.number, []).append(change.kind)
        bad_now = {(each.metric, each.subject): each for each in seen}
        for each in self.book.incidents:
            mine = kinds.get(each.number, [])
            rule = DEFAULTS[each.rule]
            observed = bad_now.get((rule.metric, each.subject))
            self.check_messages(each, mine, before.get(each.number), observed)
            if not each.live:
                self.owed_s.pop(each.number, None)
                continue
            self.check_cause(each)
            may_page = (
                observed is not None and not observed.pending and not each.cause
                and not each.silenced and each.state is IncidentState.OPEN
                and not rule.counts
            )  # fmt: skip
            reported = each.paged and RANK[each.paged_as or each.severity] >= RANK[each.severity]
            self.owed_s[each.number] += STEP_S
            if not may_page or reported:
                self.owed_s[each.number] = 0
            patience_s = max(rule.wait_ns, rule.idle_wait_ns) // S + 2 * STEP_S
            assert self.owed_s[each.number] <= patience_s, f"no page for {each}"

    def check_messages(
        self,
        each: Incident,
        mine: list[ChangeKind],
        before: Incident | None,
        observed: Observation | None,
    ) -> None:
        if ChangeKind.PAGE in mine:
            self.pages += 1
            assert not each.cause, "what is explained does not page"
            assert not each.silenced
            assert each.state is IncidentState.OPEN
            assert observed is not None, "bad now"
            assert not observed.pending
            last = self.paged.get(each.number)
            assert last is None or RANK[last] < RANK[each.severity], "one page, or a worse one"
            self.paged[each.number] = each.severity
        if ChangeKind.CLEAR in mine:
            assert self.paged.pop(each.number), "only of what was paged for"
        assert (ChangeKind.RESOLVED in mine) == (
            before is not None and before.live and (not each.live or ChangeKind.REOPENED in mine)
        )

    def check_cause(self, each: Incident) -> None:
        chain = [each]
        while cause := chain[-1].cause:
            chain.append(self.book.find(cause))
            assert len({one.number for one in chain}) == len(chain), "a circle of causes"
        if len(chain) == 1:
            return
        nearest, rule = chain[1], DEFAULTS[each.rule]
        assert nearest.rule in {each.rule, *rule.explained_by, *rule.joins}
        counted = rule.counts and each.value <= each.caused  # before the cause was reopened
        if not rule.proven or not nearest.live or each.paged or counted:
            return
        reported = nearest.paged_as or nearest.severity
        if nearest.rule in rule.explained_by:
            whole = nearest.severity is DEFAULTS[nearest.rule].severity
            assert whole or RANK[reported] >= RANK[each.severity], (each, nearest)
        else:
            assert nearest.paged
            assert RANK[reported] >= RANK[each.severity], (each, nearest)


@pytest.mark.parametrize("trial", range(10))
def test_whatever_is_bad_pages_once_and_in_time(trial: int) -> None:
    rng = drawn()
    fabric = clos(rng)
    watch, every = Watch(fabric), subjects(rng, fabric)
    rates = [(rng.choice([0.02, 0.1, 0.5]), rng.choice([0.05, 0.2, 0.5])) for _ in every]
    on = [False] * len(every)
    for step in range(70):
        for place, (begins, ends) in enumerate(rates):
            on[place] = rng.random() < begins if not on[place] else rng.random() >= ends
        seen = [each for each, bad_now in zip(every, on, strict=True) if bad_now]
        rng.shuffle(seen)
        metrics = METRICS
        if rng.random() < 0.1:
            missing = frozenset(rng.sample(sorted(METRICS), 3))
            metrics, seen = METRICS - missing, [e for e in seen if e.metric not in missing]
        now_ns = T0 + step * STEP_S * S
        if rng.random() < 0.05:
            subject = rng.choice([*fabric.leaves, *fabric.hosts])
            watch.book.silence(
                Silence(subject=subject, first_ns=now_ns, last_ns=now_ns + 20 * S, who="eve")
            )
        live = [each.number for each in watch.book.incidents if each.live]
        if live and rng.random() < 0.05:
            watch.book.acknowledge(rng.choice(live), "eve", "", now_ns)
        watch.evaluate(step * STEP_S, seen, metrics)
    assert watch.pages
    for minute in range(4, 40):
        watch.evaluate(60 * minute, [], METRICS)
    assert not any(each.live for each in watch.book.incidents)
    assert not watch.paged, "each page has its all-clear"
    assert not watch.book.state.streaks
