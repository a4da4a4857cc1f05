"""The cost of failures with the fleet's own incidents counted beside the assumptions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from syntony.controller.answers import MAX_HISTORY_NS, costs
from syntony.controller.questions import RequestContext
from syntony.errors import UsageError
from syntony.wire.cost import YEAR_NS, CostQuery
from syntony.wire.incidents import IncidentsQuery

NOW_NS = 2 * YEAR_NS


class Alerts:
    """The incident book, of three incidents; notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[IncidentsQuery, int]] = []

    def incidents(self, query: IncidentsQuery, fleet_ns: int) -> SimpleNamespace:
        self.asked.append((query, fleet_ns))
        known = [("port-down", 1), ("host-silent", 2), ("link-loss", MAX_HISTORY_NS)]
        return SimpleNamespace(
            incidents=tuple(
                {"rule": rule, "severity": "critical", "cause": None, "opened_ns": NOW_NS - ago}
                for rule, ago in known
            )
        )


def requested(alerts: Alerts) -> RequestContext:
    services = cast("Any", SimpleNamespace(alerts=alerts))
    return RequestContext(services, cast("Any", None), NOW_NS, NOW_NS)


def test_incidents_of_the_period_are_counted_those_that_are_over_too() -> None:
    alerts = Alerts()
    observed = costs(requested(alerts), CostQuery(history_ns=MAX_HISTORY_NS // 2)).observed
    assert observed is not None
    assert (observed.network, observed.hosts) == (1, 1)
    assert observed.per_year == 2 * YEAR_NS / (MAX_HISTORY_NS // 2)
    ((query, fleet_ns),) = alerts.asked
    assert (query.resolved, query.since_ns, fleet_ns) == (True, MAX_HISTORY_NS // 2, NOW_NS)


def test_without_a_history_nobody_is_asked() -> None:
    alerts = Alerts()
    assert costs(requested(alerts), CostQuery()).observed is None
    assert not alerts.asked


@pytest.mark.parametrize(
    "query", [CostQuery(history_ns=MAX_HISTORY_NS + 1), CostQuery(history_ns=-1)]
)
def test_a_history_that_is_not_kept_is_refused(query: CostQuery) -> None:
    with pytest.raises(UsageError, match="history"):
        costs(requested(Alerts()), query)


def test_all_that_is_kept_may_be_asked_for() -> None:
    observed = costs(requested(Alerts()), CostQuery(history_ns=MAX_HISTORY_NS)).observed
    assert observed is not None
    assert observed.network == 2
