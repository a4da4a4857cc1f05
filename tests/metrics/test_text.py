"""What we write, Prometheus' own libraries read back."""

from __future__ import annotations

import math
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from syntony.metrics.sheet import Histogram, Sheet
from syntony.metrics.table import EVERY
from syntony.metrics.text import OPENMETRICS, PLAIN, render

ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1, max_size=12)
_VALUES = st.floats(allow_nan=False) | st.integers(0, 2**53).map(float)


def samples(text: str, *, strict: bool) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    parse = openmetrics.text_string_to_metric_families if strict else text_string_to_metric_families
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


@given(host=_TEXT, mode=_TEXT, value=_VALUES)
@pytest.mark.parametrize("accept", [ACCEPT, "", "*/*"])
def test_any_label_and_value_reads_back(accept: str, host: str, mode: str, value: float) -> None:
    sheet = Sheet({"host": host})
    sheet.put("paths_mode", value, mode=mode)
    _, text = render(sheet, accept)
    key = ("syntony_paths_mode", (("host", host), ("mode", mode)))
    assert samples(text, strict=accept == ACCEPT) == {key: value}


@pytest.mark.parametrize(("accept", "answer"), [(ACCEPT, OPENMETRICS), ("text/plain", PLAIN)])
def test_the_scraper_chooses_the_format(accept: str, answer: str) -> None:
    sheet = Sheet({"host": "h0"})
    sheet.put("clock_disruptions_total", 3)
    content_type, text = render(sheet, accept)
    assert content_type == answer
    key = ("syntony_clock_disruptions_total", (("host", "h0"),))
    assert samples(text, strict=accept == ACCEPT) == {key: 3.0}
    assert text.endswith("# EOF\n") == (answer == OPENMETRICS)


def test_a_histogram_is_cumulative() -> None:
    sheet = Sheet({"host": "h0"})
    reported = Histogram([(1e-6, 2), (math.inf, 5)], 0.25)
    sheet.put("probe_one_way_delay_seconds", reported, nic="rail0", direction="out")
    found = {
        (name, dict(labels).get("le")): value
        for (name, labels), value in samples(render(sheet, ACCEPT)[1], strict=True).items()
    }
    name = "syntony_probe_one_way_delay_seconds"
    assert found == {
        (f"{name}_bucket", "1e-06"): 2.0, (f"{name}_bucket", "+Inf"): 5.0,
        (f"{name}_sum", None): 0.25, (f"{name}_count", None): 5.0,
    }  # fmt: skip


@pytest.mark.parametrize("accept", [ACCEPT, ""])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.1, -2.0, 2.0**53 + 2])
def test_numbers_keep_all_their_digits(value: float, accept: str) -> None:
    sheet = Sheet()
    sheet.put("fleet_time_known", value)
    (read,) = samples(render(sheet, accept)[1], strict=accept == ACCEPT).values()
    assert read == pytest.approx(value, rel=0, abs=0, nan_ok=True)


def test_each_sample_gets_the_constant_labels_that_its_metric_has_and_none_that_is_empty() -> None:
    sheet = Sheet({"host": "h0", "role": "agent", "nonsense": "x"})
    sheet.put("link_up", 1, nic="", role="compute")
    sheet.put("build_info", 1, version="1")
    lines = [line for line in render(sheet)[1].splitlines() if not line.startswith("#")]
    assert lines == [
        'syntony_build_info{host="h0",role="agent",version="1"} 1.0',
        'syntony_link_up{host="h0",role="compute"} 1.0',
    ]


def test_of_several_states_one_holds() -> None:
    (name, label) = next(
        (m.name, m.labels[-1]) for m in EVERY.values() if m.labels == ("host", "state")
    )
    sheet = Sheet({"host": "h0"})
    sheet.state(name, ["up", "down", "gone"], "down", label)
    ((_, reported),) = sheet.families()
    assert [(dict(each.labels)[label], each.value) for each in reported] == [
        ("up", 0.0), ("down", 1.0), ("gone", 0.0),
    ]  # fmt: skip


def test_what_is_unknown_is_left_out() -> None:
    sheet = Sheet({"host": "h0"})
    sheet.put("link_up", None, nic="rail0", role="compute")
    assert render(sheet, ACCEPT)[1] == "# EOF\n"


def test_a_metric_or_label_that_is_not_in_the_table_is_a_bug() -> None:
    sheet = Sheet({"host": "h0"})
    with pytest.raises(KeyError):
        sheet.put("no_such_metric", 1)
    with pytest.raises(KeyError, match="nic"):
        sheet.put("link_up", 1, nic="rail0")


def test_promtool_finds_nothing_to_complain_about() -> None:
    if shutil.which("promtool") is None:
        pytest.skip(
            "needs promtool (sh deploy/system-packages.sh --test): the page of metrics is NOT "
            "checked by it"
        )
    sheet = Sheet()
    for metric in EVERY.values():
        value = Histogram([(1.0, 1), (math.inf, 1)], 1.0) if metric.kind == "histogram" else 1.0
        sheet.put(metric.name, value, **dict.fromkeys(metric.labels, "x"))
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=render(sheet)[1], text=True, capture_output=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
