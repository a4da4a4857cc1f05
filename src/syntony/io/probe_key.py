"""Keys of probe packets, as the engine takes them (see docs/reference/probe-packet.md)."""

from __future__ import annotations

from typing import Any

from syntony.errors import UsageError

KEY_BYTES = 16

Key = tuple[int, bytes]
"""(key id, 16 bytes)."""


def c_key(key: Key) -> dict[str, Any]:
    """A key for cffi. Raises `UsageError`: not 16 bytes, or the id does not fit 32 bits."""
    key_id, secret = key
    if len(secret) != KEY_BYTES or not 0 <= key_id < 1 << 32:
        raise UsageError("a probe key is a 32-bit id and 16 bytes")
    return {"id": key_id, "bytes": secret}
