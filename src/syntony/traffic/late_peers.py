"""Tell a dead path from a peer whose agent gets processor time late. Pure.

An agent replies on all NICs of its host, one after the other. So the silence of a NIC counts only
for the time in which other NICs of the same host replied.
"""

from __future__ import annotations

from collections.abc import Mapping

from syntony.model import MS
from syntony.traffic.pairs import Pair, PairReplies

PEER_NS = 10 * MS
"""A reply of one NIC this much later than the last reply of another shows that the peer was
running meanwhile."""
BACK_NS = 250 * MS
"""Maximum time for the other NICs of a peer that was silent and replies again: five rounds of the
slowest probes."""


def late_until_ns(
    pair: Pair, host: str, since_ns: int, answers: Mapping[Pair, PairReplies], now_ns: int
) -> int:
    """Until when a pair's silence is attributed to its peer. In the past: it is the path's.

    Args:
        pair: local NIC and remote address.
        host: the peer.
        since_ns: last reply on the pair, CLOCK_MONOTONIC.
        answers: of all pairs with live flows.
        now_ns: the same clock.
    """
    others = [its for (_, remote), its in answers.items() if its.host == host and remote != pair[1]]
    awake = [
        its for its in others if not its.silent and its.newest_ns - its.rtt_ns >= since_ns + PEER_NS
    ]
    if not awake:
        return now_ns + PEER_NS if others else 0
    return min(
        its.steady_ns + min(BACK_NS, its.gap_ns) if its.steady_ns > since_ns else 0 for its in awake
    )
