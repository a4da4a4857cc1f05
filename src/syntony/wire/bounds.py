"""Bounds of numbers and texts of a peer, checked when a message is decoded.

A report is decoded in C: these bounds cost hardly anything there, and whatever is computed, stored
or kept afterwards can count on them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

MAX_VIEWS = 2_000
"""Maximum number of connections, or flows, in one report."""
MAX_REASONS = 64
"""Maximum number of reasons why processes were refused."""
MAX_COUNT = 1 << 62
"""The sum of two such counts still fits into 64 bits."""
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
"""A counter, a rate, a duration."""
Unsigned = Annotated[int, Meta(ge=0)]
"""Any 64-bit number: a value written by a job's process must not end its agent's stream."""
Signed = Annotated[int, Meta(ge=-MAX_COUNT, le=MAX_COUNT)]
"""An instant, or a count with -1 for unknown."""
Number = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
"""A 32-bit number or count."""
Port = Annotated[int, Meta(ge=0, le=(1 << 16) - 1)]
Word = Annotated[str, Meta(max_length=256)]
"""A name, an address, an identifier."""
Text = Annotated[str, Meta(max_length=2_000)]
"""A line of text."""
