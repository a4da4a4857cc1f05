"""Which controller may decide for a fabric: at most one at a time. Pure.

An agent listens to one controller at a time; each report to it carries fleet time.
A controller may decide while it has reports from more than half of the fabric's hosts within
`LEASE_NS`, each of which has listened to it for longer than `WAIT_NS`. Two halves of a fleet cannot
both be more than half; a host that changes sides counts for the old one for `LEASE_NS` at most and
for the new one after `WAIT_NS` at the earliest, which is longer. Orders that a controller
gave before it lost its half expire within `EXPIRY_NS`, which fits in between. (Gray and Cheriton
1989, with agents as lease holders; clocks must agree to within the difference, a second.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from syntony.model import MS, S

LEASE_NS = 3 * S
"""Seven report intervals: an agent that is merely slow still counts."""
EXPIRY_NS = 1 * S
"""Lifetime of an order."""
WAIT_NS = LEASE_NS + EXPIRY_NS + 500 * MS
"""A controller waits this long after it has started, or after hosts have switched to it."""


class ListeningHost(NamedTuple):
    """One host that reports to this controller."""

    since_ns: int
    """First report of its current stream, fleet time of sending."""
    newest_ns: int
    """Newest report, fleet time of sending."""


def may_decide(
    listening: Mapping[str, ListeningHost], electorate: Collection[str], now_ns: int
) -> tuple[bool, str]:
    """Whether this controller may decide now; if not, why not.

    Args:
        listening: by host.
        electorate: all hosts of the fabric, the same for every controller.
        now_ns: fleet time.
    """
    wanted = len(electorate) // 2 + 1
    fresh = [
        each
        for host, each in listening.items()
        if host in electorate and now_ns - each.newest_ns < LEASE_NS
    ]
    if not electorate or len(fresh) < wanted:
        return (
            False,
            f"{len(fresh)} of {len(electorate)} hosts report to this controller; needed: {wanted}",
        )
    steady = sum(now_ns - each.since_ns >= WAIT_NS for each in fresh)
    if steady < wanted:
        return False, "another controller's orders may still be under way; waiting"
    return True, ""
