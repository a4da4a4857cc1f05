"""Watch modules over time: too hot, too little light, a trend to either, or replaced."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from syntony.links.ledger import LinkNote
from syntony.links.optics import Module
from syntony.model import DAY_NS, HOUR_NS

MAX_SAMPLES = 64
"""Number of samples of a trend; with one in 15 minutes, 16 hours."""
SPACING_NS = 900_000_000_000
LEAST = 8
"""Minimum samples of a trend: two hours."""
_MAD_TO_SIGMA = 1.4826


class Slope(NamedTuple):
    """A robust line through the samples."""

    per_hour: float
    now: float
    """The line's value at the newest sample."""
    scatter: float
    """1-sigma of the samples about the line."""
    hours: float
    """Time span of the samples."""

    @property
    def significant(self) -> bool:
        """The change over the whole time is beyond three sigmas of scatter."""
        return abs(self.per_hour) * self.hours > 3 * self.scatter > 0 or (
            self.scatter == 0 and self.per_hour != 0
        )

    def hours_to(self, limit: float) -> float | None:
        """When the line crosses `limit`; None if it goes the other way, is past it or is level."""
        away = limit - self.now
        if not self.significant or away * self.per_hour <= 0:
            return None
        return away / self.per_hour


class Trend:
    """Samples of one quantity, thinned to one in `SPACING_NS`."""

    def __init__(self, spacing_ns: int = SPACING_NS) -> None:
        self._spacing_ns = spacing_ns
        self._samples: deque[tuple[int, float]] = deque(maxlen=MAX_SAMPLES)

    def add(self, at_ns: int, value: float) -> None:
        """Add a measurement; those closer than the spacing are dropped."""
        if not self._samples or at_ns - self._samples[-1][0] >= self._spacing_ns:
            self._samples.append((at_ns, value))

    def slope(self) -> Slope | None:
        """The Theil–Sen line (median of the slopes of all pairs: a third of the samples may be
        wild); None before there are enough samples."""
        return theil_sen(list(self._samples)) if len(self._samples) >= LEAST else None


def theil_sen(samples: Sequence[tuple[int, float]]) -> Slope:
    """A robust line through (instant ns, value) samples, at least two of them at distinct times."""
    slopes = [
        (late - early) * HOUR_NS / (t1 - t0)
        for (t0, early), (t1, late) in combinations(samples, 2)
        if t1 != t0
    ]
    per_hour = statistics.median(slopes)
    last_ns = samples[-1][0]
    at_last = [value + per_hour * (last_ns - at) / HOUR_NS for at, value in samples]
    now = statistics.median(at_last)
    scatter = _MAD_TO_SIGMA * statistics.median(abs(value - now) for value in at_last)
    return Slope(per_hour, now, scatter, (last_ns - samples[0][0]) / HOUR_NS)


FORESIGHT_H = 7 * 24.0
"""A trend that reaches a limit within this time is reported: the module should be replaced in the
next maintenance window."""
REPEAT_NS = DAY_NS
"""A trend is reported once a day while it lasts."""
COOLER_C = 5.0
BRIGHTER_DB = 1.0
"""Hysteresis: how far inside its limit a value must return."""


class _Limit(NamedTuple):
    """One quantity against the module's own threshold."""

    name: str
    value: float
    limit: float | None
    back: float
    """Hysteresis."""
    above: bool
    """Whether beyond the limit means above it."""
    unit: str
    remedy: str

    @property
    def beyond(self) -> bool:
        return self.limit is not None and (
            self.value >= self.limit if self.above else self.value <= self.limit
        )

    @property
    def well(self) -> bool:
        """Whether the value is back within its limit; False where the limit could not be read."""
        return self.limit is not None and (
            self.value < self.limit - self.back
            if self.above
            else self.value > self.limit + self.back
        )


class ModuleWatch:
    """All modules of one host. Takes every reading."""

    def __init__(self) -> None:
        self._identities: dict[str, tuple[str, ...]] = {}
        self._trends: dict[tuple[str, str], Trend] = {}
        self._beyond: set[tuple[str, str]] = set()
        self._reported_ns: dict[tuple[str, str], int] = {}

    def take(self, at_ns: int, port: str, module: Module) -> list[LinkNote]:
        """Take one reading of one port's module; returns what to report. A first reading within all
        limits, all of them known, is reported as well: an earlier one, of another module or life,
        may not have been."""
        is_new = self._identities.get(port) != tuple(module.identity)
        notes = self._replaced(at_ns, port, module)
        limits = tuple(_limits(module))
        for limit in limits:
            key = (port, limit.name)
            trend = self._trends.setdefault(key, Trend())
            trend.add(at_ns, limit.value)
            notes += self._crossed(at_ns, port, limit)
            notes += self._foreseen(at_ns, port, limit, trend.slope())
        if is_new and limits and all(each.limit is not None and not each.beyond for each in limits):
            notes.append(_note(at_ns, port, "", "well", "within its limits", ""))
        return notes

    def _replaced(self, at_ns: int, port: str, module: Module) -> list[LinkNote]:
        identity, before = tuple(module.identity), self._identities.get(port)
        self._identities[port] = identity
        if before is None or before == identity:
            return []
        for key in [key for key in self._trends if key[0] == port]:
            del self._trends[key]
            self._beyond.discard(key)
            self._reported_ns.pop(key, None)
        return [_note(at_ns, port, " ".join(before), " ".join(identity), "another module", "")]

    def _crossed(self, at_ns: int, port: str, limit: _Limit) -> list[LinkNote]:
        key = (port, limit.name)
        if key in self._beyond:
            if not limit.well:
                return []
            self._beyond.discard(key)
            return [_note(at_ns, port, "beyond limit", "well", _measured(limit), "")]
        if not limit.beyond:
            return []
        self._beyond.add(key)
        return [_note(at_ns, port, "well", "beyond limit", _measured(limit), limit.remedy)]

    def _foreseen(
        self, at_ns: int, port: str, limit: _Limit, slope: Slope | None
    ) -> list[LinkNote]:
        key = (port, limit.name)
        if slope is None or limit.limit is None or key in self._beyond:
            return []
        hours = slope.hours_to(limit.limit)
        reported_ns = self._reported_ns.get(key)
        if hours is None or hours > FORESIGHT_H:
            return []
        if reported_ns is not None and at_ns - reported_ns < REPEAT_NS:
            return []
        self._reported_ns[key] = at_ns
        detail = (
            f"{limit.name} {slope.now:.1f} {limit.unit}, {24 * slope.per_hour:+.1f} a day: "
            f"at its limit of {limit.limit:.1f} in {hours / 24:.1f} days"
        )
        return [_note(at_ns, port, "well", "degrading", detail, limit.remedy)]


def _limits(module: Module) -> Iterable[_Limit]:
    if module.temperature_c is not None:
        yield _Limit(
            "temperature", module.temperature_c, module.temperature_alarm_c, COOLER_C, True, "°C",
            "check airflow and fans; clean the cage",
        )  # fmt: skip
    for number, lane in enumerate(module.lanes):
        if lane.rx_dbm is not None:
            yield _Limit(
                f"received light of lane {number}", lane.rx_dbm, module.rx_alarm_dbm, BRIGHTER_DB,
                False, "dBm", "clean the connectors; check the far module's laser",
            )  # fmt: skip


def _measured(limit: _Limit) -> str:
    return f"{limit.name} {limit.value:.1f} {limit.unit}, limit {limit.limit:.1f}"


def _note(  # noqa: PLR0917 - a row, in the order of its columns
    at_ns: int, port: str, before: str, after: str, detail: str, remedy: str
) -> LinkNote:
    return LinkNote(at_ns, port, "module", 0, before, after, detail, remedy)
