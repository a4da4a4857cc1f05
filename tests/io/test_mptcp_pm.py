"""What the path manager tells, as bytes: captured from Linux 6.18, and as nobody should send it."""

from __future__ import annotations

import errno
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.errors import MissingError, WireError
from syntony.io.mptcp_pm import (
    LocalAddress,
    PathManagerEvents,
    parse_address,
    parse_event,
    plain_address,
)
from syntony.io.mptcp_sockets import MptcpSocket, owners
from syntony.io.netlink import NetlinkMessage, attribute, attribute_list
from syntony.io.netlink_socket import NetlinkSocket, generic, opened, refusal
from syntony.io.routes import _address, _route
from syntony.model.paths import FourTuple
from syntony.traffic import events

TOKEN = attribute(1, struct.pack("=I", 0xEB79CA9D))
IPV4 = attribute(2, struct.pack("=H", 2))
LOCAL, REMOTE = bytes([10, 11, 0, 1]), bytes([10, 11, 1, 1])
ENDS = (
    attribute(5, LOCAL)
    + attribute(7, REMOTE)
    + attribute(9, struct.pack("!H", 45_001))
    + attribute(10, struct.pack("!H", 8_621))
)
FLOW = FourTuple("10.11.0.1", 45_001, "10.11.1.1", 8_621)


def message(command: int, body: bytes) -> NetlinkMessage:
    return NetlinkMessage(0x1C, 0, 0, generic(command, 1, body))


def test_every_event_that_decides_something() -> None:
    ids = attribute(3, b"\x02") + attribute(4, b"\x01")
    assert parse_event(message(2, TOKEN + IPV4 + ENDS + attribute(18, b"\x01")), 5) == (
        events.ConnectionUp(at_ns=5, token=0xEB79CA9D, flow=FLOW, accepted=True)
    )
    assert parse_event(message(3, TOKEN), 5) == events.ConnectionDown(at_ns=5, token=0xEB79CA9D)
    announced = attribute(4, b"\x02") + attribute(7, REMOTE) + attribute(10, b"\x21\xad")
    assert parse_event(message(6, TOKEN + IPV4 + announced), 5) == events.AddressAnnounced(
        at_ns=5, token=0xEB79CA9D, remote_id=2, address="10.11.1.1", port=8_621
    )
    assert parse_event(message(7, TOKEN + attribute(4, b"\x02")), 5) == events.AddressWithdrawn(
        at_ns=5, token=0xEB79CA9D, remote_id=2
    )
    assert parse_event(message(10, TOKEN + IPV4 + ENDS + ids), 5) == events.SubflowUp(
        at_ns=5, token=0xEB79CA9D, flow=FLOW, local_id=2, remote_id=1
    )
    assert parse_event(message(11, TOKEN + ENDS + attribute(12, b"\x6f")), 5) == (
        events.SubflowDown(at_ns=5, token=0xEB79CA9D, flow=FLOW, error=errno.ECONNREFUSED)
    )


def test_newer_kernels_say_in_flags_who_accepted() -> None:
    flags = attribute(13, struct.pack("=H", 2))
    up = parse_event(message(2, TOKEN + ENDS + flags), 5)
    assert isinstance(up, events.ConnectionUp)
    assert up.accepted


def test_ipv6_and_addresses_mapped_into_it() -> None:
    six = bytes.fromhex("fd73796e746f10000000000000000001")
    mapped = bytes(10) + b"\xff\xff" + REMOTE
    ports = attribute(9, b"\x01\x00") + attribute(10, b"\x02\x00")
    up = parse_event(message(2, TOKEN + attribute(6, six) + attribute(8, mapped) + ports), 5)
    assert isinstance(up, events.ConnectionUp)
    assert up.flow == FourTuple("fd73:796e:746f:1000::1", 256, "10.11.1.1", 512)
    assert plain_address("::1") == "::1"


def test_listeners_and_what_is_not_known_yet_are_passed_over() -> None:
    assert parse_event(message(15, IPV4), 5) is None
    assert parse_event(message(99, b""), 5) is None


def test_a_missing_token_is_one_error() -> None:
    with pytest.raises(WireError, match="event 11"):
        parse_event(message(11, ENDS), 5)


def test_the_kernels_own_words_reach_the_reader() -> None:
    text = attribute(1, b"did not match address and id\0")
    body = struct.pack("=i", -errno.EINVAL) + bytes(16) + text
    error = refusal(NetlinkMessage(2, 0x300, 0, body))
    assert error is not None
    assert error.errno == errno.EINVAL
    assert error.strerror == "did not match address and id"
    assert refusal(NetlinkMessage(2, 0, 0, struct.pack("=i", 0))) is None


@given(st.binary(max_size=200), st.integers(0, 20))
def test_foreign_bytes_are_an_event_or_one_kind_of_error(body: bytes, command: int) -> None:
    with suppress(WireError):
        parse_event(message(command, body), 5)
    with suppress(WireError):
        parse_event(message(command, TOKEN + body), 5)
    with suppress(WireError):
        opened(NetlinkMessage(0, 0, 0, body))
    with suppress(WireError):
        refusal(NetlinkMessage(2, 0x300, 0, body))
    with suppress(WireError):
        list(attribute_list(body))


@given(st.binary(max_size=120))
def test_foreign_routes_are_kept_or_one_kind_of_error(body: bytes) -> None:
    for kind, read in ((24, _route), (20, _address)):
        with suppress(WireError):
            list(read(NetlinkMessage(kind, 0, 0, body), {1, 2}))


def test_an_address_that_the_kernel_holds() -> None:
    entry = (
        attribute(1, struct.pack("=H", 2)) + attribute(2, b"\x01") + attribute(3, REMOTE)
        + attribute(5, struct.pack("=H", 8_621)) + attribute(6, struct.pack("=I", 16))
    )  # fmt: skip
    assert parse_address(message(1, attribute(1, entry))) == LocalAddress(1, "10.11.1.1", 8_621)
    with pytest.raises(WireError):
        parse_address(message(1, attribute(1, attribute(2, b"\x01"))))


def test_a_connection_that_waits_to_be_accepted_is_its_listeners() -> None:
    mapped = bytes(10) + b"\xff\xff"
    here, there, nowhere = mapped + LOCAL, mapped + REMOTE, bytes(16)
    listeners = [
        MptcpSocket(0, 100, here, 5_000),
        MptcpSocket(0, 101, nowhere, 5_000),
        MptcpSocket(0, 102, there, 6_000),
    ]
    conns = [
        MptcpSocket(1, 0, here, 5_000),
        MptcpSocket(2, 0, there, 5_000),
        MptcpSocket(3, 55, here, 5_000),
        MptcpSocket(4, 0, here, 7_000),
    ]
    assert owners([*conns, *listeners]) == {
        1: frozenset([100]),
        2: frozenset([101]),
        3: frozenset([55]),
        4: frozenset(),
    }


def test_without_the_capability_it_says_what_to_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that only probes starts without any capability."""

    def refuse(*_args: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(NetlinkSocket, "join", refuse)
    try:
        PathManagerEvents()
    except MissingError as error:
        if "CAP_NET_ADMIN" not in str(error):
            pytest.skip(
                f"{error}: refused events of MPTCP are NOT tested"
            )  # no MPTCP in this kernel
    else:
        pytest.fail("nothing was said")
