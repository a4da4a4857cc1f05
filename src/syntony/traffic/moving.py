"""State of a subflow's move to another path: make, drain, break. Pure.

An order names the subflow and the source port that the fabric hashes onto the new path. The new
subflow comes up while the old one carries data; then both ends stop sending new data on the old
one; then it ends. If the new one does not come up, the old one stays untouched.
"""

from __future__ import annotations

import msgspec

from syntony.model import MS
from syntony.model.paths import FourTuple
from syntony.traffic.instructions import Cause

DRAIN_NS = 60 * MS
"""Data of the old subflow still under way after this time go over the others: three times what the
deepest queue of a 20 ms fabric holds back."""
WORSE = 0.9
"""Below this share of the rate before, a move has made things worse: rates of a steady job vary by
a few per cent from window to window."""
REMEMBERED = 64
"""Maximum number of outcomes that are reported."""


class MoveOrder(msgspec.Struct, frozen=True, kw_only=True):
    move_id: str
    token: int
    flow: FourTuple
    """The subflow as it is now, local end first."""
    port: int
    """Source port of the new one."""
    evidence: str
    cause: Cause = Cause.CONTENTION


class Moving(msgspec.Struct):
    order: MoveOrder
    new: FourTuple
    nic: str
    began_ns: int
    before_bps: int
    """Both ways, over the last window before."""
    retired_ns: int | None = None
    """When the old subflow was ordered to drain."""

    @property
    def pair(self) -> tuple[str, str]:
        """Local NIC and remote address, which a move never changes."""
        return self.nic, self.new.remote


class Guard(msgspec.Struct):
    """A move that was made and is not yet confirmed to help."""

    order: MoveOrder
    before_bps: int
    due_ns: int
    """When its effect is checked, unless it is confirmed before."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    move_id: str
    result: str
    """``moved``, ``reverted``, or why it was not carried out."""
    at_ns: int
    tried: bool
    """False: nothing was done; the order may succeed later."""

    @property
    def done(self) -> bool:
        return self.result == "moved"
