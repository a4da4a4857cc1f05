"""The fault schedules of drills. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from syntony.errors import UsageError
from syntony.model import S

VICTIM = "h1"
"""Not rank 0: the victim is an ordinary host, not the rendezvous host."""
NIC, OTHER_NIC = f"{VICTIM}/rail0", f"{VICTIM}/rail1"
OUTAGE_NS = 5 * S
_FLAPS, _FLAP_NS = 10, 2 * S
"""Ten flaps in twenty seconds, half of each down."""
_BETWEEN_NS = 2 * S
"""From the return of one NIC to the loss of the other: longer than a first hold-down."""


class TimedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of the lab (`syntony lab fault --help`), from its start to its end."""

    kind: str
    target: str
    options: dict[str, str] = {}
    after_ns: int = 0
    """Since the first fault."""
    for_ns: int


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Faults in order; none overlaps the next."""

    name: str
    meaning: str
    faults: tuple[TimedFault, ...]

    @property
    def span_ns(self) -> int:
        """From the start of the first fault to the end of the last."""
        return max((fault.after_ns + fault.for_ns for fault in self.faults), default=0)


def no_fault(span_ns: int) -> Scenario:
    """A scenario of the same length without a fault."""
    fault = TimedFault(kind="", target="", for_ns=span_ns)
    return Scenario(name="none", meaning="nothing happens", faults=(fault,))


def _one(kind: str, options: dict[str, str]) -> Callable[[int, str], tuple[TimedFault, ...]]:
    return lambda outage_ns, _link: (
        TimedFault(kind=kind, target=NIC, options=options, for_ns=outage_ns),
    )


def _spine(outage_ns: int, link: str) -> tuple[TimedFault, ...]:
    return (TimedFault(kind="blackhole", target=link, for_ns=outage_ns),)


def _flaps(_outage_ns: int, _link: str) -> tuple[TimedFault, ...]:
    return tuple(
        TimedFault(kind="link-down", target=NIC, after_ns=i * _FLAP_NS, for_ns=_FLAP_NS // 2)
        for i in range(_FLAPS)
    )


def _both(outage_ns: int, _link: str) -> tuple[TimedFault, ...]:
    second_ns = outage_ns + _BETWEEN_NS
    return (
        TimedFault(kind="link-down", target=NIC, for_ns=outage_ns),
        TimedFault(kind="link-down", target=OTHER_NIC, after_ns=second_ns, for_ns=outage_ns),
    )


_MAKERS: dict[str, tuple[str, Callable[[int, str], tuple[TimedFault, ...]]]] = {
    "link-down": (f"{NIC} goes down on the host", _one("link-down", {"side": "host"})),
    "leaf-port-down": (
        f"the leaf's port to {NIC} goes down: carrier lost",
        _one("link-down", {"side": "leaf"}),
    ),
    "blackhole": (f"{NIC} loses everything, carrier stays", _one("blackhole", {})),
    "one-way-blackhole": (
        f"what {NIC} sends vanishes, what it receives arrives",
        _one("blackhole", {"direction": "from"}),
    ),
    "spine-blackhole": ("a link to a spine that the job uses loses everything", _spine),
    "flaps": (f"{NIC} flaps ten times in 20 s", _flaps),
    "both-nics": (f"{NIC} goes down and returns, then {OTHER_NIC}", _both),
}
NAMES = tuple(_MAKERS)


def meaning(name: str) -> str:
    """One line on a scenario. Raises `UsageError`."""
    return _maker(name)[0]


def make(name: str, *, outage_ns: int = OUTAGE_NS, spine_link: str = "") -> Scenario:
    """A scenario by its name.

    Args:
        name: one of `NAMES`.
        outage_ns: how long each fault lasts; flaps have a fixed period.
        spine_link: the link that a spine black-hole is at, ``leaf0-0/spine1``.

    Raises:
        UsageError: there is no such scenario.
    """
    text, faults = _maker(name)
    return Scenario(name=name, meaning=text, faults=faults(outage_ns, spine_link))


def _maker(name: str) -> tuple[str, Callable[[int, str], tuple[TimedFault, ...]]]:
    if name not in _MAKERS:
        raise UsageError(f"this drill has no fault {name!r}; it has: {', '.join(NAMES)}")
    return _MAKERS[name]
