"""Draws every host's synthetic clock from the lab's seed. Pure."""

from __future__ import annotations

import random

import msgspec

from syntony.errors import UsageError
from syntony.lab.plan import unknown
from syntony.model import MS, SyntheticClockSpec, parse_duration_ns

OFFSET_NS = 50 * MS
"""Largest initial offset: NTP-class clocks that have drifted for an hour."""
DRIFT_PPB = 40_000.0
"""Largest drift: oscillators of servers are within ±40 ppm (Huygens reports up to 30)."""
WANDER_PPB = 3.0
"""Random walk of the frequency per √s, of the order of a server's quartz at constant load."""


class ClockOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `lab up` may add to the drawn clocks."""

    swing_ppb: float = 0.0
    swing_period_ns: int = 600_000_000_000
    steps: tuple[tuple[str, int, int], ...] = ()
    """(host, instant after the start ns, phase step ns)."""
    utc: tuple[str, ...] = ()
    """Hosts whose clocks are right, as if a receiver disciplined them; the lab's UTC is the
    machine's clock."""


def draw_clocks(
    hosts: tuple[str, ...], seed: int, base_ns: int, options: ClockOptions
) -> dict[str, SyntheticClockSpec]:
    """One clock per host; the same seed gives the same clocks. Raises `UsageError`: a step, or UTC,
    names a host that does not exist."""
    for host in (*(host for host, _, _ in options.steps), *options.utc):
        if host not in hosts:
            raise unknown("host", host, hosts)
    return {host: _draw(host, seed, base_ns, options) for host in hosts}


def _draw(host: str, seed: int, base_ns: int, options: ClockOptions) -> SyntheticClockSpec:
    chance = random.Random(f"{seed}/{host}")  # noqa: S311 - a simulation, not a secret
    steps = sorted((base_ns + at, step) for name, at, step in options.steps if name == host)
    if host in options.utc:
        return SyntheticClockSpec(base_ns=base_ns, steps=tuple(steps))
    return SyntheticClockSpec(
        base_ns=base_ns,
        offset_ns=chance.randint(-OFFSET_NS, OFFSET_NS),
        drift_ppb=round(chance.uniform(-DRIFT_PPB, DRIFT_PPB), 3),
        wander_ppb=WANDER_PPB,
        seed=chance.getrandbits(31),
        swing_ppb=options.swing_ppb,
        swing_period_ns=options.swing_period_ns,
        steps=tuple(steps),
    )


def parse_swing(text: str) -> tuple[float, int]:
    """``"200ppb:600s"`` to (ppb, period ns). Raises `UsageError`: not of that form."""
    size, colon, period = text.partition(":")
    try:
        ppb = float(size.removesuffix("ppb"))
    except ValueError:
        ppb = -1.0
    if not colon or not 0 <= ppb <= 100_000:
        raise UsageError(f"{text!r} is not a swing; write PPB:PERIOD, for example 200ppb:600s")
    period_ns = parse_duration_ns(period)
    if period_ns <= 0:
        raise UsageError(f"{text!r}: the period must be longer than 0")
    return ppb, period_ns


def parse_step(text: str) -> tuple[str, int, int]:
    """``"h3:30s:-1ms"`` to (host, instant after the start ns, step ns). Raises `UsageError`: not of
    that form."""
    parts = text.split(":")
    if len(parts) != 3:
        raise UsageError(f"{text!r} is not a step; write HOST:AFTER:STEP, for example h3:30s:-1ms")
    host, after, step = parts
    sign = -1 if step.startswith("-") else 1
    return host, parse_duration_ns(after), sign * parse_duration_ns(step.lstrip("+-"))
