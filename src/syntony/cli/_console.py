"""Rich's console; outside a terminal it is as wide as its output."""

from __future__ import annotations

from rich.console import Console, ConsoleDimensions

UNLIMITED = 100_000
"""Columns outside a terminal: wider than any table, so nothing is wrapped or cut."""


class OutputConsole(Console):
    """As wide as the terminal; in a pipe or a file as wide as the output."""

    @property  # type: ignore[misc] # nobody sets it
    def size(self) -> ConsoleDimensions:
        """Columns and lines. `COLUMNS` counts on a terminal only: programs read pipes."""
        return super().size if self.is_terminal else ConsoleDimensions(UNLIMITED, 25)
