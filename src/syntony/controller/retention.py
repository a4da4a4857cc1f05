"""Drops rows that are too old from the store, and aggregates past hours by minute."""

from __future__ import annotations

import logging

from syntony.errors import StoreError
from syntony.store import Store

_log = logging.getLogger(__name__)


def keep(store: Store, fleet_now_ns: int) -> None:
    """Drop what is too old and sum up what is over; a store that fails is logged, and asked again
    at the next call."""
    try:
        dropped = store.expire(fleet_now_ns)
        hours = store.minutes.sum_up(fleet_now_ns)
    except StoreError as error:
        _log.error("retention failed reason=%s", error)
        return
    if dropped:
        _log.info("retention dropped partitions=%d", dropped)
    if hours:
        _log.info("aggregated by minute hours=%d", hours)


def sum_up_minutes(store: Store, fleet_now_ns: int) -> None:
    """Minutes of the hour under way that are over; a store that fails is asked again."""
    try:
        store.minutes.follow(fleet_now_ns)
    except StoreError as error:
        _log.error("minutes not aggregated reason=%s", error)


def learn_minutes(store: Store, fleet_now_ns: int) -> None:
    """What a leader has summed up, for a gateway; a store that fails is asked again."""
    try:
        store.minutes.learn(fleet_now_ns)
    except StoreError as error:
        _log.error("aggregated minutes unknown reason=%s", error)
