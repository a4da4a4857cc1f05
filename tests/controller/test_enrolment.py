"""Join tokens, signing requests, renewal and revocation: what is accepted and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from tests.controller.enrolled import ANN, Fleet, csr, forged, issued_elsewhere, shows

from syntony.controller.access import LOCAL, Caller
from syntony.controller.config import MAX_LIFETIME_NS, MIN_LIFETIME_NS, EnrolmentConfig
from syntony.controller.enrolment import (
    MAX_TOKEN_NS,
    Enrolment,
)
from syntony.controller.pki import create_authority
from syntony.errors import ConfigError, StateError, UsageError
from syntony.model import HOUR_NS, S
from syntony.state import ControlState, identities
from syntony.state.identities import MAX_LIVE, IdentityStore
from syntony.state.sqlite import FILE
from syntony.wire.enrol import (
    MAX_REQUEST_BYTES,
    Issued,
    JoinRequest,
    RenewQuery,
    RevokeCommand,
    TokenCommand,
)
from syntony.wire.roles import Identity, Role


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    real = request.param == "postgresql"
    where = request.getfixturevalue("postgresql").database() if real else tmp_path
    fleet = Fleet(tmp_path, where)
    yield fleet
    fleet.state.close()


def test_a_token_buys_what_it_says_and_nothing_of_what_the_request_says(fleet: Fleet) -> None:
    token = fleet.token("agent", "h1", "h2", addresses=("10.0.0.2", "h2.rack"), lifetime_ns=60 * S)
    issued = fleet.enrolment.join(JoinRequest(token=token, csr=csr("h2")), "ipv4:1", 2)
    reported = shows(issued).certificate
    assert reported is not None
    assert reported.identity == Identity(Role.AGENT, "h2")
    assert set(reported.addresses) == {"10.0.0.2", "h2.rack"}
    assert reported.validity.lifetime_ns // S == 60
    certificate = x509.load_pem_x509_certificate(issued.certificate)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(issued.ca))
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize("role", Role)
def test_usages_are_apart(fleet: Fleet, role: Role) -> None:
    token = fleet.token(role, "x1", addresses=("10.0.0.9",))
    issued = fleet.enrolment.join(JoinRequest(token=token, csr=csr("x1")), "ipv4:1", 2)
    certificate = x509.load_pem_x509_certificate(issued.certificate)
    usages = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    expected = {Role.CONTROLLER: {ExtendedKeyUsageOID.SERVER_AUTH}}
    both = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    # An agent has an address, where it serves /metrics; a gateway dials its leader.
    expected |= dict.fromkeys((Role.AGENT, Role.GATEWAY), both)
    assert usages == expected.get(role, {ExtendedKeyUsageOID.CLIENT_AUTH})


def test_the_secret_is_nowhere_on_the_disk(fleet: Fleet) -> None:
    secret = fleet.token().removeprefix("syntony-")
    for file in fleet.directory.glob(f"{FILE}*"):
        assert secret.encode() not in file.read_bytes()
        assert bytes.fromhex(secret) not in file.read_bytes()
    for query in ("SELECT * FROM join_token", "SELECT * FROM change"):
        rows = fleet.state.read(query)
        assert rows
        assert secret not in str(rows)


def test_a_token_expires(fleet: Fleet) -> None:
    request = JoinRequest(token=fleet.token(), csr=csr("h1"))
    fleet.now_ns += HOUR_NS
    with pytest.raises(UsageError, match="token has expired"):
        fleet.enrolment.join(request, "ipv4:1", 2)


@pytest.mark.parametrize("token", ["", "syntony-", "syntony-" + "0" * 64, "\n"])
def test_a_token_that_was_never_made(fleet: Fleet, token: str) -> None:
    fleet.token()
    with pytest.raises(UsageError, match="not known here"):
        fleet.enrolment.join(JoinRequest(token=token, csr=csr("h1")), "ipv4:1", 2)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda: csr("h9"), "token is for h1, not for 'h9'"),
        (lambda: csr("../h1"), "needs one common name"),
        (lambda: csr("h1", names=2), "needs one common name"),
        (lambda: b"", "not a certificate signing request"),
        (lambda: b"\xff" * 100, "not a certificate signing request"),
        (lambda: b"x" * (MAX_REQUEST_BYTES + 1), "over the limit"),
        (lambda: forged("h1"), "not signed with its own key"),
        (lambda: csr("h1", ec.generate_private_key(ec.SECP192R1())), "P-256"),
        (lambda: csr("h1", ed25519.Ed25519PrivateKey.generate()), "P-256"),
        (lambda: csr("h1", rsa.generate_private_key(65537, 2048)), "P-256"),
    ],
)
def test_a_bad_request_is_refused_and_the_token_stays_good(
    fleet: Fleet, bad: Callable[[], bytes], reason: str
) -> None:
    token = fleet.token()
    with pytest.raises(UsageError, match=reason):
        fleet.enrolment.join(JoinRequest(token=token, csr=bad()), "ipv4:1", 2)
    fleet.join("h1", token)


def test_a_token_is_good_once_also_for_those_who_come_at_once(fleet: Fleet) -> None:
    token = fleet.token("agent", "h*")
    outcomes: list[str] = []
    start = threading.Barrier(12)

    def come(number: int) -> None:
        request = JoinRequest(token=token, csr=csr(f"h{number}"))
        start.wait()
        try:
            fleet.enrolment.join(request, "ipv4:1", 2)
        except UsageError as error:
            outcomes.append(str(error))
        else:
            outcomes.append("in")

    threads = [threading.Thread(target=come, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("in") == 1
    assert sum("has been used" in each for each in outcomes) == 11
    assert len(fleet.identities.certificates()) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"role": "root"}, "is no role"),
        ({"names": ()}, "1 to 64 names"),
        ({"names": ("h1",) * 65}, "1 to 64 names"),
        ({"names": ("a b",)}, "cannot be a name"),
        ({"addresses": ("x/y",)}, "neither an IP address"),
        ({"addresses": ("10.0.0.1:8443",)}, "neither an IP address"),
        ({"valid_ns": 0}, "1 second to 7 days"),
        ({"valid_ns": MAX_TOKEN_NS + 1}, "1 second to 7 days"),
        ({"lifetime_ns": S}, "10 seconds to 366 days"),
        ({"lifetime_ns": MAX_LIFETIME_NS + 1}, "10 seconds to 366 days"),
    ],
)
def test_a_token_that_makes_no_sense(fleet: Fleet, changes: dict[str, object], reason: str) -> None:
    settings: dict[str, object] = {
        "role": "agent", "names": ("h1",), "valid_ns": HOUR_NS, "by": "ann"
    }  # fmt: skip
    with pytest.raises(UsageError, match=reason):
        fleet.enrolment.make_token(TokenCommand(**settings | changes), ANN, 1)  # type: ignore[arg-type]


def test_everything_is_in_the_audit_log(fleet: Fleet) -> None:
    who = fleet.join()
    assert who.certificate is not None
    fleet.revoke("h1")
    reported = [(c.who, c.what, c.before, c.after) for c in fleet.state.changes(0, 10)]
    assert reported == [
        ("ann", "join token", "", "agent h1"),
        ("join token of ann", "certificate", "", f"agent h1 serial {who.certificate.serial}"),
        ("ann", "certificates of name h1", "valid", "revoked"),
    ]


def test_a_revoked_name_is_refused_until_it_joins_again(fleet: Fleet) -> None:
    first, other = fleet.join("h1"), fleet.join("h2")
    elsewhere = shows(Issued(certificate=issued_elsewhere(fleet, "h1"), ca=b""))
    assert all(map(fleet.accepted, (first, other, elsewhere)))
    fleet.revoke("h1")
    unseen = shows(Issued(certificate=issued_elsewhere(fleet, "h1"), ca=b""))
    assert not any(map(fleet.accepted, (first, elsewhere, unseen)))
    assert fleet.accepted(other)
    again = fleet.join("h1")
    assert fleet.accepted(again)
    assert not any(map(fleet.accepted, (first, elsewhere, unseen)))
    # All of it holds over a restart.
    fleet.state.close()
    fleet.state = ControlState(fleet.where)
    fleet.identities = IdentityStore(fleet.state)
    fleet.enrolment = fleet.another()
    assert [fleet.accepted(x) for x in (first, elsewhere, unseen, again, other)] == [
        False, False, False, True, True,
    ]  # fmt: skip


def test_a_host_is_out_of_the_fleet_from_its_revocation_until_it_joins_again(fleet: Fleet) -> None:
    first = fleet.join("h1")
    fleet.join("h2")
    other = fleet.another()
    assert fleet.enrolment.removed == frozenset()
    fleet.revoke("h1")
    other.refresh()
    assert fleet.enrolment.removed == other.removed == fleet.another().removed == {"h1"}
    assert not fleet.accepted(first)
    assert "revoked" in fleet.enrolment.refused["h1"]
    again = fleet.join("h1")
    assert fleet.enrolment.removed == frozenset()
    assert fleet.accepted(again)
    assert fleet.enrolment.refused == {}
    fleet.revoke("h1")
    assert fleet.enrolment.removed == {"h1"}


def test_a_host_of_which_one_certificate_is_revoked_is_still_in_the_fleet(fleet: Fleet) -> None:
    who = fleet.join("h1")
    assert who.certificate is not None
    fleet.revoke(who.certificate.serial)
    assert fleet.enrolment.removed == frozenset()
    assert not fleet.accepted(who)
    assert who.certificate.serial in fleet.enrolment.refused["h1"]


@pytest.mark.parametrize("seen", [True, False])
def test_one_certificate_is_revoked_by_its_number(fleet: Fleet, *, seen: bool) -> None:
    ours = fleet.join("h1")
    theirs = shows(Issued(certificate=issued_elsewhere(fleet, "h1"), ca=b""))
    if seen:
        fleet.enrolment.admit(theirs)
        fleet.enrolment.refresh()
    assert theirs.certificate is not None
    serial = theirs.certificate.serial
    assert fleet.revoke(serial.upper(), unseen=not seen) == (serial,)
    assert not fleet.accepted(theirs)
    assert fleet.accepted(ours)
    fleet.enrolment.refresh()
    assert not fleet.accepted(theirs)


def test_a_mistyped_name_or_number_revokes_nothing(fleet: Fleet) -> None:
    ours = fleet.join("gpu001")
    assert ours.certificate is not None
    for what, nearest in (("gpu01", "gpu001"), (ours.certificate.serial[:-1] + "x", "")):
        with pytest.raises(UsageError, match=f"no certificate of '{what}' is known.*{nearest}"):
            fleet.revoke(what)
    with pytest.raises(UsageError, match="--unseen"):
        fleet.revoke("0" * 40)
    assert fleet.accepted(ours)
    assert not fleet.identities.revocations(fleet.now_ns).names
    assert fleet.revoke("h7", unseen=True) == (), "of one that was issued elsewhere"
    stranger = shows(Issued(certificate=issued_elsewhere(fleet, "h7"), ca=b""))
    assert not fleet.accepted(stranger)


def test_revocations_of_another_controller_are_learnt(fleet: Fleet) -> None:
    who, other = fleet.join(), fleet.another()
    assert fleet.accepted(who, other)
    fleet.revoke("h1")
    other.refresh()
    assert not fleet.accepted(who, other)


def test_renewal_keeps_who_one_is(fleet: Fleet) -> None:
    token = fleet.token("agent", "h1", addresses=("10.0.0.1",), lifetime_ns=600 * S)
    who = fleet.join("h1", token)
    renewed = shows(fleet.enrolment.renew(RenewQuery(csr=csr("h1")), who))
    assert who.certificate is not None
    assert renewed.certificate is not None
    assert renewed.certificate._replace(serial="", validity=who.certificate.validity) == (
        who.certificate._replace(serial="")
    )
    assert renewed.certificate.validity.lifetime_ns // S == 600
    assert renewed.certificate.serial != who.certificate.serial


@pytest.mark.parametrize(
    "addresses", [(), ("h1",), ("h1", "10.0.0.1"), ("h1.rack", "h1"), ("fd00::1",)]
)
def test_renewal_keeps_every_name_and_usage(fleet: Fleet, addresses: tuple[str, ...]) -> None:
    """Also of an agent whose address is its own name, as configuration management gives it:
    Prometheus verifies it by both."""

    def has(issued: Issued) -> list[object]:
        extensions = x509.load_pem_x509_certificate(issued.certificate).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return [set(names), extensions.get_extension_for_class(x509.ExtendedKeyUsage).value]

    token = fleet.token("agent", "h1", addresses=addresses)
    first = issued = fleet.enrolment.join(JoinRequest(token=token, csr=csr("h1")), "ipv4:1", 2)
    for _ in range(3):
        issued = fleet.enrolment.renew(RenewQuery(csr=csr("h1")), shows(issued))
        assert has(issued) == has(first)


def test_renewal_is_for_oneself_with_a_good_certificate(fleet: Fleet) -> None:
    who = fleet.join("h1")
    with pytest.raises(UsageError, match="'h1' cannot ask for a certificate of 'h2'"):
        fleet.enrolment.renew(RenewQuery(csr=csr("h2")), who)
    local = Caller(Identity(Role.OPERATOR, ""), LOCAL)
    with pytest.raises(UsageError, match="not on the local socket"):
        fleet.enrolment.renew(RenewQuery(csr=csr("h1")), local)
    with pytest.raises(UsageError, match="not signed with its own key"):
        fleet.enrolment.renew(RenewQuery(csr=forged("h1")), who)


@pytest.mark.parametrize("known", [True, False])
def test_a_renewal_that_races_a_revocation_loses(fleet: Fleet, *, known: bool) -> None:
    """The check at the door was before the revocation, the signature after it."""
    who = fleet.join("h1")
    if not known:
        who = shows(Issued(certificate=issued_elsewhere(fleet, "h1"), ca=b""))
    fleet.enrolment.admit(who)
    fleet.another().revoke(RevokeCommand(what="h1", by="ann"), ANN, 3)
    with pytest.raises(UsageError, match="has been revoked"):
        fleet.enrolment.renew(RenewQuery(csr=csr("h1")), who)
    fleet.enrolment.refresh()  # writes down that it was seen: not a way back in
    assert not fleet.accepted(who)


def test_renewal_in_a_loop_ends(fleet: Fleet) -> None:
    who = fleet.join("h1")
    for _ in range(MAX_LIVE - 1):
        fleet.enrolment.renew(RenewQuery(csr=csr("h1")), who)
    with pytest.raises(UsageError, match="has 16 certificates that are valid"):
        fleet.enrolment.renew(RenewQuery(csr=csr("h1")), who)
    fleet.join("h2")
    fleet.now_ns += 2 * HOUR_NS
    fleet.join("h1")


def test_an_expired_certificate_is_refused_on_an_old_connection(fleet: Fleet) -> None:
    """A resumed TLS session, or a stream of yesterday, is not checked by TLS any more."""
    who = fleet.join("h1")
    assert fleet.accepted(who)
    assert who.certificate is not None
    fleet.now_ns = who.certificate.validity.expires_ns - 1
    assert fleet.accepted(who)
    fleet.now_ns += 1
    assert not fleet.accepted(who)


def test_tokens_that_wait_are_bounded(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "MAX_TOKENS", 2)
    tokens = [fleet.token() for _ in range(2)]
    with pytest.raises(UsageError, match="2 join tokens wait already"):
        fleet.token()
    fleet.join("h1", tokens[0])
    fleet.token()


def test_uses_that_could_not_be_written_are_written_later(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = fleet.join("h1")
    assert fleet.accepted(who)
    admitted_ns = fleet.now_ns

    def refuse(_: object) -> None:
        raise StateError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(fleet.identities, "record_use", refuse)
        with pytest.raises(StateError):
            fleet.enrolment.refresh()
    fleet.enrolment.refresh()
    (one,) = fleet.identities.certificates()
    assert one.seen_ns == admitted_ns


def test_a_renewed_certificate_lives_long_enough_to_be_renewed(fleet: Fleet) -> None:
    authority = create_authority(fleet.directory / "ca")
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = authority.sign(key, Identity(Role.AGENT, "h1"), addresses=(), lifetime_ns=2 * S)
    who = shows(Issued(certificate=pem, ca=b""))
    renewed = shows(fleet.enrolment.renew(RenewQuery(csr=csr("h1")), who)).certificate
    assert renewed is not None
    assert renewed.validity.lifetime_ns == MIN_LIFETIME_NS


def test_a_clock_that_was_a_year_ahead_makes_no_revoked_certificate_good(fleet: Fleet) -> None:
    """Whoever joined meanwhile once had all records of certificates forgotten, revoked ones too."""
    revoked, good = fleet.join("h1"), fleet.join("h2")
    assert revoked.certificate is not None
    fleet.revoke(revoked.certificate.serial)
    assert fleet.accepted(good)
    fleet.enrolment.refresh()
    began_ns, fleet.now_ns = fleet.now_ns, fleet.now_ns + 366 * 24 * HOUR_NS
    fleet.join("h3")
    assert not fleet.accepted(good), "it has expired, as far as is known"
    fleet.enrolment.refresh()
    fleet.now_ns = began_ns + S
    fleet.enrolment.refresh()
    assert not fleet.accepted(revoked)
    assert fleet.accepted(good)


def test_a_clock_that_was_ahead_hides_nobodys_use(fleet: Fleet) -> None:
    began_ns, fleet.now_ns = fleet.now_ns, fleet.now_ns + HOUR_NS // 2
    who = fleet.join("h1")
    assert fleet.accepted(who)
    fleet.enrolment.refresh()
    fleet.now_ns = began_ns
    fleet.enrolment.refresh()
    assert fleet.accepted(who)
    assert len(fleet.enrolment._uses) == 1


def test_the_list_tells_who_was_there(fleet: Fleet) -> None:
    who = fleet.join("h1")
    fleet.token("viewer", "wall")
    fleet.enrolment.admit(who)
    admitted_ns = fleet.now_ns
    fleet.now_ns += 40 * S
    reported = fleet.enrolment.listing(set())
    (one,) = reported.certificates
    assert (one.name, one.role, one.origin, one.seen_ns, one.revoked_ns) == (
        "h1", "agent", "join", admitted_ns, 0,
    )  # fmt: skip
    (attached,) = fleet.enrolment.listing({one.serial}).certificates
    assert attached == msgspec.structs.replace(one, seen_ns=fleet.now_ns)
    assert [(each.role, each.names) for each in reported.tokens] == [("viewer", ("wall",))]


def test_a_controller_without_the_ca_issues_nothing_but_refuses_the_revoked(fleet: Fleet) -> None:
    who = fleet.join("h1")
    bare = Enrolment(EnrolmentConfig(), fleet.identities, lambda: fleet.now_ns)
    with pytest.raises(UsageError, match=r"set \[enrolment\] authority"):
        bare.renew(RenewQuery(csr=csr("h1")), who)
    bare.revoke(RevokeCommand(what="h1", by="ann"), ANN, 3)
    assert not fleet.accepted(who, bare)


def test_an_authority_that_is_not_there(fleet: Fleet, tmp_path: Path) -> None:
    config = EnrolmentConfig(authority=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="not a usable authority"):
        Enrolment(config, fleet.identities, lambda: 0)
