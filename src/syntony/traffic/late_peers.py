"""Whether a silence is that of a path, or of a peer whose agent gets processor time late. Pure.

An agent answers at all NICs of its host, one after the other. So a NIC is judged by the time in
which others of the same host answered, as one's own silence counts while one is awake oneself.
"""

from __future__ import annotations

from collections.abc import Mapping

from syntony.model import MS
from syntony.traffic.pairs import Answers, Pair

PEER_NS = 10 * MS
"""What one NIC of a peer answers so much later than another one's last answer shows that the peer
itself was awake."""
BACK_NS = 250 * MS
"""A peer that answers again where it answered nowhere is given so long for its other NICs, at most:
five turns of the slowest probes."""


def late_until_ns(
    pair: Pair, host: str, since_ns: int, answers: Mapping[Pair, Answers], now_ns: int
) -> int:
    """Until when a pair's silence is put down to its peer; in the past: it is the path's.

    Args:
        pair: local NIC and remote address.
        host: the peer.
        since_ns: the pair's last answer, CLOCK_MONOTONIC.
        answers: of all pairs with flows that live.
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
