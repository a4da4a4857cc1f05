"""The kernel's MPTCP userspace path manager: its events, and commands to it.

Generic netlink family ``mptcp_pm`` (linux/mptcp_pm.h, Documentation/netlink/specs/mptcp_pm.yaml).
With ``net.mptcp.path_manager=userspace`` (``pm_type=1`` before Linux 6.15) the kernel leaves every
subflow to anyone who listens to the event group; while nobody listens it accepts no joins either.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from syntony.errors import MissingError, WireError
from syntony.io.netlink import NLM_F_DUMP, NetlinkMessage, attribute, attributes
from syntony.io.netlink_socket import NESTED, NetlinkSocket, find_family, generic, opened
from syntony.model.paths import FourTuple
from syntony.traffic.events import (
    AddressAnnounced,
    AddressEvent,
    AddressWithdrawn,
    ConnectionDown,
    ConnectionEvent,
    ConnectionUp,
    SubflowDown,
    SubflowUp,
)

_FAMILY, _VERSION, _EVENTS = "mptcp_pm", 1, "mptcp_pm_events"
_NETLINK_GENERIC = 16
_GET_ADDR, _SET_FLAGS, _ANNOUNCE, _REMOVE, _CREATE, _DESTROY = 3, 7, 8, 9, 10, 11
_ADDR, _TOKEN, _LOC_ID, _ADDR_REMOTE = 1, 4, 5, 6
_A_FAMILY, _A_ID, _A_ADDR4, _A_ADDR6, _A_PORT, _A_FLAGS = 1, 2, 3, 4, 5, 6
_FLAG_SIGNAL, _FLAG_BACKUP = 1, 4
_EV_TOKEN, _EV_LOC_ID, _EV_REM_ID, _EV_SADDR4, _EV_SADDR6, _EV_DADDR4, _EV_DADDR6 = (
    1, 3, 4, 5, 6, 7, 8,
)  # fmt: skip
_EV_SPORT, _EV_DPORT, _EV_ERROR, _EV_FLAGS, _EV_SERVER_SIDE = 9, 10, 12, 13, 18
_EV_FLAG_SERVER_SIDE = 2
"""A flag of `_EV_FLAGS` that newer kernels send along with the attribute, later instead of it."""
_U32 = struct.Struct("=I")

Event = ConnectionEvent | AddressEvent


class LocalAddress(NamedTuple):
    """A local address that the kernel has for one connection.

    The kernel also adds addresses by itself: whenever a peer's join arrives at one that nobody has
    announced, under the lowest id that is free, even if it then refuses the join.
    """

    local_id: int
    address: str
    port: int
    """0: the connection's own."""


class PathManager:
    """Commands to the kernel's path manager, in the network namespace of its maker.

    Every command raises `OSError` when the kernel refuses it: ESRCH for a connection that is gone
    or not under user space's management, ENOTCONN or EINVAL for one not ready yet.

    Raises:
        MissingError: no MPTCP in this kernel.
    """

    def __init__(self) -> None:
        self._socket = NetlinkSocket(_NETLINK_GENERIC)
        self._family = find_family(self._socket, _FAMILY)

    def close(self) -> None:
        self._socket.close()

    def create(self, token: int, flow: FourTuple, local_id: int) -> None:
        """Begin a subflow; `SubflowUp` reports when it is up. A local port of 0: any."""
        self._do(_CREATE, _token(token), _local(flow, local_id), _remote(flow))

    def destroy(self, token: int, flow: FourTuple) -> None:
        """End a subflow; what it had under way goes over the others at once."""
        self._do(_DESTROY, _token(token), _local(flow), _remote(flow))

    def announce(self, token: int, address: str, port: int, local_id: int) -> None:
        """Tell the peer that it may join at `address`:`port`."""
        body = _address(address, port, local_id, flags=_FLAG_SIGNAL)
        self._do(_ANNOUNCE, _token(token), attribute(_ADDR | NESTED, body))

    def withdraw(self, token: int, local_id: int) -> None:
        """Tell the peer that an address is gone: its kernel ends the subflows to it."""
        self._do(_REMOVE, _token(token), attribute(_LOC_ID, bytes([local_id])))

    def addresses(self, token: int) -> list[LocalAddress]:
        """What the kernel holds for a connection (Linux 6.10 and newer, else EINVAL)."""
        body = generic(_GET_ADDR, _VERSION, _token(token))
        answers = self._socket.ask(self._family.number, body, NLM_F_DUMP)
        return [parse_address(each) for each in answers if each.type == self._family.number]

    def set_backup(self, token: int, flow: FourTuple, *, backup: bool) -> None:
        """A backup subflow carries data only when no other does."""
        flags = _FLAG_BACKUP if backup else 0
        local = _address(flow.local, flow.local_port, None, flags=flags)
        nested = attribute(_ADDR | NESTED, local)
        self._do(_SET_FLAGS, _token(token), nested, _remote(flow))

    def _do(self, command: int, *parts: bytes) -> None:
        self._socket.ask(self._family.number, generic(command, _VERSION, b"".join(parts)))


class PathManagerEvents:
    """The event group, as a file to wait on. Raises `MissingError` as `PathManager` does."""

    def __init__(self) -> None:
        self._socket = NetlinkSocket(_NETLINK_GENERIC)
        family = find_family(self._socket, _FAMILY)
        self._number = family.number
        try:
            self._socket.join(family.groups[_EVENTS])
        except PermissionError as error:
            self._socket.close()
            raise MissingError("MPTCP events need CAP_NET_ADMIN; grant it to the agent") from error
        self.lost = 0
        """Times the kernel had to leave events out."""

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """Readable when there are events."""
        return self._socket.fileno()

    def read(self, now_ns: Callable[[], int]) -> list[Event]:
        """Events since the last call, stamped with `now_ns()`.

        If the kernel's buffer overflowed, `lost` counts it. Raises `OSError`: the socket fails.
        """
        try:
            messages = self._socket.received()
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            self.lost += 1
            return []
        at_ns = now_ns()
        found = [parse_event(each, at_ns) for each in messages if each.type == self._number]
        return [event for event in found if event is not None]


def parse_event(message: NetlinkMessage, at_ns: int) -> Event | None:
    """Parse one event; None for a kind that is not used here. Raises `WireError`: an attribute that
    is missing or too short."""
    command, found = opened(message)
    read = _READERS.get(command)
    if read is None:
        return None
    try:
        (token,) = _U32.unpack(found[_EV_TOKEN])
        return read(found, at_ns, token)
    except (KeyError, struct.error, ValueError, IndexError) as error:
        raise WireError(f"MPTCP event {command} lacks something: {error!r}") from error


def parse_address(message: NetlinkMessage) -> LocalAddress:
    """Parse one entry of a listing of addresses. Raises `WireError`: an attribute that is missing
    or too short."""
    _, found = opened(message)
    try:
        entry = attributes(found[_ADDR], 0)
        packed = entry[_A_ADDR4] if _A_ADDR4 in entry else entry[_A_ADDR6]
        (port,) = struct.unpack("=H", entry.get(_A_PORT, bytes(2)))
        return LocalAddress(entry[_A_ID][0], plain_address(str(ipaddress.ip_address(packed))), port)
    except (KeyError, struct.error, ValueError, IndexError) as error:
        raise WireError(f"MPTCP address lacks something: {error!r}") from error


def _connection_up(found: dict[int, bytes], at_ns: int, token: int) -> Event:
    return ConnectionUp(at_ns=at_ns, token=token, flow=_flow(found), accepted=_accepted(found))


def _connection_down(_: dict[int, bytes], at_ns: int, token: int) -> Event:
    return ConnectionDown(at_ns=at_ns, token=token)


def _announced(found: dict[int, bytes], at_ns: int, token: int) -> Event:
    return AddressAnnounced(
        at_ns=at_ns,
        token=token,
        remote_id=found[_EV_REM_ID][0],
        address=_text(found, _EV_DADDR4, _EV_DADDR6),
        port=_port(found.get(_EV_DPORT, b"\0\0")),
    )


def _withdrawn(found: dict[int, bytes], at_ns: int, token: int) -> Event:
    return AddressWithdrawn(at_ns=at_ns, token=token, remote_id=found[_EV_REM_ID][0])


def _subflow_up(found: dict[int, bytes], at_ns: int, token: int) -> Event:
    return SubflowUp(
        at_ns=at_ns,
        token=token,
        flow=_flow(found),
        local_id=found[_EV_LOC_ID][0],
        remote_id=found[_EV_REM_ID][0],
    )


def _subflow_down(found: dict[int, bytes], at_ns: int, token: int) -> Event:
    error = found.get(_EV_ERROR, b"\0")[0]
    return SubflowDown(at_ns=at_ns, token=token, flow=_flow(found), error=error)


_READERS: dict[int, Callable[[dict[int, bytes], int, int], Event]] = {
    2: _connection_up,  # ESTABLISHED; CREATED (1) comes too early to act upon
    3: _connection_down,  # CLOSED
    6: _announced,
    7: _withdrawn,  # REMOVED
    10: _subflow_up,  # SUB_ESTABLISHED
    11: _subflow_down,  # SUB_CLOSED
}
"""By event number (enum mptcp_event_type). Without a token: listeners made and closed (15, 16)."""


def _accepted(found: dict[int, bytes]) -> bool:
    flags = int.from_bytes(found.get(_EV_FLAGS, b"\0\0")[:2], "little")
    return found.get(_EV_SERVER_SIDE, b"\0")[0] != 0 or bool(flags & _EV_FLAG_SERVER_SIDE)


def _flow(found: dict[int, bytes]) -> FourTuple:
    return FourTuple(
        _text(found, _EV_SADDR4, _EV_SADDR6),
        _port(found[_EV_SPORT]),
        _text(found, _EV_DADDR4, _EV_DADDR6),
        _port(found[_EV_DPORT]),
    )


def _text(found: dict[int, bytes], ipv4: int, ipv6: int) -> str:
    packed = found[ipv4] if ipv4 in found else found[ipv6]
    return plain_address(str(ipaddress.ip_address(packed)))


def plain_address(text: str) -> str:
    """An IPv4 address of an IPv6 socket (``::ffff:10.0.0.1``) as it is on the wire; others
    unchanged."""
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _port(data: bytes) -> int:
    (port,) = struct.unpack("!H", data)
    return int(port)


def _token(token: int) -> bytes:
    return attribute(_TOKEN, _U32.pack(token))


def _local(flow: FourTuple, local_id: int | None = None) -> bytes:
    return attribute(_ADDR | NESTED, _address(flow.local, flow.local_port, local_id))


def _remote(flow: FourTuple) -> bytes:
    return attribute(_ADDR_REMOTE | NESTED, _address(flow.remote, flow.remote_port))


def _address(text: str, port: int, address_id: int | None = None, *, flags: int = 0) -> bytes:
    address = ipaddress.ip_address(text)
    ipv4 = address.version == 4
    family = socket.AF_INET if ipv4 else socket.AF_INET6
    parts = [
        attribute(_A_FAMILY, struct.pack("=H", family)),
        attribute(_A_ADDR4 if ipv4 else _A_ADDR6, address.packed),
    ]
    if address_id is not None:
        parts.append(attribute(_A_ID, bytes([address_id])))
    if port:
        parts.append(attribute(_A_PORT, struct.pack("=H", port)))
    if flags:
        parts.append(attribute(_A_FLAGS, _U32.pack(flags)))
    return b"".join(parts)


_SETTINGS = Path("/proc/sys/net/mptcp")
_NEWER, _OLDER = ("path_manager", "userspace"), ("pm_type", "1")


class UserspaceManagement:
    """While it is held, new MPTCP connections are managed from user space.

    Existing connections keep their manager. A setting that already has the value is not written:
    in a container it may be read-only.

    Raises:
        MissingError: no MPTCP in this kernel, or the setting may not be changed.
    """

    def __init__(self, settings: Path = _SETTINGS) -> None:
        name, self._wanted = _NEWER if (settings / _NEWER[0]).exists() else _OLDER
        self._place = settings / name
        try:
            self._before = self._place.read_text(encoding="ascii").strip()
            self._write(self._wanted)
        except FileNotFoundError as error:
            raise MissingError(
                "this kernel has no MPTCP path manager; use Linux 5.19 or newer with CONFIG_MPTCP"
            ) from error
        except OSError as error:
            raise MissingError(
                f"{self._place}: {error.strerror}; the agent needs CAP_NET_ADMIN to manage paths; "
                f"in a container set it to {self._wanted} on the host"
            ) from error

    def release(self) -> None:
        self._write(self._before)

    def _write(self, value: str) -> None:
        if self._before != self._wanted:
            self._place.write_text(value, encoding="ascii")
