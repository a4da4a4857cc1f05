"""What pacing does to the queue of a crowded link, in the simulator.

    python -m bench.pacing [--seeds 5]

Fluid link of 40 Mb/s with a 50 ms buffer, senders that speed up and halve on loss as TCP does,
telemetry as agents give it. Medians over seeds; "free" is the same link with nobody paced.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from bench.simulated.incast import Case, Outcome, Sender, run

from syntony.model import MS, S
from syntony.traffic.pace_policy import PacePolicy
from syntony.traffic.pacing import Pacer

POLICY = PacePolicy(queue_ns=MS)
END_NS = 120 * S


class Row(NamedTuple):
    """One kind of traffic."""

    name: str
    senders: tuple[Sender, ...]
    background: float = 0.0
    late_ns: int = 400 * MS


def in_turns(count: int, turn_ms: int) -> tuple[Sender, ...]:
    """Senders that are busy half of the time, one after the other."""
    return tuple(
        Sender(busy_ns=turn_ms * MS, idle_ns=turn_ms * MS, shift_ns=k * 130 * MS)
        for k in range(count)
    )


ROWS = (
    Row("4 senders", (Sender(),) * 4),
    Row("16 senders", (Sender(),) * 16),
    Row("16 senders, telemetry 3 s old", (Sender(),) * 16, late_ns=3 * S),
    Row("8 senders, 20 % of others", (Sender(),) * 8, background=0.2),
    Row("4 in turns of 1 s", in_turns(4, 500)),
    Row("4 in turns of 0.2 s", in_turns(4, 100)),
)


def reported(outcome: Outcome) -> tuple[float, float, float, float]:
    """Queue p50 and p99 in ms, part of the link used, Jain's index; of the second half."""
    half = len(outcome.queue_ns) // 2
    queue, sent = outcome.queue_ns[half:] / MS, outcome.sent[half:]
    rates = sent.mean(axis=0)
    jain = rates.sum() ** 2 / (len(rates) * (rates**2).sum())
    return (*np.percentile(queue, (50, 99)).tolist(), float(sent.sum(axis=1).mean()), float(jain))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=5)
    requested = parser.parse_args()
    print(f"{'':<32}{'queue p50/p99 ms':>36}{'used':>18}{'fair':>16}{'changes':>9}")
    for row in ROWS:
        found = []
        for act_ns in (END_NS, 5 * S):
            runs = [
                run(
                    Case(
                        senders=row.senders, background=row.background, late_ns=row.late_ns,
                        act_ns=act_ns, end_ns=END_NS, seed=seed,
                    ),
                    Pacer(POLICY),
                )
                for seed in range(requested.seeds)
            ]  # fmt: skip
            found.append(np.median([reported(each) for each in runs], axis=0))
            changes = np.median([len(each.changes) for each in runs])
        free, paced = found
        print(
            f"{row.name:<32}"
            f"{f'{free[0]:.0f}/{free[1]:.0f} → {paced[0]:.1f}/{paced[1]:.1f}':>36}"
            f"{f'{free[2]:.2f} → {paced[2]:.2f}':>18}"
            f"{f'{free[3]:.3f} → {paced[3]:.3f}':>16}{changes:>9.0f}"
        )


if __name__ == "__main__":
    main()
