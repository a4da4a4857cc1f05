"""The probe packet's bytes, by the engine's own code (see docs/reference/probe-packet.md)."""

from __future__ import annotations

from typing import Any

import msgspec

from syntony.errors import UsageError, WireError
from syntony.io._library import ffi, library
from syntony.io.probe_key import Key, c_key

PACKET_BYTES = 104
REQUEST = 1
REPLY = 2
LATE = 1
HARDWARE = 2


class Packet(msgspec.Struct, frozen=True, kw_only=True):
    """One probe packet; from `count` on the fields are a reply's and zero in a request."""

    type: int
    flags: int = 0
    dscp: int = 0
    key_id: int = 0
    src_nic: int
    dst_nic: int
    flow_id: int
    seq: int
    epoch: int
    flow_label: int = 0
    count: int = 0
    high_seq: int = 0
    first_seq: int = 0
    bitmap: int = 0
    t2_ns: int = 0
    follow_seq: tuple[int, int] = (0, 0)
    follow_t3_ns: tuple[int, int] = (0, 0)


_FIELDS = Packet.__struct_fields__


def encode(packet: Packet, key: Key) -> bytes:
    """The 104 bytes of a packet, tagged with `key`, whose id it takes."""
    fields = {name: getattr(packet, name) for name in _FIELDS}
    try:
        c_packet = ffi.new("struct syn_packet *", fields)
    except OverflowError as error:
        raise UsageError(f"a field does not fit the probe packet: {error}") from error
    out = ffi.new("uint8_t[]", PACKET_BYTES)
    library().syn_packet_encode(c_packet, ffi.new("struct syn_packet_key *", c_key(key)), out)
    return bytes(ffi.buffer(out))


def decode(data: bytes, keys: tuple[Key, ...]) -> Packet:
    """A packet off the wire.

    Raises:
        WireError: malformed, or not tagged with one of `keys`.
    """
    native = library()
    c_packet = ffi.new("struct syn_packet *")
    c_keys = ffi.new("struct syn_packet_key[]", [c_key(key) for key in keys])
    worth = native.syn_packet_decode(data, len(data), c_keys, len(keys), c_packet)
    if worth == native.SYN_PACKET_MALFORMED:
        raise WireError("not a probe packet of this version")
    if worth == native.SYN_PACKET_FOREIGN:
        raise WireError("probe packet of an unknown key or with a wrong tag")
    plain: dict[str, Any] = {name: getattr(c_packet, name) for name in _FIELDS}
    for name in ("follow_seq", "follow_t3_ns"):
        plain[name] = tuple(plain[name])
    return Packet(**plain)
