"""Messages about RDMA queue pairs of jobs; part of `syntony.wire.messages`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from syntony.wire.bounds import MAX_REASONS, Count, Number, Signed, Unsigned, Word
from syntony.wire.query import Query

STAMP_BYTES = 20
"""Of one stamp: instant (int64, ns), number of the message since the generation began (uint64),
value (uint32); little-endian."""
MAX_QUEUE_PAIRS = 1_024
"""In one report."""
MAX_BOUND_NS = 1_000_000_000
"""Instants known less well than this are not reported."""
MAX_STAMPS = 16
"""Of one kind and queue pair in one report: both ends keep messages whose number is a multiple of a
power of two, so that they have most in common."""


class QueuePairFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of one queue pair, from the process that has it: since it last became ready to
    receive. Everything is the process's own word, except job, pid and uid."""

    job: Word
    program: Word
    pid: Number
    uid: Number
    key: Word
    """Identifies the generation within its host."""
    device: Word
    """Its RDMA device."""
    type: Word
    """``rc``, ``uc``, ``ud`` or a number."""
    failed: bool
    number: Number
    peer_number: Number
    """0: it has none."""
    local: Word
    """Addresses of its GIDs; empty: it has no global route."""
    remote: Word
    send_psn: Number
    receive_psn: Number
    flags: Unsigned
    """``enum syn_qp_flag`` of native/verbs/syn_qp_page.h."""
    began_ns: int
    """Instant at which it became ready to receive."""
    first_sent_ns: int
    """Post of its first message that uses a receive at the peer; 0: there was none."""
    sent: Unsigned
    """Messages that use a receive at the peer: sends, writes with immediate data."""
    unannounced: Unsigned
    """Writes, reads, atomics, whose end the peer's process cannot observe."""
    bytes_posted: Unsigned
    signaled: Unsigned
    """Work requests that have, or will have, a completion."""
    completed: Unsigned
    received: Unsigned
    bytes_received: Unsigned
    receives_posted: Unsigned
    """Posted receives; minus `received`: the peer's credit. Meaningless with a shared queue."""
    errors: Number
    first_error: int
    """An ``ibv_wc_status``."""
    sent_stamps: bytes = b""
    """Instants just before messages were posted; the value is the message's length."""
    received_stamps: bytes = b""
    """Instants at which messages' receive completions had been polled; likewise."""
    round_trips: bytes = b""
    """Instants at which send completions had been polled; the value is the ns since the post."""


class QueuePairsReport(msgspec.Struct, frozen=True, kw_only=True, tag="queue-pairs"):
    """One host's queue pairs, instants in fleet time; newest only, never spooled."""

    at_ns: Signed
    """Fleet time of the reading."""
    queue_pairs: tuple[QueuePairFigures, ...]
    left_out: Count = 0
    """Number of further queue pairs that did not fit."""
    malformed: Count = 0
    """Number of invalid records so far."""
    refused: Annotated[dict[Word, Count], Meta(max_length=MAX_REASONS)] = {}
    """Number of processes refused since the agent started, by reason."""
    bound_ns: Signed = 500_000
    """Maximum error of the instants; the default is for agents that do not report it."""


class QueuePairsQuery(Query["QueuePairs"], frozen=True, kw_only=True, tag="queue-pairs"):
    """Queue pairs of jobs, as agents last reported them, with their one-way delays."""

    job: str = ""
    host: str = ""


class OneWay(msgspec.Struct, frozen=True, kw_only=True):
    """One-way delays of messages, from before the post until the receive completion was polled."""

    count: int
    """Messages measured in the newest second that had any."""
    at_ns: int
    """When the newest of them was received, fleet time."""
    min_ns: int
    p50_ns: int
    max_ns: int
    paired: int
    """Messages measured since the generation began."""


class QueuePairView(msgspec.Struct, frozen=True, kw_only=True):
    """One queue pair as seen by its host, and its delay to the peer."""

    host: str
    figures: QueuePairFigures
    peer_host: str = ""
    """Empty: no report of the other end."""
    delay: OneWay | None = None
    """Of what it sends."""
    why: str = ""
    """… and why it has none."""
    round_trip: OneWay | None = None
    """From the post until the send completion was polled, at this end."""


class QueuePairs(msgspec.Struct, frozen=True, kw_only=True, tag="queue-pairs"):
    now_ns: int
    """Fleet time."""
    queue_pairs: tuple[QueuePairView, ...]
    mismatches: int
    """Pairs of queue pairs whose messages did not match, ever: none of their delays count from then
    on."""
    left_out: dict[str, int] = {}
    """For each host the number of queue pairs that it did not report."""
    malformed: dict[str, int] = {}
    """Host to records that could not be used."""
    refused: dict[str, dict[str, int]] = {}
    """Host to processes that its agent did not let in, by reason."""
