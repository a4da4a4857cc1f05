"""The silence of a pair of NICs as a whole, told sooner than that of each of its flows. Pure.

Each flow is asked less often than the pair, and judged by itself. So while a job's data wait, all
flows of a pair are looked at together: if none of them was answered for a while, though others
were, and the data wait as long, both mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from syntony.model import MS
from syntony.traffic.health import PEER_NS, PROGRESS_NS, Answers, Pair, Progress

HUSH_NS, HUSH_PROBES = 45 * MS, 8
"""So long, and so many probes of any of its flows, nothing of a pair is answered."""
AWAKE_NS = 15 * MS
"""Whoever was answered by anybody within so long is awake himself."""


def hushed(
    answers: Mapping[Pair, Answers],
    interval_ns: int,
    now_ns: int,
    more_ns: Callable[[Pair, int], int],
) -> dict[Pair, int]:
    """Silent pairs to their last answer: while we are awake, and so is the peer as far as it is
    asked at other NICs.

    Args:
        answers: of all pairs.
        interval_ns: between two probes of one flow.
        now_ns: CLOCK_MONOTONIC.
        more_ns: more time that a pair is given.
    """
    if now_ns - max((each.newest_ns for each in answers.values()), default=0) > AWAKE_NS:
        return {}
    found, plain = {}, False
    for pair, its in answers.items():
        beyond_ns = now_ns - its.newest_ns - more_ns(pair, now_ns)
        beyond_ns -= max(HUSH_NS, HUSH_PROBES * interval_ns // its.flows)
        others = [
            each.newest_ns
            for (_, remote), each in answers.items()
            if each.host == its.host and remote != pair[1]
        ]
        late = others and max(others) < its.newest_ns + PEER_NS
        # What died together was not answered last at the same instant.
        if beyond_ns > -interval_ns and not its.dying and not late:
            found[pair] = its.newest_ns
            plain |= beyond_ns > 0
    return found if plain else {}


def presumed(
    silent: Mapping[Pair, int], flows: Mapping[Pair, Iterable[Progress]]
) -> dict[Pair, int]:
    """Those of the silent pairs that are dead: a job's data wait on one of them, and on none of
    these does anything get through.

    Args:
        silent: to their last answer, CLOCK_MONOTONIC.
        flows: of jobs, on each.
    """
    dead = {
        pair: since_ns
        for pair, since_ns in silent.items()
        if all(each.acked_ns - PROGRESS_NS <= since_ns for each in flows.get(pair, ()))
    }
    waited_for = any(
        each.waits_ns > max(each.rtt_ns, HUSH_NS) for pair in dead for each in flows.get(pair, ())
    )
    return dead if waited_for else {}
