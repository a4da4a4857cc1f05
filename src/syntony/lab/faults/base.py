"""Base class of all faults: apply, undo, a kind of target, declared options."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

from syntony.errors import UsageError
from syntony.lab.daemons import Daemons
from syntony.lab.plan import LabPlan, Link, LinkKind, Port
from syntony.lab.ports import LabPorts
from syntony.lab.rates import parse_rate_bps
from syntony.model import HOUR_NS, SyntheticClockSpec, parse_duration_ns


class TargetKind(enum.StrEnum):
    """The kind of object that a fault acts on."""

    LINK = "link"
    SWITCH = "switch"
    HOST = "host"
    CONTROLLER = "controller"
    """The one in charge: it is not named."""
    GATEWAY = "gateway"


class FaultContext(NamedTuple):
    """The parts of a lab that faults act on."""

    plan: LabPlan
    ports: LabPorts
    daemons: Daemons
    clocks: Mapping[str, SyntheticClockSpec]
    directory: Path
    """Of the lab."""


class FaultOrder(NamedTuple):
    """One requested fault, checked against the lab, with complete and parsed options."""

    kind: type[LabFault]
    target: str
    options: Mapping[str, str]
    """As given, for listings."""
    values: Mapping[str, int | float | str]
    """Every option of the kind, defaults included."""

    def integer(self, name: str) -> int:
        return int(self.values[name])

    def text(self, name: str) -> str:
        return str(self.values[name])


class LabFault(ABC):
    """One active fault. `undo` restores the state before it, and may be repeated."""

    name: ClassVar[str]
    target: ClassVar[TargetKind]
    meaning: ClassVar[str]
    options: ClassVar[Mapping[str, str]] = {}
    """Option to its default; an empty default makes it required."""

    def __init__(self, site: FaultContext, number: int, order: FaultOrder) -> None:
        self.site = site
        self.number = number
        self.order = order

    @classmethod
    def own_duration_ns(cls, order: FaultOrder) -> int:  # noqa: ARG003 - most kinds have none
        """How long it lasts by itself; 0: until cleared."""
        return 0

    @classmethod  # noqa: B027 - most kinds have nothing to add
    def check(cls, plan: LabPlan, order: FaultOrder) -> None:
        """Checks specific to this kind of fault. Raises `UsageError`."""

    @abstractmethod
    def apply(self) -> None:
        """Raises `SyntonyError` when it cannot; then `undo` is called."""

    @abstractmethod
    def undo(self) -> None:
        """Takes back whatever `apply` did."""

    @property
    def link(self) -> Link:
        """The target, where it is a link."""
        return self.site.plan.link(self.order.target)


class LinkPackets(NamedTuple):
    """Packets of one direction of a link, matched in the switch `port.node`."""

    port: Port
    inwards: bool
    """They arrive at `port`; otherwise they leave by it."""


def link_packets(link: Link, direction: str) -> tuple[LinkPackets, ...]:
    """The packets of `link` ``from`` its first end, ``to`` it, or ``both``.

    Matched in the leaf, for NICs and fabric links alike, so that sends on a host still succeed.
    """
    fabric = link.kind is LinkKind.FABRIC
    port = link.a if fabric else link.b
    ways = {"from": LinkPackets(port, not fabric), "to": LinkPackets(port, fabric)}
    return tuple(ways.values()) if direction == "both" else (ways[direction],)


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0.001 <= value <= 100:
        raise UsageError(f"{text!r} is not a percentage; write for example 5 (0.001 to 100)")
    return value


def _between(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise UsageError(f"{text!r} is not a number from {low} to {high}")
        return int(text)

    return parse


def _choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise UsageError(f"{text!r} is not one of {', '.join(words)}")
        return text

    return parse


def _duration(low_ns: int, high_ns: int, example: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value_ns = parse_duration_ns(text)
        if not low_ns <= value_ns <= high_ns:
            raise UsageError(f"{text!r} is out of range; write for example {example}")
        return value_ns

    return parse


def _step(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    value_ns = sign * parse_duration_ns(text.lstrip("+-"))
    if value_ns == 0 or abs(value_ns) > HOUR_NS:
        raise UsageError(f"{text!r} is not a clock step; write for example 10ms or -300us")
    return value_ns


def _ppm(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= abs(value) <= 5_000:
        raise UsageError(f"{text!r} is not a change of rate; write for example 100 or -50 (ppm)")
    return value


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.05 <= value <= 0.95:
        raise UsageError(f"{text!r} is not a fraction from 0.05 to 0.95")
    return value


OPTIONS: Mapping[str, Callable[[str], int | float | str]] = {
    "side": _choice("host", "leaf", "spine"),
    "direction": _choice("both", "to", "from"),
    "percent": _percent,
    "add": _duration(1_000, 10_000_000_000, "300us"),
    "to": parse_rate_bps,
    "period": _duration(20_000_000, HOUR_NS, "2s"),
    "count": _between(0, 1_000_000),
    "duty": _fraction,
    "procs": _between(1, 64),
    "by": _step,
    "ppm": _ppm,
    "bytes": _between(1280, 1499),
    "sport": _between(1, 65535),
    "dport": _between(1, 65535),
}
"""The parser of each option; an option means the same in every kind of fault."""
