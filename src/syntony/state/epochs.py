"""Raising the epoch of the controller in charge beyond one that agents have seen."""

from __future__ import annotations

from syntony.errors import UsageError
from syntony.state.control import ControlState, log_change
from syntony.wire.control import MAX_EPOCH, Issuer


def raise_epoch(
    state: ControlState, above: int, *, issuer: Issuer, at_ns: int, comment: str
) -> int:
    """Make the epoch of this controller `above` plus one, and return it.

    Args:
        at_ns: fleet time, for the audit log.

    Raises:
        UsageError: the epoch is as high already, or `above` is out of range.
        StateError: it is not recorded; nothing changed.
    """
    with state.transaction() as connection:  # whose session may be at a server promoted since
        before = state.epoch
        if not before <= above < MAX_EPOCH:
            raise UsageError(f"this controller has epoch {before}; {above} is not later")
        connection.execute("UPDATE lease SET epoch = ?", (above + 1,))
        change = ("controller epoch", str(before), str(above + 1), comment)
        log_change(connection, at_ns, issuer, change)
    # Only now: in an epoch that is not recorded, agents would refuse every successor.
    state.database.epoch = above + 1
    return above + 1
