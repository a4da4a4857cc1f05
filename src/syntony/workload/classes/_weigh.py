"""Alternatives, as the rules list them."""

from __future__ import annotations

from syntony.workload.verdict import Alternative, FaultClass


def weigh(fault: FaultClass, excluded: bool | None, reason: str, unknown: str = "") -> Alternative:
    """An alternative; None if the data that would exclude it was not recorded; `unknown` names that
    data."""
    if excluded is None:
        return Alternative(fault, excluded=False, reason=f"not checked: {unknown} not recorded")
    return Alternative(fault, excluded=excluded, reason=reason)
