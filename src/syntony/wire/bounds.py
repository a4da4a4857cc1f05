"""What numbers and texts of a peer can be, checked where a message is decoded.

A report is decoded in C: these bounds cost hardly anything there, and whatever is computed, stored
or kept afterwards can count on them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

MAX_VIEWS = 2_000
"""Connections, or flows, one report may describe."""
MAX_REASONS = 64
"""Of processes that were not let in."""
MAX_COUNT = 1 << 62
"""Sums of two of them are integers of 64 bits still."""
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
"""A counter, a rate, a duration."""
Unsigned = Annotated[int, Meta(ge=0)]
"""Any number of 64 bits: what a process of a job has written must not end its agent's stream."""
Signed = Annotated[int, Meta(ge=-MAX_COUNT, le=MAX_COUNT)]
"""An instant, or a count for which -1 stands for unknown."""
Number = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
"""What is numbered, or counted, by 32 bits."""
Port = Annotated[int, Meta(ge=0, le=(1 << 16) - 1)]
Word = Annotated[str, Meta(max_length=256)]
"""A name, an address, an identifier."""
Text = Annotated[str, Meta(max_length=2_000)]
"""A sentence for a person."""
