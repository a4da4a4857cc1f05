"""An audit's readings and verdicts of recorded hosts are those of `fixtures/recorded.txt`.

A fleet's spec has such readings, and scripts rely on such verdicts: a value that is read
differently fails the fleet that learnt it. After an intended change, look at the difference of
`python -m tests.audit.test_recorded_verdicts > tests/audit/fixtures/recorded.txt`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
from tests.audit.fixture_fleet import FAULTS, FOLDER, fault, judged, reports
from tests.cases import recorded

from syntony.audit.parse.kernel_log import Xid
from syntony.audit.result import Result
from syntony.audit.xid import action_of
from syntony.model.names import host_of

HOSTS = ("a100-hot", "dgx-h100", "gb200-nvl72", "mi300x-thor2", "vlan-on-bond")
NAMED = FAULTS[::6]
CODES = range(1, 200)
AGREED = FOLDER / "recorded.txt"


def of_host(shape: str) -> Iterator[str]:
    """Readings and verdicts of its first host; alike ones once, with how many there are."""
    report = reports(shape)[0]
    read = Counter(f"{each.key} {each.variant}".strip() + f" = {each.value}"
                   for each in report.readings)  # fmt: skip
    yield from counted(read)
    yield from verdicts(each for each in judged(shape)
                        if host_of(each.subject) in {report.host, "fleet"})  # fmt: skip


def of_fault(name: str) -> Iterator[str]:
    """What is said of it, and not of the same host without it."""
    seen = fault(name)
    yield from verdicts(each for each in seen.results if each not in seen.before)


def verdicts(results: Iterable[Result]) -> Iterator[str]:
    """All but those that only repeat a reading which is as its peers'."""
    yield from counted(Counter(
        f"{each.status} {each.check}: "
        + (f"{each.got} ({each.expected})" if each.got else each.evidence)
        for each in results if not each.got or each.got != each.expected
    ))  # fmt: skip


def of_codes() -> Iterator[str]:
    """What each Xid that is known means and asks for."""
    unheard_of, *rules = (action_of(Xid("0:1", code, False, "")) for code in (0, *CODES))
    for code, rule in zip(CODES, rules, strict=True):
        if rule != unheard_of:
            yield f"{code}: {rule.meaning}: {rule.action}"


def counted(lines: Counter[str]) -> Iterator[str]:
    return (f"{count} x {line}" for line, count in sorted(lines.items()))


@pytest.mark.parametrize("shape", HOSTS)
def test_a_host_is_reported_as_recorded(shape: str) -> None:
    assert list(of_host(shape)) == recorded(AGREED)[f"host {shape}"]


def test_error_codes_are_reported_as_recorded() -> None:
    assert list(of_codes()) == recorded(AGREED)["codes"]


@pytest.mark.parametrize("name", NAMED)
def test_a_fault_is_reported_as_recorded(name: str) -> None:
    assert list(of_fault(name)) == recorded(AGREED)[f"fault {name}"]


if __name__ == "__main__":
    reported = [[f"host {each}", *of_host(each)] for each in HOSTS]
    reported += [[f"fault {each}", *of_fault(each)] for each in NAMED]
    reported += [["codes", *of_codes()]]
    print("\n\n".join("\n".join(lines) for lines in reported))
