"""Incidents, their changes, and what of them survives a restart."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from syntony.alerts.rules import Severity
from syntony.alerts.silences import Silence
from syntony.model import DAY_NS

RETENTION_NS = 30 * DAY_NS
"""Resolved incidents are dropped after this time; the store keeps them longer."""
MAX_RESOLVED = 10_000
"""… or earlier, the oldest first, if there are more: all are in memory."""


class IncidentState(enum.StrEnum):
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    """An engineer works on it: no further pages."""
    RESOLVED = "resolved"


class Incident(msgspec.Struct, kw_only=True):
    """One fault, with all that the engineer on call needs. Instants are fleet time."""

    number: int
    rule: str
    subject: str
    severity: Severity
    state: IncidentState
    summary: str
    remedy: str
    opened_ns: int
    updated_ns: int
    began_ns: int = 0
    """Last opening: `opened_ns`, or when it was last reopened; 0 in a state of an older version."""
    resolved_ns: int = 0
    bad_ns: int = 0
    """When it was last bad; in a state of an older version when it last changed."""
    quiet_ns: int = 0
    """For how long it was not bad before it returned, at most. 0: it has not returned."""
    value: float = 0.0
    worst: float = 0.0
    unit: str = ""
    """Unit of `value` and `worst`, as `Rule.unit`."""
    evidence: tuple[str, ...] = ()
    """Lines that differ only in numbers are merged into the newest, with a count."""
    jobs: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    """The components, if the subject describes several of them."""
    via: tuple[str, ...] = ()
    """What the subject, or each of its components that has failed, was reached over."""
    span_ns: int = 0
    """Length of the window of its value."""
    pending: bool = False
    """Further probes are under way: no page yet."""
    apart_from: tuple[str, ...] = ()
    """Metrics whose incidents do not explain it."""
    cause: int = 0
    """Number of the incident that explains this one, live or resolved; 0: none, so it may page."""
    continues: bool = False
    """Whether its cause may be the same fault under another name, and stays open with it."""
    caused: float = 0.0
    """The largest value while that incident was live."""
    named_by: int = 0
    """Number of the incident whose words this one has now, because they say better what the fault
    is; 0: it has its own."""
    named_ns: int = 0
    """When its words were last changed; 0: never."""
    former_words: tuple[str, ...] = ()
    """Earlier summaries, and until when each was reported."""
    held_ns: int = 0
    """Start of the delay `wait`: when it was opened or reopened, or its cause ended. Until its
    first page, times at which it was not bad since then are added."""
    paged: bool = False
    """Whether it has paged, and no all-clear was sent yet: one that has returned is resolved before
    that is sent."""
    paged_as: Severity | None = None
    """Its severity when it paged; None: since it was opened or reopened nobody was paged for it."""
    pages: int = 0
    """Number of its pages."""
    silenced: bool = False
    announced: float = 0.0
    """The largest value while it was silenced, as far as it has not fallen since."""
    past: bool = False
    """Whether its value tells of a change in the past, as counts do."""
    reopened: int = 0
    repeats: int = 0
    """Earlier incidents of the same rule and subject within a week."""
    acknowledged_by: str = ""
    comment: str = ""

    def __post_init__(self) -> None:
        self.bad_ns = self.bad_ns or self.updated_ns

    @property
    def live(self) -> bool:
        return self.state is not IncidentState.RESOLVED

    @property
    def over(self) -> bool:
        """Whether it is resolved, and no all-clear is due."""
        return not (self.live or self.paged)

    @property
    def reported_severity(self) -> Severity:
        """The severity that its receivers know, or would: it may have returned milder since."""
        return self.paged_as or self.severity

    @property
    def since_ns(self) -> int:
        """When it was last opened."""
        return self.began_ns or self.opened_ns


class ChangeKind(enum.StrEnum):
    OPENED = "opened"
    REOPENED = "reopened"
    EXPLAINED = "explained"
    """It is now explained by another incident."""
    UNEXPLAINED = "unexplained"
    """Its cause has ended and it is still live."""
    RENAMED = "renamed"
    """It has paged, and later evidence says better what the fault is: no second page."""
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"
    PAGE = "page"
    """Send a page."""
    CLEAR = "clear"
    """Notify those who were paged that it is resolved."""


class IncidentChange(NamedTuple):
    """One change, and the incident after it."""

    at_ns: int
    kind: ChangeKind
    incident: Incident


class Streak(msgspec.Struct):
    """For how many evaluations a rule has been bad or good on one subject."""

    bad: int = 0
    good: int = 0
    good_ns: int = 0
    """Instant since which it has been good."""


class BookState(msgspec.Struct, kw_only=True):
    """State that survives a restart."""

    next_number: int = 1
    incidents: list[Incident] = msgspec.field(default_factory=list)
    streaks: dict[str, Streak] = msgspec.field(default_factory=dict)
    """By ``rule|subject``."""
    silences: list[Silence] = msgspec.field(default_factory=list)
    next_silence: int = 1


def forget(state: BookState, now_ns: int) -> None:
    """Drop old resolved incidents whose pages are over, and silences that are."""
    ended = [each.resolved_ns for each in state.incidents if not each.live]
    oldest_ns = now_ns - RETENTION_NS
    if len(ended) > MAX_RESOLVED:
        oldest_ns = max(oldest_ns, sorted(ended)[-MAX_RESOLVED - 1])
    state.incidents = [
        each for each in state.incidents if not each.over or each.resolved_ns > oldest_ns
    ]
    state.silences = [silence for silence in state.silences if silence.last_ns > now_ns]
