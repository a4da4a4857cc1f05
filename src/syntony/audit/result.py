"""Records of verdicts and of readings to compare."""

from __future__ import annotations

import enum

import msgspec

from syntony.audit.text import printable

Value = str | int | float | bool
"""What can be compared with an expected value."""

MAX_AMOUNT = 2**64
"""Larger whole numbers are none that a host can read, and cannot be converted to others."""
FLEET = "fleet"
"""Subject of a verdict on all hosts together."""


class Status(enum.StrEnum):
    """The verdict. Unknown is not healthy."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    WARN = "warn"
    UNKNOWN = "unknown"
    """It could not be measured, or hosts differ without a majority."""
    NOT_COMPARED = "not-compared"
    """A value was read, and neither a spec nor peers say what it should be."""
    SKIP = "skip"
    """It does not apply here."""


WRONG = frozenset({Status.FAIL, Status.WARN, Status.UNKNOWN})


class Suspect(enum.StrEnum):
    """What to look at first."""

    NONE = ""
    CABLE = "cable"
    PORT = "port"
    NIC = "nic"
    GPU = "gpu"
    MEMORY = "memory"
    DISK = "disk"
    HOST = "host"
    SWITCH = "switch"
    FABRIC = "fabric"
    """Between switches: a link or a group of links, not one host's."""
    CONFIG = "config"


class Printable(msgspec.Struct, frozen=True, kw_only=True):
    """A record whose texts come from hosts; they are made safe to print when it is created."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            text = getattr(self, name)
            # An enum's text is our own.
            if type(text) is str and not text.isprintable():
                msgspec.structs.force_setattr(self, name, printable(text))


class Result(Printable, frozen=True, kw_only=True):
    """One verdict; `msgspec.to_builtins` of it is the shape of every ``--json``."""

    check: str
    """``be.act.rate``."""
    status: Status
    subject: str
    """``gpu001``, ``gpu001/mlx5_0:1``, ``leaf03--spine1``: what it is said of."""
    expected: str = ""
    got: str = ""
    evidence: str = ""
    """Where it was seen and how, in one line; for unknown and skip, the reason."""
    meaning: str = ""
    """What a failure means; empty for a pass."""
    remedy: str = ""
    """What to do; empty for a pass."""
    suspect: Suspect = Suspect.NONE
    follows: str = ""
    """Check and subject of the failure that explains this one, which is then skipped."""


class ComparedValue(Printable, frozen=True, kw_only=True):
    """A value to be compared with an expected one: spec, golden host or majority. Raises
    `ValueError`: a number that cannot be compared with others."""

    check: str
    key: str
    """What is expected, as the spec names it: ``sw.nic-fw``."""
    subject: str
    value: Value
    variant: str = ""
    """Only readings of the same variant are compared: a board's id, a NIC's place."""
    evidence: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.value) is int and abs(self.value) >= MAX_AMOUNT:
            raise ValueError(f"{self.key}: a number of more than 64 bits")


class HostReport(Printable, frozen=True, kw_only=True):
    """All verdicts and readings of one host, before comparison with expected values."""

    host: str
    taken_ns: int
    """When, UTC, by the clock of anyone who ran the checks."""
    results: tuple[Result, ...] = ()
    readings: tuple[ComparedValue, ...] = ()
    unreachable: str = ""
    """Why nothing is known of the host; empty when something is."""
    part: str = ""
    """What was asked of the fleet as a whole (``network``): then no host's report, and `host` is
    ``fleet``."""
    requested: str = ""
    """Of a part: whom and how, so that a resumed run knows whether it is the same."""
