"""Base classes of checks: id, inputs, meaning of a failure, remedy."""

from __future__ import annotations

import enum
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import msgspec

from syntony.audit.facts import FactError, Facts
from syntony.audit.result import ComparedValue, Result, Status, Suspect, Value


class Section(enum.Enum):
    """Place of a check in the tree of results: branch and sub-branch."""

    SOFTWARE = ("Configuration", "Software")
    MEMORY = ("Configuration", "Memory")
    PCIE = ("Configuration", "PCIe")
    NODE = ("Node", "")
    FRONTEND = ("Front-end network", "")
    INITIALIZED = ("Back-end network", "Initialized connections")
    ACTIVE = ("Back-end network", "Active connections")
    GID = ("Back-end network", "GID index")
    CONNECTIVITY = ("Back-end network", "Connectivity")
    LATENCY = ("Back-end network", "Latency")
    TOPOLOGY = ("Back-end network", "Topology")
    NCCL = ("NCCL", "")

    @property
    def title(self) -> str:
        """``Configuration / Software``."""
        return " / ".join(part for part in self.value if part)


class Compare(enum.Enum):
    """How to compare a reading if the spec has no expected value."""

    EQUAL = "equal"
    """The most frequent value is expected."""
    ABOUT = "about"
    """The median is expected, give or take `Key.within`."""
    AT_LEAST = "at least"
    """At least the median minus `Key.within` is expected: a bandwidth."""
    COMMON = "common"
    """More than half of the role's hosts must read the same; those without a reading count too."""
    PRESENT = "present"
    """What more than half of the role's hosts have, the others must have too (`presence`)."""
    UNIQUE = "unique"
    """No two hosts may read the same (`presence`)."""


class Key(msgspec.Struct, frozen=True):
    """One name of a spec: a value that a check reads and that is compared."""

    name: str
    meaning: str
    compare: Compare = Compare.EQUAL
    within: float = 0.0
    """Relative tolerance of `Compare.ABOUT` and `Compare.AT_LEAST`."""
    variant: str = ""
    """What its readings are distinguished by (``board``, ``NIC``); empty where by nothing."""
    unit: str = ""
    """Of an amount: ``B`` is reported as GiB, anything else as it is."""


class NoInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A check without limits that a spec could set."""


class Check(ABC):
    """A check. The first line of its docstring is its title; after ``Expected results:`` it says
    what passes.
    """

    id: ClassVar[str]
    section: ClassVar[Section]
    reads: ClassVar[tuple[str, ...]]
    """Files (shell patterns) and, after ``$ ``, commands."""
    meaning: ClassVar[str]
    """Meaning of a failure, for the operator."""
    remedy: ClassVar[str]
    suspect: ClassVar[Suspect] = Suspect.HOST
    keys: ClassVar[tuple[Key, ...]] = ()
    Input: ClassVar[type[msgspec.Struct]] = NoInput
    """Limits with their defaults; a spec sets them under ``[checks."ID"]``."""
    limits: msgspec.Struct
    """An `Input`; a check that has one says so again, for the types' sake."""

    def __init__(self, limits: msgspec.Struct | None = None) -> None:
        self.limits = self.Input() if limits is None else limits

    def asks(self) -> tuple[str, ...]:
        """Its inputs under its limits: `reads`, with values in place of CAPITALS."""
        return self.reads

    @classmethod
    def title(cls) -> str:
        """The first line of the docstring."""
        return inspect.cleandoc(cls.__doc__ or "").partition("\n")[0]

    @classmethod
    def rule(cls) -> str:
        """The condition of a pass: the docstring after ``Expected results:``."""
        text = inspect.cleandoc(cls.__doc__ or "").partition("Expected results:")[2]
        return " ".join(text.split())

    def result(
        self, status: Status, subject: str, got: object = "", expected: object = "",
        evidence: str = "", *, meaning: str = "", remedy: str = "", suspect: Suspect | None = None,
    ) -> Result:  # fmt: skip
        """A verdict with this check's meaning and remedy unless better ones are given."""
        bad = status in {Status.FAIL, Status.WARN}
        return Result(
            check=self.id,
            status=status,
            subject=subject,
            expected=str(expected),
            got=str(got),
            evidence=" ".join(evidence.split()),
            meaning=(meaning or self.meaning) if bad else "",
            remedy=(remedy or self.remedy) if bad else remedy,
            suspect=(self.suspect if suspect is None else suspect) if bad else Suspect.NONE,
        )


class HostCheck(Check):
    """A check of one host, given its `Facts`."""

    active: ClassVar[bool] = False
    """It loads the host: it runs only if requested by name or with ``--active``."""

    @abstractmethod
    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        """Verdicts, and readings to be compared. A `FactError` that it raises is ``unknown``."""

    def verdict(
        self, ok: bool, host: Facts, got: object, expected: object = "", evidence: str = "",
        *, at: str = "", bad: Status = Status.FAIL, **words: str,
    ) -> Result:  # fmt: skip
        """Pass or `bad`, of the host or of something `at` it."""
        status = Status.PASS if ok else bad
        return self.result(status, subject(host, at), got, expected, evidence, **words)  # type: ignore[arg-type]

    def part(
        self, host: Facts, results: Iterator[Result | ComparedValue], at: str = ""
    ) -> Iterator[Result | ComparedValue]:
        """Run one part of the check; where it cannot be read, the others keep their verdicts."""
        try:
            yield from results
        except FactError as error:
            yield self.unknown(host, str(error), at)

    def unknown(self, host: Facts, reason: str, at: str = "") -> Result:
        """The result of a check that could not be measured."""
        return self.result(Status.UNKNOWN, subject(host, at), evidence=reason)

    def skip(self, host: Facts, reason: str, at: str = "") -> Result:
        """The result of a check that does not apply."""
        return self.result(Status.SKIP, subject(host, at), evidence=reason)

    def reading(
        self, host: Facts, key: str, value: Value, at: str = "", *, variant: str = "",
        evidence: str = "",
    ) -> ComparedValue:  # fmt: skip
        return ComparedValue(
            check=self.id, key=key, subject=subject(host, at), value=value, variant=variant,
            evidence=" ".join(evidence.split()),
        )  # fmt: skip


def subject(host: Facts, at: str = "") -> str:
    """``gpu001``, or ``gpu001/mlx5_0:1``."""
    return f"{host.host}/{at}" if at else host.host


MAX_REASON = 300
_OF_SYS = ("DEVICE", "NETDEV", "ADDRESS")
"""Words of commands that stand for names found below /sys."""


def examine(check: HostCheck, host: Facts) -> list[Result | ComparedValue]:
    """The check's verdicts on the host; what could not be read is unknown, with the reason."""
    said: list[Result | ComparedValue] = []
    try:
        said.extend(check.test(host))
    except FactError as error:
        said.append(unknown(check, host.host, str(error)))
    except Exception as error:  # noqa: BLE001 - supervisor: one check's fault is one unknown
        reason = f"the check itself failed: {type(error).__name__}: {error}"
        said.append(unknown(check, host.host, reason))
    if not said:
        said.append(check.result(Status.SKIP, host.host, evidence="nothing here to look at"))
    return [_not_blind(each, check, host) for each in said]


def _not_blind(
    each: Result | ComparedValue, check: HostCheck, host: Facts
) -> Result | ComparedValue:
    """A check whose inputs are all missing cannot decide that it does not apply."""
    if not isinstance(each, Result) or each.status is not Status.SKIP:
        return each
    tops = {f"/{path.split('/')[1]}" for path in check.reads if path.startswith(("/sys", "/proc"))}
    # These commands name devices that are found below /sys.
    tops |= {"/sys" for path in check.reads for mark in _OF_SYS if mark in path}
    if not tops or any(host.exists(top) for top in tops):
        return each
    return unknown(check, each.subject, f"no {' or '.join(sorted(tops))} here: {each.evidence}")


def unknown(check: HostCheck, subject: str, reason: str) -> Result:
    return check.result(Status.UNKNOWN, subject, evidence=reason[:MAX_REASON])
