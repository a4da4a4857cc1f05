"""Flows that a job's process reports to the agent by its page, checked field by field. Pure."""

from __future__ import annotations

import enum
import ipaddress
import re
import struct
from functools import lru_cache
from typing import NamedTuple

from syntony.model import S

RECORD = struct.Struct("=IHHQ16s16sII32sQQqIIII")
"""`struct syn_job_flow` of native/job/syn_job_page.h."""
AHEAD_NS = 1 * S
"""A completion further in the future than this is none."""
_NIC = re.compile(rb"([A-Za-z0-9][A-Za-z0-9._:-]{0,30})\0")
_OPEN, _FAILED = 1, 2


class Mechanism(enum.IntEnum):
    """How a flow is carried, which says what its number identifies."""

    RDMA = 1
    """A queue pair's number."""
    TCP = 2
    """A socket's cookie (SO_COOKIE)."""
    MPTCP = 3
    """The cookie of a connection's socket."""


class Malformed(enum.StrEnum):
    """Why a record is not used."""

    MECHANISM = "mechanism"
    STATE = "state"
    NIC = "nic"
    PORT = "port"
    TIME = "time"


class ProcessFlow(NamedTuple):
    """One flow as its process reports it. Nothing here was measured by the agent."""

    mechanism: Mechanism
    number: int
    nic: str
    """Its RDMA device or interface."""
    local: str
    local_port: int
    """0: unknown."""
    remote: str
    remote_port: int
    bytes_done: int
    """Since the flow began."""
    bytes_outstanding: int
    last_done_ns: int
    """CLOCK_MONOTONIC; 0: nothing was done yet."""
    outstanding: int
    """Operations."""
    errors: int
    last_error: int
    """An errno, or an ``ibv_wc_status``."""
    failed: bool
    """It carries nothing any more."""


def parse_flow(record: bytes, now_ns: int) -> ProcessFlow | Malformed:
    """Parse one record, whose bytes are not trusted.

    Args:
        record: `RECORD.size` bytes.
        now_ns: CLOCK_MONOTONIC when it was read.
    """
    (
        _, mechanism, state, number, local, remote, local_port, remote_port, name,
        bytes_done, bytes_outstanding, last_done_ns, outstanding, errors, last_error, _,
    ) = RECORD.unpack(record)  # fmt: skip
    nic = _NIC.match(name)
    if not Mechanism.RDMA <= mechanism <= Mechanism.MPTCP:
        return Malformed.MECHANISM
    if state not in {_OPEN, _FAILED}:
        return Malformed.STATE
    if nic is None:
        return Malformed.NIC
    if max(local_port, remote_port) > 0xFFFF:
        return Malformed.PORT
    if not 0 <= last_done_ns <= now_ns + AHEAD_NS:
        return Malformed.TIME
    return ProcessFlow(
        Mechanism(mechanism),
        number,
        nic[1].decode("ascii"),
        unpacked_address(local),
        local_port,
        unpacked_address(remote),
        remote_port,
        bytes_done,
        bytes_outstanding,
        last_done_ns,
        outstanding,
        errors,
        last_error,
        state == _FAILED,
    )


def address_bytes(address: str) -> bytes:
    """An IPv4 or IPv6 address as the page holds it, 16 bytes; empty: all 0."""
    if not address:
        return bytes(16)
    parsed = ipaddress.ip_address(address)
    return parsed.packed if parsed.version == 6 else bytes(10) + b"\xff\xff" + parsed.packed


@lru_cache(4096)
def unpacked_address(packed: bytes) -> str:
    """The text of an address of 16 bytes; an IPv4-mapped one as IPv4."""
    address = ipaddress.IPv6Address(packed)
    return str(address.ipv4_mapped or address)
