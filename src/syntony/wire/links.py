"""Requests and answers about ports and their history; part of `syntony.wire.messages`."""

from __future__ import annotations

import msgspec

from syntony.model import DAY_NS, HOUR_NS
from syntony.wire.query import Query


class LinksQuery(Query["Links"], frozen=True, kw_only=True, tag="links"):
    """Every port, with its losses of carrier over the window."""

    window_ns: int = HOUR_NS


class LinkHistoryQuery(Query["LinkHistory"], frozen=True, kw_only=True, tag="link-history"):
    """Events of one port (``host/name``), or of all if `nic` is empty."""

    nic: str = ""
    window_ns: int = DAY_NS


class LinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One port, as last reported by its agent."""

    nic: str
    netdev: str
    rdma: str
    link_layer: str
    driver: str
    role: str
    state: str
    gbps: float | None
    flaps: int
    """Losses of carrier within the requested window."""
    last_flap_ns: int | None
    seen_ns: int
    """Fleet time of the last report; if it is old, so is `state`."""
    watched_ns: int
    """How much of the window the port was observed."""
    temperature_c: float | None
    rx_dbm: float | None
    bias_ma: float | None
    tx_bps: float | None = None
    """Highest rate of sending in a second of the last ten before `seen_ns`, bits per second."""
    rx_bps: float | None = None
    """The same of receiving."""


class LinkEventRow(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a port."""

    ts_ns: int
    nic: str
    kind: str
    losses: int
    before: str
    after: str
    detail: str
    remedy: str


class LinkCounterRow(msgspec.Struct, frozen=True, kw_only=True):
    """Increase of one counter over the window."""

    nic: str
    counter: str
    increase: int
    last_ns: int
    reading: str
    """The worst of the window: ``counted`` is exact, ``saturated`` a lower bound, ``unknown``
    not readable."""


class Links(msgspec.Struct, frozen=True, kw_only=True, tag="links"):
    ports: tuple[LinkStatus, ...]
    now_ns: int


class LinkHistory(msgspec.Struct, frozen=True, kw_only=True, tag="link-history"):
    events: tuple[LinkEventRow, ...]
    """Oldest first."""
    counters: tuple[LinkCounterRow, ...]
    now_ns: int
