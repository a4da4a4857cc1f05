"""The trace in the docs is what the page about it says."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_trace_in_the_docs_is_of_eight_ranks_and_one_slow_flow() -> None:
    file = DOCS / "data" / "eight-ranks.trace.json.gz"
    assert file.stat().st_size < 300_000
    made = json.loads(gzip.decompress(file.read_bytes()))
    events = made["traceEvents"]
    names = Counter(each["args"]["name"] for each in events if each["ph"] == "M")
    assert {f"host h{host}" for host in range(8)} <= set(names)
    (verdict,) = (each["name"] for each in events if each["ph"] == "i")
    assert f"`{verdict}`" in (DOCS / "how-to" / "timeline.md").read_text()
    assert made["otherData"]["timeline"] == "fleet"
    assert {each["cat"] for each in events if "cat" in each} == {
        "collective", "step", "flow", "verdict"
    }  # fmt: skip
