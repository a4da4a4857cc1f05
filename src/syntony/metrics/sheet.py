"""What one scrape answers: samples of the table's metrics, in its order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from syntony.metrics.table import EVERY, Metric


class Histogram(NamedTuple):
    """Counts of values at or below each bound, ascending; the last bound is +Inf."""

    buckets: Sequence[tuple[float, int]]
    """(upper bound, values up to it)."""
    total: float
    """Sum of all values."""


class MetricSample(NamedTuple):
    """One value with its labels, in the order of the metric's."""

    labels: tuple[tuple[str, str], ...]
    value: float | Histogram


class Sheet:
    """Filled by anyone who is scraped.

    Args:
        constant: labels that every sample gets, where its metric has them.
    """

    def __init__(self, constant: Mapping[str, str] | None = None) -> None:
        self._constant = dict(constant or {})
        self._samples: dict[str, list[MetricSample]] = {}

    def put(self, name: str, value: float | Histogram | None, **labels: str) -> None:
        """One sample. None is a value that could not be measured: it is left out, so that what is
        unknown looks like nothing else. Raises `KeyError`: the table has no such metric, or not
        with these labels: a bug."""
        metric = EVERY[name]
        known = {key: text for key, text in self._constant.items() if key in metric.labels} | labels
        if set(known) != set(metric.labels):
            raise KeyError(f"{name}: labels {sorted(known)}, in the table {sorted(metric.labels)}")
        if value is not None:
            ordered = tuple((key, known[key]) for key in metric.labels)
            self._samples.setdefault(name, []).append(MetricSample(ordered, value))

    def state(self, name: str, states: Iterable[str], now: str, label: str = "state") -> None:
        """1 for the state that holds, 0 for all others."""
        for state in states:
            self.put(name, float(state == now), **{label: state})

    def families(self) -> Iterable[tuple[Metric, Sequence[MetricSample]]]:
        for name, metric in EVERY.items():
            if name in self._samples:
                yield metric, self._samples[name]
