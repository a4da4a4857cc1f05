"""In-band management: the NIC that an agent's connection to the controller crosses. Pure."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import unquote

from syntony.wire.messages import Hello


def nic_of(hello: Hello, peer: str) -> str:
    """The NIC (``host/nic``) whose address a connection came from; empty: none of the fabric's.

    Args:
        hello: the agent's, checked: addresses are spelt as the standard library does.
        peer: address in gRPC's notation (``ipv4:10.0.0.1:5000``, ``ipv6:%5Bfd00::1%5D:5000``), also
            with the gateway that relays the connection behind it.
    """
    _, _, address = unquote(peer.partition(" ")[0]).partition(":")
    try:
        source = str(ip_address(address.rpartition(":")[0].strip("[]")))
    except ValueError:
        return ""
    for nic in hello.nics:
        if source in nic.addresses:
            return f"{hello.host}/{nic.name}"
    return ""
