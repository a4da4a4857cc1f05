"""What tests of pairs came down to, as verdicts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from syntony.audit.checks.pairs import PairTest
from syntony.audit.hunt import Blame, Named, Pair
from syntony.audit.result import Result, Status, Suspect

_LISTED = 3


def verdicts(
    named: Iterable[Named], said: Mapping[Pair, str], hosts: int, rounds: int, tested: int
) -> tuple[Result, ...]:
    """A row for each host or pair to blame; one pass if there is none.

    Args:
        named: who is to blame.
        said: pair to why its test failed.
        hosts: how many took part.
        rounds: how many it took.
        tested: pairs with an outcome; none is unknown, not a pass.
    """
    check = PairTest()
    found = [_one(check, each, said, rounds) for each in named]
    if found:
        return tuple(found)
    subject = f"{hosts} hosts"
    why = next(iter(said.values()), "no test could be run")
    if not tested:
        return (check.result(Status.UNKNOWN, subject, evidence=why),)
    text = f"{tested} tests in {rounds} rounds"
    return (check.result(Status.PASS, subject, "all pass", evidence=text),)


def _one(check: PairTest, each: Named, said: Mapping[Pair, str], rounds: int) -> Result:
    own = set(each.hosts)
    reasons = list(dict.fromkeys(why for pair, why in said.items() if own & set(pair)))[:_LISTED]
    text = f"{'; '.join(reasons)}; {rounds} rounds"
    got = f"{each.failed} of {each.failed + each.passed} tests failed"
    against = ", ".join(each.against[:_LISTED])
    if each.blame is Blame.HOST:
        return check.result(
            Status.FAIL, each.hosts[0], got, "all pass",
            f"fails with {against}, which pass with others: {text}",
        )  # fmt: skip
    subject = " -- ".join(each.hosts)
    if each.blame is Blame.PAIR:
        return check.result(
            Status.FAIL, subject, "they fail with each other only", "all pass", text,
            suspect=Suspect.FABRIC, meaning="what is between the two, not the hosts",
            remedy="survey the paths: syntony audit network",
        )  # fmt: skip
    return check.result(
        Status.UNKNOWN, subject, got, evidence=f"nobody known good was left: {text}"
    )
