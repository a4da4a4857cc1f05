"""The reference page of metrics, made from the table."""

from __future__ import annotations

from syntony.metrics.table import GROUPS, Metric


def markdown() -> str:
    """One table a group."""
    return "\n".join(_group(name, metrics) for name, metrics in GROUPS)


def _group(name: str, metrics: tuple[Metric, ...]) -> str:
    head = f"## {name}\n\n| Metric | Kind | Labels | Meaning | Of |\n|---|---|---|---|---|\n"
    return head + "".join(map(_row, metrics))


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return (
        f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.meaning} | {metric.role} |\n"
    )
