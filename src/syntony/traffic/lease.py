"""Who may decide for a fabric: never two at once. Pure.

An agent listens to one controller at a time, and says so in every report, stamped with fleet time.
A controller may decide while it has heard from more than half of the fabric's hosts within
`LEASE_NS`, each of which has listened to it for longer than `WAIT_NS`. Two halves of a fleet cannot
both be more than half; a host that changes sides counts for the old one for `LEASE_NS` at most and
for the new one after `WAIT_NS` at the earliest, which is longer. What a controller ordered before
it lost its half expires within `EXPIRY_NS`, which fits in between. (Gray and Cheriton 1989, with
agents as lease holders; clocks need to agree to the difference, a second.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from syntony.model import MS, S

LEASE_NS = 3 * S
"""Seven reports of an agent: one that is merely slow stays."""
EXPIRY_NS = 1 * S
"""Of an order, from when it was given."""
WAIT_NS = LEASE_NS + EXPIRY_NS + 500 * MS
"""A controller that has just started, or that hosts have just come to, waits for so long."""


class ListeningHost(NamedTuple):
    """One host that reports to this controller."""

    since_ns: int
    """Since when, without a break: the first report of its stream, fleet time as it was sent."""
    newest_ns: int
    """Its newest report, fleet time as it was sent."""


def may_decide(
    heard: Mapping[str, ListeningHost], electorate: Collection[str], now_ns: int
) -> tuple[bool, str]:
    """Whether we may decide now; if not, why not.

    Args:
        heard: by host.
        electorate: all hosts of the fabric, the same for every controller.
        now_ns: fleet time.
    """
    wanted = len(electorate) // 2 + 1
    fresh = [
        each
        for host, each in heard.items()
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
