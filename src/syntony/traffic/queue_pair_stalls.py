"""Queue pairs on which nothing gets through while data waits. Pure."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from syntony.model import S, format_ns
from syntony.traffic.queue_pair_delays import FRESH_NS, EndKey
from syntony.wire.queue_pairs import QueuePairFigures, QueuePairsReport

STALL_NS = 3 * S
"""Without a completion at either end. Agents report once a second, and NCCL's own retries take 17 s
and more."""
SHARED_RECEIVES = 4
"""Of ``enum syn_qp_flag``."""
RETRY_EXCEEDED, RECEIVER_NOT_READY = 12, 13
"""``IBV_WC_RETRY_EXC_ERR``, ``IBV_WC_RNR_RETRY_EXC_ERR``."""


class StallCause(enum.StrEnum):
    """Whose the next step is."""

    NETWORK = "network"
    """The receiver has posted receives, or how many is not known."""
    RECEIVER = "receiver"
    """It has posted none: its NIC answers "receiver not ready"."""


class Stall(NamedTuple):
    host: str
    figures: QueuePairFigures
    """Of the sending end."""
    cause: StallCause
    text: str
    """What was seen, for a person."""


class StallsSeen(NamedTuple):
    directions: frozenset[tuple[str, str]]
    """Addresses that send and receive, of all queue pairs that were looked at."""
    stalls: tuple[Stall, ...]


class _Progress(NamedTuple):
    mark: tuple[int, int]
    """Completions at the sending and at the receiving end."""
    since_ns: int


class QueuePairStalls:
    """Finds queue pairs of a fleet on which data waits and nothing gets through."""

    def __init__(self) -> None:
        self._progress: dict[EndKey, _Progress] = {}

    def look(self, reports: Mapping[str, QueuePairsReport], now_ns: int) -> StallsSeen:
        """Compare both ends of every reliable connection.

        Args:
            reports: each host's newest; of one older than `FRESH_NS` nothing is said.
            now_ns: fleet time.
        """
        ends: dict[tuple[str, int, str, int], list[QueuePairFigures]] = defaultdict(list)
        known: list[tuple[str, QueuePairFigures]] = []
        for host, report in reports.items():
            if report.at_ns <= now_ns - FRESH_NS:
                continue
            for each in report.queue_pairs:
                if each.type == "rc" and each.local and each.remote:
                    known.append((host, each))
                    ends[each.local, each.number, each.remote, each.peer_number].append(each)
        progress, stalls = {}, []
        for host, each in known:
            if each.failed:
                stalls += _given_up(host, each)
                continue
            peers = [
                peer
                for peer in ends[each.remote, each.peer_number, each.local, each.number]
                if peer.receive_psn == each.send_psn and not peer.failed
            ]
            if len(peers) != 1 or not _waits(each, peers[0]):
                continue
            mark = (each.completed, peers[0].received)
            before = self._progress.get((host, each.key))
            same = before is not None and before.mark == mark
            now = before if same and before is not None else _Progress(mark, now_ns)
            progress[host, each.key] = now
            if now_ns - now.since_ns >= STALL_NS:
                stalls.append(_stall(host, each, peers[0], now_ns - now.since_ns))
        self._progress = progress
        directions = frozenset((each.local, each.remote) for _, each in known)
        return StallsSeen(directions, tuple(stalls))


def _waits(sender: QueuePairFigures, receiver: QueuePairFigures) -> bool:
    """Whether something was posted that neither end has seen end."""
    return sender.signaled > sender.completed and sender.sent > receiver.received


def _stall(
    host: str, sender: QueuePairFigures, receiver: QueuePairFigures, waited_ns: int
) -> Stall:
    waiting = sender.sent - receiver.received
    text = f"{_name(sender)}: {waiting} messages under way, none completed for "
    text += format_ns(waited_ns)
    credit = receiver.receives_posted - receiver.received
    if receiver.flags & SHARED_RECEIVES:
        return Stall(host, sender, StallCause.NETWORK, f"{text}, receives are shared")
    if credit > 0:
        return Stall(host, sender, StallCause.NETWORK, f"{text}, {credit} receives wait for them")
    return Stall(host, sender, StallCause.RECEIVER, f"{text}, the receiver has posted no receive")


def _given_up(host: str, each: QueuePairFigures) -> list[Stall]:
    """Of a queue pair whose retries came to an end."""
    if each.first_error == RETRY_EXCEEDED:
        return [Stall(host, each, StallCause.NETWORK, f"{_name(each)}: failed, retries exceeded")]
    if each.first_error == RECEIVER_NOT_READY:
        text = f"{_name(each)}: failed, the receiver stayed not ready"
        return [Stall(host, each, StallCause.RECEIVER, text)]
    return []


def _name(each: QueuePairFigures) -> str:
    return f"job {each.job}, PID {each.pid}, queue pair {each.number} of {each.device}"
