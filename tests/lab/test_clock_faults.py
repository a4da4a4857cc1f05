"""Faults of clocks, on a synthetic clock with a tape."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from syntony.io.clocks import SyntheticClock, make_tape
from syntony.lab.faults import KINDS, parse_order
from syntony.lab.faults.base import FaultContext
from syntony.lab.faults.clocks import LEAD_TIME_NS
from syntony.lab.plan import FabricSpec, make_plan
from syntony.model import S, SyntheticClockSpec

PLAN = make_plan(FabricSpec())


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def offsets(clock: SyntheticClock, at_ns: int) -> tuple[float, float]:
    """How far a clock is ahead of the machine's then, and a second later, in ns."""
    first, last = (clock.map_ns(each) - each for each in (at_ns, at_ns + S))
    return first, last


@pytest.mark.parametrize(
    ("kind", "options", "ahead_ns", "gained_ns"),
    [
        ("clock-step", {"by": "-2ms"}, -2_000_000, 0),
        ("clock-drift", {"ppm": "100"}, 0, 100_000),
    ],
)
def test_a_clock_is_as_before_once_its_fault_is_undone(
    tmp_path: Path, kind: str, options: dict[str, str], ahead_ns: int, gained_ns: int
) -> None:
    make_tape(tmp_path / "tape")
    spec = SyntheticClockSpec(base_ns=now_ns(), tape=str(tmp_path / "tape"))
    site = FaultContext(PLAN, cast("Any", None), cast("Any", None), {"h1": spec}, tmp_path)
    fault = KINDS[kind](site, 1, parse_order(PLAN, kind, "h1", options))
    clock = SyntheticClock("h1", spec)
    before_ns = now_ns()
    fault.apply()
    begun_ns = now_ns() + LEAD_TIME_NS
    first, last = offsets(clock, begun_ns)
    assert 0 <= first - ahead_ns <= gained_ns * (begun_ns - before_ns) / S + 1
    assert abs(last - first - gained_ns) < 10
    fault.undo()
    fault.undo()
    undone_ns = now_ns() + LEAD_TIME_NS
    first, last = offsets(clock, undone_ns)
    assert abs(last - first) < 10
    assert 0 <= first <= gained_ns * (undone_ns - before_ns) / S + 1
