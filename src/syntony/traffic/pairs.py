"""State of pairs of NICs, of the probed flows between them, and of the jobs' data on them. Pure.

A pair is a local NIC and a remote address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from syntony.model import MS, S
from syntony.model.names import host_of
from syntony.model.paths import FourTuple
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import Reason
from syntony.traffic.policy import Policy

MIN_SILENT = 2
"""Minimum silent flows. A full queue on one path may drop all probes of one flow until it is dead,
but hardly of two. If a faulty part carries half of all flows, in either direction, fewer than two
of four ports cross it in one of twenty cases (13/256), of eight ports in one of 2,600."""


@dataclass(slots=True)
class _Silent:
    since_ns: int
    """Its last reply."""
    half_ns: int
    """Half of the silence after which it was declared dead."""


class PartialPathFailure:
    """A gray failure of one pair: some probed flows are silent while others are answered, as when
    one of several spines drops everything. Instants are CLOCK_MONOTONIC.

    With a starved host or a full queue all flows of a pair are silent, but some are declared dead
    first. So live flows count only once they were answered well into the silence of the dead ones.
    """

    __slots__ = ("_answered_ns", "_silent")

    def __init__(self) -> None:
        self._silent: dict[int, _Silent] = {}
        self._answered_ns = 0
        """Newest reply to the flows that are not silent."""

    def died(self, flow_id: int, since_ns: int, at_ns: int) -> None:
        """A flow was declared dead; `since_ns` is its last reply."""
        self._silent[flow_id] = _Silent(since_ns, (at_ns - since_ns) // 2)

    def lives(self, flow_id: int) -> None:
        """A flow is answered again."""
        self._silent.pop(flow_id, None)

    def keep(self, flow_ids: Collection[int]) -> None:
        """Drop all other flows."""
        self._silent = {each: its for each, its in self._silent.items() if each in flow_ids}

    def answered(self, flow_id: int, answered_ns: int) -> None:
        """Take the last reply of a flow."""
        its = self._silent.get(flow_id)
        if its is None:
            self._answered_ns = max(self._answered_ns, answered_ns)
        else:
            its.since_ns = max(its.since_ns, answered_ns)

    @property
    def unsure(self) -> bool:
        """Whether newer replies decide."""
        return len(self._silent) >= MIN_SILENT and self.since_ns is None

    @property
    def since_ns(self) -> int | None:
        """Since when `MIN_SILENT` flows have been silent while others are answered; None: not, or
        not known."""
        if len(self._silent) < MIN_SILENT:
            return None
        latest = sorted(self._silent.values(), key=lambda its: its.since_ns)[-MIN_SILENT]
        return latest.since_ns if self._answered_ns >= latest.since_ns + latest.half_ns else None


HANG_NS = 15 * MS
"""A flow with steady acknowledgements waits this long only if something is wrong or the peer delays
them (TCP_DELACK_MIN, 40 ms); probes of the path distinguish these."""
PROGRESS_NS = 15 * MS
"""Data acknowledged this much (and one round trip) later than the last answered probe were sent
after it: the path works, and the probes were lost in a queue. The kernel rounds the time of
acknowledgements to its tick, 4 ms at 250 Hz and 10 ms at 100 Hz."""
NO_HURRY_NS = 250 * MS
"""Time after its last sign of life for which a path is kept while no flow waits for it: a starved
peer replies to probes late, while its kernel acknowledges the jobs' data."""
USUAL_NS = 2 * PROGRESS_NS
"""Any flow waits this long, or a round trip, for an acknowledgement now and then."""
LOOK_AGAIN_NS = 5 * MS
BRIEF_NS = 500 * MS
"""A pair that recovers this soon, without loss of carrier, probably had a full queue or a starved
peer: next time it gets more time."""
BRIEF_STEP_NS, BRIEF_STEPS, BRIEF_DECAY_NS = 40 * MS, 5, 10 * S
"""Extra time for each such recovery, their maximum number, and the time after which one is
forgotten."""


class Reply(NamedTuple):
    """Replies to the probes of one watched flow."""

    heard_ns: int
    """Last reply, CLOCK_MONOTONIC."""
    silent: bool = False
    """No probe of its pair is answered; it is probed once more."""
    unresponsive: bool = False
    """No probe of its pair has been answered for a while."""
    rtt_ns: int = 0
    """Round trip of the last reply."""
    steady_ns: int = 0
    """End of the last long silence of its pair, CLOCK_MONOTONIC; 0: none."""
    gap_ns: int = 0
    """Length of that silence."""


class PairReplies(NamedTuple):
    """Replies to the probes of one pair of NICs."""

    newest_ns: int
    """Newest reply of all its flows, CLOCK_MONOTONIC."""
    flows: int
    host: str
    """The peer's."""
    dying: bool = False
    silent: bool = False
    """As of its flows."""
    unresponsive: bool = False
    rtt_ns: int = 0
    """Of the flow answered last."""
    steady_ns: int = 0
    """As of its flows."""
    gap_ns: int = 0


class LocalNic(msgspec.Struct, frozen=True, kw_only=True):
    """One NIC of this host that jobs may use."""

    name: str
    rail: int
    addresses: tuple[str, ...]


class WatchedFlow(NamedTuple):
    flow_id: int
    nic: str
    remote: str
    """Address of the remote NIC."""
    remote_name: str
    """``host/nic``."""
    remote_rail: int
    others: tuple[str, ...] = ()
    """Addresses of the remote NIC that are not probed; they share its state."""

    @property
    def host(self) -> str:
        """The peer."""
        return host_of(self.remote_name)


class ConnectionProgress(NamedTuple):
    flow: FourTuple
    acked_ns: int
    """When the newest acknowledgement of its data arrived, at the latest; 0: never seen."""
    rtt_ns: int
    """Including queueing."""
    waits_ns: int
    """Minimum time for which data have been under way without any acknowledgement; 0: no data."""
    streams: bool = False
    """Acknowledgements had come before, and data have been under way ever since: the next one need
    not wait for a round trip."""

    def hangs(self) -> bool:
        """Whether its data wait as long as on a dead path."""
        return self.waits_ns > (HANG_NS if self.streams else max(self.rtt_ns, HANG_NS))


Pair = tuple[str, str]
"""(local NIC's name, remote address)."""


class PairState:
    def __init__(self) -> None:
        self.alive: dict[int, bool] = {}
        self.partial = PartialPathFailure()
        self.since_ns = 0
        self.misses = 0
        self.died_ns: int | None = None
        """When the last of its flows died; None while any lives."""
        self.revived_ns = 0
        """When it was answered again after all of its flows had died."""
        self.brief = 0
        """Recent deaths that were followed by recovery within `BRIEF_NS`."""
        self.brief_ns = 0
        self.carries_until_ns = 0
        """It is not declared dead before then: data on it were acknowledged after the last probe
        reply."""
        self.dead: Reason | None = None
        """Set once it is declared dead."""
        self.presumed = False
        """It is dead according to its silence and the jobs' data, before its flows are."""
        self.hold = HoldDown()

    def brief_now(self, now_ns: int) -> int:
        """`brief` less those forgotten since."""
        return max(0, self.brief - (now_ns - self.brief_ns) // BRIEF_DECAY_NS)

    def keep(self, flow_ids: Collection[int]) -> None:
        """Drop the state of all other flows."""
        self.alive = {each: alive for each, alive in self.alive.items() if each in flow_ids}
        self.partial.keep(flow_ids)

    def corroborate(self, flows: Iterable[ConnectionProgress], now_ns: int) -> None:
        """Postpone its death while the jobs' data show that it works or, for a limited time, while
        no data wait."""
        until_ns, sign_ns, waits = self.carries_until_ns, self.since_ns, False
        for flow in flows:
            usual_ns = max(flow.rtt_ns, USUAL_NS)
            if flow.acked_ns - flow.rtt_ns - PROGRESS_NS > self.since_ns:
                until_ns = max(until_ns, flow.acked_ns + flow.rtt_ns + PROGRESS_NS)
                sign_ns = max(sign_ns, flow.acked_ns)
            elif flow.acked_ns - PROGRESS_NS > self.since_ns:
                # This may acknowledge data sent before the path died; the next one would not.
                until_ns = max(until_ns, flow.acked_ns + usual_ns)
            waits |= flow.hangs() if self.presumed else flow.waits_ns > usual_ns
        if not waits:
            until_ns = max(until_ns, min(now_ns + LOOK_AGAIN_NS, sign_ns + NO_HURRY_NS))
        self.carries_until_ns = until_ns

    def revive(self, at_ns: int, policy: Policy) -> bool:
        """One of its flows is answered again; returns whether it had been declared dead."""
        back = self.dead is not None
        if back:
            self.hold.returned(at_ns, policy)
        if self.died_ns is not None and at_ns - self.died_ns < BRIEF_NS:
            self.brief = min(BRIEF_STEPS, self.brief_now(at_ns) + 1)
            self.brief_ns = at_ns
        if self.died_ns is not None:
            self.revived_ns = at_ns
        self.died_ns = self.dead = None
        self.presumed = False
        return back

    def decide_ns(self, policy: Policy, stalled_until_ns: int) -> int:
        """When its death is to be decided."""
        died_ns = self.died_ns or 0
        soon_ns = died_ns + policy.settle_ns + BRIEF_STEP_NS * self.brief_now(died_ns)
        # A host that stalls all the time must not wait for ever.
        excused_ns = soon_ns + 4 * policy.stall_grace_ns
        own_ns = min(max(soon_ns, stalled_until_ns), excused_ns)
        return max(own_ns, self.carries_until_ns)
