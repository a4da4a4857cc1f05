"""One evaluation of a connection: what to do now, and when to evaluate again. Pure."""

from __future__ import annotations

from typing import NamedTuple

from syntony.traffic.connection import MptcpConnection
from syntony.traffic.instructions import Instruction


class Turn(NamedTuple):
    """Filled by the parts of `Steering`."""

    conn: MptcpConnection
    now_ns: int
    out: list[Instruction]
    dues: list[int]
    """When to evaluate again."""

    @property
    def job(self) -> str:
        return self.conn.job or ""
