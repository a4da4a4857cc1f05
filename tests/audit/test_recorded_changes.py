"""Verdicts on a host with one input absent, unreadable, empty or with other numbers are those of
`fixtures/changes.txt`.

A check that passes what it could not read is worse than none. After an intended change, look at the
difference of `python -m tests.audit.test_recorded_changes > tests/audit/fixtures/changes.txt`.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.audit.fixture_fleet import FOLDER, trees, write_tree
from tests.cases import mostly_slow, recorded

from syntony.audit.check import HostCheck, examine
from syntony.audit.facts import AbsentError, FactError, Facts, UnreadableError
from syntony.audit.registry import host_checks
from syntony.audit.result import ComparedValue, Result
from syntony.io.audit.host import recorded_host
from syntony.links.snapshot import PortSnapshot

HOSTS = ("dgx-h100", "mi300x-thor2")
AGREED = FOLDER / "changes.txt"
Requested = tuple[str, ...]
"""`read` and a path, `run` and a command, and so on."""


def gone(_: str) -> str:
    raise AbsentError("it is not there")


def unreadable(_: str) -> str:
    raise UnreadableError("it cannot be read")


def more(text: str) -> str:
    """Every number three times as large."""
    return re.sub(r"(?<![\w.:])\d+(?![\w:]*[:\w])", lambda found: str(3 * int(found[0])), text)


CHANGES: Mapping[str, Callable[[str], str]] = {
    "gone": gone, "unreadable": unreadable, "empty": lambda _: "", "more": more
}  # fmt: skip


class Changed:
    """`Facts` of a host of which one answer is another; knows what it was asked for."""

    def __init__(
        self, facts: Facts, at: Requested = (), change: Callable[[str], str] = lambda text: text
    ) -> None:
        self._facts = facts
        self._at = at
        self._change = change
        self.requested: dict[Requested, None] = {}

    @property
    def host(self) -> str:
        return self._facts.host

    def _answer(self, answer: str, *requested: str) -> str:
        self.requested[requested] = None
        return self._change(answer) if requested == self._at else answer

    def read(self, path: str) -> str:
        return self._answer(self._facts.read(path), "read", path)

    def read_bytes(self, path: str) -> bytes:
        return self._answer(self._facts.read_bytes(path).hex(), "bytes", path).encode()

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(self._answer(" ".join(self._facts.names(path)), "names", path).split())

    def exists(self, path: str) -> bool:
        try:
            return bool(self._answer("y" * self._facts.exists(path), "exists", path))
        except FactError:
            return False

    def real(self, path: str) -> str:
        return self._answer(self._facts.real(path), "real", path)

    def run(self, *command: str) -> str:
        return self._answer(self._facts.run(*command), "run", *command)

    def ports(self) -> tuple[PortSnapshot, ...]:
        return self._facts.ports()

    def later(self, after_ns: int) -> Facts | None:
        return self._facts.later(after_ns)


def of_host(shape: str) -> Iterator[str]:
    tree, place = trees(shape)[0]
    with tempfile.TemporaryDirectory() as folder:
        root = write_tree(tree, place, Path(folder) / place.name)
        host = recorded_host(root, place.name)
        for kind in host_checks():
            yield from of_check(kind(), host)


def of_check(check: HostCheck, host: Facts) -> Iterator[str]:
    whole = Changed(host)
    before = Counter(map(short, examine(check, whole)))
    kinds = {
        re.sub(r"\d+", "#", " ".join(requested)): requested
        for requested in reversed(whole.requested)
    }
    for kind, requested in sorted(kinds.items()):
        said: dict[str, list[str]] = {}
        for name, change in CHANGES.items():
            after = Counter(map(short, examine(check, Changed(host, requested, change))))
            differs = [f"{count} x {line}" for line, count in sorted((after - before).items())]
            if not after or after != before:
                said.setdefault("; ".join(differs[:3]) or "less", []).append(name)
        for line, names in said.items():
            yield f"{check.id} {kind} {' '.join(names)}: {line}"


def short(said: Result | ComparedValue) -> str:
    if isinstance(said, ComparedValue):
        return f"{said.key} = {said.value}"
    return f"{said.status} {said.got} {said.evidence}"[:100]


@pytest.mark.parametrize("shape", mostly_slow(HOSTS, {"mi300x-thor2"}))
def test_what_a_host_lacks_is_reported_as_recorded(shape: str) -> None:
    assert list(of_host(shape)) == recorded(AGREED)[shape]


if __name__ == "__main__":
    print("\n\n".join("\n".join([shape, *of_host(shape)]) for shape in HOSTS))
