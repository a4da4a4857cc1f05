"""Incast in the lab, unpaced and paced in one run, of several kinds of traffic in turns.

    python -m bench.incast --rounds 1     # three drills, about four minutes
    python -m bench.incast --rounds 5     # the table in the docs, about twenty

Each drill is a lab of its own; kinds take turns, so that what else the machine does hits all alike.
Every result of every step is checked. Medians over rounds; the worst round of what was kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import NamedTuple

import msgspec

from syntony.errors import SyntonyError
from syntony.lab.drill import contention, incast
from syntony.lab.drill.incast_report import IncastReport, make_report
from syntony.model import S

TIMES = contention.ContentionTimes(before_ns=12 * S, after_ns=26 * S)
"""Twenty seconds paced count: ten steps of 4 MiB."""


class Kind(NamedTuple):
    """What the senders do."""

    name: str
    step_mib: int
    plain: bool


KINDS = (
    Kind("MPTCP, 1 MiB steps", 1, plain=False),
    Kind("MPTCP, 4 MiB steps", 4, plain=False),
    Kind("plain TCP, 1 MiB steps", 1, plain=True),
)


def run(kind: Kind) -> IncastReport | None:
    options = incast.IncastOptions(
        elements=kind.step_mib * incast.ELEMENTS, plain=kind.plain, times=TIMES
    )
    try:
        return make_report(incast.drill(options, lambda text: print(f"  {text}", file=sys.stderr)))
    except SyntonyError as error:
        print(f"  failed: {error}", file=sys.stderr)
        return None


def row(kind: Kind, found: list[IncastReport | None]) -> str:
    """One line of the table."""
    good = [each for each in found if each is not None]
    if not good:
        return f"{kind.name:<24} failed {len(found)} times"

    def middle(values: list[float | None]) -> str:
        reported = [value for value in values if value is not None]
        return f"{statistics.median(reported):.1f}" if reported else "–"

    kept = [each.kept for each in good]
    delay = " → ".join(
        middle([phase.owd_p99_ms for phase in phases])
        for phases in ([each.before for each in good], [each.after for each in good])
    )
    lost = " → ".join(
        middle([phase.retransmits_per_s for phase in phases])
        for phases in ([each.before for each in good], [each.after for each in good])
    )
    wrong = sum(each.wrong + each.lost + (not each.finished) for each in good)
    return (
        f"{kind.name:<24}{statistics.median(kept):>7.2f} {min(kept):>7.2f}"
        f"{delay:>18}{lost:>16}{len(good):>5}/{len(found)}{wrong:>7}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="every drill's report, a line each")
    requested = parser.parse_args()
    found: dict[Kind, list[IncastReport | None]] = {kind: [] for kind in KINDS}
    for number in range(requested.rounds):
        for kind in KINDS:
            print(f"round {number + 1}: {kind.name}", file=sys.stderr)
            report = run(kind)
            found[kind].append(report)
            if requested.json:
                reported = msgspec.to_builtins(report)
                print(json.dumps({"kind": kind.name, "report": reported}), flush=True)
    print(f"{'':<24}{'kept':>7} {'worst':>7}{'delay p99, ms':>18}{'retransmits/s':>16}"
          f"{'ran':>7}{'wrong':>7}")  # fmt: skip
    for kind in KINDS:
        print(row(kind, found[kind]))


if __name__ == "__main__":
    main()
