"""Where paths end, for a path learner: nothing answers behind the last hop. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from syntony.fabric.hops import MIN_CHECKED, Hop

F = TypeVar("F", bound=Hashable)
Pair = tuple[str, str]
"""The addresses at both ends."""


class PathEnds(Generic[F]):
    """The last hops between two addresses. Paths of equal cost have equal lengths, so that the
    silence behind the last hop is waited for once, by one flow; others wait for its result, as far
    as nothing has answered behind their last hops either."""

    def __init__(self) -> None:
        self._ends: dict[Pair, set[Hop]] = {}
        self._waiting: dict[Pair, list[F]] = {}
        """The flow that finds out, and those that wait for it."""
        self._longest = MIN_CHECKED

    def is_end(self, pair: Pair, hop: Hop) -> bool:
        """Whether this hop is known to be the last one."""
        return hop in self._ends.get(pair, ())

    def may_continue(self, hops: int) -> bool:
        """Whether other paths have more hops: it may have been learnt during an outage."""
        return hops < self._longest

    def take(self, pair: Pair, hops: tuple[str, ...]) -> bool:
        """Nothing answers behind these hops. Paths never become shorter by it: during an outage
        they seem to end early. Returns whether others were found to be shorter before."""
        last, known = len(hops), self._ends.setdefault(pair, set())
        longer = any(end.ttl < last for end in known)
        if longer:
            known.clear()
        if all(end.ttl <= last for end in known):
            known.add(Hop(last, hops[-1]))
        self._longest = max(self._longest, last)
        return longer

    def drop(self, pair: Pair) -> None:
        """Something answers behind what seemed to be the end."""
        self._ends.pop(pair, None)

    def waits(self, pair: Pair, flow: F) -> bool:
        """Whether another flow finds out, and this one waits from now on."""
        if pair in self._ends:
            return False
        waiting = self._waiting.setdefault(pair, [flow])
        if waiting[0] == flow:
            return False
        waiting.append(flow)
        return True

    def ended(self, pair: Pair, flow: F) -> list[F]:
        """A flow has been traced, or is gone. Returns those that waited for it."""
        if self._waiting.get(pair, [None])[0] != flow:
            return []
        return self._waiting.pop(pair)[1:]
