"""What a spool holds, as tests of it read and make it."""

from __future__ import annotations

from pathlib import Path

from tests.link import open_spool

from syntony.agent.delivery import Delivery
from syntony.agent.spool import Spool
from syntony.wire.spoolfile import Frame


def pending(spool: Spool) -> list[Frame]:
    """What is unacknowledged, stream by stream as they are delivered."""
    found, streams = [], [segment.stream for segment in spool._segments]
    for stream in dict.fromkeys(streams):
        seq, frame = spool.read_after(0, stream)
        while frame is not None:
            found.append(frame)
            seq, frame = spool.read_after(seq, stream)
    return found


def three_records(directory: Path) -> None:
    spool = open_spool(directory, 1 << 20)
    for payload in (b"first", b"second", b"third"):
        spool.append("t", 1, payload)
    spool.close()


def delivered(spool: Spool) -> list[tuple[str, int, int, bytes]]:
    """(stream, number, rows, payload) of all that waits, as connections deliver it."""
    found = []
    while True:
        delivery = Delivery(spool)
        while (batch := delivery.next_batch()) is not None:
            found.append((delivery.stream, batch.seq, batch.rows, batch.arrow))
            delivery.acknowledge(batch.seq)
        if not delivery.backlog:
            return found
