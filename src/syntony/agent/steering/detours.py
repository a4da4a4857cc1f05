"""Carries out decisions for plain TCP connections: rewritten names on the wire, and fallback
routes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence

from syntony.errors import MissingError
from syntony.io.detours import DEAD_MAN_S, DetourTable, strict_nics
from syntony.io.host_routes import HostRoutes
from syntony.model import S
from syntony.model.paths import FourTuple
from syntony.traffic.instructions import Expect, Redirect

_log = logging.getLogger(__name__)

BEAT_NS = DEAD_MAN_S * S // 3


class _Made:
    table: DetourTable | None = None
    routes: HostRoutes | None = None
    missing: str = ""


class Detours:
    """Opened when the first connection is known: hosts without plain jobs have no table of ours.

    Opening needs programs (`nft`, and the one that cleans up after us), so another thread does it;
    from then on only the kernel is used.

    Args:
        nics: returns the current names of our NICs.
        nic_of: the NIC that has a local address.
        opened: called with the table once it exists, to receive its events.
        call: runs a function soon in the thread that reacts.
    """

    def __init__(
        self,
        nics: Callable[[], Iterable[str]],
        nic_of: Callable[[str], str | None],
        opened: Callable[[DetourTable], None],
        call: Callable[[Callable[[], None]], None],
    ) -> None:
        self._nics = nics
        self._nic_of = nic_of
        self._opened = opened
        self._call = call
        self._opener: threading.Thread | None = None
        self._made: _Made | None = None
        """Set by the opening thread, for the thread that reacts."""
        self._early: list[Expect] = []
        self._table: DetourTable | None = None
        self._routes: HostRoutes | None = None
        self._offered: dict[tuple[str, str], FourTuple] = {}
        """(Remote address, NIC): packets to there may leave here if no other route is left, like
        those of this path."""
        self._beat_ns = 0
        self.missing = ""
        """Why this host cannot do it; empty: it can, as far as known."""

    def close(self) -> None:
        if self._opener is not None:
            self._opener.join()
            self._take_made()
        if self._routes is not None:
            self._routes.close()
        if self._table is not None:
            self._table.close()

    def do(self, instructions: Sequence[Expect | Redirect]) -> str:
        """Carry out all of them at once; empty, or why not."""
        if self._table is None and not self.missing:
            early = [each for each in instructions if isinstance(each, Expect)]
            self._early += early
            if self._opener is None:
                self._opener = threading.Thread(target=self._open, name="detours", daemon=True)
                self._opener.start()
            if len(early) == len(instructions):
                return ""
            self._opener.join()
            self._take_made()
        if self._table is None:
            return self.missing
        return self._change(self._table, instructions)

    def _change(self, table: DetourTable, instructions: Sequence[Expect | Redirect]) -> str:
        try:
            table.change(
                expected=[(e.flow, e.wires) for e in instructions if isinstance(e, Expect)],
                sent=[(e.flow, e.wire) for e in instructions if isinstance(e, Redirect)],
            )
        except MissingError as error:
            _log.warning("detours of plain TCP not available reason=%s", error)
            return str(error)
        for each in instructions:
            if isinstance(each, Expect):
                self._offer(each.flow, each.wires)
        return ""

    def beat(self, now_ns: int) -> None:
        """Heartbeat: keeps the dead man's switches from ending the detours."""
        if self._table is None or now_ns < self._beat_ns:
            return
        self._beat_ns = now_ns + BEAT_NS
        try:
            self._table.beat()
            if self._routes is not None:
                self._routes.beat()
        except MissingError as error:
            _log.warning("detours not renewed, they may expire reason=%s", error)

    def restore(self, nic: str) -> None:
        """Restore this NIC's routes, which the kernel has dropped, including ours."""
        lost = {key: wire for key, wire in self._offered.items() if key[1] == nic}
        for key, wire in lost.items():
            del self._offered[key]
            self._route(*key, wire)

    def _open(self) -> None:
        """Runs in the opening thread."""
        made = _Made()
        try:
            made.table = DetourTable()
            made.table.beat()
        except MissingError as error:
            made.missing = str(error)
        else:
            try:
                made.routes = HostRoutes()
            except MissingError as error:
                _log.warning("fallback routes not available reason=%s", error)
        self._made = made
        self._call(self._take_made)

    def _take_made(self) -> None:
        made, self._made = self._made, None
        if made is None:
            return
        self._table, self._routes, self.missing = made.table, made.routes, made.missing
        early, self._early = self._early, []
        if self._table is None:
            _log.warning("detours of plain TCP not available reason=%s", self.missing)
            return
        self._opened(self._table)
        strict = strict_nics(self._nics())
        if strict:
            _log.warning(
                "detours to %s will be lost: rp_filter is 1 (strict); set "
                "net.ipv4.conf.%s.rp_filter=2", ", ".join(strict), strict[0],
            )  # fmt: skip
        self._change(self._table, early)

    def _offer(self, flow: FourTuple, wires: Sequence[FourTuple]) -> None:
        own = self._nic_of(flow.local)
        for wire in wires:
            nic = self._nic_of(wire.local)
            if nic is not None and nic != own:
                self._route(flow.remote, nic, wire)

    def _route(self, remote: str, nic: str, wire: FourTuple) -> None:
        """A packet must have some route to be rewritten; then it gets another."""
        if self._routes is None or (remote, nic) in self._offered:
            return
        metric = 1 + len(self._offered)
        try:
            self._routes.offer(remote, (wire.local, wire.remote), nic, metric)
        except MissingError as error:
            _log.warning("no fallback route remote=%s reason=%s", remote, error)
            return
        self._offered[remote, nic] = wire
