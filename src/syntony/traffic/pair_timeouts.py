"""Timeout of a pair of NICs as a whole, shorter than the timeouts of its single flows. Pure.

Each flow is probed less often than the pair, and judged alone. So once all probes of a pair go
unanswered for a while, which the probe engine sees, the data of the jobs that use it are examined.
Acknowledged data are a sign of life like a probe reply: a queue delays either, seldom both. The
pair is dead if it had neither for longer than at any time recently, data wait, and other pairs
are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from syntony.model import MS, S
from syntony.traffic.late_peers import late_until_ns
from syntony.traffic.pairs import Answers, ConnectionProgress, Pair

SHORTEST_NS, LONGEST_NS = 25 * MS, 200 * MS
"""Bounds of a pair's timeout, which follows its history: usual queue depth, length of outages."""
FIRST_NS = 45 * MS
"""Timeout of a pair without history."""
LATE_NS = 30 * MS
"""A machine that has processor time at all wakes us within so long. One that has none says little
of others: each ms beyond it counts fivefold."""
MOST_LATE_NS = 60 * MS
"""However late we are woken, the flows' own verdicts follow."""
AWAY_NS = 100 * MS
"""Who has not looked for so long was not there (a paused virtual machine, say), and others may have
been away with him: their silence counts from his return."""
OUTAGE_NS = LONGEST_NS
"""Silence of this length that ends is an outage, no habit."""
KEPT_NS = 3_600 * S
"""A pair that nobody has looked at for so long is no longer there, most likely."""
HALF_LIFE_NS = 16 * S
"""A habit is forgotten by half in so long: a job's steps repeat sooner…"""
LATE_HALF_LIFE_NS = 4 * S
"""… and so does being late, where processors are short."""
LOOKS_NS = 5 * MS
"""Between two looks at a silent pair: its silence has lasted so much longer than was seen."""
AWAKE_NS = 15 * MS
"""Anyone who was answered by anybody within so long is awake himself."""

More = Callable[[Pair, int], int]
Flows = Mapping[Pair, Sequence[ConnectionProgress]]


class _Longest:
    """The longest recently."""

    def __init__(self, first_ns: int, now_ns: int, half_life_ns: int = HALF_LIFE_NS) -> None:
        self._longest_ns, self._at_ns = first_ns, now_ns
        self._half_life_ns = half_life_ns

    def take(self, longest_ns: int, now_ns: int) -> None:
        if longest_ns > self.as_of(now_ns):
            self._longest_ns, self._at_ns = longest_ns, now_ns

    def as_of(self, now_ns: int) -> int:
        return int(self._longest_ns * 0.5 ** ((now_ns - self._at_ns) / self._half_life_ns))


class SilenceHistory:
    """How long a pair is silent at times though data hang; slow until it has shown otherwise."""

    def __init__(self, now_ns: int) -> None:
        self.longest = _Longest(FIRST_NS * 4 // 5, now_ns)
        self._sign_ns = self._silent_ns = 0
        self.seen_ns = now_ns

    def note(self, sign_ns: int, now_ns: int, *, hangs: bool) -> None:
        """The newest sign of life as of now: a silence of waiting data that it has ended is a
        habit."""
        self.seen_ns = now_ns
        if sign_ns > self._sign_ns:
            if self._silent_ns < OUTAGE_NS:
                self.longest.take(self._silent_ns, now_ns)
            self._sign_ns, self._silent_ns = sign_ns, 0
        if hangs:
            self._silent_ns = now_ns - sign_ns + LOOKS_NS

    def died(self) -> None:
        """The silence that lasts is none."""
        self._silent_ns = 0


class PairTimeouts:
    """Of all pairs of one host."""

    def __init__(self) -> None:
        self._histories: dict[Pair, SilenceHistory] = {}
        self._late = _Longest(0, 0, LATE_HALF_LIFE_NS)
        self._back_ns = 0
        """When we were last back from having been away."""

    def late(self, late_ns: int, now_ns: int) -> None:
        """Our own thread was woken so much too late: by as much may answers be, and
        acknowledgements, while nothing is wrong but that this machine is busy."""
        self._late.take(min(late_ns, MOST_LATE_NS), now_ns)

    def away(self, now_ns: int) -> None:
        """We have not looked at anything for `AWAY_NS` and more, until now."""
        self._back_ns = now_ns

    def dead(
        self,
        answers: Mapping[Pair, Answers],
        flows: Flows,
        interval_ns: int,
        now_ns: int,
        more_ns: More,
    ) -> dict[Pair, int]:
        """Pairs that are dead, to their last sign of life: while we are awake, and so is the peer
        as far as it is asked at other NICs. To be called every few ms while a pair is silent.

        Args:
            answers: of all pairs.
            flows: of jobs, on those pairs that are silent.
            interval_ns: between two probes of one flow.
            now_ns: CLOCK_MONOTONIC.
            more_ns: more time that a pair is given.
        """
        fresh_ns = now_ns - KEPT_NS
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
            pair: max(sign_ns, self._back_ns) + more_ns(pair, now_ns)
            for pair, sign_ns in signs.items()
        }
        over = [
            from_ns[pair]
            for pair, its in answers.items()
            if its.hushed and not its.dying and _hangs(its, flows.get(pair, ()), now_ns)
            and now_ns - from_ns[pair] > self.timeout_ns(pair, now_ns)
        ]  # fmt: skip
        newest_ns = max((each.newest_ns for each in answers.values()), default=0)
        if not over or now_ns - newest_ns > AWAKE_NS:
            return {}
        # What died together has not given its last sign at the same instant.
        return {
            pair: signs[pair]
            for pair, its in answers.items()
            if its.hushed and not its.dying
            and late_until_ns(pair, its.host, its.newest_ns, answers, now_ns) <= now_ns
            and from_ns[pair] <= max(over) + interval_ns // its.flows
        }  # fmt: skip

    def until_ns(
        self, pair: Pair, answered_ns: int, flows: Sequence[ConnectionProgress], now_ns: int
    ) -> int:
        """Until when a pair is believed in whose flows have all died by themselves: a starved peer
        answers no probes for as long as it likes, and its kernel acknowledges now and then.

        Args:
            pair: whose death is to be decided.
            answered_ns: its last answer, CLOCK_MONOTONIC.
            flows: of jobs, on it.
            now_ns: the same clock.
        """
        sign_ns = self._sign_ns(pair, answered_ns, flows, now_ns)
        return max(sign_ns, self._back_ns) + self.timeout_ns(pair, now_ns)

    def timeout_ns(self, pair: Pair, now_ns: int) -> int:
        """For how long there may be no sign of life of a pair: its longest silence recently and a
        quarter; and longer by what we are late ourselves at times."""
        longest_ns = self._history(pair, now_ns).longest.as_of(now_ns)
        late_ns = self._late.as_of(now_ns)
        late_ns += 4 * max(0, late_ns - LATE_NS)
        return min(max(longest_ns + longest_ns // 4, SHORTEST_NS + late_ns), LONGEST_NS)

    def _sign_ns(
        self, pair: Pair, answered_ns: int, flows: Sequence[ConnectionProgress], now_ns: int
    ) -> int:
        """The newest sign of life of a pair, an answer or an acknowledgement; its habit learns."""
        sign_ns = max([answered_ns, *(each.acked_ns for each in flows)])
        hangs = any(each.hangs() for each in flows)
        self._history(pair, now_ns).note(sign_ns, now_ns, hangs=hangs)
        return sign_ns

    def _history(self, pair: Pair, now_ns: int) -> SilenceHistory:
        if pair not in self._histories:
            self._histories[pair] = SilenceHistory(now_ns)
        return self._histories[pair]


def _hangs(its: Answers, flows: Sequence[ConnectionProgress], now_ns: int) -> bool:
    """Whether data wait since the last answer or so: what has waited for long before it waits for
    something else, a retransmission after another outage for one."""
    most_ns = now_ns - its.newest_ns + FIRST_NS
    return any(each.hangs() and each.waits_ns <= most_ns for each in flows)
