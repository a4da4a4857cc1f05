"""Localisation second by second: takes flows' counts and learnt paths, returns findings. Pure.

A flow gives four observations: the path of its requests; the path of its replies; both together as
one path, if it is unknown in which direction a round trip was lost (`broken_trips`); and, if none
was lost but others to the same target were, what the target answered. The last one keeps that
selection fair: flows count as round trips *because* they were lost, so without the others a target
would seem to answer none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony.fabric import broken_trips, endings, history, overflow, staleness, starved
from syntony.fabric.as_traced import AsTraced, listed
from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.candidates import Candidates, Key
from syntony.fabric.crossed import Carried, Carrying, ChangedTally
from syntony.fabric.delay import is_any_late
from syntony.fabric.delay_search import LATE_SIGMAS
from syntony.fabric.effort import AGAIN, SECOND_STEPS, Effort
from syntony.fabric.endings import Ending, Endings
from syntony.fabric.history import (
    DelayChange,
    DelayExcess,
    FlowHistory,
    HistoryWindow,
    SecondCounts,
)
from syntony.fabric.locate import Located, Unexplained, WindowCounts, search
from syntony.fabric.names import ComponentKind, hosts_at
from syntony.fabric.overflow import ComponentSeconds, Overflow, OverflowFinding
from syntony.fabric.starved import FlowEnds, Stopped
from syntony.fabric.sums import FINE_S, WindowSums
from syntony.fabric.tally import Index, Ints
from syntony.model import S
from syntony.model.findings import Finding

REBUILD_S = 5
"""Minimum interval of renumbering candidates while paths are being learnt: it is the most expensive
step."""
MAX_GONE = 2
MIN_FLOWS = 500
"""With more than `MAX_GONE` times the flows that report (or this many), the others are removed."""
MIN_QUEUE_NS = 50_000.0
"""Shorter queues are normal for switches: at 400 Gb/s this is 2.5 MB waiting."""
_OF_HOSTS = frozenset({ComponentKind.REPLIES, ComponentKind.HOST, ComponentKind.CLOCK})
_BESIDE_MAP = _OF_HOSTS - {ComponentKind.HOST}
"""They do not depend on which paths are known. A host does, as its NICs do: counts of a flow whose
path has changed are discarded, so that those are left whose packets still do not arrive."""
_LINKS = frozenset({ComponentKind.LINK, ComponentKind.CABLE, ComponentKind.GROUP})
_AMISS = [history.LOST, history.LOST_BACK, history.UNRESOLVED]
_SENT = slice(history.SENT, history.SENT_BACK + 1, history.SENT_BACK - history.SENT)
"""There and back."""
WAYS = 2
OBSERVATIONS = 4
"""Paths of one flow, in this order: there, back, both, answered."""
MIN_CHANGE_NS = 20_000.0
"""Online, smaller changes of delay count as queueing; `fabric locate` also searches these."""


class _Layout(NamedTuple):
    """The numbered flows as arrays."""

    pair: Index
    """(flows,)."""
    of_pair: Index
    """NICs, (pairs, 2)."""
    ends: FlowEnds
    nothing: Ints
    """Zeros, (paths,)."""


class FaultLocator:
    """Numbers flows, keeps their history, locates faults. Not thread-safe."""

    def __init__(self, book: PathBook) -> None:
        self.book = book
        self._flows: dict[Way, int] = {}
        self._pairs: dict[tuple[str, str], int] = {}
        self._pair_of: list[int] = []
        self._nics: dict[str, int] = {}
        self._ends: list[tuple[int, int]] = []
        """The NICs of each pair."""
        self._numbering = 0
        self._history = FlowHistory()
        self._endings = Endings()
        self._candidates: Candidates | None = None
        self._as_traced = AsTraced(book)
        self._made_for = (-1, -1)
        self._age_s = 0
        self._laid_out: _Layout | None = None
        self._carrying: Carrying
        """For the newest candidates."""
        self._second = 0
        """Number of seconds taken."""
        self._turned: dict[Way, int] = {}
        """Directions whose path changed later than the newest second → when."""
        self._losing: dict[tuple[str, str], staleness.LossSpell] = {}
        """Components that were found to lose packets lately, and since when."""
        self._singled: dict[tuple[str, str], int] = {}
        """Components whose losses singled out flows lately, or that no path certainly crosses →
        when last."""
        self._turning_until = 0
        """Second until which the map may be stale because of changed paths."""
        self._overflowing: tuple[Finding, ...] = ()
        """Queues at components that lose, as found with the newest findings."""
        self.unexplained = Unexplained()
        """Losses and delays without a cause among the newest findings: the search was cut."""
        self.unexplained_queued = 0
        """Paths whose queue has no cause, as the newest search for queues was cut."""
        self._known: frozenset[Key] = frozenset()
        """The components that the searches for the newest findings found."""
        self._carried: WindowSums | None = None
        """Probes of all paths by the candidates that they crossed; None: to be recomputed."""

    def begin(self, reporting: int) -> int:
        """Begin a second in which this many flows report. Returns the numbering in force: while it
        is unchanged, flows and pairs keep their numbers."""
        self._age_s += 1
        if len(self._flows) > MAX_GONE * max(reporting, MIN_FLOWS):
            self._reset()
        return self._numbering

    def number(self, way: Way) -> tuple[int, int]:
        """The numbers of a flow and of its pair of NICs; new ones are appended."""
        place = self._flows.get(way)
        if place is None:
            place = self._flows[way] = len(self._flows)
            pair = self._pairs.setdefault((way.src, way.dst), len(self._pairs))
            self._pair_of.append(pair)
            if pair == len(self._ends):
                src, dst = (self._nics.setdefault(nic, len(self._nics)) for nic in way[:2])
                self._ends.append((src, dst))
        return place, self._pair_of[place]

    @property
    def flows(self) -> int:
        """Number of numbered flows."""
        return len(self._flows)

    @property
    def pairs(self) -> int:
        """Number of numbered pairs of NICs."""
        return len(self._pairs)

    def take(self, second: SecondCounts, received: Ints, end_ns: int | None = None) -> None:
        """Add the second that was begun: counts of all flows, requests received of all pairs.

        Args:
            second: counts and delays.
            received: requests received, of all pairs.
            end_ns: when it ended, fleet time; None: after all known path changes.
        """
        self._second += 1
        second.counts[history.HEARD] = received[self._layout().pair]
        self._history.add(second)
        if self._carried is not None and len(self._flows) == self._made_for[1]:
            self._carried.add(self._by_candidate(second.counts))
        self._forget_turned(end_ns)

    def _forget_turned(self, end_ns: int | None) -> None:
        """Discard counts of paths that flows have left since: they are no evidence about the old
        paths or the new ones."""
        turned = self.book.turned()
        if staleness.is_turning(len(turned), WAYS * len(self._flows)):
            self._turning_until = self._second + staleness.TURNING_S
        self._turned |= turned
        by_age: dict[int, list[int]] = {}
        later: dict[Way, int] = {}
        for way, at_ns in self._turned.items():
            place = self._flows.get(way, self._flows.get(reply(way)))
            seconds = 1 if end_ns is None else max(0, (end_ns - at_ns) // S)
            if place is not None and seconds < FINE_S:
                by_age.setdefault(seconds, []).append(place)
            if not seconds:
                later[way] = at_ns
        self._turned = later
        pair = self._layout().pair
        for seconds, places in by_age.items():
            self._history.forget(np.asarray(np.isin(pair, pair[places])), seconds)
            self._carried = None

    def answering(self) -> frozenset[str]:
        """NICs that answered any probe of the newest second."""
        counts = self._history.newest(len(self._flows))
        arrived = counts[history.SENT] > counts[_AMISS].sum(axis=0)
        ends = self._layout().ends
        answered = np.zeros(len(ends.nics), dtype=np.bool_)
        answered[ends.dst[arrived]] = True
        return frozenset(compress(ends.nics, answered.tolist()))

    def findings(self) -> tuple[Finding, ...]:
        """Components at fault, from all windows together."""
        if not self._flows:
            return ()
        candidates = self._numbered()
        effort = Effort(SECOND_STEPS)
        windows, located = self._searched(candidates, effort)
        seconds = [window.seconds for window in windows]
        over = self._endings.take(
            candidates, located.findings, located.searches, seconds, self._ending_of_some
        )
        over += self._bursts(candidates, located.findings)
        for ending in over:
            self._history.forget(self._of_pairs(ending), ending.seconds)
        if over:
            self._carried = None
            effort = Effort(max(effort.left, AGAIN * SECOND_STEPS))
            windows, located = self._searched(candidates, effort)
        self.unexplained = located.unexplained
        self._known = frozenset(
            candidates.key(each.candidate if each.fitted < 0 else each.fitted)
            for one in located.searches
            for each in one.findings
        )
        found = starved.reclassify_slow_hosts(
            located.findings, self._layout().ends, windows, self._history.recent_counts
        )
        return self._with_overflow(candidates, self._settled(candidates, found))

    def _settled(
        self, candidates: Candidates, findings: tuple[Finding, ...]
    ) -> tuple[Finding, ...]:
        """The findings without new losses that may be due to a stale map, for `HOLD_S`. Later they
        name what never answers as well, if flows may be there."""
        now, turning = self._second, self._second < self._turning_until
        self._singled = {
            key: at for key, at in self._singled.items() if now - at <= staleness.AGAIN_S
        }
        self._losing = {
            key: each for key, each in self._losing.items() if now - each.last <= staleness.AGAIN_S
        }
        kept = []
        for found in findings:
            key = found.component, found.kind
            number = candidates.number_of(found)
            if number is None or found.kind in _BESIDE_MAP:
                kept.append(found)
                continue
            losing = self._losing.get(key, staleness.LossSpell(now, now, now, now)).extended(now)
            first = losing.first if found.kind in _LINKS else losing.since
            young, rival = now - first < staleness.HOLD_S, self.book.doubts.rival(found.component)
            young = young or any(
                not self._singles_out(candidates, hole)
                for hole in map(candidates.number_of, staleness.other_holes(found, findings))
                if hole is not None
            )
            singled = (young or rival != "") and self._singles_out(candidates, number)
            held = (turning and now - losing.began < staleness.HOLD_S) or (young and singled)
            if singled or not candidates.across(number).any():
                self._singled[key] = now
            self._losing[key] = losing if held else losing.settled()
            stopped = self._stopped(candidates, number, found)
            if not held and stopped is not Stopped.APART:
                together = stopped is Stopped.TOGETHER
                twin = hosts_at(found.component) if together else rival * (key in self._singled)
                kept.append(found.with_twin(twin) if twin else found)
        return tuple(kept)

    def _stopped(self, candidates: Candidates, number: int, found: Finding) -> Stopped:
        """Whether a switch may seem dead because hosts at it stalled."""
        if found.fault != "blackhole" or found.kind in _LINKS | {ComponentKind.HOST}:
            return Stopped.NO
        ends, crossing = self._layout().ends, self._crossing(candidates.across(number))
        counts = self._history.newest(len(self._flows))
        unanswered = crossing & (counts[_AMISS].sum(axis=0) > 0)
        own = np.flatnonzero(np.isin(ends.src, ends.dst[unanswered]))
        sent = self._history.recent_counts(own)[:, history.SENT]
        return starved.how_stopped(sent, ends.src[own])

    def _singles_out(self, candidates: Candidates, number: int) -> bool:
        """Whether losses single out flows, from the first loss in the newest seconds on."""
        across = np.flatnonzero(self._crossing(candidates.across(number)))
        counts = self._history.recent_counts(across)[-staleness.HOLD_S :]
        sent, lost = counts[:, history.SENT], counts[:, _AMISS].sum(axis=1)
        since = int(np.argmax(lost.any(axis=1)))
        return staleness.singles_out(sent[since:].sum(axis=0), lost[since:].sum(axis=0))

    def _with_overflow(
        self, candidates: Candidates, findings: tuple[Finding, ...]
    ) -> tuple[Finding, ...]:
        """The findings, those of loss with their relation to a queue."""
        reported, queues = [], []
        for found in findings:
            number = candidates.number_of(found)
            if number is None or found.kind in _OF_HOSTS:
                reported.append(found)
                continue
            verdict = self._overflow(*self._seconds_of(candidates, number))
            reported.append(msgspec.structs.replace(found, overflow=verdict.overflow.value))
            if found.kind in _LINKS and (queue := verdict.queue(found, MIN_QUEUE_NS)):
                queues.append(queue)
        self._overflowing = tuple(queues)
        return tuple(reported)

    def _bursts(self, candidates: Candidates, findings: Sequence[Finding]) -> list[Ending]:
        """Findings that are a burst of losses that is over."""
        over = []
        for found in findings:
            number = candidates.number_of(found)
            if number is not None and found.kind not in _OF_HOSTS:
                sent, lost, *ways = self._seconds_of(candidates, number)
                since = endings.ended(sent, lost)
                if since is None:
                    continue
                # Losses of a queue and of a cable are distinguished by all seconds (0204).
                verdict = self._overflow(sent, lost, *ways)
                queue = verdict.overflow in {Overflow.OPEN, Overflow.ALL}
                if not queue and self._endings.burst(found, self._second):
                    over.append(Ending(candidates.across(number), since))
        return over

    def _ending_of_some(self, paths: NDArray[np.bool_], others: NDArray[np.bool_]) -> Ending | None:
        """The ending of a group's fault, for `Endings.take`. Flows that cross other findings lose
        packets there, and are left out."""
        left = paths.reshape(OBSERVATIONS, -1) & ~self._crossing(others)
        there, back = left[:WAYS]
        since = endings.ended(
            *overflow.counts_of(self._history, np.flatnonzero(there), np.flatnonzero(back))
        )
        return None if since is None else Ending(left.ravel(), since)

    def _seconds_of(self, candidates: Candidates, number: int) -> tuple[Ints, Ints, Index, Index]:
        """Probes that crossed it in each second, those lost, and the flows whose requests and
        replies do."""
        there, back = candidates.across(number).reshape(OBSERVATIONS, -1)[:WAYS]
        ways = np.flatnonzero(there), np.flatnonzero(back)
        return (*overflow.counts_of(self._history, *ways), *ways)

    def _overflow(self, sent: Ints, lost: Ints, there: Index, back: Index) -> OverflowFinding:
        waits = overflow.waits(self._history, self._layout().ends, there, back)
        return overflow.classify(ComponentSeconds(sent, lost, waits))

    def _searched(
        self, candidates: Candidates, effort: Effort
    ) -> tuple[list[HistoryWindow], Located]:
        windows = self._history.windows(len(self._flows))
        self._carrying = candidates.crossed.carrying(WAYS * len(self._flows))
        if self._carried is None:
            self._carried = self._history.counts.mapped(1, self._by_candidate)
        probes = dict(self._carried.windows())
        observed = [
            self._observed(candidates, window, probes[window.seconds][0]) for window in windows
        ]
        change = self._history.change
        changed = [
            *self._delays(partial(change, soon=True), MIN_CHANGE_NS, history.SOON_S),
            *self._delays(change, MIN_CHANGE_NS),
        ]
        known = sorted(candidates.numbers[key] for key in self._known & candidates.numbers.keys())
        numbers = np.array(known, dtype=np.intp)
        located = search(candidates, [*observed, *changed], effort, numbers)
        return windows, self._as_traced.settled(located, changed, candidates, self._flows)

    def _by_candidate(self, counts: Ints) -> Ints:
        """From counts (`FIELDS`, flows), the number of probes that crossed each candidate, (1,
        candidates)."""
        sent = np.zeros((WAYS, self._carrying.paths // WAYS), dtype=np.int64)
        sent[:, : counts.shape[1]] = counts[_SENT]
        return self._carrying.sums(sent.ravel())[None]

    def _of_pairs(self, ending: Ending) -> NDArray[np.bool_]:
        """All flows, (flows,), of pairs with a flow that crossed it: requests are counted by
        pair."""
        pair = self._layout().pair
        return np.asarray(np.isin(pair, pair[self._crossing(ending.paths)]))

    def _crossing(self, paths: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Flows, (flows,), with one of these paths."""
        return np.asarray(paths.reshape(OBSERVATIONS, len(self._flows)).any(axis=0))

    def queues(self) -> tuple[Finding, ...]:
        """Links at which packets wait in nearly every second: their delay above its floor.

        Hosts, NICs and clocks are part of the fit and are not reported: waiting there is not a
        queue of the fabric. Where packets are lost, the queue is searched separately, so that it is
        known as soon as the losses that overflow from it.
        """
        if not self._flows:
            return ()
        windows = self._delays(self._history.excess, MIN_QUEUE_NS)
        searched = search(self._numbered(), windows, Effort(SECOND_STEPS))
        self.unexplained_queued = searched.unexplained.late
        located = [
            msgspec.structs.replace(found, fault="queue")
            for found in searched.findings
            if found.kind in _LINKS and found.delay_ns >= MIN_QUEUE_NS
        ]
        known = {name for found in located for name in (found.component, *found.alternatives)}
        return (*located, *(each for each in self._overflowing if each.component not in known))

    def _delays(
        self,
        measured: Callable[[int, float], DelayChange | DelayExcess | None],
        least_ns: float,
        seconds: int = history.DELAY_S,
    ) -> list[WindowCounts]:
        """Delays of the last seconds, as a window without losses; values below `least_ns` count as
        none. Paths that cannot have more are measured only if others show a delay."""
        flows, nothing = len(self._flows), self._layout().nothing
        late = np.full(len(nothing), np.nan)
        sigmas_ns = late
        for least in (least_ns, 0.0):
            found = measured(flows, least)
            if found is None:
                return []
            late[: 2 * flows] = found.delay_ns.ravel()
            at_least_ns = least_ns / LATE_SIGMAS
            sigmas_ns = np.tile(np.maximum(found.sigma_ns, at_least_ns), OBSERVATIONS)
            if not is_any_late(self._numbered().crossed, late, sigmas_ns):
                break
        between = seconds < history.DELAY_S
        return [WindowCounts(f"{seconds}s", nothing, nothing, late, sigmas_ns, between=between)]

    def _reset(self) -> None:
        """Remove flows that are no longer probed after a change of plan, and reuse their places."""
        self._numbering += 1
        self._flows.clear()
        self._pairs.clear()
        self._pair_of.clear()
        self._nics.clear()
        self._ends.clear()
        self._history = FlowHistory()
        self._carried = self._candidates = None
        self._laid_out = None

    def _numbered(self) -> Candidates:
        """Candidates of all flows' `OBSERVATIONS`."""
        now = (self.book.version, len(self._flows))
        grown = now[1] != self._made_for[1]
        due = self._age_s >= REBUILD_S and now != self._made_for
        if self._candidates is None or grown or due:
            self._age_s = 0
            self._candidates = listed(self.book, self._flows)
            self._carried = None
            self._as_traced.forget()
            self._made_for = now
        return self._candidates

    def _layout(self) -> _Layout:
        """Arrays of the flows numbered so far."""
        if self._laid_out is None or len(self._laid_out.pair) != len(self._flows):
            pair = np.array(self._pair_of, dtype=np.intp)
            of_pair = np.array(self._ends, dtype=np.intp).reshape(-1, 2)
            ends = FlowEnds(tuple(self._nics), of_pair[pair, 0], of_pair[pair, 1])
            nothing = np.zeros(OBSERVATIONS * len(pair), dtype=np.int64)
            self._laid_out = _Layout(pair, of_pair, ends, nothing)
        return self._laid_out

    def _observed(
        self, candidates: Candidates, window: HistoryWindow, probes: Ints
    ) -> WindowCounts:
        """Observations of a window and of its probes by candidate. Losses of few flows are kept
        separate from the probes of all flows."""
        counts, flows = window.counts, len(self._flows)
        there, back, both, _ = range(OBSERVATIONS)
        amiss = np.flatnonzero(np.logical_or.reduce(counts[_AMISS, :]))
        some = counts[:, amiss]
        sent, lost = np.zeros((2, OBSERVATIONS - 1, len(amiss)), dtype=np.int64)
        sent[there], sent[back] = some[history.SENT], some[history.SENT_BACK]
        lost[there], lost[back] = some[history.LOST], some[history.LOST_BACK]
        requested = np.zeros(0, dtype=np.intp)
        # Few flows have lost round trips; for the others there is nothing to decide.
        broken = np.flatnonzero(some[history.UNRESOLVED])
        if len(broken):
            layout = self._layout()
            split = broken_trips.attribute(window, amiss[broken], layout.pair, layout.of_pair)
            sent[back, broken] -= np.minimum(split.there, sent[back, broken])
            lost[there, broken] += split.there
            lost[back, broken] += split.back
            unclear = broken[split.unknown]
            sent[both, unclear] = some[history.SENT, unclear]
            lost[both, unclear] = some[_AMISS, :][:, unclear].sum(axis=0)
            sent[:both, unclear] = lost[:both, unclear] = 0
            target = layout.ends.dst
            also = np.isin(target, target[amiss[unclear]])
            also[amiss[broken]] = False
            requested = np.flatnonzero(also)
        # Rows of two ends can differ by packets in flight: never count more lost than sent.
        np.minimum(lost, sent, out=lost)
        answered = counts[history.SENT_BACK, requested]
        starts = flows * np.arange(OBSERVATIONS)[:, None]
        tally = ChangedTally(
            candidates.crossed,
            Carried(counts[_SENT], probes, self._carrying.crossing),
            np.concatenate(((starts[: both + 1] + amiss).ravel(), starts[-1] + requested)),
            np.concatenate((sent.ravel(), answered)),
            np.concatenate((lost.ravel(), np.zeros_like(answered))),
        )
        nothing = self._layout().nothing
        return WindowCounts(window.name, nothing, nothing, overlaps=True, tally=tally)
