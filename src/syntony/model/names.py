"""Names of hosts and NICs: ``h3`` is a host, ``h3/rail0`` one of its NICs."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple

from syntony.errors import ConfigError, UsageError

_ENDPOINT = re.compile(r"(?:\[([^\s\[\]/@]+)\]|([^\s:\[\]/@]+)):([0-9]{1,5})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,62}")

MAX_PORT = 65_535
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class NicRef(NamedTuple):
    """One NIC of one host, written ``host/nic``."""

    host: str
    nic: str

    def __str__(self) -> str:
        return f"{self.host}/{self.nic}"

    @classmethod
    def parse(cls, text: str) -> NicRef:
        """Parse ``"h3/rail0"``. Raises `UsageError`: it is not of that form."""
        host, slash, nic = text.partition("/")
        if not slash or not is_name(host) or not is_name(nic):
            raise UsageError(f"{text!r} is not a NIC; write HOST/NIC, for example h3/rail0")
        return cls(host, nic)


def host_of(name: str) -> str:
    """``h3`` of ``h3/rail0``, and of ``h3`` itself."""
    return name.partition("/")[0]


def device_clock(nic: NicRef) -> str:
    """Node of the clock of a NIC's RDMA device, which stamps probes over verbs."""
    return f"{nic}:verbs"


def is_name(text: str) -> bool:
    """Whether `text` is a valid name of a host, a NIC, a switch or a lab."""
    return _NAME.fullmatch(text) is not None


def parse_endpoint(text: str) -> tuple[str, int]:
    """Split ``HOST:PORT``, an IPv6 address in brackets; the host is returned without them. Raises
    `UsageError`: it is not of that form."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 0 < int(match[3]) <= MAX_PORT:
        raise UsageError(
            f"{text!r} is not HOST:PORT; write for example syntony.example:8443 or [::1]:8443"
        )
    return match[1] or match[2], int(match[3])


def parse_listener(section: str, text: str) -> tuple[IpAddress, int]:
    """Parse ``ADDRESS:PORT`` of a section of a configuration, an IPv6 address in brackets. Raises
    `ConfigError`: it is not of that form."""
    host, colon, port = text.rpartition(":")
    try:
        address, number = ipaddress.ip_address(host.strip("[]")), int(port)
    except ValueError as error:
        raise ConfigError(
            f"{section}: {text!r} is not ADDRESS:PORT, for example 127.0.0.1:8080"
        ) from error
    if not colon or not 0 <= number <= MAX_PORT:
        raise ConfigError(f"{section}: {text!r}: a port is between 0 and {MAX_PORT}")
    return address, number


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts ``h2`` before ``h10``."""
    parts = re.findall(r"\d+|\D+", text)
    return tuple((int(p), "") if p.isascii() and p.isdigit() else (-1, p) for p in parts)


def some(names: Iterable[str], most: int) -> str:
    """The first names in a line, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'h3'?`` for an error about an unknown name; empty: no known name is
    similar."""
    import difflib  # costs every command milliseconds at its start

    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def nic_number(ref: NicRef) -> int:
    """The number of a NIC in probe packets, unless another NIC already has it.

    Depends on the name alone, so that it survives restarts of agent and controller; never 0.
    """
    digest = hashlib.blake2b(str(ref).encode(), digest_size=4).digest()
    return int.from_bytes(digest) or 1


def is_loopback(host: str) -> bool:
    """Whether a host of a URL is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
