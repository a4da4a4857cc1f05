"""The reference page is the code's own table, and the table keeps Prometheus' conventions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from syntony.cli.metrics import markdown
from syntony.links.counters import EVERY as COUNTERS
from syntony.metrics.settings import MetricsConfig
from syntony.metrics.table import EVERY, Metric, MetricOwner

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


def test_the_page_holds_the_table() -> None:
    hint = "run: syntony metrics list --markdown, and put it at the end of the page"
    assert PAGE.read_text(encoding="utf-8").endswith(markdown()), hint
    rows = [line for line in markdown().splitlines() if line.startswith("| `syntony_")]
    assert len(rows) == len(EVERY)


@pytest.mark.parametrize("metric", EVERY.values(), ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not re.search(r"_(ns|us|ms|ppb|percent|kb|mb|bits?)(_|$)", metric.name), "base units"
    assert not {"src", "dst", "peer", "path"} & set(metric.labels), "never a series for each pair"
    assert metric.meaning
    assert not metric.meaning.endswith(".")


def test_what_an_agent_exports_names_its_host_first() -> None:
    roles = {metric.role for metric in EVERY.values()}
    assert roles == set(MetricOwner)
    for metric in EVERY.values():
        assert metric.role is MetricOwner.CONTROLLER or metric.labels[0] == "host", metric


def test_a_daemon_is_not_scraped_over_tls_unless_told_to() -> None:
    assert MetricsConfig() == MetricsConfig(listen="", tls=False, clients=())


def test_counters_of_links_have_labels_that_fit() -> None:
    assert all('"' not in counter.key and "\\" not in counter.key for counter in COUNTERS.values())
