"""Detects two running agents with the same name, for example after a machine was cloned.

A restarted agent has a new stream and never returns to an earlier one. So a stream that returns
after another one has replaced it shows that two agents run. The first one is kept and the other
refused: if they were served in turn, the plan of the whole fleet would change each time.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from typing import NamedTuple

from syntony.controller.hello_check import RefusedError
from syntony.wire.messages import Hello

_log = logging.getLogger(__name__)

MAX_STREAMS = 8
"""Streams of one name that are remembered: an agent in a crash loop has as many within seconds."""


class _Streams(NamedTuple):
    """Streams of one name, newest last."""

    replaced: deque[str]
    refused: deque[str]


class DuplicateAgents:
    """Streams by name; names come from certificates, which limits their number."""

    def __init__(self) -> None:
        self._current: dict[str, str] = {}
        self._streams: defaultdict[str, _Streams] = defaultdict(
            lambda: _Streams(deque(maxlen=MAX_STREAMS), deque(maxlen=MAX_STREAMS))
        )

    def check(self, hello: Hello, *, attached: bool) -> None:
        """Check an agent's first message. If it shows that the agent attached until now is another
        one of the same name, that one is refused from now on.

        Args:
            hello: of an accepted certificate.
            attached: whether an agent of that name is attached.

        Raises:
            RefusedError: this agent is the second one of its name.
        """
        host, stream = hello.host, hello.stream
        streams = self._streams[host]
        if attached and stream in streams.refused:
            raise RefusedError(
                f"another agent of the name {host!r} is attached: two machines have one name and "
                "one certificate; give this one its own (syntony enrol token agent NAME)"
            )
        if hello.backlog:
            return
        before = self._current.get(host, stream)
        self._current[host] = stream
        if stream == before:
            return
        if stream not in streams.replaced:
            streams.replaced.append(before)
            return
        streams.refused.append(before)
        _log.warning("two agents have the same name, only the first is served host=%s", host)
