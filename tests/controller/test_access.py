"""Who makes a request: from the certificate that was shown, or over the local socket."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from syntony.controller.access import LOCAL, Caller, caller
from syntony.controller.pki import create_authority
from syntony.errors import UsageError, WireError
from syntony.model import S
from syntony.wire.control import Issuer
from syntony.wire.roles import Identity, Role

NOBODY = Identity(Role.OPERATOR, "")


class _Call:
    """A gRPC call's context."""

    def __init__(self, peer: str, auth: Mapping[str, list[bytes]] | None = None) -> None:
        self._peer, self._auth = peer, auth or {}

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> Mapping[str, list[bytes]]:
        return self._auth


def test_the_certificate_says_who_calls(tmp_path: Path) -> None:
    authority = create_authority(tmp_path)
    tls = authority.issue("ann", Role.VIEWER, addresses=[], lifetime_ns=60 * S, directory=tmp_path)
    pem = Path(tls.cert).read_bytes()
    who = caller(_Call("ipv4:10.0.0.1:5000", {"x509_pem_cert": [pem, b"another"]}))
    assert (who.identity, who.origin) == (Identity(Role.VIEWER, "ann"), "ipv4:10.0.0.1:5000")
    assert who.pem == pem


@pytest.mark.parametrize("auth", [{}, {"x509_pem_cert": []}, {"x509_pem_cert": [b"none"]}])
def test_a_call_without_a_certificate_is_nobodys(auth: dict[str, list[bytes]]) -> None:
    with pytest.raises(WireError):
        caller(_Call("ipv4:10.0.0.1:5000", auth))


def test_over_the_local_socket_an_operator_calls() -> None:
    assert caller(_Call("unix:")) == Caller(NOBODY, LOCAL)


def test_an_order_names_who_gives_it_in_one_bounded_line() -> None:
    ann = Caller(Identity(Role.OPERATOR, "ann"), "ipv4:1")
    assert ann.issuer("") == Issuer("ann", "ipv4:1")
    assert ann.issuer(" bob\n of ops ") == Issuer("ann bob of ops", "ipv4:1")
    assert ann.issuer("x" * 999).who == f"ann {'x' * 196}"
    for nobody in ("", " \n\t"):
        with pytest.raises(UsageError, match="--by NAME"):
            Caller(NOBODY, LOCAL).issuer(nobody)
