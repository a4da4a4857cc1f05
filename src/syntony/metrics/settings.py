"""The ``[metrics]`` section, the same for agents and the controller."""

from __future__ import annotations

import msgspec


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[metrics]``: an HTTP port for Prometheus (docs/how-to/prometheus.md)."""

    listen: str = ""
    """``ADDRESS:PORT``; empty: none. Not loopback: only with `tls`."""
    tls: bool = False
    """Mutual TLS with this daemon's own certificate and CA."""
    clients: tuple[str, ...] = ()
    """Common names of certificates that may scrape; empty: every one of the CA."""
