"""Moves plain TCP connections to other paths by rewriting addresses or ports on the wire.

All rules are in one nftables table per network namespace (Linux 5.16 or newer, no connection
tracking). Outgoing packets of a connection on a detour get other addresses or ports and are routed
by their new source. Incoming packets on any of its paths get the original addresses and ports back
before they are routed. The sockets see no change.

* A dead man's switch: packets are rewritten only if `beat` was called within `DEAD_MAN_S`. If the
  caller ends, is killed or hangs, the kernel stops rewriting by itself. Rewritten packets that
  arrive are still accepted, because the peer may go on sending them.
* A peer without this table answers a rewritten packet with a reset. Only resets that were rewritten
  themselves, recognised by their DSCP, are let through. So a detour that the peer does not support
  costs only packets that were lost anyway.
* Handshakes are never rewritten: another connection may use the same addresses and ports.
* `poll` reports the paths on which a peer sends (by nflog; each at most twice a second).
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from syntony.errors import MissingError, WireError
from syntony.io.netlink import NetlinkMessage, attribute, attributes
from syntony.io.netlink_socket import NetlinkSocket
from syntony.io.nft_elements import Element, NftElements, concatenated
from syntony.io.tool import run_tool
from syntony.model.paths import FourTuple
from syntony.traffic.events import WireReceived

TABLE = "syntony_detours"
DEAD_MAN_S = 5
GROUP = 8_621
"""Of nflog."""
RESET_DSCP = 43
"""Of the code points left to local use (RFC 2474, pool 2)."""
_WHAT = "detours of plain TCP"
CONF = Path("/proc/sys/net/ipv4/conf")
_HEARD_MS = 500
_FIELDS = ("saddr", "sport", "daddr", "dport")
_NETLINK_NETFILTER = 12
_CONFIG, _PACKET = 4 << 8 | 1, 4 << 8 | 0
"""NFULNL_MSG_CONFIG and NFULNL_MSG_PACKET of NFNL_SUBSYS_ULOG (netfilter/nfnetlink_log.h)."""
_CFG_CMD, _CFG_MODE, _CFG_TIMEOUT, _CFG_QTHRESH = 1, 2, 4, 5
_BIND, _COPY_PACKET, _SNAP_BYTES = 1, 2, 64
_PAYLOAD = 9
_IPV6_BYTES, _TCP = 40, 6

ELEMENTS_AT_ONCE = 500
"""In one transaction: without privileges over the whole machine its bytes are limited by
net.core.wmem_max (212,992), which 2,000 fill."""
Place = tuple[str, bytes]
"""A set or map, and a key in it."""
Entries = dict[Place, bytes]
"""Place to value; a set's are empty."""
_ALIVE = bytes([socket.IPPROTO_TCP])


class DetourTable:
    """Rewrites addresses or ports of plain TCP connections in nftables.

    Works in the network namespace of the thread that made it. Not thread-safe.

    Raises:
        MissingError: no nft, or a kernel that cannot do it.
    """

    def __init__(self) -> None:
        self._expected: dict[FourTuple, tuple[FourTuple, ...]] = {}
        self._sent: dict[FourTuple, FourTuple] = {}
        self._entries: dict[FourTuple, Entries] = {}
        """What is in the kernel for each connection."""
        _run_nft(_fresh() + _table())
        self._elements = NftElements(TABLE)
        self._log = NetlinkSocket(_NETLINK_NETFILTER)
        self._listen()

    def close(self) -> None:
        self._log.close()
        self._elements.close()
        _run_nft(_fresh())

    def beat(self) -> None:
        """Confirm that the caller is alive; call it well within every `DEAD_MAN_S`."""
        alive = [Element("alive", _ALIVE, timeout_ms=1000 * DEAD_MAN_S)]
        # One that is there keeps its time; one that is not cannot be taken away.
        self._change([(True, alive), (False, alive), (True, alive)])

    def change(
        self,
        expected: Iterable[tuple[FourTuple, tuple[FourTuple, ...]]] = (),
        sent: Iterable[tuple[FourTuple, FourTuple]] = (),
    ) -> None:
        """What concerns one connection in one transaction, and as many connections as fit; local
        ends first.

        Args:
            expected: connections and all the ways on which their packets may arrive; no ways: the
                connection is over.
            sent: connections and the way of what they send; itself: no detour.
        """
        touched: dict[FourTuple, None] = {}
        for flow, ways in expected:
            touched[flow] = None
            self._expected.pop(flow, None)
            if ways:
                self._expected[flow] = ways
            else:
                self._sent.pop(flow, None)
        for flow, wire in sent:
            touched[flow] = None
            self._sent.pop(flow, None)
            if wire != flow:
                self._sent[flow] = wire
        wanted = {flow: self._wanted(flow) for flow in touched}
        for flows in _parts(wanted, self._entries):
            self._carry_out({flow: wanted[flow] for flow in flows})

    def _carry_out(self, wanted: dict[FourTuple, Entries]) -> None:
        gone: Entries = {}
        come: Entries = {}
        for flow, new in wanted.items():
            old = self._entries.get(flow, {})
            gone |= {place: value for place, value in old.items() if new.get(place) != value}
            come |= {place: value for place, value in new.items() if old.get(place) != value}
        self._change([(False, _elements(gone)), (True, _elements(come))])
        for flow, new in wanted.items():
            self._entries[flow] = new
            if not new:
                del self._entries[flow]

    def _change(self, steps: Iterable[tuple[bool, Iterable[Element]]]) -> None:
        try:
            self._elements.change(steps)
        except OSError as error:
            raise MissingError(f"{_WHAT}: the kernel refuses: {error.strerror}") from error

    def _wanted(self, flow: FourTuple) -> Entries:
        found: Entries = {}
        for way in self._expected.get(flow, ()):
            found |= _renaming("in", way.reverse, flow.reverse)
        wire = self._sent.get(flow)
        return found if wire is None else found | dict(_renaming("out", flow, wire))

    # --- who sends on which way ---

    def fileno(self) -> int:
        """Readable when a packet of a peer has arrived on another path."""
        return self._log.fileno()

    @property
    def deadline_ns(self) -> None:
        return None

    def poll(self, now_ns: int) -> list[WireReceived]:
        """The paths on which peers' packets have arrived since the last call."""
        try:
            packets = self._log.received()
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return []  # the next packet reports it again
        wires = (parse_peer_path(message) for message in packets)
        return [WireReceived(at_ns=now_ns, wire=wire) for wire in wires if wire is not None]

    def _listen(self) -> None:
        head = struct.pack("=BB", socket.AF_UNSPEC, 0) + struct.pack("!H", GROUP)
        mode = struct.pack("!IBB", _SNAP_BYTES, _COPY_PACKET, 0)
        self._log.ask(_CONFIG, head + attribute(_CFG_CMD, bytes([_BIND])))
        self._log.ask(
            _CONFIG,
            head
            + attribute(_CFG_MODE, mode)
            + attribute(_CFG_TIMEOUT, struct.pack("!I", 0))
            + attribute(_CFG_QTHRESH, struct.pack("!I", 1)),
        )
        self._log.unblock()


def strict_nics(nics: Iterable[str], conf: Path = CONF) -> list[str]:
    """Those that drop packets whose sender is reached by another NIC (rp_filter 1, strict): what
    arrives there on a detour is lost. The kernel takes the larger of the NIC's value and `all`."""

    def value(name: str) -> int:
        try:
            return int((conf / name / "rp_filter").read_text(encoding="ascii"))
        except OSError:  # renamed or gone
            return 0

    return [nic for nic in nics if max(value("all"), value(nic)) == 1]


def parse_peer_path(message: NetlinkMessage) -> FourTuple | None:
    """The way of a logged packet, our end first; None for other messages. Raises `WireError`: not
    what this table logs."""
    if message.type != _PACKET:
        return None
    packet = attributes(message.payload, 4).get(_PAYLOAD, b"")
    ipv6 = packet[:1] >= b"\x60"
    at = _IPV6_BYTES if ipv6 else 4 * (packet[0] & 15) if packet else 0
    ends = slice(8, 40) if ipv6 else slice(12, 20)
    if len(packet) < max(at, ends.stop) + 4 or packet[6 if ipv6 else 9] != _TCP:
        raise WireError(f"logged packet of {len(packet)} bytes is not TCP")
    both = packet[ends]
    half = len(both) // 2
    far, near = (str(ipaddress.ip_address(each)) for each in (both[:half], both[half:]))
    far_port, near_port = struct.unpack_from("!HH", packet, at)
    return FourTuple(near, near_port, far, far_port)


def _renaming(way: str, old: FourTuple, new: FourTuple) -> Iterator[tuple[Place, bytes]]:
    """Place and value of each field that changes; each next one sees the packet as the one
    before has left it."""
    version = 6 if ":" in old.local else 4
    yield (f"{way}{version}", _key(old)), b""
    now = old
    for field, name in zip(_FIELDS, FourTuple._fields, strict=True):
        value = getattr(new, name)
        if getattr(now, name) != value:
            yield (f"{way}{version}_{field}", _key(now)), _field(value)
            now = now._replace(**{name: value})


def _key(flow: FourTuple) -> bytes:
    fields: tuple[str | int, ...] = flow
    return concatenated(map(_field, fields))


def _field(value: str | int) -> bytes:
    """An address or a port, as packets have it."""
    if isinstance(value, int):
        return struct.pack("!H", value)
    return ipaddress.ip_address(value).packed


def _parts(
    wanted: dict[FourTuple, Entries], entries: dict[FourTuple, Entries]
) -> Iterator[list[FourTuple]]:
    """Connections by the transaction, in their order."""
    part: list[FourTuple] = []
    size = 0
    for flow, new in wanted.items():
        part.append(flow)
        size += len(new) + len(entries.get(flow, {}))
        if size >= ELEMENTS_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def _elements(entries: Entries) -> list[Element]:
    return [Element(name, key, value) for (name, key), value in entries.items()]


def _fresh() -> str:
    return f"table inet {TABLE} {{ }}\ndelete table inet {TABLE}\n"


def _table() -> str:
    parts = []
    for version, ip in ((4, "ip"), (6, "ip6")):
        key = f"{ip} saddr . tcp sport . {ip} daddr . tcp dport"
        parts.append(_sets(version, ip, key) + _chains(version, ip, key))
    jumps = {
        way: "".join(
            f"{ip} saddr . tcp sport . {ip} daddr . tcp dport @{way}{version} "
            f"jump {way}{version}_all\n"
            for version, ip in ((4, "ip"), (6, "ip6"))
        )
        for way in ("in", "out")
    }
    handshake = "tcp flags & syn == syn return\n"
    return (
        f"table inet {TABLE} {{\n"
        f"set alive {{ type inet_proto; flags timeout; }}\n{''.join(parts)}"
        # Before connection tracking, and before the choice of a route.
        "chain arriving { type filter hook prerouting priority -310; policy accept;\n"
        f"{handshake}{jumps['in']}}}\n"
        "chain leaving { type route hook output priority -150; policy accept;\n"
        f"meta l4proto != @alive return\n{handshake}{jumps['out']}}}\n}}\n"
    )


def _sets(version: int, ip: str, key: str) -> str:
    names = "".join(f"set {way}{version} {{ typeof {key}; }}\n" for way in ("in", "out"))
    values = {
        "saddr": f"{ip} saddr", "daddr": f"{ip} daddr", "sport": "tcp sport", "dport": "tcp dport",
    }  # fmt: skip
    maps = "".join(
        f"map {way}{version}_{field} {{ typeof {key} : {values[field]}; }}\n"
        for way in ("in", "out")
        for field in _FIELDS
    )
    heard = (
        f"set heard{version} {{ typeof {key}; flags dynamic,timeout; "
        f"timeout {_HEARD_MS}ms; size 65535; }}\n"
    )
    return names + maps + heard


def _chains(version: int, ip: str, key: str) -> str:
    sets = {
        "saddr": f"{ip} saddr", "sport": "tcp sport", "daddr": f"{ip} daddr", "dport": "tcp dport",
    }  # fmt: skip
    rename = {
        way: "".join(f"{sets[f]} set {key} map @{way}{version}_{f}\n" for f in _FIELDS)
        for way in ("in", "out")
    }
    return (
        f"chain in{version}_all {{\n"
        f"tcp flags & rst == rst {ip} dscp != {RESET_DSCP} drop\n"
        f"{key} != @heard{version} add @heard{version} {{ {key} }} "
        f"log group {GROUP} snaplen {_SNAP_BYTES} queue-threshold 1\n"
        f"{rename['in']}}}\n"
        f"chain out{version}_all {{\n"
        f"tcp flags & rst == rst {ip} dscp set {RESET_DSCP}\n"
        f"{rename['out']}}}\n"
    )


def _run_nft(text: str) -> None:
    """All of `text` or nothing, in this network namespace. Raises `MissingError`."""
    run_tool("nft", "-f", "-", what=_WHAT, package="nftables", text=text)
