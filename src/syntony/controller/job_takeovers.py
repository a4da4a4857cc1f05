"""Lost ranks of protected jobs as observations for the rules: by host, and by job where no spare
took the rank's place. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from syntony.alerts.observations import Observation
from syntony.model import format_ns

REPLACED, NOT_REPLACED = "ranks_replaced_1h", "ranks_not_replaced_1h"
METRICS = frozenset({REPLACED, NOT_REPLACED})
MAX_EVIDENCE = 8
_SHORT = 12
"""Of a hash, as people compare them."""


def observations(rows: Mapping[str, list[Any]]) -> list[Observation]:
    """Of the window's rows of `job_takeovers`, newest first. Drained ranks are no losses."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    compared: dict[str, str] = {}
    """Job to the hash that all its ranks had, next after the rows looked at now."""
    for values in zip(*rows.values(), strict=True):
        row = dict(zip(rows, values, strict=True))
        if row["what"] == "replaced" and row["reason"] != "drained":
            row["sha256"] = compared.get(row["job"], "")
            found[REPLACED, row["at"]].append(row)
        elif row["what"] in {"ended", "differs", "checkpoint"}:
            found[NOT_REPLACED, f"job {row['job']}"].append(row)
        elif row["what"] == "verified":
            compared[row["job"]] = row["sha256"]
    return [
        Observation(
            metric,
            subject,
            float(len(lost)),
            tuple(_evidence(each) for each in lost[:MAX_EVIDENCE]),
            jobs=tuple(sorted({each["job"] for each in lost})),
        )
        for (metric, subject), lost in found.items()
    ]


def _evidence(row: Mapping[str, Any]) -> str:
    rank = f"rank {row['rank']}" if row["rank"] >= 0 else "all ranks"
    text = f"{row['job']}: {rank}, {row['reason'] or row['what']}, step {row['step']}"
    if row["what"] == "replaced":
        text += f"; generation {row['generation']} after {format_ns(row['stall_ns'])}"
        if row["sha256"]:
            before, after = row["sha256_before"][:_SHORT], row["sha256"][:_SHORT]
            text += f"; parameters {before or 'unknown'} before, {after} on all ranks after"
    return text
