"""Drops old rows from the store, and aggregates past hours by minute."""

from __future__ import annotations

import logging

from syntony.errors import StoreError
from syntony.store import Store

_log = logging.getLogger(__name__)


def keep(store: Store, fleet_now_ns: int, detail_ns: int) -> None:
    """Aggregate completed hours and drop old rows, those of single seconds after `detail_ns`; a
    failure is logged, and retried at the next call."""
    try:
        hours = store.minutes.sum_up(fleet_now_ns)
        dropped = store.expire(fleet_now_ns, detail_ns)
    except StoreError as error:
        _log.error("retention failed reason=%s", error)
        return
    if dropped:
        _log.info("retention dropped partitions=%d", dropped)
    if hours:
        _log.info("aggregated by minute hours=%d", hours)


def sum_up_minutes(store: Store, fleet_now_ns: int) -> None:
    """Aggregate completed minutes of the current hour; a failure is retried."""
    try:
        store.minutes.sum_up_recent(fleet_now_ns)
    except StoreError as error:
        _log.error("minutes not aggregated reason=%s", error)


def learn_minutes(store: Store, fleet_now_ns: int) -> None:
    """For a gateway: read what a leader has aggregated; a failure is retried."""
    try:
        store.minutes.read_summed(fleet_now_ns)
    except StoreError as error:
        _log.error("aggregated minutes unknown reason=%s", error)
