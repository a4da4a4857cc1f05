"""How often parts of a fleet really failed, from its own incidents. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from syntony.wire.cost import YEAR_NS, ObservedFailures

NETWORK = frozenset({
    "port-down", "link-flapping", "switch-down", "switch-loss", "switch-or-hosts", "link-loss",
    "ambiguous-loss", "nic-loss", "cable-lost",
})  # fmt: skip
"""Rules whose critical incidents are failures of NICs, cables or switches."""
HOSTS = frozenset({"host-silent", "silent-together"})


def observed(
    incidents: Iterable[Mapping[str, Any]], period_ns: int, now_ns: int
) -> ObservedFailures:
    """Count the critical incidents that began in a period and are nobody else's symptom.

    Args:
        incidents: as docs/reference/incidents.md describes them.
        period_ns: until now.
        now_ns: on the clock of their instants.
    """
    network = hosts = other = 0
    for each in incidents:
        began = now_ns - period_ns <= each["opened_ns"] <= now_ns
        if each["severity"] != "critical" or each["cause"] or not began:
            continue
        if each["rule"] in NETWORK:
            network += 1
        elif each["rule"] in HOSTS:
            hosts += 1
        else:
            other += 1
    return ObservedFailures(
        period_ns=period_ns, network=network, hosts=hosts, other=other,
        per_year=(network + hosts) * YEAR_NS / period_ns,
    )  # fmt: skip
