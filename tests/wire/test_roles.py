"""Who a certificate says its holder is."""

from __future__ import annotations

import pytest

from syntony.errors import WireError
from syntony.wire.roles import Identity, Role, identity


@pytest.mark.parametrize("uris", [(), ("https://h1/agent", "spiffe://x/h1")])
def test_a_certificate_without_a_role_is_refused(uris: tuple[str, ...]) -> None:
    with pytest.raises(WireError, match=r"of 'h1' has no role: it needs the URI syntony://ROLE"):
        identity("h1", uris)


@pytest.mark.parametrize("role", Role)
def test_a_role_is_read_as_it_is_written(role: Role) -> None:
    reported = Identity(role, "ann")
    assert identity("ann", ("https://elsewhere", reported.uri)) == reported


@pytest.mark.parametrize(
    "uris",
    [
        ("syntony://operator/ann", "syntony://agent/ann"),
        ("syntony://operator/ann", "syntony://operator/ann"),
        ("syntony://king/ann",),
        ("syntony://operator/bob",),
        ("syntony://operator",),
        ("syntony://operator/",),
        ("syntony:///ann",),
    ],
)
def test_what_is_not_one_role_of_its_own_is_refused(uris: tuple[str, ...]) -> None:
    with pytest.raises(WireError, match="the certificate of 'ann' has no single valid role: synt"):
        identity("ann", uris)


def test_nobody_fills_a_log_with_a_certificate() -> None:
    with pytest.raises(WireError) as caught:
        identity("n" * 5_000, ("syntony://" + "r" * 5_000,))
    assert len(str(caught.value)) < 400
