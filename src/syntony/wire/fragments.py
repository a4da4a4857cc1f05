"""Divides messages over the size limit into fragments, and reassembles them. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import msgspec

from syntony.errors import WireError
from syntony.wire.coding import encode

FRAGMENT_BYTES = 4 << 20
"""Larger messages are sent in fragments of this size."""
MAX_ASSEMBLED_BYTES = 128 << 20


class Fragment(msgspec.Struct, frozen=True, kw_only=True, tag="fragment"):
    """A fragment of one message. Fragments of a message are sent in order, from its first byte;
    other messages may come between them."""

    message: int
    """The message's number within its stream."""
    offset: int
    size: int
    """Size of the whole message."""
    crc: int
    """CRC-32 of the whole message."""
    data: bytes


class Fragmenter:
    """Divides the messages of one stream."""

    def __init__(self) -> None:
        self._sent = 0

    def divide(self, message: bytes) -> Iterator[bytes]:
        """The messages to send for an encoded message: itself if it is small."""
        if len(message) <= FRAGMENT_BYTES:
            yield message
            return
        self._sent += 1
        crc = zlib.crc32(message)
        for offset in range(0, len(message), FRAGMENT_BYTES):
            data = message[offset : offset + FRAGMENT_BYTES]
            yield encode(
                Fragment(message=self._sent, offset=offset, size=len(message), crc=crc, data=data)
            )


class Assembler:
    """Reassembles the messages of one stream."""

    def __init__(self) -> None:
        self._first: Fragment | None = None
        self._data = bytearray()

    def take(self, fragment: Fragment) -> bytes | None:
        """Take a fragment; returns the message once its last fragment has arrived.

        Raises:
            WireError: fragments are missing, repeated or out of order, or belong to no message
                that can be. What was taken of it is let go of.
        """
        first = self._first or fragment
        same = (fragment.message, fragment.size, fragment.crc) == (
            first.message, first.size, first.crc,
        )  # fmt: skip
        whole = len(self._data) + len(fragment.data)
        if not same or fragment.offset != len(self._data) or not fragment.data:
            raise self._refused(fragment, f"{len(self._data)} bytes of message {first.message}")
        if whole > fragment.size or fragment.size > MAX_ASSEMBLED_BYTES:
            raise self._refused(fragment, f"at most {MAX_ASSEMBLED_BYTES} bytes as announced")
        self._first = first
        self._data += fragment.data
        if whole < fragment.size:
            return None
        data = bytes(self._data)
        if zlib.crc32(data) != first.crc:
            raise self._refused(fragment, "the checksum of the whole")
        self._clear()
        return data

    def _refused(self, fragment: Fragment, wanted: str) -> WireError:
        self._clear()
        return WireError(
            f"fragment of message {fragment.message} at {fragment.offset} of {fragment.size} bytes "
            f"does not fit {wanted}"
        )

    def _clear(self) -> None:
        self._first = None
        self._data = bytearray()
