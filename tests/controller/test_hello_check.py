"""What an agent claims at first: malformed claims cost their NIC, impossible ones the stream."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.link import hello
from tests.wire.test_versions import RECORDED

from syntony import __version__
from syntony.controller.access import LOCAL, Caller
from syntony.controller.config import ControllerConfig
from syntony.controller.fleet import SETTLE_NS, Fleet
from syntony.controller.hello_check import (
    MAX_AGE_NS,
    MAX_PARTS,
    MAX_TEXT,
    RefusedError,
    check_hello,
    plausible_parts,
    prefixes,
)
from syntony.errors import ConfigError
from syntony.model.names import NicRef
from syntony.wire.messages import OLDEST, PROTOCOL, Hello, NicInfo, decode_agent
from syntony.wire.parts import PartsReport, PartState, PartStatus
from syntony.wire.roles import Identity, Role

H0 = Caller(Identity(Role.AGENT, "h0"), "ipv4:10.9.9.9:1")
CONFIG = ControllerConfig(listen="x", tls_ca="", tls_cert="", tls_key="")


def with_nic(**changes: object) -> Hello:
    """h0 with one good NIC and one that is changed."""
    usual = hello("h0", "s")
    bad = msgspec.structs.replace(usual.nics[1], **changes)
    return msgspec.structs.replace(usual, nics=(usual.nics[0], bad))


@pytest.mark.parametrize(
    ("spoken", "line"),
    [
        ((0, OLDEST - 1), ("(protocol 2) is too old for this controller, {} (protocol 3): upgrade "
         "the agent; its rows wait in the spool")),
        ((PROTOCOL + 1, PROTOCOL + 2), ("(protocol 4 to 5) is too new for this controller, {} "
         "(protocol 3): upgrade the controller; its rows wait in the spool")),
        ((PROTOCOL, PROTOCOL + 1), ""),
        ((0, PROTOCOL), ""),
    ],
)  # fmt: skip
def test_the_older_of_two_that_have_no_protocol_in_common_is_named(
    spoken: tuple[int, int], line: str
) -> None:
    """A hello as the version before sent it, with other numbers."""
    (recorded,) = (decode_agent(data) for name, data in RECORDED if name == "Hello")
    assert isinstance(recorded, Hello)
    message = msgspec.structs.replace(recorded, oldest=spoken[0], protocol=spoken[1])
    who = Caller(Identity(Role.AGENT, recorded.host), "ipv4:10.9.9.9:1")
    if not line:
        assert check_hello(message, who)[0].protocol == PROTOCOL
        return
    with pytest.raises(RefusedError) as refusal:
        check_hello(message, who)
    assert str(refusal.value) == f"agent {recorded.version} {line.format(__version__)}"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"addresses": ("not-an-ip",)}, "'not-an-ip' is not an IP address"),
        ({"addresses": ("10.0.0.1", "")}, "'' is not an IP address"),
        ({"addresses": ("224.0.0.1",)}, "not a unicast address"),
        ({"addresses": ("127.0.0.1",)}, "not a unicast address"),
        ({"addresses": ("0.0.0.0",)}, "not a unicast address"),  # noqa: S104 - the point
        ({"addresses": ("::",)}, "not a unicast address"),
        ({"addresses": ("ff02::1",)}, "not a unicast address"),
        ({"addresses": ("255.255.255.255",)}, "broadcast"),
        ({"addresses": ("240.0.0.1",)}, "reserved"),
        ({"addresses": ("10.0.0.1", "::ffff:10.0.0.2")}, "IPv4 written as IPv6"),
        ({"addresses": ("::ffff:127.0.0.1",)}, "IPv4 written as IPv6"),
        ({"addresses": ("fe80::1%eth0",)}, "has a scope"),
        ({"addresses": ("10.0.0.1",) * 100}, "more than"),
        ({"port": 0}, "not a UDP port"),
        ({"port": 65_536}, "not a UDP port"),
        ({"port": -1}, "not a UDP port"),
        ({"rail": -1}, "rail -1"),
        ({"rail": 1 << 40}, "rail"),
        ({"clock": "h1"}, "claims the clock of 'h1'"),
        ({"clock": "h0x/rail0"}, "claims the clock"),
        ({"clock": "h0/"}, "claims the clock"),
        ({"clock": "h0/" + 1_000_000 * "x"}, "claims the clock"),
        ({"clock": "h0/rail0\nERROR another line"}, "claims the clock"),
        ({"clock": "h0/rail0/rail1"}, "claims the clock"),
        ({"verbs_clock": "h1/rail0:verbs"}, "claims the clock of 'h1/rail0:verbs'"),
        ({"verbs_clock": "h0/rail0:verbs\x1b[2J"}, "claims the clock"),
        ({"stamping": "x" * 10_000}, "characters"),
    ],
)
def test_a_nic_that_makes_no_sense_costs_itself(changes: dict[str, object], reason: str) -> None:
    """One such NIC once went into the plan and made every agent of the fleet exit on it."""
    taken, faults = check_hello(with_nic(**changes), H0)
    assert [nic.name for nic in taken.nics] == ["rail0"]
    (fault,) = faults
    assert fault.startswith("nic=rail1 reason=")
    assert reason in fault


def test_addresses_are_of_the_fleets_networks() -> None:
    within = prefixes(["10.0.0.0/16", "fd00::/8"])
    taken, faults = check_hello(with_nic(addresses=("fd00::1", "10.1.0.1")), H0, within)
    assert [nic.name for nic in taken.nics] == ["rail0"]
    assert faults == ("nic=rail1 reason=10.1.0.1 is in none of nic_prefixes",)
    assert check_hello(with_nic(addresses=("fd00::1",)), H0, within)[1] == ()
    with pytest.raises(ConfigError, match=r"nic_prefixes: .* has host bits set"):
        prefixes(["10.0.0.1/8"])


def test_a_good_hello_is_taken_whole() -> None:
    usual = hello("h0", "s")
    for each in (
        usual,
        msgspec.structs.replace(usual, reads_device_stamps=True, reads_stored=True),
    ):
        assert check_hello(each, H0) == (each, ())


@pytest.mark.parametrize(
    ("who", "reason"),
    [
        (Caller(Identity(Role.AGENT, "h1"), "ipv4:1"), "with the certificate of 'h1'"),
        (Caller(Identity(Role.OPERATOR, "h0"), "ipv4:1"), "only agents attach"),
        (Caller(Identity(Role.OPERATOR, ""), LOCAL), "attach over TLS"),
    ],
)
def test_only_the_hosts_own_agent_attaches(who: Caller, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        check_hello(hello("h0", "s"), who)


@given(
    nics=st.lists(
        st.builds(
            NicInfo,
            name=st.sampled_from(["a", "b", "c", "d"]),
            rail=st.integers(-(1 << 63), 1 << 63),
            addresses=st.lists(st.text(max_size=20) | st.ip_addresses().map(str)).map(tuple),
            clock=st.just("h0"),
            stamping=st.text(max_size=300),
            port=st.integers(-(1 << 63), 1 << 63),
        ),
        max_size=4,
        unique_by=lambda nic: nic.name,
    ).map(tuple)
)
def test_whatever_is_taken_makes_a_plan(nics: tuple[NicInfo, ...]) -> None:
    taken, faults = check_hello(msgspec.structs.replace(hello("h0", "s"), nics=nics), H0)
    assert len(taken.nics) + len(faults) == len(nics)
    fleet = Fleet(CONFIG)
    fleet.join(taken, 0, faults)
    fleet.join(hello("h1", "s"), 0)
    assert set(fleet.replan(SETTLE_NS).plans) >= {"h1"}


def test_what_is_shown_to_people_is_harmless_to_a_terminal() -> None:
    """Versions, kinds of stamping and reasons are printed in tables and logs."""
    hostile = with_nic(stamping="kernel\x1b]0;title\x07", rdma="x" * 1_000_000)
    hostile = msgspec.structs.replace(hostile, version="1\nERROR a line\x1b[2J")
    taken, faults = check_hello(hostile, H0)
    assert faults == ()
    assert (taken.version, taken.nics[1].stamping) == ("1 ERROR a line", "kernel")
    assert taken.nics[1].rdma == ""
    part = PartStatus(name="mesh\x1b[2J", state=PartState.FAILED, reason="a\nb", age_ns=1 << 62)
    (shown,) = plausible_parts(PartsReport(parts=(part,)))
    assert (shown.name, shown.reason, shown.age_ns) == ("mesh", "a b", MAX_AGE_NS)


def test_parts_are_as_many_and_as_long_as_they_can_be() -> None:
    part = PartStatus(name="n" * 999, state=PartState.RUNNING, reason="r" * 999, age_ns=-5)
    shown = plausible_parts(PartsReport(parts=(part,) * (MAX_PARTS + 1)))
    assert len(shown) == MAX_PARTS
    assert (len(shown[0].name), len(shown[0].reason)) == (MAX_TEXT, 2 * MAX_TEXT)
    assert shown[0].age_ns == 0


def claim(host: str, *addresses: str) -> Hello:
    """As it is taken, spelt as the fleet spells it."""
    usual = hello(host, "s", rails=1)
    nic = msgspec.structs.replace(usual.nics[0], addresses=addresses)
    usual = msgspec.structs.replace(usual, nics=(nic,))
    taken, faults = check_hello(usual, Caller(Identity(Role.AGENT, host), "ipv4:10.9.9.9:1"))
    assert faults == ()
    return taken


def test_a_second_claim_takes_no_address_away() -> None:
    fleet = Fleet(CONFIG)
    fleet.join(claim("h5", "10.0.0.1"), 0)
    fleet.join(claim("h6", "10.0.0.2"), 0)
    fleet.replan(SETTLE_NS)
    fleet.join(claim("a0", "10.0.0.1"), SETTLE_NS)  # first in the alphabet, last to come
    mesh = fleet.replan(3 * SETTLE_NS)
    assert {str(ref) for ref in mesh.nics} == {"h5/rail0", "h6/rail0"}
    assert {str(ref): address for ref, address in fleet.contested.items()} == {
        "a0/rail0": "10.0.0.1"
    }


def test_where_nobody_had_the_address_nobody_gets_it() -> None:
    fleet = Fleet(CONFIG)
    for host, address in (("h0", "10.0.0.1"), ("h1", "10.0.0.1"), ("h2", "10.0.0.3")):
        fleet.join(claim(host, address), 0)
    mesh = fleet.replan(SETTLE_NS)
    assert {str(ref) for ref in mesh.nics} == {"h2/rail0"}
    assert {ref.host for ref in fleet.contested} == {"h0", "h1"}


def test_a_restart_of_the_controller_takes_no_address_away() -> None:
    """Whoever claimed every address of the fleet after one once took all NICs out of its plan."""
    fleet = Fleet(CONFIG)
    for host, address in (("h5", "10.0.0.5"), ("h6", "10.0.0.6"), ("h7", "10.0.0.7")):
        fleet.join(claim(host, address, f"10.1{address[4:]}"), 0)
    fleet.replan(SETTLE_NS)
    after = Fleet(CONFIG)
    after.owners = fleet.owners
    after.join(claim("a0", "10.0.0.9", "10.0.0.5", "10.1.0.6", "10.0.0.7"), 0)
    after.join(claim("h5", "10.0.0.5", "10.1.0.5"), 0)
    after.join(claim("h6", "10.0.0.6", "10.1.0.6"), 0)
    after.replan(SETTLE_NS)  # h7 is not back yet: for now there is no second claim
    assert after.withheld == {NicRef("a0", "rail0"): ("10.0.0.5", "10.1.0.6")}
    assert after.contested == {}
    assert after.owners["10.0.0.7"] == "a0"
    assert after.owners["10.1.0.7"] == "h7", "of one who is not back yet"
    # A host that has moved, or one whose every certificate is revoked, keeps nothing.
    after.join(claim("h6", "10.0.0.60"), SETTLE_NS)
    after.replan(2 * SETTLE_NS)
    assert "10.0.0.6" not in after.owners
    after.join(claim("h8", "10.0.0.6"), SETTLE_NS)
    mesh = after.replan(3 * SETTLE_NS)
    assert mesh.nics[NicRef("h8", "rail0")].address == "10.0.0.6"
    assert after.owners["10.0.0.6"] == "h8"
    after.leave("h8", 4 * SETTLE_NS)
    after.remove(["h8"], 4 * SETTLE_NS)
    assert "h8" not in after.owners.values()


@pytest.mark.parametrize("claimed", ["fd00::5", "FD00:0::5", "fd00:0:0:0:0:0:0:5"])
def test_another_spelling_of_an_address_is_the_same_claim(claimed: str) -> None:
    fleet = Fleet(CONFIG)
    fleet.join(claim("h5", "fd00::5"), 0)
    fleet.join(claim("h6", "fd00::6"), 0)
    fleet.replan(SETTLE_NS)
    fleet.join(claim("a0", claimed), SETTLE_NS)
    fleet.replan(3 * SETTLE_NS)
    assert {str(ref): address for ref, address in fleet.contested.items()} == {
        "a0/rail0": "fd00::5"
    }


def test_addresses_beside_the_probed_one_are_not_taken_from_others_either() -> None:
    """A host that named its neighbour's address as a second one of its own was asked about in that
    one's place: its silence tore connections that go to the neighbour."""
    fleet = Fleet(CONFIG)
    fleet.join(claim("h5", "10.0.0.5", "10.1.0.5"), 0)
    fleet.join(claim("h6", "10.0.0.6"), 0)
    fleet.replan(SETTLE_NS)
    fleet.join(claim("a0", "10.0.0.7", "10.0.0.5", "10.1.0.5", "10.1.0.7"), SETTLE_NS)
    fleet.join(claim("a1", "10.1.0.5"), SETTLE_NS)  # h5's second one, as its first
    mesh = fleet.replan(3 * SETTLE_NS)
    others = {str(ref): nic.others for ref, nic in mesh.nics.items()}
    assert others == {"h5/rail0": ("10.1.0.5",), "h6/rail0": (), "a0/rail0": ("10.1.0.7",)}
    assert {str(ref): those for ref, those in fleet.withheld.items()} == {
        "a0/rail0": ("10.0.0.5", "10.1.0.5")
    }
    assert {str(ref): address for ref, address in fleet.contested.items()} == {
        "a1/rail0": "10.1.0.5"
    }
    again = fleet.replan(6 * SETTLE_NS)
    assert {str(ref): nic.others for ref, nic in again.nics.items()} == others


def test_one_host_may_have_an_address_on_two_nics() -> None:
    fleet = Fleet(CONFIG)
    nics = tuple(
        msgspec.structs.replace(nic, addresses=(nic.addresses[0], "10.9.0.1"))
        for nic in hello("h0", "s").nics
    )
    fleet.join(msgspec.structs.replace(hello("h0", "s"), nics=nics), 0)
    fleet.join(claim("h1", "10.0.0.3"), 0)
    mesh = fleet.replan(SETTLE_NS)
    assert [nic.others for nic in mesh.nics.values()] == [("10.9.0.1",), ("10.9.0.1",), ()]
    assert not fleet.withheld


def test_nics_of_one_name_cost_the_stream() -> None:
    """Which of them is meant nobody could say."""
    usual = hello("h0", "s")
    twice = msgspec.structs.replace(usual, nics=(usual.nics[0], usual.nics[0]))
    with pytest.raises(RefusedError, match="2 NICs, 1 different"):
        check_hello(twice, H0)
