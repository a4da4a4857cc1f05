"""Opens the listening sockets of the API and of the metrics."""

from __future__ import annotations

import ipaddress
import socket


def listening_socket(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int, backlog: int
) -> socket.socket:
    """A listening TCP socket; one on ``::`` also accepts IPv4, as gRPC's ports do. Raises
    `OSError`."""
    if address.version == 4:
        return socket.create_server((str(address), port), backlog=backlog)
    return socket.create_server(
        (str(address), port), family=socket.AF_INET6, backlog=backlog,
        dualstack_ipv6=socket.has_dualstack_ipv6(),
    )  # fmt: skip
