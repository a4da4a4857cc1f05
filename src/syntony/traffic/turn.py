"""One look at one connection: what is to be done now, and when to look again. Pure."""

from __future__ import annotations

from typing import NamedTuple

from syntony.traffic.connection import MptcpConnection
from syntony.traffic.instructions import Instruction


class Turn(NamedTuple):
    """Filled by anyone who looks."""

    conn: MptcpConnection
    now_ns: int
    out: list[Instruction]
    dues: list[int]
    """When to look again."""

    @property
    def job(self) -> str:
        return self.conn.job or ""
