"""What setsockopt and getsockopt say under the interposer, against plain TCP, on this kernel.

The first table is all that a program can notice, the second what it would notice without the
interposer's answers. A kernel that refuses more fails the first test, and names what.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from tests.tcp.conftest import Compile, Hosts

pytestmark = pytest.mark.lab

REFUSED_AND_SAID_SO = frozenset(
    {
        # Promises that MPTCP cannot keep: programs fall back, or must know.
        "SO_ZEROCOPY", "SO_MAX_PACING_RATE", "TCP_ULP", "TCP_SAVE_SYN", "TCP_SAVED_SYN",
        "TCP_TX_DELAY", "TCP_TIMESTAMP", "TCP_RTO_MAX_MS",
        "IP_TTL", "IP_RECVERR", "IP_RECVTOS", "IP_MINTTL", "IP_UNICAST_IF", "IP_PKTINFO", "IP_MTU",
        "IPV6_UNICAST_HOPS", "IPV6_RECVERR", "IPV6_RECVPKTINFO", "IPV6_RECVTCLASS",
        "IPV6_FLOWINFO_SEND",
    }
)  # fmt: skip
REFUSED_ONCE_CONNECTED = frozenset(
    {"SO_BINDTODEVICE", "IP_TRANSPARENT", "IP_LOCAL_PORT_RANGE", "IPV6_TRANSPARENT"}
)
SET_WITHOUT_EFFECT = frozenset(
    {
        "SO_REUSEADDR", "SO_REUSEPORT", "SO_OOBINLINE", "TCP_QUICKACK", "TCP_USER_TIMEOUT",
        "TCP_SYNCNT", "TCP_LINGER2", "TCP_WINDOW_CLAMP", "TCP_THIN_LINEAR_TIMEOUTS",
        "TCP_THIN_DUPACK", "IP_MTU_DISCOVER", "IP_FREEBIND", "IP_BIND_ADDRESS_NO_PORT",
        "IPV6_TCLASS", "IPV6_MTU_DISCOVER", "IPV6_AUTOFLOWLABEL", "IPV6_FREEBIND",
    }
)  # fmt: skip
READ_BACK_OTHERWISE = frozenset({"TCP_DEFER_ACCEPT", "IPV6_V6ONLY"})
"""Set as it should be before connecting; read back differently afterwards."""


class Answer(NamedTuple):
    set: str
    get: str
    value: str


Case = tuple[str, str, str]
"""Option, kind of socket, family."""


def answers(text: str) -> dict[Case, Answer]:
    found: dict[Case, Answer] = {}
    for line in text.splitlines():
        option, kind, family, *rest = line.split("\t")
        found[option, kind, family] = Answer(*rest)
    return found


@pytest.fixture(scope="module")
def tcp(hosts: Hosts, compiled: Compile) -> dict[Case, Answer]:
    return answers(hosts.lab.run("h0", compiled("tcp_options"), "tcp"))


@pytest.fixture(scope="module")
def interposed(hosts: Hosts, compiled: Compile) -> dict[Case, Answer]:
    done = hosts.run("h0", compiled("tcp_options"), "default", SYNTONY_TCP="all")
    assert (done.code, done.err) == (0, "")
    assert done.requested > 100
    return answers(done.out)


def differing(one: dict[Case, Answer], other: dict[Case, Answer]) -> dict[Case, Answer]:
    assert one.keys() == other.keys()
    return {case: other[case] for case in one if one[case] != other[case]}


def test_no_other_option_answers_otherwise(
    tcp: dict[Case, Answer], interposed: dict[Case, Answer]
) -> None:
    known = REFUSED_AND_SAID_SO | REFUSED_ONCE_CONNECTED | SET_WITHOUT_EFFECT | READ_BACK_OTHERWISE
    unknown = {
        case: (tcp[case], answer)
        for case, answer in differing(tcp, interposed).items()
        if case[0] not in known
    }
    assert unknown == {}


def test_what_programs_set_as_a_matter_of_course_succeeds(
    tcp: dict[Case, Answer], interposed: dict[Case, Answer]
) -> None:
    refused = [
        case
        for case, answer in interposed.items()
        if answer.set != tcp[case].set
        and case[0] not in REFUSED_AND_SAID_SO
        and not (case[0] in REFUSED_ONCE_CONNECTED and case[1] in {"connected", "accepted"})
    ]
    assert refused == []


def test_the_answers_are_needed(
    hosts: Hosts, compiled: Compile, tcp: dict[Case, Answer], interposed: dict[Case, Answer]
) -> None:
    """Each option in the table is one that the kernel itself refuses on an MPTCP socket."""
    bare = answers(hosts.lab.run("h0", compiled("tcp_options"), "mptcp"))
    helped = {case[0] for case in bare if bare[case].set != "ok" and interposed[case].set == "ok"}
    assert helped == SET_WITHOUT_EFFECT


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("SO_PROTOCOL", "6"),
        ("TCP_INFO", "long state 1"),
        ("TCP_NODELAY", "1"),
        ("TCP_KEEPIDLE", "30"),
        ("TCP_CONGESTION", "reno"),
        ("TCP_USER_TIMEOUT", "0"),
        ("TCP_QUICKACK", "1"),
    ],
)
@pytest.mark.parametrize("kind", ["connected", "accepted"])
def test_what_a_program_reads(
    interposed: dict[Case, Answer], option: str, value: str, kind: str
) -> None:
    for family in ("IPv4", "IPv6"):
        answer = interposed[option, kind, family]
        assert (answer.get, answer.value.rstrip("\0")) == ("ok", value)
