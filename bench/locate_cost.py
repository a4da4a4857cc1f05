"""What locating costs a controller every second, with the rows of a large fleet that works.

Rows are made as agents send them, one table for each host and second, from paths over a two-tier
fabric of rails: each NIC probes its peers of the same rail, each flow once a second there and back.
Timed is the processor time of this process for `LocateLoop.step`, and of handing rows to it.

    python -m bench.locate_cost --hosts 1000 --seconds 75
"""

from __future__ import annotations

import argparse
import cProfile
import resource
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa

from syntony.controller.batches import BatchPiece
from syntony.controller.locating import LocateLoop
from syntony.controller.main import collect_seldom, keep_freed
from syntony.fabric.book import Way
from syntony.model import S
from syntony.store import open_store
from syntony.wire.arrow import arrow_schema
from syntony.wire.tables import HEARD, PROBE

T0 = 1_700_000_000
PER_LEAF = 32
SPINES = 16
PORT = 8620
PROBES = 10
"""Of a flow in a second."""


class Made:
    """A fleet's flows and their rows."""

    def __init__(self, hosts: int, rails: int, peers: int, paths: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.hosts, self.rails = hosts, rails
        host, rail, peer, path = np.meshgrid(
            *map(np.arange, (hosts, rails, peers, paths)), indexing="ij"
        )
        far = (host + 1 + peer * max(1, hosts // (2 * peers))) % hosts
        self.per_host = rails * peers * paths
        self.names = np.array([f"host{h:04d}/rail{r}" for h in range(hosts) for r in range(rails)])
        self.src = (host * rails + rail).ravel()
        self.dst = (far * rails + rail).ravel()
        self.sport = (61_000 + peer * paths + path).ravel()
        self.base = self.rng.integers(2_000, 6_000, len(self.src))
        self.spines = self.rng.integers(SPINES, size=len(self.src))
        inner = self.src // rails // PER_LEAF != self.dst // rails // PER_LEAF
        self.faulty = inner & (self.spines == 0)
        """Flows across the first spine, there and back."""

    @property
    def flows(self) -> int:
        return len(self.src)

    def ports(self) -> dict[tuple[str, str], int]:
        names = self.names.tolist()
        pairs = zip(self.src.tolist(), self.dst.tolist(), strict=True)
        return {(names[a], names[b]): PORT for a, b in pairs}

    def learn(self, loop: LocateLoop) -> None:
        """All paths are known: leaf, spine, leaf."""
        names = self.names.tolist()
        for a, b, sport, spine in zip(
            *(each.tolist() for each in (self.src, self.dst, self.sport, self.spines)), strict=True
        ):
            rail = a % self.rails
            la, lb = (f"leaf{rail}-{x // self.rails // PER_LEAF}" for x in (a, b))
            hops = [la] if la == lb else [la, f"spine{spine}", lb]
            loop._book.learn(Way(names[a], names[b], sport, PORT), hops, T0 * S)
            loop._book.learn(Way(names[b], names[a], PORT, sport), hops[::-1], T0 * S)

    def second(
        self, second: int, loss: float, spine_loss: float, spine_late_ns: int
    ) -> list[BatchPiece]:
        """Of every host: its flows' rows, and what its NICs heard."""
        found = []
        each_way = loss + spine_loss * self.faulty
        lost_there = self.rng.binomial(PROBES, each_way)
        lost = lost_there + self.rng.binomial(PROBES - lost_there, each_way)
        draw = self.rng.integers(0, 400, (2, self.flows))
        order = np.argsort(self.dst // self.rails, kind="stable")
        edges = np.searchsorted(self.dst[order] // self.rails, np.arange(self.hosts + 1))
        for host in range(self.hosts):
            mine = slice(host * self.per_host, (host + 1) * self.per_host)
            src, dst = self.names[self.src[mine]], self.names[self.dst[mine]]
            delay = self.base[mine] + draw[:, mine] + spine_late_ns * self.faulty[mine]
            came = PROBES - lost[mine]
            values = {
                "src": np.concatenate((src, dst)),
                "dst": np.concatenate((dst, src)),
                "prober": np.concatenate((src, src)),
                "sport": np.tile(self.sport[mine], 2),
                "owd_p50_ns": delay.ravel(),
                "sent": np.concatenate((np.full(len(came), PROBES), came)),
                "unresolved": np.concatenate((lost[mine], np.zeros(len(came), np.int64))),
                "count": np.tile(came, 2),
            }
            count = 2 * self.per_host
            arrays = [
                pa.array(values.get(c.name, np.full(count, _plain(c.name, second))), type=kind.type)
                for c, kind in zip(PROBE.columns, arrow_schema(PROBE), strict=True)
            ]
            rows = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(PROBE))
            found.append(_piece(PROBE, host, second, rows))
            near = order[edges[host] : edges[host + 1]]
            pair, which = np.unique(
                np.stack((self.src[near], self.dst[near])), axis=1, return_inverse=True
            )
            seen = np.bincount(which.reshape(-1), PROBES - lost_there[near]).astype(np.int64)
            heard = pa.RecordBatch.from_pydict(
                {
                    "ts_ns": np.full(len(seen), second * S),
                    "src": self.names[pair[0]],
                    "dst": self.names[pair[1]],
                    "received": seen,
                },
                schema=arrow_schema(HEARD),
            )
            found.append(_piece(HEARD, host, second, heard))
        return found


def _plain(name: str, second: int) -> int:
    return {"ts_ns": second * S, "clk_err_ns": 50}.get(name, 0)


def _piece(table: object, host: int, second: int, rows: pa.RecordBatch) -> BatchPiece:
    return BatchPiece(table, f"host{host:04d}", "s", second, rows, second * S, second * S, False)  # type: ignore[arg-type]


def fleet_parser(description: str) -> argparse.ArgumentParser:
    """A parser with the size of a made fleet."""
    parser = argparse.ArgumentParser(description=description.split("\n", 1)[0])
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--rails", type=int, default=8)
    parser.add_argument("--peers", type=int, default=10)
    parser.add_argument("--paths", type=int, default=2)
    return parser


def main() -> int:
    parser = fleet_parser(__doc__ or "")
    parser.add_argument("--seconds", type=int, default=75)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loss", type=float, default=0.0, help="of every way")
    parser.add_argument("--spine-loss", type=float, default=0.0, help="of one spine, each way")
    parser.add_argument("--spine-late-us", type=int, default=0, help="of one spine, after 30 s")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    made = Made(given.hosts, given.rails, given.peers, given.paths, given.seed)
    place = tempfile.TemporaryDirectory()
    loop = LocateLoop(open_store(f"{place.name}/store"), "")
    made.learn(loop)
    ports = made.ports()
    keep_freed()  # as the controller does
    collect_seldom()
    print(f"{given.hosts} hosts, {given.hosts * given.rails} NICs, {made.flows} flows")
    spent = []
    profile = cProfile.Profile()
    for second in range(T0, T0 + given.seconds):
        late_ns = 1000 * given.spine_late_us if second >= T0 + 30 else 0
        pieces = made.second(second, given.loss, given.spine_loss, late_ns)
        began = time.process_time()
        if given.profile and second > T0 + given.seconds - 5:
            profile.enable()
        loop.rows.put(pieces)
        loop.step((second + 3) * S, second, ports)
        profile.disable()
        spent.append(time.process_time() - began)
        print(f"second {second - T0:3d}  {spent[-1]:.3f} core-seconds")
        sys.stdout.flush()
    for found in loop.answer.findings:
        print(f"to blame: {found.component} {found.fault} {found.loss:.4f} {found.delay_ns:.0f} ns")
    late = spent[-10:]
    print(f"last ten seconds: {sum(late) / len(late):.3f} core-seconds per second")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")
    if given.profile:
        profile.print_stats("cumtime")
    return 0


if __name__ == "__main__":
    sys.exit(main())
