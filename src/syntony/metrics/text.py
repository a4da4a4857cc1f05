"""A sheet as text, by Prometheus' own library: OpenMetrics 1.0 or the older Prometheus 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import exposition
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from syntony.metrics.sheet import Histogram, Sheet

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


def render(sheet: Sheet, accept: str = "") -> tuple[str, str]:
    """(content type, text) of the format that the scraper's ``Accept`` asks for."""
    page = _Page(sheet)
    if "application/openmetrics-text" in accept:
        return OPENMETRICS, openmetrics.generate_latest(page).decode()
    return PLAIN, exposition.generate_latest(page).decode()


class _Page(Collector):
    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet

    def collect(self) -> Iterator[Metric]:
        for metric, samples in self.sheet.families():
            name = metric.full_name
            family = Metric(name.removesuffix("_total"), metric.meaning, metric.kind)
            for pairs, value in samples:
                labels = {key: text for key, text in pairs if text}  # empty is the same as none
                if isinstance(value, Histogram):
                    for bound, count in value.buckets:
                        le = floatToGoString(bound)
                        family.add_sample(f"{name}_bucket", {**labels, "le": le}, count)
                    family.add_sample(f"{name}_count", labels, value.buckets[-1][1])
                    family.add_sample(f"{name}_sum", labels, value.total)
                else:
                    family.add_sample(name, labels, value)
            yield family
