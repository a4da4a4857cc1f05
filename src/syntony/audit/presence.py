"""Finds readings that a host should report and does not, and values that only one host may have.

An expected value without a reading is no pass. Where the specification, the golden host or more
than half of the role's hosts have a value under a key and a host's check ran and read none, that is
unknown, with the check's own reason. Keys of `Compare.PRESENT` (a default route, a mount, a link)
fail instead: the host was asked and does not have it. Keys of `Compare.UNIQUE` (an address) fail on
every host that shares its value with another.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from syntony.audit.check import Check, Compare, Key
from syntony.audit.registry import every_check
from syntony.audit.result import ComparedValue, HostReport, Result, Status, Suspect
from syntony.audit.spec import Rule, words
from syntony.model.names import some

PRESENT = "present"
"""The value of every reading under a key of `Compare.PRESENT`."""
_STANDING = frozenset({Compare.COMMON, Compare.PRESENT, Compare.UNIQUE})
"""Keys for which having no reading is no gap, or is judged by name."""
_MAX_OWNERS = 4


class _Known(NamedTuple):
    key: Key
    check: type[Check]


class Presence:
    """Counts which keys the hosts of each role report.

    Args:
        min_peers: fewer hosts decide nothing.
    """

    def __init__(self, min_peers: int) -> None:
        self._min_peers = min_peers
        self._known = {key.name: _Known(key, check) for check in every_check()
                       for key in check.keys}  # fmt: skip
        self._ran: Counter[tuple[str, str]] = Counter()
        self._read: Counter[tuple[str, str]] = Counter()
        self._have: Counter[tuple[str, str, str]] = Counter()
        self._variants: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._owners: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)

    def count(self, role: str, report: HostReport) -> None:
        """One host of a role."""
        for check in _checks_of(report):
            self._ran[role, check] += 1
        for key in {reading.key for reading in report.readings}:
            self._read[role, key] += 1
        for reading in {(each.key, each.variant): each for each in report.readings}.values():
            if self._compare(reading.key) is Compare.PRESENT:
                self._have[role, reading.key, reading.variant] += 1
                self._variants[role].add((reading.key, reading.variant))
        for reading in report.readings:
            if self._compare(reading.key) is Compare.UNIQUE:
                self._owners[reading.key, str(reading.value)][report.host] = None

    def usual(self, role: str, key: str, variant: str) -> str:
        """``3 of 4 hosts`` where more than half have it; empty where they do not."""
        check = self._known[key].check.id
        have, ran = self._have[role, key, variant], self._ran[role, check]
        return f"{have} of {ran} hosts" if 2 * have > ran >= self._min_peers else ""

    def shared(self, reading: ComparedValue, host: str) -> str:
        """The other hosts that read the same; empty where there are none."""
        owners = self._owners.get((reading.key, str(reading.value)), {})
        return some((each for each in owners if each != host), _MAX_OWNERS)

    def absent(
        self, role: str, report: HostReport, spec: Mapping[str, Rule], golden: Iterable[str] = ()
    ) -> Iterator[Result]:
        """What the host should have reported and did not.

        Args:
            role: the host's.
            report: the host's.
            spec: what its role is expected to be, by ``key`` or ``key/variant``.
            golden: keys that the golden host reports.
        """
        yield from self._missing_items(role, report, spec)
        read = {reading.key for reading in report.readings}
        reported = {each.check for each in report.results
                if each.status in {Status.UNKNOWN, Status.FAIL}}  # fmt: skip
        ran = _checks_of(report)
        for key, source in self._expected_keys(role, spec, golden).items():
            known = self._known.get(key)
            if known is None or key in read or known.key.compare in _STANDING:
                continue
            if known.check.id in ran and known.check.id not in reported:
                yield self._unread(report, known, source)

    def _expected_keys(
        self, role: str, spec: Mapping[str, Rule], golden: Iterable[str]
    ) -> dict[str, str]:
        """Key → who expects it."""
        found: dict[str, str] = {}
        for (place, key), count in sorted(self._read.items()):
            known = self._known.get(key)
            ran = self._ran[role, known.check.id] if known else 0
            if place == role and 2 * count > ran >= self._min_peers:
                found[key] = f"{count} of {ran} hosts report it"
        found |= dict.fromkeys(golden, "the golden host reports it")
        for name, rule in spec.items():
            found[name.partition("/")[0]] = f"the spec expects {words(rule)}"
        return found

    def _unread(self, report: HostReport, known: _Known, source: str) -> Result:
        why = next((each.evidence for each in report.results if each.check == known.check.id
                    and each.status is Status.SKIP), "no reason given")  # fmt: skip
        return Result(
            check=known.check.id, status=Status.UNKNOWN, subject=report.host, got="no reading",
            expected=known.key.meaning,
            evidence=f"{known.key.name}: {source}; this host reports none: {why}",
            remedy="find out why the host does not report it, or take it out of the spec",
        )  # fmt: skip

    def _missing_items(
        self, role: str, report: HostReport, spec: Mapping[str, Rule]
    ) -> Iterator[Result]:
        wanted = {place: source for place in sorted(self._variants[role])
                  if (source := self.usual(role, *place))}  # fmt: skip
        for name in spec:
            key, _, variant = name.partition("/")
            if self._compare(key) is Compare.PRESENT:
                wanted[key, variant] = "the spec"
        have = {(reading.key, reading.variant) for reading in report.readings}
        ran = _checks_of(report)
        failed = {(each.check, each.subject) for each in report.results
                  if each.status is Status.FAIL}  # fmt: skip
        for (key, variant), source in wanted.items():
            known = self._known[key]
            subject = f"{report.host}/{variant}" if variant else report.host
            if (key, variant) in have or known.check.id not in ran:
                continue
            if (known.check.id, subject) in failed:
                continue
            yield Result(
                check=known.check.id, status=Status.FAIL,
                subject=subject, expected=PRESENT, got=f"missing: {variant or key}",
                evidence=f"{key}: {known.key.meaning}; {source}",
                meaning=known.check.meaning, remedy=known.check.remedy,
                suspect=known.check.suspect or Suspect.HOST,
            )  # fmt: skip

    def _compare(self, key: str) -> Compare | None:
        known = self._known.get(key)
        return known.key.compare if known else None


def _checks_of(report: HostReport) -> set[str]:
    """Checks that said anything of the host: a check that ran always does."""
    return {each.check for each in report.results} | {each.check for each in report.readings}
