"""Isolates the faulty host after failed tests: re-tests suspects with partners known to be good.

Pure: `next_round` says what to test, `report` takes the outcomes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from syntony.audit.pairs import matchings, sample_rounds, sampled

Pair = tuple[str, str]
"""Sorted."""


class HuntOutcome(enum.StrEnum):
    """What the failed tests identify: a host, a pair, or neither for certain."""

    HOST = "host"
    """A host that fails with partners that pass all other tests."""
    PAIR = "pair"
    """A pair whose ends pass with others: the path between them is faulty."""
    UNDECIDED = "undecided"
    """No partner known to be good was left to test with."""


class Blamed(msgspec.Struct, frozen=True, kw_only=True):
    """A host, a pair or a set of hosts to blame."""

    blame: HuntOutcome
    hosts: tuple[str, ...]
    failed: int
    """Tests that failed, of those they took part in."""
    passed: int
    against: tuple[str, ...]
    """Known good partners of the failed re-tests; for a pair, those that the ends passed with."""


class PairHunt:
    """Tests of two hosts at a time, first in a plan of matchings, then suspects with good partners.

    A single bad host is named in at most ⌈log₂ N⌉ + 2 rounds, as a sample is planned.

    Args:
        hosts: names, at least two.
        every_pair: N−1 rounds in place of the sample.
        rounds: of the sample; ⌈log₂ N⌉ by default.
        again: maximum rounds of re-tests.
    """

    def __init__(
        self, hosts: Sequence[str], *, every_pair: bool = False, rounds: int | None = None,
        seed: int = 1, again: int = 2,
    ) -> None:  # fmt: skip
        self._hosts = tuple(dict.fromkeys(hosts))
        count = len(self._hosts)
        drawn = sample_rounds(count) if rounds is None else rounds
        plan = matchings(count) if every_pair else sampled(count, drawn, seed)
        self._plan = [[self._pair(int(a), int(b)) for a, b in matching] for matching in plan]
        self._again = again
        self._outcomes: dict[str, list[tuple[str, bool]]] = {host: [] for host in self._hosts}
        self.rounds = 0
        """Rounds reported so far."""

    @property
    def plan(self) -> list[list[Pair]]:
        """The rounds before any re-test."""
        return self._plan

    @property
    def tested(self) -> int:
        return sum(map(len, self._outcomes.values())) // 2

    @property
    def untested(self) -> tuple[str, ...]:
        """Hosts without any outcome."""
        return tuple(host for host, reported in self._outcomes.items() if not reported)

    @property
    def planned(self) -> int:
        """Rounds at most."""
        return len(self._plan) + self._again

    def next_round(self) -> list[Pair]:
        """Pairs to test at the same time; none when done."""
        if self.rounds < len(self._plan):
            return self._plan[self.rounds]
        return self._retests() if self.rounds < self.planned else []

    def report(self, passed: Mapping[Pair, bool]) -> None:
        """The outcomes of the round; a pair that could not be tested is left out."""
        for (a, b), ok in passed.items():
            self._outcomes[a].append((b, ok))
            self._outcomes[b].append((a, ok))
        self.rounds += 1

    def named(self) -> tuple[Blamed, ...]:
        """The hosts and pairs to blame, as far as known."""
        suspects = self._suspects()
        good = set(self._hosts) - suspects
        found = []
        bad = set()
        for host in sorted(suspects):
            with_good = [(other, ok) for other, ok in self._outcomes[host] if other in good]
            losses = [other for other, ok in with_good if not ok]
            wins = [other for other, ok in with_good if ok]
            if len(losses) > len(wins):
                bad.add(host)
                found.append(self._name(HuntOutcome.HOST, (host,), losses))
        for host in sorted(suspects - bad):
            found += self._undecided_or_pairs(host, suspects, bad)
        return tuple(dict.fromkeys(found))

    def _undecided_or_pairs(
        self, host: str, suspects: set[str], bad: set[str]
    ) -> Iterable[Blamed]:  # fmt: skip
        for other, ok in self._outcomes[host]:
            if ok or other in bad:
                continue
            wins = tuple(sorted(o for o, won in self._outcomes[host] if won))
            pair = tuple(sorted((host, other)))
            cleared = wins and (other not in suspects or self._won(other))
            yield self._name(HuntOutcome.PAIR if cleared else HuntOutcome.UNDECIDED, pair, wins)

    def _won(self, host: str) -> bool:
        return any(ok for _, ok in self._outcomes[host])

    def _suspects(self) -> set[str]:
        """Hosts that fail at least half of their tests, or that failed with somebody who fails no
        more often than they do.
        """
        rate = {
            host: sum(not ok for _, ok in reported) / len(reported)
            for host, reported in self._outcomes.items()
            if reported
        }
        return {
            host
            for host, reported in self._outcomes.items()
            for other, ok in reported
            if not ok and rate[host] >= rate[other]
        }

    def _retests(self) -> list[Pair]:
        """Every suspect with a partner known good that it has not met in a re-test."""
        suspects = self._suspects()
        good = [
            host for host in self._hosts
            if host not in suspects and self._won(host)
        ]  # fmt: skip
        pairs = []
        for host in sorted(suspects):
            met = {other for other, _ in self._outcomes[host]}
            partner = next((other for other in good if other not in met), None)
            if partner is None:
                partner = next(iter(good), None)
            if partner is None:
                break
            good.remove(partner)
            pairs.append((min(host, partner), max(host, partner)))
        return pairs

    def _name(self, blame: HuntOutcome, hosts: tuple[str, ...], against: Iterable[str]) -> Blamed:
        reported = [ok for host in hosts for other, ok in self._outcomes[host]]
        return Blamed(
            blame=blame, hosts=hosts, failed=reported.count(False), passed=reported.count(True),
            against=tuple(sorted(set(against))),
        )  # fmt: skip

    def _pair(self, a: int, b: int) -> Pair:
        one, other = self._hosts[a], self._hosts[b]
        return (min(one, other), max(one, other))


class GroupHunt:
    """Tests of many hosts at once (a collective): halves of what fails, until one host is left.

    A single bad host is named in 1 + ⌈log₂ N⌉ rounds. A group that is smaller than `least` is
    filled up with hosts known good: a collective over two nodes says little of a fabric.

    Args:
        hosts: names, ordered so that neighbours share a leaf: halves then share little.
        least: hosts that a test takes.
    """

    def __init__(self, hosts: Sequence[str], *, least: int = 2) -> None:
        self._hosts = tuple(dict.fromkeys(hosts))
        self._least = least
        self._open: list[tuple[str, ...]] = [self._hosts]
        self._good: set[str] = set()
        self._named: list[Blamed] = []
        self._parents: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.rounds = 0

    def next_round(self) -> list[tuple[str, ...]]:
        """Groups to test, one after the other if they share filled-up hosts; none when done."""
        return [self._filled(group) for group in self._open]

    def report(self, passed: Sequence[bool | None]) -> None:
        """The outcomes in the order of `next_round`; None where it could not be run."""
        tested, self._open = self._open, []
        self.rounds += 1
        results = dict(zip(tested, passed, strict=True))
        for group, ok in results.items():
            if ok:
                self._good.update(group)
        failed = [group for group, ok in results.items() if ok is False]
        for group in failed:
            if len(group) == 1:
                against = tuple(sorted(self._good))[: self._least - 1]
                blame = HuntOutcome.HOST if self._good else HuntOutcome.UNDECIDED
                self._add(blame, group, against)
            else:
                halves = group[: (len(group) + 1) // 2], group[(len(group) + 1) // 2 :]
                self._open += halves
                self._parents.update(dict.fromkeys(halves, group))
        self._together(results)
        for group, ok in results.items():
            if ok is None:
                self._add(HuntOutcome.UNDECIDED, group, ())

    def named(self) -> tuple[Blamed, ...]:
        """The hosts and pairs to blame, as far as known."""
        return tuple(self._named)

    def _together(self, results: Mapping[tuple[str, ...], bool | None]) -> None:
        """Groups that fail although both halves pass: the fault is between the halves."""
        by_parent: dict[tuple[str, ...], list[bool | None]] = {}
        for group, ok in results.items():
            if group in self._parents:
                by_parent.setdefault(self._parents[group], []).append(ok)
        for parent, outcomes in by_parent.items():
            if outcomes == [True, True]:
                self._add(HuntOutcome.PAIR, parent, ())

    def _add(self, blame: HuntOutcome, hosts: tuple[str, ...], against: tuple[str, ...]) -> None:
        self._named.append(
            Blamed(blame=blame, hosts=hosts, failed=1, passed=0, against=against)
        )  # fmt: skip

    def _filled(self, group: tuple[str, ...]) -> tuple[str, ...]:
        more = [host for host in self._hosts if host in self._good and host not in group]
        return group + tuple(more[: max(0, self._least - len(group))])
