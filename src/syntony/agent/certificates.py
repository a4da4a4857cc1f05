"""The agent's own certificate, looked at before every dial: an expired one is one clear line."""

from __future__ import annotations

import datetime
from pathlib import Path

from syntony.errors import MissingError, WireError
from syntony.wire.x509 import read_validity


def check_certificate(path: str, now: datetime.datetime | None = None) -> None:
    """Whether the certificate may be used at `now` (civil time: certificates live on it).

    Raises:
        MissingError: unreadable, not a certificate, expired, or not valid yet.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    try:
        validity = read_validity(Path(path).read_bytes())
    except OSError as error:
        raise MissingError(f"certificate {path} cannot be read: {error.strerror}") from error
    except WireError as error:
        raise MissingError(f"certificate {path}: {error}; issue a new one") from error
    if now > validity.not_after:
        raise MissingError(
            f"certificate {path} expired on {validity.not_after:%Y-%m-%d %H:%M:%S} UTC; issue a "
            "new one from the fleet's CA and put it there, the agent picks it up"
        )
    if now < validity.not_before:
        raise MissingError(
            f"certificate {path} is valid from {validity.not_before:%Y-%m-%d %H:%M:%S} UTC only; "
            "check this host's clock"
        )
