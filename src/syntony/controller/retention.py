"""Rows that are older than their table keeps them leave the store."""

from __future__ import annotations

import logging

from syntony.errors import StoreError
from syntony.store import Store

_log = logging.getLogger(__name__)


def expire(store: Store, fleet_now_ns: int) -> None:
    """Drop what is too old; a store that fails is logged, and asked again at the next call."""
    try:
        dropped = store.expire(fleet_now_ns)
    except StoreError as error:
        _log.error("retention failed reason=%s", error)
        return
    if dropped:
        _log.info("retention dropped partitions=%d", dropped)
