"""The reference page is the code's own table, and the table keeps Prometheus' conventions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from syntony.links.counters import EVERY as COUNTERS
from syntony.metrics.reference import markdown
from syntony.metrics.table import EVERY, Metric

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


def test_the_page_holds_the_table() -> None:
    hint = "run: syntony metrics list --markdown, and put it at the end of the page"
    assert PAGE.read_text(encoding="utf-8").endswith(markdown()), hint


@pytest.mark.parametrize("metric", EVERY.values(), ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not re.search(r"_(ns|us|ms|ppb|percent|kb|mb|bits?)(_|$)", metric.name), "base units"
    assert not {"src", "dst", "peer", "path"} & set(metric.labels), "never a series for each pair"
    assert metric.meaning
    assert not metric.meaning.endswith(".")


def test_counters_of_links_have_labels_that_fit() -> None:
    assert all('"' not in counter.key and "\\" not in counter.key for counter in COUNTERS.values())
