"""Which of two incidents is the cause of the other, by what they are about. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from syntony.alerts.observations import Containment
from syntony.alerts.telling import RANK

if TYPE_CHECKING:
    from syntony.alerts.incidents import Incident


def is_reported(incident: Incident) -> bool:
    """Whether somebody knows of it, and that it is as severe as it is."""
    reported = incident.paged_as or incident.severity
    return incident.paged and RANK[incident.severity] <= RANK[reported]


def precedes(one: Incident, other: Incident, topology: Containment) -> bool:
    """Whether the second of one rule is evidence of the first: the narrower one (a cable's
    direction) of the wider, but the wider where only the narrower was paged for, as is the other
    direction."""
    if one.paged > other.paged and (
        topology.holds(other.subject, one.subject) or topology.mirrors(one.subject, other.subject)
    ):
        return True
    return one.paged >= other.paged and topology.holds(one.subject, other.subject)


def explains(cause: Incident, incident: Incident, holds: Callable[[str, str], bool]) -> bool:
    """Whether all that an incident is about is, or fails with, what another is about."""
    return all(
        name == cause.subject or name in cause.members or holds(cause.subject, name)
        for name in incident.members or (incident.subject,)
    )
