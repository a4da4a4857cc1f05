"""Compare readings with expected values: the spec's, else the golden host's, else the majority's.

Reports go through twice: `Majority.count` learns, `Judge.verdicts` decides. Neither keeps reports,
so a fleet may be larger than memory.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from syntony.audit.check import Compare, Key
from syntony.audit.majority import MIN_VOTERS, Votes, own_vote
from syntony.audit.presence import PRESENT, Presence
from syntony.audit.registry import every_check
from syntony.audit.result import ComparedValue, HostReport, Result, Status, Suspect, Value
from syntony.audit.spec import EMPTY, Range, Rule, Spec, every_key, holds, with_unit, words

NOBODY = "none"
"""What is expected where most hosts of a role have no reading (`Compare.COMMON`)."""
UNREACHABLE = "node.reach"
"""The check under which a host that could not be asked is reported."""
_Place = tuple[str, str, str]
"""Role, key, variant."""


_AMOUNTS = frozenset({Compare.ABOUT, Compare.AT_LEAST})


def near(key: Key, amount: float) -> Range:
    """Tolerance around a correct amount."""
    if key.compare is Compare.AT_LEAST:
        return Range(min=float(f"{amount * (1 - key.within):.6g}"))
    return Range(about=amount, within=key.within)


class Expected(NamedTuple):
    """The expected rule, or None and the reason."""

    rule: Rule | None
    source: str
    disputed: bool = True
    """There is no rule although there are peers; False: there are no peers."""


class Majority:
    """What more than half of a role's hosts have in common (see `syntony.audit.majority`).

    Args:
        spec: says which hosts are of one role.
        min_peers: fewer hosts decide nothing.
    """

    def __init__(self, spec: Spec = EMPTY, min_peers: int = MIN_VOTERS) -> None:
        self._spec = spec
        self._min_peers = min_peers
        self._keys = every_key()
        self._votes: defaultdict[_Place, Votes[Value]] = defaultdict(Votes)
        self._split: set[_Place] = set()
        """Places at which a single host reports several values."""
        self._peers: Counter[str] = Counter()
        self._decided: dict[_Place, Expected] = {}
        self.presence = Presence(min_peers)

    def count(self, report: HostReport) -> None:
        """A host has one vote for each key and variant, however many readings it sent."""
        if report.part:
            return
        self._decided.clear()
        role = self._spec.role_of(report.host)
        self._peers[role] += not report.unreachable
        values: defaultdict[tuple[str, str], list[Value]] = defaultdict(list)
        self.presence.count(role, report)
        for reading in report.readings:
            values[reading.key, reading.variant].append(reading.value)
        for (key, variant), read in values.items():
            place = (role, key, variant)
            self._votes[place].add(report.host, self._own(key, read))
            if len(set(read)) > 1:
                self._split.add(place)

    def expected(self, role: str, key: str, variant: str) -> Expected:
        """What the role's majority reads."""
        place = (role, key, variant)
        if place not in self._decided:
            self._decided[place] = self._decide(place)
        return self._decided[place]

    def places(self) -> Iterator[_Place]:
        """Everything that was read, sorted."""
        yield from sorted(self._votes)

    def _own(self, key: str, read: list[Value]) -> Value | None:
        """A host's one vote: of amounts the median of its own."""
        known = self._keys.get(key)
        numbers = [value for value in read if not isinstance(value, str)]
        if known is not None and known.compare in _AMOUNTS and numbers:
            return statistics.median_low(numbers)
        return own_vote(read)

    def _decide(self, place: _Place) -> Expected:
        votes = self._votes.get(place)
        if votes is None:
            return Expected(None, "undecided: no other host has it")
        peers = self._peers[place[0]]
        key = self._keys.get(place[1])
        if key is not None and key.compare in _AMOUNTS:
            amount = votes.decide_amount(key.within, self._min_peers)
            rule: Rule | None = None if amount.value is None else near(key, amount.value)
            return Expected(rule, amount.why, amount.disputed or peers >= self._min_peers)
        if key is not None and key.compare is Compare.PRESENT:
            usual = self.presence.usual(*place)
            return Expected(PRESENT if usual else None, usual or "on few hosts")
        common = key is not None and key.compare is Compare.COMMON
        absent = (NOBODY, peers - votes.total) if common else None
        decision = votes.decide(self._min_peers, absent)
        if decision.value is None and not decision.disputed and place in self._split:
            return Expected(None, f"undecided: several values on one host; {decision.why}")
        # A severe message that no peer has stays unknown.
        disputed = decision.disputed or common or peers >= self._min_peers
        return Expected(decision.value, decision.why, disputed)


class Golden:
    """A host that is known to be correct."""

    def __init__(self, report: HostReport) -> None:
        self.host = report.host
        self._keys = every_key()
        self._exact: dict[tuple[str, str, str], Value] = {}
        self._any: defaultdict[tuple[str, str], Counter[Value]] = defaultdict(Counter)
        for reading in report.readings:
            self._exact[reading.key, reading.variant, _at(reading)] = reading.value
            self._any[reading.key, reading.variant][reading.value] += 1

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(key for key, _ in self._any)

    def rule(self, reading: ComparedValue) -> Rule | None:
        """Its value at the same place, else at all places."""
        exact = self._exact.get((reading.key, reading.variant, _at(reading)))
        if exact is None:
            values = self._any.get((reading.key, reading.variant), Counter())
            if len(values) != 1:
                return None
            (exact,) = values
        key = self._keys.get(reading.key)
        if key is not None and key.compare in _AMOUNTS and not isinstance(exact, str):
            return near(key, float(exact))
        return exact


class Judge:
    """Turns reports into verdicts.

    Args:
        spec: what operators wrote down.
        golden: a host that is right.
        majority: of the whole fleet, all of it counted.
    """

    def __init__(
        self, spec: Spec = EMPTY, golden: Golden | None = None, majority: Majority | None = None
    ) -> None:
        self._spec = spec
        self._golden = golden
        self._majority = majority or Majority(spec)
        self._checks = {check.id: check for check in every_check()}
        self._keys = every_key()

    def verdicts(self, report: HostReport) -> Iterator[Result]:
        """All results of one host: its verdicts, and readings compared with expected values."""
        if report.unreachable:
            yield _unreachable(report)
            return
        yield from report.results
        for reading in report.readings:
            yield self._judge(report.host, reading)
        name = self._spec.role_of(report.host)
        role = self._spec.roles.get(name)
        yield from self._majority.presence.absent(
            name, report, role.expect if role else {}, self._golden.keys if self._golden else ()
        )

    def expected(self, host: str, reading: ComparedValue) -> Expected:
        """Spec before golden host before majority."""
        rule = self._spec.rule(host, reading.key, reading.variant)
        if rule is not None:
            return Expected(rule, "the spec")
        if self._golden is not None:
            rule = self._golden.rule(reading)
            if rule is not None:
                return Expected(rule, f"golden host {self._golden.host}")
        role = self._spec.role_of(host)
        return self._majority.expected(role, reading.key, reading.variant)

    def _expected(self, host: str, reading: ComparedValue) -> Expected:
        key = self._keys.get(reading.key)
        if key is not None and key.compare is Compare.PRESENT:
            return Expected(reading.value, "it is there")
        if key is not None and key.compare is Compare.UNIQUE:
            others = self._majority.presence.shared(reading, host)
            rule = "no other host's" if others else reading.value
            return Expected(rule, f"also on {others}" if others else "no other host's")
        return self.expected(host, reading)

    def _judge(self, host: str, reading: ComparedValue) -> Result:
        rule, source, disputed = self._expected(host, reading)
        evidence = "; ".join(part for part in (reading.evidence, source) if part)
        if rule is not None:
            status = Status.PASS if holds(rule, reading.value) else Status.FAIL
        else:
            status = Status.UNKNOWN if disputed else Status.NOT_COMPARED
        check = self._checks.get(reading.check)
        bad = status is Status.FAIL and check is not None
        variant = f" ({reading.variant})" if reading.variant else ""
        key = self._keys.get(reading.key)
        unit = key.unit if key is not None else ""
        differs = difference(rule, reading.value) if status is Status.FAIL else ""
        return Result(
            check=reading.check,
            status=status,
            subject=reading.subject,
            expected="" if rule is None else words(rule, unit),
            got=differs + with_unit(reading.value, unit),
            evidence=f"{reading.key}{variant}: {evidence}",
            meaning=check.meaning if bad and check else "",
            remedy=check.remedy if bad and check else "",
            suspect=check.suspect if bad and check else Suspect.NONE,
        )


def _unreachable(report: HostReport) -> Result:
    return Result(
        check=UNREACHABLE,
        status=Status.FAIL,
        subject=report.host,
        expected="an answer",
        got="none",
        evidence=report.unreachable,
        meaning="the host is down, unreachable, or refuses to be audited",
        remedy="log in by hand; if that fails, look at its console",
        suspect=Suspect.HOST,
    )


def difference(rule: Rule | None, value: Value) -> str:
    """Of two lists of words, those that only one has: ``missing nvidia_peermem; of: ``.

    Empty where either is no list.
    """
    if not isinstance(rule, str) or not isinstance(value, str):
        return ""
    wanted, have = rule.replace(",", " ").split(), value.replace(",", " ").split()
    missing = [word for word in wanted if word not in set(have)]
    extra = [word for word in have if word not in set(wanted)]
    kept = len(wanted) - len(missing)
    if kept < max(3, len(missing), len(extra)):
        return ""
    parts = (("missing", missing), ("not expected", extra))
    said = "; ".join(f"{what} {' '.join(words)}" for what, words in parts if words)
    return f"{said}; of: " if said else ""


def _at(reading: ComparedValue) -> str:
    return reading.subject.partition("/")[2]
