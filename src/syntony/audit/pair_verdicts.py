"""Verdicts from tests of pairs of hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from syntony.audit.check import Check
from syntony.audit.checks.pairs import PairTest
from syntony.audit.hunt import Blamed, HuntOutcome, Pair
from syntony.audit.result import Result, Status, Suspect

_LISTED = 3


class HuntProgress(NamedTuple):
    """How far the tests have progressed."""

    hosts: int
    rounds: int
    tests: int
    """Pairs with an outcome; none is unknown, not a pass."""
    untested: tuple[str, ...] = ()
    """Hosts without any."""
    at: str = ""
    """What of each host was tested: a NIC."""
    figures: str = "all pass"


def verdicts(
    named: Iterable[Blamed],
    said: Mapping[Pair, str],
    tested: HuntProgress,
    check: Check | None = None,
) -> tuple[Result, ...]:
    """A row for each host or pair to blame, and for each that could not be tested; one pass if
    nobody is to blame.

    Args:
        named: who is to blame.
        said: pair to why its test failed.
        tested: how far it came.
        check: what the test was; any test by default.
    """
    check = check or PairTest()
    found = [_one(check, each, said, tested) for each in named]
    subject = _at(f"{tested.hosts} hosts", tested)
    if not tested.tests:
        why = next(iter(said.values()), "no test could be run")
        return (*found, check.result(Status.UNKNOWN, subject, evidence=why))
    for host in tested.untested:
        why = next((why for pair, why in said.items() if host in pair), "no test could be run")
        found.append(check.result(Status.UNKNOWN, _at(host, tested), evidence=why))
    if not any(each.status is Status.FAIL for each in found):
        text = f"{tested.tests} tests in {tested.rounds} rounds"
        found.append(check.result(Status.PASS, subject, tested.figures, evidence=text))
    return tuple(found)


def _at(subject: str, tested: HuntProgress) -> str:
    return f"{subject}/{tested.at}" if tested.at else subject


def _one(check: Check, each: Blamed, said: Mapping[Pair, str], tested: HuntProgress) -> Result:
    own = set(each.hosts)
    reasons = list(dict.fromkeys(why for pair, why in said.items() if own & set(pair)))[:_LISTED]
    text = f"{'; '.join(reasons)}; {tested.rounds} rounds"
    got = f"{each.failed} of {each.failed + each.passed} tests failed"
    against = ", ".join(each.against[:_LISTED])
    if each.blame is HuntOutcome.HOST:
        return check.result(
            Status.FAIL, _at(each.hosts[0], tested), got, "all pass",
            f"fails with {against}, which pass with others: {text}",
        )  # fmt: skip
    subject = " -- ".join(_at(host, tested) for host in each.hosts)
    if each.blame is HuntOutcome.PAIR:
        return check.result(
            Status.FAIL, subject, "they fail with each other only", "all pass", text,
            suspect=Suspect.FABRIC, meaning="what is between the two, not the hosts",
            remedy="survey the paths: syntony audit network",
        )  # fmt: skip
    return check.result(
        Status.UNKNOWN, subject, got, evidence=f"no known good partner was left: {text}"
    )
