"""Audits through agents: the order is given to the controller, reports are fetched as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from syntony.audit.result import HostReport
    from syntony.cli.audit_sources import Sources


def ask_agents(sources: Sources, done: frozenset[str]) -> Iterator[HostReport]:
    """A report of every agent's host."""
    raise NotImplementedError
