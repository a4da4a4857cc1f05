"""What the controller pays to judge a running job: python -m bench.job_diagnosis

Rows of a minute of a job as the store gives them, 20 operations a second of each rank: how long the
process that judges them takes, and by how much the controller's event loop is late meanwhile, and
for as long with nothing to judge. A job of more than 100,000 rows is looked at less far back, as
the controller does. What the store takes to read the rows is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from typing import Any

from syntony.controller.job_diagnosis import MAX_ROWS, JobDiagnosis
from syntony.controller.recorded_paths import RecordedPaths
from syntony.errors import UsageError
from syntony.model import MS, S
from syntony.wire.tables import COLLECTIVE

NOW = 1_700_000_000 * S
STEP_NS = 50 * MS
LOOK_S = 0.005


class Jobs:
    """A store with one running job."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks

    def recording(
        self, job: str, first_ns: int, last_ns: int, most: int = MAX_ROWS
    ) -> dict[str, dict[str, list[Any]]]:
        draw, ranks = random.Random(1), self._ranks
        steps = (last_ns - first_ns) // STEP_NS
        if steps * ranks > most:
            raise UsageError("too many rows")
        rows = [
            {
                "ts_ns": first_ns + step * STEP_NS + draw.randrange(MS), "host": f"h{rank // 8}",
                "job": job, "pid": 7 + rank, "rank": rank, "comm": "0.abc", "ranks": ranks,
                "seq": step, "op": "all_reduce", "bytes": 4096,
                "done_ns": first_ns + step * STEP_NS + 6 * MS, "dropped": 0,
            }
            for step in range(steps)
            for rank in range(ranks)
        ]  # fmt: skip
        names = [column.name for column in COLLECTIVE.columns]
        return {COLLECTIVE.name: {name: [row[name] for row in rows] for name in names}}


class Store:
    def __init__(self, ranks: int) -> None:
        self.jobs = Jobs(ranks)


class Timed(JobDiagnosis):
    """Its parts, timed; rows are made once, and not counted."""

    def __init__(self, ranks: int) -> None:
        super().__init__(Store(ranks), RecordedPaths(dict, lambda _: ()), lambda: NOW)  # type: ignore[arg-type]
        self._processes["night", "h0", 7] = NOW
        self.judged_ns: list[int] = []
        self.kept: tuple[tuple[Any, ...], bytes] | None = None

    def _read(self, *words: Any) -> bytes:
        if self.kept is None or self.kept[0] != words:
            self.kept = words, super()._read(*words)
        return self.kept[1]

    async def _evaluate(self, data: bytes) -> Any:
        began_ns = time.monotonic_ns()
        found = await super()._evaluate(data)
        self.judged_ns.append(time.monotonic_ns() - began_ns)
        return found


async def stalls(found: list[float], stop: asyncio.Event) -> None:
    """How much later than asked the loop comes round."""
    while not stop.is_set():
        began = time.monotonic()
        await asyncio.sleep(LOOK_S)
        found.append(time.monotonic() - began - LOOK_S)


async def measured(ranks: int, rounds: int) -> None:
    made, late, idle, stop = Timed(ranks), list[float](), list[float](), asyncio.Event()
    for _ in range(4):  # the process starts, the window shrinks
        made._due_ns = 0
        await made.judge_jobs()
    made.judged_ns.clear()
    watching = asyncio.create_task(stalls(late, stop))
    for _ in range(rounds):
        made._due_ns = 0
        await made.judge_jobs()
    stop.set()
    await watching
    stop.clear()
    watching = asyncio.create_task(stalls(idle, stop))
    await asyncio.sleep(max(1.0, sum(made.judged_ns) / S))
    stop.set()
    await watching
    size = len(made.kept[1]) if made.kept else 0
    took = statistics.median(made.judged_ns) / S if made.judged_ns else float("nan")
    (known,) = made.known(time.monotonic_ns()) or ()
    await made.close()
    print(
        f"| {ranks} | {size / 2**20:.1f} MiB | {took:.2f} s | "
        f"{statistics.median(late) * 1e3:.1f}, {max(late) * 1e3:.0f} ms | "
        f"{statistics.median(idle) * 1e3:.1f}, {max(idle) * 1e3:.0f} ms | "
        f"{len(known.verdicts)} {known.error} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, nargs="*", default=[8, 64, 256])
    wanted = parser.parse_args()
    print(
        "| Ranks | Handed over | Judged in, median | Loop late, median, most | … idle | Verdicts |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for ranks in wanted.ranks:
        asyncio.run(measured(ranks, wanted.rounds))


if __name__ == "__main__":
    main()
