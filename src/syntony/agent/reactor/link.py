"""The telemetry process's connection to the reactor; continues if the reactor does not answer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony import __version__
from syntony.agent.reactor.messages import (
    PROTOCOL,
    Answer,
    Began,
    Begin,
    Drain,
    Failed,
    Look,
    Obey,
    Probing,
    ProbingQuery,
    ProcessPaces,
    ReactorState,
    ReactorUpdate,
    Records,
    Reported,
    Request,
    StateQuery,
)
from syntony.agent.steering.rows import PathRow
from syntony.errors import MissingError, WireError
from syntony.io.channel import Channel
from syntony.io.probe_records import HEARD, RECORD, Counters
from syntony.io.process import own_usage
from syntony.io.run_directory import REACTOR_SOCKET
from syntony.model import MS, S
from syntony.wire.failover import Switch
from syntony.wire.probes import KeysHeld, Plan, ProbeKeys

_A = TypeVar("_A", bound=Answer)

TIMEOUT_NS = 1 * S
"""Timeout of one message. A reactor that is stopped is tried again when its part is restarted."""
RETRY_NS = 2 * S
"""Maximum interval of attempts to reach it: it is restarted within this time."""
BEGIN_NS, LOOK_NS = 2 * S, 20 * MS
"""How long to wait for a socket that is not there yet; interval of checks."""
NO_UPDATE = ReactorUpdate(pending=0, probing=0, outcome="", has_flows=False)


class ReactorLink:
    """Used by the agent's loop. While the reactor does not answer, every result is empty, and
    `fault` has the reason."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / REACTOR_SOCKET
        self._channel: Channel | None = None
        self.connections = 0
        """Number of connections made: one more whenever either process restarts."""
        self.fault: MissingError | None = None
        self.state: ReactorState | None = None
        """The last known state; None: it does not answer."""
        self.counters = Counters(**dict.fromkeys(Counters.__struct_fields__, 0))
        """Counters of the probe engine, as last known."""
        self.cpu_ns = self.rss_bytes = 0
        """CPU time of the reactor, as last known."""
        self.unsent = 0
        """Probe records that were lost in transit, as last known."""
        self.held: KeysHeld | None = None
        """Its keys, to be reported to the controller; set when it accepts keys."""
        self._verbs: list[NDArray[np.void]] = []
        self._orders: dict[type[Reported], Reported] = {}
        """Orders that a restarted reactor must receive again."""
        self._rows = 0
        """Rows before this number have been taken."""

    def await_socket(self) -> None:
        """Wait for a reactor that starts at the same time, so that the controller's first message
        contains its report of the NICs rather than a guess."""
        until_ns = time.monotonic_ns() + BEGIN_NS
        while time.monotonic_ns() < until_ns and not self._path.exists():
            time.sleep(LOOK_NS / S)

    def start(self) -> None:
        """Connect, and send all standing orders. Raises `MissingError`: no answer."""
        self.close()
        try:
            self._channel = Channel.connect(self._path, TIMEOUT_NS)
        except MissingError as error:
            raise MissingError(f"{error}; does the reactor run on this host?") from error
        self.fault = None
        began = self._request(Begin(protocol=PROTOCOL, version=__version__), Began)
        if began is not None and began.record_bytes != RECORD.itemsize:
            self._lose("its probe records are of another version: restart both")
        self._rows = 0
        for message in list(self._orders.values()):
            self.obey(message, None)
        self.refresh()
        if self.fault is not None:
            raise self.fault
        self.connections += 1

    @property
    def up(self) -> bool:
        """Whether it answered the last request."""
        return self._channel is not None

    def close(self) -> None:
        """Idempotent."""
        if self._channel is not None:
            self._channel.close()
        self._channel, self.state = None, None

    def obey(self, message: Reported | ProcessPaces, fleet_minus_monotonic_ns: int | None) -> str:
        """Forward the controller's order. A new reactor gets plans, keys and the switch again.

        Returns:
            Why the order is not in force; empty: it is.
        """
        if isinstance(message, Plan | ProbeKeys | Switch):
            self._orders[type(message)] = message
        order = Obey(said=message, fleet_minus_monotonic_ns=fleet_minus_monotonic_ns)
        try:
            self._exchange(order)
        except MissingError as error:
            return str(error)
        if isinstance(message, ProbeKeys):
            self.held = KeysHeld(
                epochs=message.epochs, sending=message.sending, number=message.number
            )
        return ""

    def look(self, *, flows: bool) -> ReactorUpdate:
        """Ask for news."""
        return self._request(Look(flows=flows), ReactorUpdate) or NO_UPDATE

    def drain(self) -> NDArray[np.void]:
        """Every probe record since the last call: shape (n,), dtype `RECORD`."""
        found = self._request(Drain(), Records)
        if found is not None and found.verbs:
            self._verbs.append(np.frombuffer(found.verbs, RECORD))
        return np.frombuffer(found.records if found is not None else b"", RECORD)

    def drained_verbs(self) -> NDArray[np.void]:
        """Records over verbs that came with `drain`, in the same format."""
        taken, self._verbs = self._verbs, []
        return np.concatenate([np.empty(0, RECORD), *taken])

    def heard(self) -> NDArray[np.void]:
        """Requests received from each prober: shape (n,), dtype `HEARD`."""
        return np.frombuffer(self.state.heard if self.state is not None else b"", HEARD)

    def verbs_heard(self) -> NDArray[np.void]:
        """The same over verbs."""
        return np.frombuffer(self.state.verbs_heard if self.state is not None else b"", HEARD)

    def probing(self) -> Probing | None:
        """What is probed; None: it does not answer."""
        return self._request(ProbingQuery(), Probing)

    def refresh(self) -> None:
        """Ask for its state."""
        self.state = self._request(StateQuery(rows=self._rows), ReactorState)
        if self.state is not None:
            self.counters = msgspec.convert(self.state.engine, Counters)
            self.unsent = self.state.unsent
            self.cpu_ns, self.rss_bytes = self.state.cpu_ns, self.state.rss_bytes

    def vitals(self, shed: int) -> dict[str, int]:
        """Counters of a row of `agent_1s`; `shed` rows or records were lost: of both processes
        together."""
        counters, own = self.counters, own_usage()
        return {
            "tx": counters.sent + counters.replies,
            "rx": counters.received,
            "rejected": counters.rejected + counters.unsolicited,
            "stalls": counters.stalls,
            "dropped": shed,
            "cpu_ns": own.cpu_ns + self.cpu_ns,
            "rss_bytes": own.rss_bytes + self.rss_bytes,
        }

    def rows(self) -> tuple[PathRow, ...]:
        """Actions on paths since the last call."""
        if self.state is None:
            return ()
        fresh = self.state.rows[max(0, self._rows - self.state.first_row) :]
        self._rows = self.state.first_row + len(self.state.rows)
        return fresh

    def _request(self, request: Request, expected: type[_A]) -> _A | None:
        try:
            answer = self._exchange(request)
        except MissingError:
            return None
        if not isinstance(answer, expected):
            self._lose(f"it answers {type(answer).__name__} to {type(request).__name__}")
            return None
        return answer

    def _exchange(self, request: Request) -> Answer:
        """Raises `MissingError`: it does not answer, or refuses."""
        if self._channel is None:
            raise MissingError("the reactor does not run")
        try:
            self._channel.send(msgspec.msgpack.encode(request))
            answer: Answer = msgspec.msgpack.decode(self._channel.receive(), type=Answer)
        except (MissingError, WireError, msgspec.DecodeError) as error:
            self._lose(str(error))
            raise MissingError(str(error)) from error
        if isinstance(answer, Failed):
            if not isinstance(request, Obey):
                self._lose(answer.reason)
            raise MissingError(answer.reason)
        return answer

    def _lose(self, reason: str) -> None:
        self.close()
        self.fault = MissingError(f"{self._path}: {reason}")
