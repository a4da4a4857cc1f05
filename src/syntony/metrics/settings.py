"""The ``[metrics]`` section, the same for agents and the controller."""

from __future__ import annotations

import msgspec

from syntony.errors import ConfigError
from syntony.model.names import IpAddress, parse_listener


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[metrics]``: an HTTP port for Prometheus (docs/how-to/prometheus.md)."""

    listen: str = ""
    """``ADDRESS:PORT``; empty: none. Not loopback: only with `tls`."""
    tls: bool = False
    """Mutual TLS with this daemon's own certificate and CA."""
    clients: tuple[str, ...] = ()
    """Common names of certificates that may scrape; empty: every one of the CA."""


def check_address(listen: str, *, tls: bool) -> tuple[IpAddress, int]:
    """Where to listen. Raises `ConfigError`: an address that is none, or not loopback without
    TLS."""
    address, number = parse_listener("metrics", listen)
    if not tls and not address.is_loopback:
        raise ConfigError(
            f"metrics: {listen} can be reached from outside; set tls = true (scrapers then need a "
            "certificate of the fleet's CA), or listen on 127.0.0.1"
        )
    return address, number
