"""What a leader receives of each flow from its gateways, and what that costs both.

Rows are made as for `bench.locate_cost`, one second of every host, and told as gateways tell of one
insert cycle (`controller/relayed_rows.py`). Timed is processor time: of the gateways to encode, of
the leader to check them, to keep them until their second is whole and to put that in order.

    python -m bench.relayed_columns --hosts 1000
    python -m bench.relayed_columns --hosts 16384 --seconds 3
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
import pyarrow as pa
from bench.locate_cost import T0, Made, fleet_parser
from numpy.typing import NDArray

from syntony.controller.batches import BatchPiece
from syntony.controller.flow_seconds import FlowSeconds
from syntony.controller.ingest import BatchOutcome
from syntony.controller.main import keep_freed
from syntony.controller.probed_rows import RowBuffer
from syntony.controller.relayed_rows import Names, opened, rows_stored
from syntony.controller.stored_rows import StoredRows
from syntony.fabric.book import PathBook, Way
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.history import SecondCounts
from syntony.wire.coding import encode
from syntony.wire.gateways import RowsStored, from_gateway
from syntony.wire.tables import HEARD, PROBE

WAYS = 2
"""Of a flow: there and back; each has a row at its prober."""


def main() -> int:
    """Run it."""
    parser = fleet_parser(__doc__ or "")
    parser.add_argument("--gateways", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    given = parser.parse_args()
    keep_freed()  # as the controller does
    made = Made(given.hosts, given.rails, given.peers, given.paths, 1)
    print(f"{given.hosts} hosts, {given.hosts * given.rails} NICs, {made.flows} flows")
    told: list[Names] = [{} for _ in range(given.gateways)]
    leader = Leader(made.ports())
    leader.known = [{} for _ in told]
    for second in range(T0, T0 + given.seconds):
        _second(made, second, told, leader)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")
    return 0


class Unjudged(FaultLocator):
    """Numbers flows, and judges nothing."""

    def __init__(self) -> None:
        super().__init__(PathBook(None))
        self._numbers: dict[tuple[str, str], int] = {}
        self._count = 0

    def number(self, way: Way) -> tuple[int, int]:
        self._count += 1
        pair = self._numbers.setdefault((way.src, way.dst), len(self._numbers))
        return self._count - 1, pair

    @property
    def flows(self) -> int:
        return self._count

    @property
    def pairs(self) -> int:
        return len(self._numbers)

    def begin(self, reporting: int) -> int:
        del reporting
        return 0

    def take(
        self, second: SecondCounts, heard: NDArray[np.int64], end_ns: int | None = None
    ) -> None:
        pass


class Leader:
    """What a leader does with it until a second is judged."""

    def __init__(self, ports: dict[tuple[str, str], int]) -> None:
        self.ports = ports
        self.seconds = FlowSeconds(Unjudged())
        self.buffer = RowBuffer()
        self.rows = StoredRows((self.buffer.put,), self.buffer.put_probed)
        self.known: list[Names] = []
        """Of each gateway."""

    def take(self, gateway: int, sent: list[bytes]) -> None:
        for data in sent:
            for message in from_gateway(data):
                if isinstance(message, RowsStored):
                    self.rows.take_relayed(opened(message, self.known[gateway]))


def _second(made: Made, second: int, told: list[Names], leader: Leader) -> None:
    first = 2 * (second - T0) * made.hosts + 1
    pieces = [
        each._replace(seq=number, rows=_lively(made, each.rows))
        for number, each in enumerate(made.second(second, 0.0001, 0.0, 0), first)
    ]
    size = messages = 0
    told_s = taken_s = 0.0
    for number, known in enumerate(told):
        mine = pieces[number :: len(told)]
        outcomes = [_outcome(each) for each in mine]
        began = time.process_time()
        sent = [encode(each) for each in rows_stored(outcomes, mine, known)]
        told_s += time.process_time() - began
        size, messages = size + sum(map(len, sent)), messages + len(sent)
        began = time.process_time()
        leader.take(number, sent)
        taken_s += time.process_time() - began
    began = time.process_time()
    probed, heard = (leader.buffer.take(name, second, second) for name in (PROBE.name, HEARD.name))
    ready_s = time.process_time() - began
    began = time.process_time()
    leader.seconds.add(probed[second], heard[second], leader.ports)
    counted_s = time.process_time() - began
    each = made.flows * WAYS
    print(
        f"second {second - T0:2d}  {size / each:.1f} bytes a way "
        f"({size / 1e6:.1f} MB in {messages} messages), gateways {1e9 * told_s / each:.0f} ns "
        f"a way; leader: {taken_s:.3f} core-seconds to take in, {ready_s:.3f} to put in order, "
        f"{counted_s:.3f} to count by flows"
    )
    sys.stdout.flush()


def _lively(made: Made, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same; largest delays and clock errors of each flow differ, as measured ones do."""
    if "owd_max_ns" not in rows.schema.names:
        return rows
    count = rows.num_rows
    values = {
        "owd_max_ns": rows.column("owd_p50_ns").to_numpy() + made.rng.integers(0, 4_000, count),
        "clk_err_ns": made.rng.integers(20, 200, count),
    }
    for name, value in values.items():
        place = rows.schema.get_field_index(name)
        field = rows.schema.field(place)
        rows = rows.set_column(place, field, pa.array(value.astype(np.int64)).cast(field.type))
    return rows


def _outcome(piece: BatchPiece) -> BatchOutcome:
    return BatchOutcome(
        piece.host, piece.stream, piece.seq, piece.rows.num_rows, 0, piece.last_ns, None, None
    )


if __name__ == "__main__":
    sys.exit(main())
