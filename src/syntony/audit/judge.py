"""Readings beside expected values: the spec's, else the golden host's, else the majority's.

Reports go through twice: `Majority.count` learns, `Judge.verdicts` decides. Neither keeps reports,
so a fleet may be larger than memory.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from syntony.audit.check import Compare
from syntony.audit.registry import every_check
from syntony.audit.result import HostReport, Reading, Result, Status, Suspect
from syntony.audit.spec import EMPTY, Range, Spec, every_key, holds, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from syntony.audit.check import Key
    from syntony.audit.result import Value
    from syntony.audit.spec import Rule

MIN_PEERS = 3
"""Of two hosts that differ, nobody can say which is right."""
NOBODY = "none"
"""What is expected where most hosts of a role have no reading (`Compare.COMMON`)."""
UNREACHABLE = "node.reach"
"""The check under which a host that could not be asked is reported."""
_Place = tuple[str, str, str]
"""Role, key, variant."""


_AMOUNTS = frozenset({Compare.ABOUT, Compare.AT_LEAST})


def near(key: Key, amount: float) -> Range:
    """What is near enough to an amount that is right."""
    if key.compare is Compare.AT_LEAST:
        return Range(min=float(f"{amount * (1 - key.within):.6g}"))
    return Range(about=amount, within=key.within)


class Expected(NamedTuple):
    """A rule, or None and why there is none."""

    rule: Rule | None
    source: str


class _Votes:
    """What hosts of one role read under one key."""

    __slots__ = ("hosts", "values")

    def __init__(self) -> None:
        self.values: Counter[Value] = Counter()
        self.hosts: set[str] = set()

    def most(self, min_peers: int) -> Expected:
        peers = len(self.hosts)
        if peers < min_peers:
            return Expected(None, f"undecided: {peers} of at least {min_peers} peers")
        ranked = sorted(self.values.items(), key=lambda item: (-item[1], str(item[0])))
        (value, votes), *others = ranked[:2]
        if others and others[0][1] == votes:
            text = f"undecided: {value!r} and {others[0][0]!r} are as frequent"
            return Expected(None, text)
        return Expected(value, f"{votes} of {self.values.total()} readings")

    def middle(self, key: Key, min_peers: int) -> Expected:
        numbers = sorted(
            (float(value), count)
            for value, count in self.values.items()
            if not isinstance(value, str)
        )
        if len(self.hosts) < min_peers or not numbers:
            return Expected(None, f"undecided: {len(self.hosts)} of at least {min_peers} peers")
        sums: list[int] = []
        for _, count in numbers:
            sums.append((sums[-1] if sums else 0) + count)
        median = numbers[bisect.bisect_left(sums, (sums[-1] + 1) // 2)][0]
        return Expected(near(key, median), f"median of {len(self.hosts)} hosts")

    def common(self, peers: int, min_peers: int) -> Expected:
        """Of `peers` hosts, these are the ones that read anything."""
        if peers < min_peers or 2 * len(self.hosts) == peers:
            return Expected(None, f"undecided: {len(self.hosts)} of {peers} hosts")
        if 2 * len(self.hosts) > peers:
            return Expected(self.values.most_common(1)[0][0], f"{len(self.hosts)} of {peers} hosts")
        return Expected(NOBODY, f"only {len(self.hosts)} of {peers} hosts")


class Majority:
    """What most hosts of a role have in common.

    Args:
        spec: says which hosts are of one role.
        min_peers: fewer decide nothing.
    """

    def __init__(self, spec: Spec = EMPTY, min_peers: int = MIN_PEERS) -> None:
        self._spec = spec
        self._min_peers = min_peers
        self._keys = every_key()
        self._votes: defaultdict[_Place, _Votes] = defaultdict(_Votes)
        self._peers: Counter[str] = Counter()
        self._decided: dict[_Place, Expected] = {}

    def count(self, report: HostReport) -> None:
        """One host's readings are votes."""
        if report.part:
            return
        self._decided.clear()
        role = self._spec.role_of(report.host)
        self._peers[role] += not report.unreachable
        for reading in report.readings:
            votes = self._votes[role, reading.key, reading.variant]
            votes.values[reading.value] += 1
            votes.hosts.add(report.host)

    def expected(self, role: str, key: str, variant: str) -> Expected:
        """What the role's majority reads."""
        place = (role, key, variant)
        if place not in self._decided:
            self._decided[place] = self._decide(place)
        return self._decided[place]

    def places(self) -> Iterator[_Place]:
        """Everything that was read, sorted."""
        yield from sorted(self._votes)

    def _decide(self, place: _Place) -> Expected:
        votes = self._votes.get(place)
        if votes is None:
            return Expected(None, "undecided: nobody else has it")
        key = self._keys.get(place[1])
        if key is not None and key.compare in _AMOUNTS:
            return votes.middle(key, self._min_peers)
        if key is not None and key.compare is Compare.COMMON:
            return votes.common(self._peers[place[0]], self._min_peers)
        return votes.most(self._min_peers)


class Golden:
    """A host that is known to be right."""

    def __init__(self, report: HostReport) -> None:
        self.host = report.host
        self._keys = every_key()
        self._exact: dict[tuple[str, str, str], Value] = {}
        self._any: defaultdict[tuple[str, str], Counter[Value]] = defaultdict(Counter)
        for reading in report.readings:
            self._exact[reading.key, reading.variant, _at(reading)] = reading.value
            self._any[reading.key, reading.variant][reading.value] += 1

    def rule(self, reading: Reading) -> Rule | None:
        """What it reads at the same place, else all over it."""
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

    def verdicts(self, report: HostReport) -> Iterator[Result]:
        """All of one host: its own verdicts, and its readings beside what is expected."""
        if report.unreachable:
            yield _unreachable(report)
            return
        yield from report.results
        for reading in report.readings:
            yield self._judge(report.host, reading)

    def expected(self, host: str, reading: Reading) -> Expected:
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

    def _judge(self, host: str, reading: Reading) -> Result:
        rule, source = self.expected(host, reading)
        evidence = "; ".join(part for part in (reading.evidence, source) if part)
        status = Status.UNKNOWN
        if rule is not None:
            status = Status.PASS if holds(rule, reading.value) else Status.FAIL
        check = self._checks.get(reading.check)
        bad = status is Status.FAIL and check is not None
        variant = f" ({reading.variant})" if reading.variant else ""
        return Result(
            check=reading.check,
            status=status,
            subject=reading.subject,
            expected="" if rule is None else words(rule),
            got=str(reading.value),
            evidence=f"{reading.key}{variant}: {evidence}",
            meaning=check.meaning if bad and check else "",
            remedy=check.remedy if bad and check else "",
            suspect=check.suspect if bad and check else Suspect.NONE,
        )


def judge_all(
    reports: Iterable[HostReport], spec: Spec = EMPTY, golden: HostReport | None = None
) -> list[Result]:
    """Verdicts of a fleet that fits in memory."""
    kept = list(reports)
    majority = Majority(spec)
    for report in kept:
        majority.count(report)
    judge = Judge(spec, Golden(golden) if golden else None, majority)
    return [result for report in kept for result in judge.verdicts(report)]


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


def _at(reading: Reading) -> str:
    return reading.subject.partition("/")[2]
