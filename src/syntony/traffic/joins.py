"""Log notes on joins: ordered, up, or failed. Pure.

A join that fails repeatedly is reported at the first, second, fourth, eighth failure and so on.
"""

from __future__ import annotations

from syntony.traffic.connection import MptcpConnection, Subflow, SubflowState
from syntony.traffic.instructions import Cause, Instruction, Note, Reason


def join_succeeded(subflow: Subflow) -> list[Instruction]:
    """A subflow ordered by `Subflow.requested` is up."""
    order, subflow.requested = subflow.requested, None
    subflow.one_of = False
    if order is None:
        return []
    note = Note(
        token=order.token,
        job=order.job,
        action="create",
        reason=order.reason,
        old=order.old,
        new=order.flow,
    )
    return [note]


def join_failed(
    conn: MptcpConnection, subflow: Subflow, why: str, now_ns: int
) -> list[Instruction]:
    """A subflow did not come up; to be called after it was counted among the pair's attempts."""
    if subflow.state is not SubflowState.COMING or subflow.requested is None:
        return []
    tries = conn.tries(*subflow.pair)
    evidence = f"{why}; {tries.count} in a row failed"
    note = Note(
        token=conn.token,
        job=conn.job or "",
        action="join-failed",
        reason=Reason(Cause.JOIN, evidence, now_ns, subflow.since_ns),
        old=subflow.requested.old,
        new=subflow.flow,
        quiet=subflow.one_of or not tries.reported,
    )
    return [note]
