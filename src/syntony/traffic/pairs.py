"""Pairs of NICs, the probed flows between them and the jobs' data on them: what is known of each.

A pair is a local NIC and a remote address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from syntony.model import MS, S
from syntony.model.paths import FourTuple
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import Reason
from syntony.traffic.partial import PartialPathFailure
from syntony.traffic.policy import Policy

HANG_NS = 15 * MS
"""So long a flow whose acknowledgements were coming waits for one only if something is wrong or the
peer holds it back (TCP_DELACK_MIN, 40 ms); the path's probes tell these from each other."""
PROGRESS_NS = 15 * MS
"""Data acknowledged so much later (and one round trip) than the last answered probe were sent after
it: the path carries, and the probes were lost in a queue. The kernel dates acknowledgements to its
tick, 4 ms at 250 Hz and 10 at 100."""
NO_HURRY_NS = 250 * MS
"""So long after its last sign of life a path is kept while no flow waits for it: a starved peer
answers probes late, and its kernel acknowledges the jobs' data all the same."""
USUAL_NS = 2 * PROGRESS_NS
"""So long, or a round trip, any flow waits for an acknowledgement now and then."""
LOOK_AGAIN_NS = 5 * MS
BRIEF_NS = 500 * MS
"""A death that heals so soon, the carrier being there all the time, was a full queue or a starved
peer, most likely: next time this pair is given more time."""
BRIEF_STEP_NS, BRIEF_STEPS, BRIEF_DECAY_NS = 40 * MS, 5, 10 * S
"""So much more for each such death, up to so many; one is forgotten after each such time."""


class Reply(NamedTuple):
    """What is heard of one watched flow."""

    heard_ns: int
    """When it was last answered, CLOCK_MONOTONIC."""
    silent: bool = False
    """Nothing of its pair is answered; it is asked once more."""
    hushed: bool = False
    """For a while."""
    rtt_ns: int = 0
    """How long its answers take."""
    steady_ns: int = 0
    """Since when its pair has not been silent for long, CLOCK_MONOTONIC; 0: ever."""
    gap_ns: int = 0
    """For how long it was before."""


class Answers(NamedTuple):
    """What is heard of one pair of NICs."""

    newest_ns: int
    """CLOCK_MONOTONIC, of all its flows together."""
    flows: int
    host: str
    """The peer's."""
    dying: bool = False
    silent: bool = False
    """As of its flows."""
    hushed: bool = False
    rtt_ns: int = 0
    """… of that which was answered last."""
    steady_ns: int = 0
    """As of its flows."""
    gap_ns: int = 0


class LocalNic(msgspec.Struct, frozen=True, kw_only=True):
    """One NIC of this host that jobs may use."""

    name: str
    rail: int
    addresses: tuple[str, ...]


class WatchedFlow(NamedTuple):
    """One probed flow of the plan."""

    flow_id: int
    nic: str
    remote: str
    """Address of the remote NIC."""
    remote_name: str
    """``host/nic``."""
    remote_rail: int
    others: tuple[str, ...] = ()
    """Addresses of the remote NIC that are not probed: what is true of it is true of them."""

    @property
    def host(self) -> str:
        """The peer."""
        return self.remote_name.partition("/")[0]


class ConnectionProgress(NamedTuple):
    """How one connection of a job gets on."""

    flow: FourTuple
    acked_ns: int
    """When the newest acknowledgement of its data arrived, at the latest; 0: never seen."""
    rtt_ns: int
    """With the queue it stands in."""
    waits_ns: int
    """For how long data have been under way without any acknowledgement, at the least; 0 where none
    are."""
    streams: bool = False
    """Acknowledgements had come before, and data have been under way ever since: the next one need
    not wait for a round trip."""

    def hangs(self) -> bool:
        """Whether its data wait as they do where nothing gets through."""
        return self.waits_ns > (HANG_NS if self.streams else max(self.rtt_ns, HANG_NS))


Pair = tuple[str, str]
"""(local NIC's name, remote address)."""


class PairState:
    """What is known of one pair."""

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
        """Deaths that healed at once, recently."""
        self.brief_ns = 0
        self.carries_until_ns = 0
        """Until then it is not believed dead: data on it were acknowledged after the probes' last
        answer."""
        self.dead: Reason | None = None
        """Set once it has been dead long enough to be believed."""
        self.presumed = False
        """It is dead by its silence and the jobs' data; its flows' own verdicts are to come."""
        self.hold = HoldDown()

    def brief_now(self, now_ns: int) -> int:
        """Such deaths that are not forgotten yet."""
        return max(0, self.brief - (now_ns - self.brief_ns) // BRIEF_DECAY_NS)

    def keep(self, flow_ids: Collection[int]) -> None:
        """Of no other flows is anything heard any more."""
        self.alive = {each: alive for each, alive in self.alive.items() if each in flow_ids}
        self.partial.keep(flow_ids)

    def corroborate(self, flows: Iterable[ConnectionProgress], now_ns: int) -> None:
        """How the jobs' data get on: it is not believed dead while they show that it carries, nor,
        for a while, if nobody waits for it."""
        until_ns, sign_ns, waits = self.carries_until_ns, self.since_ns, False
        for flow in flows:
            usual_ns = max(flow.rtt_ns, USUAL_NS)
            if flow.acked_ns - flow.rtt_ns - PROGRESS_NS > self.since_ns:
                until_ns = max(until_ns, flow.acked_ns + flow.rtt_ns + PROGRESS_NS)
                sign_ns = max(sign_ns, flow.acked_ns)
            elif flow.acked_ns - PROGRESS_NS > self.since_ns:
                # It may answer what was under way when the path died: the next one will not.
                until_ns = max(until_ns, flow.acked_ns + usual_ns)
            waits |= flow.hangs() if self.presumed else flow.waits_ns > usual_ns
        if not waits:
            until_ns = max(until_ns, min(now_ns + LOOK_AGAIN_NS, sign_ns + NO_HURRY_NS))
        self.carries_until_ns = until_ns

    def revive(self, at_ns: int, policy: Policy) -> bool:
        """One of its flows is answered again; whether it had been given up."""
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
