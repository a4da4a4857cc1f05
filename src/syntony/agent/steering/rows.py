"""Actions on paths, as rows of `path_events`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from syntony.mesh.stats import Columns
from syntony.model.paths import FourTuple
from syntony.traffic.instructions import Cause, Create, Destroy, Note, Redirect
from syntony.wire.tables import PATH_EVENTS


class PathRow(msgspec.Struct, frozen=True, kw_only=True):
    """One action, done, failed, or only noted; `at_ns` is CLOCK_MONOTONIC."""

    at_ns: int
    job: str
    connection: str
    cause: str
    evidence: str
    action: str
    old_path: str
    new_path: str
    detect_ns: int
    act_ns: int
    result: str = ""


def path_row(
    instruction: Create | Destroy | Note | Redirect,
    done_ns: int,
    result: str,
    name: Callable[[FourTuple | None], str],
) -> PathRow:
    """The row of one instruction; `name` writes a flow with the NICs' names."""
    match instruction:
        case Create(flow=flow, old=old):
            action, before, after = "request", name(old), name(flow)
        case Destroy(flow=flow, new=new):
            action, before, after = "destroy", name(flow), name(new)
        case Redirect(flow=flow, old=old, wire=wire):
            action = "return" if wire == flow else "detour"
            before, after = name(old), name(wire)
        case Note(old=old, new=new):
            action, before, after = instruction.action, name(old), name(new)
    reason = instruction.reason
    return PathRow(
        at_ns=done_ns,
        job=instruction.job,
        connection=_connection(instruction),
        cause=reason.cause,
        evidence=reason.evidence,
        action=action,
        old_path=before,
        new_path=after,
        detect_ns=max(0, reason.at_ns - reason.since_ns),
        act_ns=max(0, done_ns - reason.at_ns),
        result=result,
    )


def _connection(instruction: Create | Destroy | Note | Redirect) -> str:
    if isinstance(instruction, Note) and instruction.process:
        return f"rdma-{instruction.process}"
    return f"{instruction.token:08x}"


def is_news(instruction: Create | Destroy | Note | Redirect) -> bool:
    """Whether an operator should see it. The end of a join that was not established is left out: a
    `Note` reports the result of the join."""
    if isinstance(instruction, Create | Note):
        return not instruction.quiet
    return not (isinstance(instruction, Destroy) and instruction.reason.cause is Cause.JOIN)


def columns(rows: Sequence[PathRow], host: str, fleet_minus_monotonic_ns: int) -> Columns:
    texts = {
        column.name: [getattr(row, column.name) for row in rows]
        for column in PATH_EVENTS.columns
        if column.type == "string" and column.name != "host"
    }
    return {
        **texts,
        "host": [host] * len(rows),
        "ts_ns": np.array([row.at_ns + fleet_minus_monotonic_ns for row in rows], np.int64),
        "detect_ns": np.array([row.detect_ns for row in rows], np.int64),
        "act_ns": np.array([row.act_ns for row in rows], np.int64),
    }
