"""What a leader receives of each flow from its gateways, and what that costs both.

Rows are made as for `bench.locate_cost`, one second of every host, and told as gateways tell of one
insert cycle (`controller/relayed_rows.py`). Timed is processor time: of the gateways to encode, of
the leader to check and cut them into batches again.

    python -m bench.relayed_columns --hosts 1000
    python -m bench.relayed_columns --hosts 16384 --seconds 3
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from bench.locate_cost import T0, Made, fleet_parser

from syntony.controller.batches import BatchPiece
from syntony.controller.ingest import Outcome
from syntony.controller.relayed_rows import opened, rows_stored
from syntony.wire.coding import encode
from syntony.wire.gateways import RowsStored, from_gateway

WAYS = 2
"""Of a flow: there and back; each has a row at its prober."""


def main() -> int:
    """Run it."""
    parser = fleet_parser(__doc__ or "")
    parser.add_argument("--gateways", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    given = parser.parse_args()
    made = Made(given.hosts, given.rails, given.peers, given.paths, 1)
    print(f"{given.hosts} hosts, {given.hosts * given.rails} NICs, {made.flows} flows")
    for second in range(T0, T0 + given.seconds):
        _second(made, second, given.gateways)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")
    return 0


def _second(made: Made, second: int, gateways: int) -> None:
    pieces = [
        each._replace(seq=number, rows=_lively(made, each.rows))
        for number, each in enumerate(made.second(second, 0.0001, 0.0, 0), 1)
    ]
    size = messages = 0
    told_s = taken_s = 0.0
    for number in range(gateways):
        mine = pieces[number::gateways]
        outcomes = [_outcome(each) for each in mine]
        began = time.process_time()
        sent = [encode(each) for each in rows_stored(outcomes, mine)]
        told_s += time.process_time() - began
        size, messages = size + sum(map(len, sent)), messages + len(sent)
        began = time.process_time()
        for message in _received(sent):
            opened(message)
        taken_s += time.process_time() - began
    each = made.flows * WAYS
    print(
        f"second {second - T0:2d}  {size / each:.1f} bytes a way and second "
        f"({size / 1e6:.1f} MB in {messages} messages), gateways {1e9 * told_s / each:.0f} ns, "
        f"leader {1e9 * taken_s / each:.0f} ns a way ({taken_s:.2f} core-seconds)"
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


def _received(sent: list[bytes]) -> Iterator[RowsStored]:
    for data in sent:
        for message in from_gateway(data):
            if isinstance(message, RowsStored):
                yield message


def _outcome(piece: BatchPiece) -> Outcome:
    return Outcome(
        piece.host, piece.stream, piece.seq, piece.rows.num_rows, 0, piece.last_ns, None, None
    )


if __name__ == "__main__":
    sys.exit(main())
