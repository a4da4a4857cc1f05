"""The probe engine: native thread, records read as numpy arrays, no Python per packet."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony.errors import MissingError, SyntonyError, UsageError
from syntony.io._library import ffi, library, pointer_to, text_of
from syntony.io.clocks import ClockSource, SyntheticClock
from syntony.io.closing import Closing
from syntony.io.probe_key import KEY_BYTES, c_key
from syntony.io.probe_records import (
    HEARD,
    LIVENESS,
    RECORD,
    WATCH_STATUS,
    Counters,
    Endpoint,
    NicStatus,
    PeerKeys,
    ProbeNic,
    VerbsRoute,
    WatchStatus,
)
from syntony.model import MS, US
from syntony.model.paths import LivenessEvent
from syntony.model.probes import PROBE_TIMEOUT_NS, DeviceClockReading
from syntony.wire.probes import Plane, ProbeFlow

MIN_GAP_NS = 20 * US
"""Between two pairs of one engine: bounds its processor time at about one core."""
STALL_NS = 5 * MS
"""Later than this the engine counts itself late: beyond a busy scheduler's usual time slice."""
RING_RECORDS = 1 << 15
"""Records between two drains: 3 s at 10,000 probes/s."""
_MESSAGE_BYTES = 256
_STAMPING = {"auto": 0, "hardware": 1, "kernel": 2}
_IFNAME_BYTES = 15
_EVENTS_AT_ONCE = 256


class NoRdmaPortError(MissingError):
    """A NIC has none, or the host has no RDMA at all: nothing is wrong with it."""


class ProbeEngine(Closing):
    """Sends and answers probes in a native thread.

    One per process; its sockets belong to the network namespace of the thread that makes it.

    Methods are thread-safe; `drain` must have one caller at a time.

    Raises:
        UsageError: an address, name or option that does not fit.
        MissingError: no such interface, address not local, port in use.
    """

    def __init__(
        self,
        nics: Sequence[ProbeNic],
        clock: ClockSource,
        *,
        ring_records: int = RING_RECORDS,
        timeout_ns: int = PROBE_TIMEOUT_NS,
        min_gap_ns: int = MIN_GAP_NS,
        stall_ns: int = STALL_NS,
        plane: Plane = Plane.UDP,
    ) -> None:
        self._nics = list(nics)
        self._index = {nic.name: index for index, nic in enumerate(self._nics)}
        self._clock = clock
        self._library = library()
        self._closing = threading.Lock()
        options = {
            "timeout_ns": timeout_ns,
            "min_gap_ns": min_gap_ns,
            "stall_ns": stall_ns,
            "ring_records": ring_records,
            "plane": list(Plane).index(plane),
        }
        c_nics = {nic.name: _c_nic(nic) for nic in self._nics if nic.address}
        self._engine = self._open(options)
        try:
            for name, c_nic in c_nics.items():
                self._attach(name, c_nic)
        except SyntonyError:
            self.close()
            raise

    def _open(self, options: dict[str, int]) -> Any:
        try:
            c_options = ffi.new("struct syn_probe_options *", options)
        except OverflowError as error:
            raise UsageError(f"probe engine option out of range: {error}") from error
        clock = self._clock.handle if isinstance(self._clock, SyntheticClock) else ffi.NULL
        code = ffi.new("int *")
        message = ffi.new("char[]", _MESSAGE_BYTES)
        engine = self._library.syn_probe_open(len(self._nics), c_options, clock, code, message)
        if engine == ffi.NULL:
            raise _error(code[0], message)
        return engine

    def start(self) -> None:
        """Begin to reflect, and to probe once there are keys and flows."""
        message = ffi.new("char[]", _MESSAGE_BYTES)
        code = self._library.syn_probe_start(self._alive(), message)
        if code:
            raise _error(code, message)

    def close(self) -> None:
        """Stop the thread and close the sockets; what was not drained is gone. Idempotent."""
        with self._closing:
            engine, self._engine = self._engine, None
        if engine is not None:
            self._library.syn_probe_close(engine)

    def attach(self, name: str, address: str, nic_id: int, stamping: str = "") -> None:
        """Open a NIC as it is now, or again: after its driver came back, with another address.

        What watches it goes on. A number on the wire must not change while flows are set on it.

        Args:
            nic_id: its number on the wire.
            stamping: another than it was made with.

        Raises:
            UsageError, MissingError: it stays detached.
        """
        nic = self._nics[self._index[name]]
        nic = msgspec.structs.replace(nic, address=address, nic_id=nic_id)
        self._attach(name, _c_nic(msgspec.structs.replace(nic, stamping=stamping or nic.stamping)))
        self._nics[self._index[name]] = nic

    def _attach(self, name: str, c_nic: dict[str, Any]) -> None:
        config = ffi.new("struct syn_probe_nic *", c_nic)
        message = ffi.new("char[]", _MESSAGE_BYTES)
        code = self._library.syn_probe_attach(self._alive(), self._index[name], config, message)
        if code:
            raise _error(code, message)

    def detach(self, name: str) -> None:
        """Close a NIC's sockets; watched paths on it fall silent."""
        self._library.syn_probe_detach(self._alive(), self._index[name])

    def set_peers(self, peers: Mapping[int, PeerKeys]) -> None:
        """Replace the peers to probe and to answer: number of a remote NIC → the keys that this
        host shares with that NIC's host. Nothing else is sent or accepted. Raises `UsageError`: a
        number or a key does not fit."""
        try:
            c_peers = ffi.new(
                "struct syn_probe_peer[]", [_c_peer(nic, keys) for nic, keys in peers.items()]
            )
        except OverflowError as error:
            raise UsageError(f"a peer has a number out of range: {error}") from error
        self._replace(self._library.syn_probe_set_peers, c_peers)

    def set_flows(self, flows: Sequence[ProbeFlow]) -> None:
        """Replace all flows, or none of them if one is wrong; unchanged flows keep their state."""
        self._replace_flows(self._library.syn_probe_set_flows, flows, "probe")

    def watch(self, flows: Sequence[ProbeFlow]) -> None:
        """Watch these paths for life, and no others: one probe per `interval_ns` (≥ 1 ms) each.

        They are apart from `set_flows`: an id may be in both, nothing of them is in `drain`. A path
        that is the same but for its interval keeps its state. The first event of each says whether
        it answers at all.
        """
        self._replace_flows(self._library.syn_probe_set_watches, flows, "watched")

    def _replace_flows(
        self, replace: Callable[..., int], flows: Sequence[ProbeFlow], kind: str
    ) -> None:
        try:
            c_flows = ffi.new("struct syn_probe_flow[]", [self._c_flow(flow) for flow in flows])
        except OverflowError as error:
            raise UsageError(f"a {kind} flow has a number out of range: {error}") from error
        self._replace(replace, c_flows)

    def _replace(self, replace: Callable[..., int], wanted: Any) -> None:
        message = ffi.new("char[]", _MESSAGE_BYTES)
        code = replace(self._alive(), wanted, len(wanted), message)
        if code:
            raise _error(code, message)

    def liveness_fd(self) -> int:
        """Readable while `liveness` has something to tell, or `watched` of a pair of NICs that is
        suspect or unresponsive since; for epoll. It is closed with the engine and is another one in
        another engine."""
        return int(self._library.syn_probe_liveness_fd(self._alive()))

    def liveness(self) -> list[LivenessEvent]:
        """What happened to the watched paths since the last call, oldest first."""
        events: list[LivenessEvent] = []
        while True:
            rows = np.empty(_EVENTS_AT_ONCE, LIVENESS)
            target = pointer_to(rows, "struct syn_liveness_event")
            count = self._library.syn_probe_take_liveness(self._alive(), target, len(rows))
            events += [
                LivenessEvent(
                    at_ns=at_ns,
                    flow_id=flow_id,
                    alive=bool(alive),
                    since_ns=since_ns,
                    misses=misses,
                )
                for at_ns, since_ns, flow_id, alive, misses, _ in rows[:count].tolist()
            ]
            if count < len(rows):
                return events

    def watched(self) -> list[WatchStatus]:
        rows = self._rows("syn_watch_status", WATCH_STATUS, self._library.syn_probe_read_watches)
        return [
            WatchStatus(
                flow_id=flow_id,
                alive=None if life == 0 else life == 1,
                heard_ns=heard_ns,
                rtt_ns=rtt_ns,
                suspect=bool(suspect),
                unresponsive=bool(unresponsive),
                steady_ns=steady_ns,
                gap_ns=gap_ns,
            )
            for (
                flow_id,
                life,
                heard_ns,
                rtt_ns,
                _,
                suspect,
                unresponsive,
                steady_ns,
                gap_ns,
            ) in rows.tolist()
        ]

    def check(self, name: str) -> None:
        """Over verbs: raises `MissingError` if an attached NIC is no longer what it was."""
        message = ffi.new("char[]", _MESSAGE_BYTES)
        if not self._library.syn_probe_check(self._alive(), self._index[name], message):
            raise MissingError(text_of(message))

    def read_clock(self, name: str) -> DeviceClockReading | None:
        """Over verbs: the clock that stamps a NIC's completions; None: its device has none.

        It is watched by this: call it about once a second.

        Raises:
            MissingError: the device has one that cannot be used, and why.
        """
        row = ffi.new("struct syn_verbs_clock_reading *")
        self._library.syn_probe_read_clock(self._alive(), self._index[name], row)
        if fault := text_of(row.fault):
            raise MissingError(f"{fault}: probes are stamped by the engine")
        if not row.epoch_ns:
            return None
        return DeviceClockReading(row.epoch_ns, row.host_ns, row.device_ns, row.uncertainty_ns)

    def endpoints(self) -> dict[str, Endpoint]:
        """Over verbs: NIC → where it takes probes, of those that do."""
        rows = ffi.new("struct syn_verbs_endpoint[]", len(self._nics))
        self._library.syn_probe_read_endpoints(self._alive(), rows, len(self._nics))
        return {
            nic.name: _endpoint(row)
            for nic, row in zip(self._nics, rows, strict=True)
            if row.qpn != 0
        }

    def set_routes(self, routes: Sequence[VerbsRoute]) -> tuple[int, str]:
        """Over verbs: replace all routes; flows without one are not sent. It may take seconds, in
        which probing goes on.

        Returns:
            How many there are now, and why one is missing.
        """
        rows = ffi.new("struct syn_verbs_route[]", len(routes))
        for row, route in zip(rows, routes, strict=True):
            row.nic, row.dst_nic_id = self._index[route.src], route.to.nic_id
            row.flow_label, row.qpn, row.lid = route.flow_label, route.to.qpn, route.to.lid
            row.dscp, row.sl = route.dscp, route.sl
            ffi.memmove(row.gid, route.to.gid, len(route.to.gid))
        message = ffi.new("char[]", _MESSAGE_BYTES)
        made = self._library.syn_probe_set_routes(self._alive(), rows, len(routes), message)
        return int(made), text_of(message)

    def offer(self, own: Iterable[Endpoint]) -> None:
        """Over UDP: what to tell peers that ask where this host's NICs take probes over verbs."""
        rows = [
            {"nic_id": each.nic_id, "qpn": each.qpn, "gid": each.gid, "lid": each.lid,
             "infiniband": each.infiniband, "known": 1}
            for each in own
        ]  # fmt: skip
        c_rows = ffi.new("struct syn_verbs_endpoint[]", rows)
        self._library.syn_probe_offer(self._alive(), c_rows, len(rows))

    def ask(self, flows: Sequence[ProbeFlow]) -> None:
        """Over UDP: ask once where these flows' destinations take probes over verbs."""
        c_flows = ffi.new("struct syn_probe_flow[]", [self._c_flow(flow) for flow in flows])
        message = ffi.new("char[]", _MESSAGE_BYTES)
        code = self._library.syn_probe_ask(self._alive(), c_flows, len(flows), message)
        if code:
            raise _error(code, message)

    def reported(self, count: int) -> list[Endpoint | None]:
        """Over UDP: answers of the peers that were asked, in their order; None: none yet."""
        rows = ffi.new("struct syn_verbs_endpoint[]", count)
        known = self._library.syn_probe_read_answers(self._alive(), rows, count)
        return [_endpoint(row) if row.known else None for row in rows[0 : min(count, known)]]

    def pending(self) -> int:
        """Records that `drain` would return now, at least."""
        return int(self._library.syn_probe_pending(self._alive()))

    def drain(self) -> NDArray[np.void]:
        """Every record finished since the last call: shape (n,), dtype `RECORD`."""
        engine = self._alive()
        records = np.empty(self.pending(), RECORD)
        target = pointer_to(records, "struct syn_probe_record")
        count = self._library.syn_probe_drain(engine, target, len(records))
        return records[:count]

    def heard(self) -> NDArray[np.void]:
        """Probes received, by sender: shape (n,), dtype `HEARD`."""
        return self._rows("syn_probe_heard", HEARD, self._library.syn_probe_read_heard)

    def counters(self) -> Counters:
        """What the engine did and refused since it started."""
        out = ffi.new("struct syn_probe_counters *")
        self._library.syn_probe_read_counters(self._alive(), out)
        return Counters(**{name: getattr(out, name) for name in Counters.__struct_fields__})

    def nic_status(self) -> tuple[NicStatus, ...]:
        """The stamping in force on every NIC."""
        rows = ffi.new("struct syn_probe_nic_status[]", len(self._nics))
        self._library.syn_probe_read_nic_status(self._alive(), rows, len(self._nics))
        return tuple(
            NicStatus(
                name=nic.name,
                nic_id=nic.nic_id,
                stamping="hardware" if row.hardware else "kernel",
                reason=text_of(row.reason),
                phc_index=row.phc_index if row.phc_index >= 0 else None,
            )
            for nic, row in zip(self._nics, rows, strict=True)
        )

    def _rows(
        self, struct: str, dtype: np.dtype[np.void], read: Callable[..., int]
    ) -> NDArray[np.void]:
        room = 64
        while True:
            rows = np.empty(room, dtype)
            count = read(self._alive(), pointer_to(rows, f"struct {struct}"), room)
            if count <= room:
                return rows[:count]
            room = count

    def _alive(self) -> Any:
        if self._engine is None:
            raise UsageError("the probe engine is closed")
        return self._engine

    def _c_flow(self, flow: ProbeFlow) -> dict[str, Any]:
        if flow.src not in self._index:
            raise UsageError(f"flow {flow.flow_id}: this engine has no NIC {flow.src!r}")
        family, packed = _address(flow.dst_addr)
        return {
            "flow_id": flow.flow_id,
            "nic": self._index[flow.src],
            "dst_nic_id": flow.dst_nic_id,
            "flow_label": flow.flow_label,
            "src_port": flow.src_port,
            "dst_port": flow.dst_port,
            "dscp": flow.dscp,
            "family": family,
            "interval_ns": flow.interval_ns,
            "dst_address": packed,
        }


def _endpoint(row: Any) -> Endpoint:
    gid = bytes(ffi.buffer(row.gid))
    return Endpoint(row.nic_id, row.qpn, gid, row.lid, bool(row.infiniband))


def _c_peer(nic_id: int, keys: PeerKeys) -> dict[str, Any]:
    sends, accepts = c_key(keys.sends), c_key(keys.accepts or (0, bytes(KEY_BYTES)))
    return {
        "nic_id": nic_id,
        "key_id": sends["id"],
        "key": sends["bytes"],
        "other_id": accepts["id"],
        "other": accepts["bytes"],
    }


def _c_nic(nic: ProbeNic) -> dict[str, Any]:
    family, packed = _address(nic.address)
    if nic.stamping not in _STAMPING:
        raise UsageError(f"{nic.name}: stamping is {'|'.join(_STAMPING)}, not {nic.stamping!r}")
    name = nic.name.encode()
    if not 0 < len(name) <= _IFNAME_BYTES:
        raise UsageError(f"{nic.name!r} is not an interface name (1 to {_IFNAME_BYTES} bytes)")
    if not 0 < nic.port < 1 << 16:
        raise UsageError(f"{nic.name}: {nic.port} is not a UDP port")
    return {
        "nic_id": nic.nic_id,
        "port": nic.port,
        "family": family,
        "stamping": _STAMPING[nic.stamping],
        "address": packed,
        "ifname": name,
    }


def _address(text: str) -> tuple[int, bytes]:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError as error:
        raise UsageError(f"{text!r} is not an IPv4 or IPv6 address") from error
    return address.version, address.packed.ljust(16, b"\0")


def _error(code: int, message: Any) -> SyntonyError:
    text = text_of(message)
    if code == library().SYN_ERROR_USAGE:
        return UsageError(text)
    if code == library().SYN_ERROR_ABSENT:
        return NoRdmaPortError(text)
    return MissingError(text)
