"""Pairs of NICs, the probed flows between them and the jobs' data on them: what is known of each.

A pair is a local NIC and a remote address.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from syntony.model import MS, S
from syntony.model.paths import FourTuple
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import Reason
from syntony.traffic.torn import Torn

HANG_NS = 15 * MS
"""So long a flow whose acknowledgements were coming waits for one only if something is wrong or the
peer holds it back (TCP_DELACK_MIN, 40 ms); the path's probes tell these from each other."""
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


class Progress(NamedTuple):
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
        self.torn = Torn()
        self.since_ns = 0
        self.misses = 0
        self.died_ns: int | None = None
        """When the last of its flows died; None while any lives."""
        self.revived_ns = 0
        """When it was answered again after all of its flows had died."""
        self.brief = 0
        """Deaths that healed at once, of late."""
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
        self.torn.keep(flow_ids)
