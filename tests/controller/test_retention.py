"""Old rows: aggregated before they are dropped, and dropped as the configuration says."""

from __future__ import annotations

from typing import Any, cast

from syntony.controller import retention
from syntony.controller.config import ControllerConfig
from syntony.model import HOUR_NS
from syntony.store import Store


class Calls:
    """A store that notes what it is asked to do."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.minutes = self

    def expire(self, now_ns: int, detail_ns: int) -> int:
        self.calls.append(("expire", now_ns, detail_ns))
        return 0

    def sum_up(self, now_ns: int) -> int:
        self.calls.append(("sum_up", now_ns))
        return 0


def test_hours_are_aggregated_before_their_seconds_are_dropped() -> None:
    config = ControllerConfig(
        listen="127.0.0.1:0", tls_ca="", tls_cert="", tls_key="", detail_retention="36h"
    )
    store = Calls()
    retention.keep(cast("Store", store), 100 * HOUR_NS, config.detail_ns)
    assert store.calls == [("sum_up", 100 * HOUR_NS), ("expire", 100 * HOUR_NS, 36 * HOUR_NS)]
