"""What gRPC says of a failed TLS handshake, in words that name the remedy."""

from __future__ import annotations

import pytest

from syntony.io.dialling import explain_tls

HANDSHAKE = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:8443: "


@pytest.mark.parametrize(
    ("details", "says"),
    [
        ("UNAUTHENTICATED: Hostname Verification Check failed.", "was not made for this address"),
        ("SSL_ERROR_SSL: OPENSSL_internal:WRONG_VERSION_NUMBER", "does not speak TLS; give the on"),
        (
            "SSL_ERROR_SSL: OPENSSL_internal:CERTIFICATE_VERIFY_FAILED",
            "of the same CA, not expired",
        ),
        ("Failed to connect to remote host: Connection refused", ""),
    ],
)
def test_tls_trouble(details: str, says: str) -> None:
    found = explain_tls(HANDSHAKE + details)
    assert says in found
    assert bool(found) is bool(says)
