"""A sheet as text: OpenMetrics 1.0 or the older Prometheus 0.0.4.

Written here rather than by prometheus_client because of what that costs an agent (see
docs/decisions/0077); its parser and promtool check the result in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from syntony.metrics.sheet import Histogram, Sample, Sheet
from syntony.metrics.table import Metric

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def render(sheet: Sheet, accept: str = "") -> tuple[str, str]:
    """(content type, text) of the format that the scraper's ``Accept`` asks for."""
    openmetrics = "application/openmetrics-text" in accept
    lines = [line for family in sheet.families() for line in _family(*family, openmetrics)]
    if openmetrics:
        lines.append("# EOF")
    return OPENMETRICS if openmetrics else PLAIN, "\n".join(lines) + "\n"


def _family(metric: Metric, samples: Iterable[Sample], openmetrics: bool) -> Iterator[str]:
    # OpenMetrics names a counter's family without the suffix of its samples.
    name = metric.full_name.removesuffix("_total") if openmetrics else metric.full_name
    yield f"# HELP {name} {metric.meaning.translate(_HELP_ESCAPES)}"
    yield f"# TYPE {name} {metric.kind}"
    for labels, value in samples:
        if isinstance(value, Histogram):
            yield from _histogram(metric.full_name, labels, value)
        else:
            yield f"{metric.full_name}{_labels(labels)} {number(value)}"


def _histogram(name: str, labels: tuple[tuple[str, str], ...], value: Histogram) -> Iterator[str]:
    for bound, count in value.buckets:
        yield f"{name}_bucket{_labels((*labels, ('le', number(bound))))} {count}"
    yield f"{name}_sum{_labels(labels)} {number(value.total)}"
    yield f"{name}_count{_labels(labels)} {value.buckets[-1][1]}"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    """An empty label is the same as none."""
    reported = [f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels if text]
    return "{" + ",".join(reported) + "}" if reported else ""


def number(value: float) -> str:
    """A float as both formats read it; whole numbers keep all their digits."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value)) if not float(value).is_integer() else f"{int(value)}.0"
