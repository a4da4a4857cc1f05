"""How soon a fault is told, named and paged, stage by stage, in virtual time.

    python -m bench.first_sign [--seeds 10]

*Told*: agents' losses of the second under way, as `tests/mesh/engines.py` simulates them: five
hosts with one NIC, eight paths with four probes a second between any two. *Found*, *named*,
*paged*: the real path learners, localisation and rules over simulated seconds
(`tests/controller/probed.py`; the first second is only partly faulty), plus the way of a second's
rows: `STAGES`. Everything is counted from the beginning of the fault; nothing depends on the
machine, whose time for insertion and for localisation (0.05 to 0.3 s) comes on top.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tests.controller.judged import Control
from tests.controller.probed import Jam, Probed
from tests.controller.test_fresh_losses import Faulty, first_sign_ns
from tests.mesh.engines import Fleet

from syntony.controller.ingest import LOCAL_GATHER_NS
from syntony.controller.server import SECOND_CHECK_NS
from syntony.fabric.names import OR
from syntony.mesh.stats import HOLD_NS
from syntony.model import S

KNOWN_S, WATCH_S, SIGN_S = 60, 40, 9
STAGES = {
    "a second's rows are sent after its end": HOLD_NS,
    "rows of all agents are gathered": LOCAL_GATHER_NS,
    "the controller looks, on average": SECOND_CHECK_NS // 2,
}
FAULTS = {
    "cable, black hole": "cable black", "NIC, black hole": "NIC black", "NIC, 5 %": "5 %",
    "port without carrier": "", "cable, 300 µs slower": "",
}  # fmt: skip
"""Each with the kind that `Faulty` calls it; empty: it is not told as a loss."""


class Took(NamedTuple):
    """Seconds from the first packet; None: never."""

    told: float | None
    found: float | None
    named: float | None
    paged: float | None


def measure(kind: str, seed: int) -> Took:
    """One fault."""
    chance = random.Random(seed)
    told = None
    if FAULTS[kind]:
        fleet = Fleet(5)
        physics = Faulty(FAULTS[kind], chance, fleet.names)
        at_ns = first_sign_ns(fleet, physics, SIGN_S * S)
        told = None if at_ns is None else (at_ns - physics.since_ns) / S
    with tempfile.TemporaryDirectory() as folder:
        control = Control(Path(folder))
        fabric = Probed(control, seed)
        fabric.run(KNOWN_S)
        share = chance.random()  # of the first second, that is faulty
        part = _begin(fabric, kind, share)
        after = share + sum(STAGES.values()) / S
        found = named = paged = None
        pages = len(control.pages())
        for second in range(WATCH_S):
            fabric.run(1)
            _begin(fabric, kind, 1.0)
            # What is evaluated now is of `LAG_S - 1` seconds ago.
            took = max(0, second - 1) + after
            if second and found is None and _touches(part, (f.component for f in fabric.findings)):
                found = took
            if named is None and _touches(part, control.live()):
                named = took
            if _touches(part, (page.split(" ", 1)[1] for page in control.pages()[pages:])):
                paged = took
                break
        control.close()
    return Took(told, found, named, paged)


def _begin(fabric: Probed, kind: str, share: float) -> str:
    """Put the fault in force, for this share of the second; the part that it is in."""
    nic = min(fabric.control.homes)
    leaf, spine = fabric.control.homes[nic], fabric.spines[0]
    if kind.startswith("cable, black"):
        fabric.losses |= {f"{leaf}->{spine}": share, f"{spine}->{leaf}": share}
        return f"{leaf}--{spine}"
    if kind == "cable, 300 µs slower":
        fabric.jams[f"{leaf}->{spine}"] = Jam(300_000.0 * share, 0.0, ())
        return f"{leaf}--{spine}"
    if kind == "port without carrier":
        fabric.down = {nic}
    else:
        fabric.losses[nic] = share * (1.0 if "black" in kind else 0.05)
    return nic


def _touches(part: str, names: object) -> bool:
    """Whether any of these names is about the part."""
    ends = set(part.split("--"))
    return any(
        ends <= set(each.replace("->", "--").split("--"))
        for name in names  # type: ignore[attr-defined]
        for each in name.split(OR)
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    for stage, took_ns in STAGES.items():
        print(f"{stage:45} {took_ns / S:5.2f} s")
    for kind in FAULTS:
        every = [measure(kind, seed) for seed in seeds]
        print(f"{kind:22}", end="")
        for column in Took._fields:
            took = [each for each in (getattr(one, column) for one in every) if each is not None]
            p50, p95 = np.quantile(took, [0.5, 0.95]) if took else (np.nan, np.nan)
            print(f"  {column} {p50:5.2f}, {p95:5.2f} s ({len(took)} of {len(every)})", end="")
        print(flush=True)


if __name__ == "__main__":
    main()
