"""Checks the first message of an agent's stream. Pure.

An invalid message is refused. An invalid NIC is left out, while the host's other NICs are served,
and the reason is kept for operators.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

import msgspec

from syntony import __version__
from syntony.audit.text import printable
from syntony.controller.access import LOCAL, Caller
from syntony.errors import ConfigError, SyntonyError
from syntony.model.names import is_name
from syntony.wire.messages import OLDEST, PROTOCOL, AgentMessage, Hello, NicInfo
from syntony.wire.parts import PartsReport, PartStatus
from syntony.wire.roles import Role

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_NICS = 256
"""Limit per host: above any real machine, below what would make a plan too large."""
MAX_ADDRESSES = 64
"""Maximum for one NIC."""
MAX_RAIL = 1_023
MAX_PARTS = 2 * MAX_NICS
MAX_AGE_NS = 1 << 60
_RDMA = frozenset({"", "roce", "infiniband"})
MAX_TEXT = 200
"""Maximum length of a version or of a NIC's stamping, characters."""


class RefusedError(SyntonyError):
    """An agent that is refused; the message is for its operator."""


def prefixes(texts: Iterable[str]) -> tuple[IpNetwork, ...]:
    """Address ranges of the fleet's NICs. Raises `ConfigError`."""
    try:
        return tuple(map(ipaddress.ip_network, texts))
    except ValueError as error:
        raise ConfigError(f"nic_prefixes: {error}; for example 10.0.0.0/8") from error


def check_hello(
    message: AgentMessage | None, who: Caller, within: Sequence[IpNetwork] = ()
) -> tuple[Hello, tuple[str, ...]]:
    """The hello with the usable NICs, and why the others are not usable.

    Args:
        message: the first of a stream; None if it ended before.
        who: its sender.
        within: address ranges of the fleet's NICs; none: any.

    Raises:
        RefusedError: this agent, or this message, is refused as a whole.
    """
    _check_caller(who)
    if not isinstance(message, Hello):
        raise RefusedError("the first message of a stream must be a hello")
    _check_protocol(message)
    if message.host != who.identity.name:
        raise RefusedError(
            f"host {message.host!r} attached with the certificate of {who.identity.name!r}; "
            "each agent needs its own"
        )
    if not all(map(is_name, (message.host, message.stream, *(nic.name for nic in message.nics)))):
        raise RefusedError("a host, stream or NIC has an invalid name")
    names = {nic.name for nic in message.nics}
    if len(message.nics) > MAX_NICS or len(names) != len(message.nics):
        raise RefusedError(f"{len(message.nics)} NICs, {len(names)} different; {MAX_NICS} at most")
    faults = {
        nic.name: fault for nic in message.nics if (fault := _fault(message.host, nic, within))
    }
    hello = Hello(
        protocol=min(message.protocol, PROTOCOL),
        version=printable(message.version[:MAX_TEXT]),
        host=message.host,
        nics=tuple(_spelt(nic) for nic in message.nics if nic.name not in faults),
        stream=message.stream,
        backlog=message.backlog,
        epoch=message.epoch,
        reads_device_stamps=message.reads_device_stamps,
        reads_stored=message.reads_stored,
    )
    return hello, tuple(f"nic={name} reason={fault}" for name, fault in faults.items())


def plausible_parts(report: PartsReport) -> tuple[PartStatus, ...]:
    """An agent's parts, limited to possible numbers and lengths."""
    return tuple(
        msgspec.structs.replace(
            part,
            name=printable(part.name[:MAX_TEXT]),
            reason=printable(part.reason[: 2 * MAX_TEXT]),
            age_ns=min(max(0, part.age_ns), MAX_AGE_NS),
        )
        for part in report.parts[:MAX_PARTS]
    )


def _check_caller(who: Caller) -> None:
    role, name = who.identity
    if who.origin == LOCAL:
        raise RefusedError("agents attach over TLS, with a certificate of their own")
    if role is not Role.AGENT:
        raise RefusedError(f"the certificate of {name!r} is of role {role}; only agents attach")


def _check_protocol(message: Hello) -> None:
    """Raises `RefusedError`: no protocol is common; with who is to be upgraded."""
    version = printable(message.version[:MAX_TEXT])
    oldest = message.oldest or message.protocol
    if message.protocol < OLDEST:
        who, remedy = "too old for", "upgrade the agent"
    elif oldest > PROTOCOL:
        who, remedy = "too new for", "upgrade the controller"
    else:
        return
    raise RefusedError(
        f"agent {version} (protocol {_range(oldest, message.protocol)}) is {who} this controller, "
        f"{__version__} (protocol {_range(OLDEST, PROTOCOL)}): {remedy}; its rows wait in the spool"
    )


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _fault(host: str, nic: NicInfo, within: Sequence[IpNetwork]) -> str:
    """Why a NIC cannot be probed; empty if it can."""
    for clock in (nic.clock, nic.verbs_clock or host):
        owner, slash, device = clock.partition("/")
        if owner != host or (slash and not is_name(device)):
            return f"it claims the clock of {clock[:MAX_TEXT]!r}"
    if not 0 < nic.port <= 0xFFFF:
        return f"{nic.port} is not a UDP port"
    if not 0 <= nic.rail <= MAX_RAIL:
        return f"rail {nic.rail} is not within 0 to {MAX_RAIL}"
    if len(nic.stamping) > MAX_TEXT or len(nic.addresses) > MAX_ADDRESSES:
        return f"more than {MAX_ADDRESSES} addresses, or {MAX_TEXT} characters on stamping"
    faults = [fault for text in nic.addresses if (fault := _address_fault(text, within))]
    return faults[0] if faults else ""


def _spelt(nic: NicInfo) -> NicInfo:
    """The NIC with each address in the fleet's canonical notation, because other claims of it are
    found by its text. An unknown kind of RDMA, of a newer agent, is not used."""
    return msgspec.structs.replace(
        nic,
        addresses=tuple(str(ipaddress.ip_address(each)) for each in nic.addresses),
        stamping=printable(nic.stamping),
        rdma=nic.rdma if nic.rdma in _RDMA else "",
    )


def _address_fault(text: str, within: Sequence[IpNetwork]) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return f"{text[:MAX_TEXT]!r} is not an IP address"
    if isinstance(address, ipaddress.IPv6Address) and (address.scope_id or address.ipv4_mapped):
        return f"{text[:MAX_TEXT]!r} has a scope, or is IPv4 written as IPv6"
    if address.is_multicast or address.is_unspecified or address.is_loopback:
        return f"{address} is not a unicast address that others can reach"
    if isinstance(address, ipaddress.IPv4Address) and address.is_reserved:
        return f"{address} is reserved, or the broadcast address"
    if within and not any(address in network for network in within):
        return f"{address} is in none of nic_prefixes"
    return ""
