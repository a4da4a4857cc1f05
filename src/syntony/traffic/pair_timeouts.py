"""Timeout of a pair of NICs as a whole, shorter than the timeouts of its single flows. Pure.

Each flow is probed less often than the pair, and has its own timeout. So once the probe engine
reports that all probes of a pair are unanswered for a while, the data of the jobs that use it are
examined. Acknowledged data are a sign of life like a probe reply: a queue delays either, seldom
both. The pair is dead if it had neither for longer than at any time recently, data wait, and other
pairs are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from syntony.model import MS, S
from syntony.traffic.late_peers import late_until_ns
from syntony.traffic.pairs import ConnectionProgress, Pair, PairReplies

SHORTEST_NS, LONGEST_NS = 25 * MS, 200 * MS
"""Bounds of a pair's timeout, which depends on its usual queue depth and length of outages."""
FIRST_NS = 45 * MS
"""Timeout of a pair without history."""
LATE_NS = 30 * MS
"""A machine with any idle processor time wakes this process within this time. One without cannot
judge others well: each ms beyond it counts fivefold."""
MAX_LATE_NS = 60 * MS
"""Maximum lateness counted; beyond it the timeouts of single flows decide."""
PAUSE_NS = 100 * MS
"""After a pause longer than this (of a virtual machine, say) silence counts from its end: other
machines may have been paused as well."""
OUTAGE_NS = LONGEST_NS
"""A silence of this length that ends was an outage, and does not lengthen the timeout."""
FORGET_NS = 3_600 * S
"""The history of a pair that was not examined for this long is dropped."""
HALF_LIFE_NS = 16 * S
"""The longest silence decays by half in this time: a job's steps repeat sooner…"""
LATE_HALF_LIFE_NS = 4 * S
"""… and lateness in this time: processes that are short of processors are late again sooner."""
LOOKS_NS = 5 * MS
"""Interval of checks of a silent pair: its silence may be longer than measured by this."""
AWAKE_NS = 15 * MS
"""If any pair was answered within this time, this process is running."""

ExtraTime = Callable[[Pair, int], int]
Flows = Mapping[Pair, Sequence[ConnectionProgress]]


class _Longest:
    """The longest recent duration, which decays."""

    def __init__(self, first_ns: int, now_ns: int, half_life_ns: int = HALF_LIFE_NS) -> None:
        self._longest_ns, self._at_ns = first_ns, now_ns
        self._half_life_ns = half_life_ns

    def take(self, longest_ns: int, now_ns: int) -> None:
        if longest_ns > self.as_of(now_ns):
            self._longest_ns, self._at_ns = longest_ns, now_ns

    def as_of(self, now_ns: int) -> int:
        return int(self._longest_ns * 0.5 ** ((now_ns - self._at_ns) / self._half_life_ns))


class SilenceHistory:
    """How long a pair is silent at times although data wait. Starts long, until shorter is seen."""

    def __init__(self, now_ns: int) -> None:
        self.longest = _Longest(FIRST_NS * 4 // 5, now_ns)
        self._sign_ns = self._silent_ns = 0
        self.seen_ns = now_ns

    def note(self, sign_ns: int, now_ns: int, *, hangs: bool) -> None:
        """Take the newest sign of life. If it ends a silence while data waited, the pair is
        sometimes silent for so long."""
        self.seen_ns = now_ns
        if sign_ns > self._sign_ns:
            if self._silent_ns < OUTAGE_NS:
                self.longest.take(self._silent_ns, now_ns)
            self._sign_ns, self._silent_ns = sign_ns, 0
        if hangs:
            self._silent_ns = now_ns - sign_ns + LOOKS_NS

    def died(self) -> None:
        """The pair is dead: its present silence does not count."""
        self._silent_ns = 0


class PairTimeouts:
    def __init__(self) -> None:
        self._histories: dict[Pair, SilenceHistory] = {}
        self._late = _Longest(0, 0, LATE_HALF_LIFE_NS)
        self._resumed_ns = 0
        """End of this process's last pause."""

    def late(self, late_ns: int, now_ns: int) -> None:
        """This thread was woken this much too late, because the machine is busy. Replies and
        acknowledgements may be as late."""
        self._late.take(min(late_ns, MAX_LATE_NS), now_ns)

    def paused(self, now_ns: int) -> None:
        """This process was paused for `PAUSE_NS` or longer, until now."""
        self._resumed_ns = now_ns

    def dead(
        self,
        answers: Mapping[Pair, PairReplies],
        flows: Flows,
        interval_ns: int,
        now_ns: int,
        more_ns: ExtraTime,
    ) -> dict[Pair, int]:
        """Dead pairs → their last sign of life; to be called every few ms while a pair is silent.
        No pair is dead while this process, or the peer as far as its other NICs show, is paused.

        Args:
            answers: of all pairs.
            flows: of jobs, on those pairs that are silent.
            interval_ns: between two probes of one flow.
            now_ns: CLOCK_MONOTONIC.
            more_ns: extra time of a pair.
        """
        fresh_ns = now_ns - FORGET_NS
        self._histories = {
            p: history for p, history in self._histories.items() if history.seen_ns > fresh_ns
        }
        signs = {
            pair: self._sign_ns(pair, its.newest_ns, flows.get(pair, ()), now_ns)
            for pair, its in answers.items()
        }
        for pair in signs:
            if answers[pair].dying:
                self._histories[pair].died()
        from_ns = {
            pair: max(sign_ns, self._resumed_ns) + more_ns(pair, now_ns)
            for pair, sign_ns in signs.items()
        }
        over = [
            from_ns[pair]
            for pair, its in answers.items()
            if its.unresponsive and not its.dying and _hangs(its, flows.get(pair, ()), now_ns)
            and now_ns - from_ns[pair] > self.timeout_ns(pair, now_ns)
        ]  # fmt: skip
        newest_ns = max((each.newest_ns for each in answers.values()), default=0)
        if not over or now_ns - newest_ns > AWAKE_NS:
            return {}
        # Pairs that died together had their last signs of life at different instants.
        return {
            pair: signs[pair]
            for pair, its in answers.items()
            if its.unresponsive and not its.dying
            and late_until_ns(pair, its.host, its.newest_ns, answers, now_ns) <= now_ns
            and from_ns[pair] <= max(over) + interval_ns // its.flows
        }  # fmt: skip

    def until_ns(
        self, pair: Pair, answered_ns: int, flows: Sequence[ConnectionProgress], now_ns: int
    ) -> int:
        """Until when a pair whose flows have all died is not declared dead: the agent of a starved
        peer does not reply, but its kernel acknowledges data now and then.

        Args:
            pair: whose death is to be decided.
            answered_ns: its last probe reply, CLOCK_MONOTONIC.
            flows: of jobs, on it.
            now_ns: the same clock.
        """
        sign_ns = self._sign_ns(pair, answered_ns, flows, now_ns)
        return max(sign_ns, self._resumed_ns) + self.timeout_ns(pair, now_ns)

    def timeout_ns(self, pair: Pair, now_ns: int) -> int:
        """Maximum time without a sign of life of a pair: 1.25 times its longest recent silence, but
        at least `SHORTEST_NS` more than this process is late at times."""
        longest_ns = self._history(pair, now_ns).longest.as_of(now_ns)
        late_ns = self._late.as_of(now_ns)
        late_ns += 4 * max(0, late_ns - LATE_NS)
        return min(max(longest_ns + longest_ns // 4, SHORTEST_NS + late_ns), LONGEST_NS)

    def _sign_ns(
        self, pair: Pair, answered_ns: int, flows: Sequence[ConnectionProgress], now_ns: int
    ) -> int:
        """The newest sign of life of a pair, a reply or an acknowledgement; updates its history."""
        sign_ns = max([answered_ns, *(each.acked_ns for each in flows)])
        hangs = any(each.hangs() for each in flows)
        self._history(pair, now_ns).note(sign_ns, now_ns, hangs=hangs)
        return sign_ns

    def _history(self, pair: Pair, now_ns: int) -> SilenceHistory:
        if pair not in self._histories:
            self._histories[pair] = SilenceHistory(now_ns)
        return self._histories[pair]


def _hangs(its: PairReplies, flows: Sequence[ConnectionProgress], now_ns: int) -> bool:
    """Whether data have waited since about the last reply. Data that waited long before it wait for
    something else, such as a retransmission after an earlier outage."""
    most_ns = now_ns - its.newest_ns + FIRST_NS
    return any(each.hangs() and each.waits_ns <= most_ns for each in flows)
