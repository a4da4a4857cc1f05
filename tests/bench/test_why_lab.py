"""When a live episode has seen the whole job."""

from __future__ import annotations

from typing import Any

import pytest
from bench.why_lab import RECORDED_S, missing
from tests.workload.made import MS, T0, bundle

S = 1000 * MS


def recording(*flows: range) -> Any:
    """Of flows with data in these seconds."""
    rows = [(f"h0/n:{flow}>h1/n:1", second) for flow, some in enumerate(flows) for second in some]
    return bundle({"flows": {
        "flow": [name for name, _ in rows], "at_ns": [T0 + second * S for _, second in rows],
        "window_ns": [S] * len(rows), "src": ["h0/n"] * len(rows), "dst": ["h1/n"] * len(rows),
        "owd_p50_ns": [9_000.0] * len(rows),
    }})  # fmt: skip


WHOLE = range(RECORDED_S)


@pytest.mark.parametrize(
    ("flows", "lacks"),
    [
        ((WHOLE, WHOLE), ""),
        ((WHOLE,), "1 of 2 flows are known; too short: none"),
        ((WHOLE, range(1)), "1 of 2 flows are known; too short: none"),
        # Two connections of a job that has ended.
        ((WHOLE, WHOLE, range(1), range(2)), ""),
        # One that began anew, and is there.
        ((WHOLE, WHOLE, WHOLE[-2:]), "2 of 2 flows are known; too short: h0/n:2>h1/n:1 (2 s)"),
    ],
)
def test_a_job_is_whole_once_all_flows_that_it_still_has_are_known(
    flows: tuple[range, ...], lacks: str
) -> None:
    assert missing(recording(*flows), 2) == lacks


def test_nothing_recorded_is_not_whole() -> None:
    assert missing(None, 2) == "no flows"
    assert missing(recording(WHOLE), 0) == "no steps"
