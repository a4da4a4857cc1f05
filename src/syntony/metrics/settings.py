"""The ``[metrics]`` section, the same for agents and the controller."""

from __future__ import annotations

import ipaddress

import msgspec

from syntony.errors import ConfigError


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[metrics]``: an HTTP port for Prometheus (docs/how-to/prometheus.md)."""

    listen: str = ""
    """``ADDRESS:PORT``; empty: none. Not loopback: only with `tls`."""
    tls: bool = False
    """Mutual TLS with this daemon's own certificate and CA."""
    clients: tuple[str, ...] = ()
    """Common names of certificates that may scrape; empty: every one of the CA."""


def check_address(
    listen: str, *, tls: bool
) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """Where to listen.

    Raises:
        ConfigError: an address that is none, or not loopback without TLS.
    """
    host, colon, port = listen.rpartition(":")
    try:
        address = ipaddress.ip_address(host.strip("[]"))
        number = int(port)
    except ValueError as error:
        raise ConfigError(
            f"metrics: {listen!r} is not ADDRESS:PORT, for example 127.0.0.1:9862"
        ) from error
    if not colon or not 0 <= number <= 0xFFFF:
        raise ConfigError(f"metrics: {listen!r}: a port is between 0 and 65535")
    if not tls and not address.is_loopback:
        raise ConfigError(
            f"metrics: {listen} can be reached from outside; set tls = true (scrapers then need a "
            "certificate of the fleet's CA), or listen on 127.0.0.1"
        )
    return address, number
