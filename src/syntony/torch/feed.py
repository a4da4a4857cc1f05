"""Reports replaced ranks to the host's agent: the audit trail of takeovers, for the fleet.

One JSON object a message (docs/reference/local-socket.md). Nothing waits for the agent: without
one, the newest messages are kept and the rest is dropped.
"""

from __future__ import annotations

import collections
import contextlib
import json
import socket
from collections.abc import Mapping
from typing import Any

MAX_WAITING = 256
MAX_TEXT = 160
MAX_LATE = 32
"""Maximum number of ranks late together that are reported."""


class Trail:
    """Makes messages from a coordinator's events. Pure."""

    def __init__(self, hosts: Mapping[str, str], here: str) -> None:
        """`hosts`: of workers, by name; `here`: this host's name."""
        self._hosts = hosts
        self._here = here
        self._lost: dict[int, dict[str, Any]] = {}
        """Ranks that wait for their replacement, with the loss."""
        self._sha256 = ""
        """The newest hash that all ranks agreed on."""
        self._unverified = False
        self._spares = (-1, -1)
        """Generation and number of waiting spares, as last reported."""

    def of_spares(self, generation: int, ready: int, at_ns: int) -> list[dict[str, Any]]:
        """How many spares wait in which generation, if that has changed."""
        if (generation, ready) == self._spares:
            return []
        self._spares = generation, ready
        event = {"at_ns": at_ns, "generation": generation}
        return [self._message("spares", event) | {"spares": ready}]

    def messages(  # noqa: PLR0911 - one for each event
        self, event: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Messages to the agent about an event."""
        match event:
            case {"event": "lost", "rank": rank}:
                self._lost[rank] = dict(event)
            case {"event": "formed", "took_ns": took_ns, "lost": dict(lost)}:
                self._unverified = True
                return [
                    self._of(rank, "replaced", event, str(reason), took_ns)
                    for rank, reason in lost.items()
                ]
            case {"event": "digest", "equal": equal, "sha256": dict(digests)}:
                self._sha256, before = next(iter(digests.values())), self._sha256
                if not equal or self._unverified:
                    self._unverified = False
                    what = "verified" if equal else "differs"
                    return [self._message(what, event) | {"before": before, "after": self._sha256}]
            case {"event": "gave-up", "reason": reason}:
                ranks = sorted(self._lost) or [-1]
                return [self._of(rank, "ended", event, str(reason), 0) for rank in ranks]
            case {"event": "checkpoint", "path": path}:
                ranks = sorted(self._lost) or [-1]
                return [self._of(rank, "checkpoint", event, str(path), 0) for rank in ranks]
            case {"event": "straggler", "ranks": ranks, "workers": workers, "reason": reason}:
                said = {"reason": str(reason)[:MAX_TEXT]}
                return [
                    self._message("straggler", event)
                    | said
                    | {"rank": rank, "at": self._at(worker)}
                    for rank, worker in zip(ranks[:MAX_LATE], workers, strict=False)
                ]
            case {"event": "no-straggler"}:
                return [self._message("no-straggler", event)]
            case {"event": "unprotected" | "fixed", "reason": reason}:
                return [self._message("unprotected", event) | {"reason": str(reason)[:MAX_TEXT]}]
        return []

    def _of(
        self, rank: int, what: str, event: Mapping[str, Any], reason: str, took_ns: int
    ) -> dict[str, Any]:
        loss = self._lost.pop(rank, {})
        return self._message(what, event) | {
            "rank": rank, "at": self._at(loss.get("worker", "")), "reason": reason[:MAX_TEXT],
            "worker": event.get("holders", {}).get(rank, ""), "took_ns": took_ns,
            "step": event.get("boundary", loss.get("boundary", -1)), "before": self._sha256,
        }  # fmt: skip

    def _at(self, worker: str) -> str:
        """A worker's host; empty: this one."""
        at = self._hosts.get(worker, "")
        return "" if at == self._here else at

    @staticmethod
    def _message(what: str, event: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "what": what, "rank": -1, "at": "", "reason": "", "worker": "", "took_ns": 0,
            "step": event.get("boundary", -1), "generation": event.get("generation", 0),
            "before": "", "after": "", "at_ns": event["at_ns"],
        }  # fmt: skip


class Feed:
    """The connection to the agent; call `flush` regularly."""

    def __init__(self, path: str) -> None:
        """`path`: of the agent's socket for jobs; empty: there is none."""
        self._path = f"{path}-takeovers" if path else ""
        self._waiting: collections.deque[bytes] = collections.deque(maxlen=MAX_WAITING)
        self._agent: socket.socket | None = None

    def tell(self, message: dict[str, Any]) -> None:
        self._waiting.append(json.dumps(message, separators=(",", ":")).encode())

    def flush(self) -> None:
        """Send what waits, as far as the agent accepts it."""
        if not self._path or not self._waiting:
            return
        try:
            if self._agent is None:
                self._agent = self._connect()
            while self._waiting:
                self._agent.send(self._waiting[0])
                self._waiting.popleft()
        except BlockingIOError:
            pass
        except OSError:  # no agent now: try later
            self.close()

    def _connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.setblocking(False)
        try:
            made.connect(self._path)
        except OSError:
            made.close()
            raise
        return made

    def close(self) -> None:
        if self._agent is not None:
            with contextlib.suppress(OSError):
                self._agent.close()
        self._agent = None
