"""The PEM files of one member's identity."""

from __future__ import annotations

import msgspec

from syntony.model.config_values import NonEmpty


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tls]``: PEM files for mutual TLS; `syntony enrol join` writes them."""

    ca: NonEmpty
    """CA that has signed the certificates of agents and controllers."""
    cert: NonEmpty
    """This member's certificate; an agent's common name is `host`."""
    key: NonEmpty
    """Its private key."""
