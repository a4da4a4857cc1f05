"""Types of configuration values with their bounds, which `syntony.config` checks as it reads.

A description stands in the error in place of the pattern. A pattern must not be in a union with
a list: msgspec 0.22 then frees memory twice.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta


def one_of(*words: str) -> Meta:
    return Meta(pattern=rf"^({'|'.join(words)})\Z", description=" or ".join(words))


_PORT = r"(0|[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
_ADDRESS = r"(\[[^\s\[\]]+\]|[^\s:\[\]/@]+)"

Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Positive = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
NonEmpty = Annotated[str, Meta(min_length=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Multiple = Annotated[float, Meta(ge=1, le=1_000)]
Port = Annotated[int, Meta(ge=1, le=65_535)]
ProbeIntervalNs = Annotated[int, Meta(ge=100_000, le=60_000_000_000)]
MemberName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,62}\Z",
        description="up to 63 letters, digits, dots, dashes, underscores and colons",
    ),
]
ClockName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,62}(/[^\s/]{1,63})?\Z",
        description="a host, or HOST/NIC, for example h0/eth2",
    ),
]
NetdevName = Annotated[
    str, Meta(pattern=r"^[^\s/]{1,15}\Z", description="an interface's name, for example eth0")
]
Endpoint = Annotated[
    str,
    Meta(
        pattern=rf"^{_ADDRESS}:{_PORT}\Z",
        description="HOST:PORT, for example syntony.example:8443 or [::1]:8443",
    ),
]
EndpointOrNone = Annotated[
    str,
    Meta(
        pattern=rf"^({_ADDRESS}:{_PORT})?\Z",
        description="ADDRESS:PORT, for example 127.0.0.1:8444, or empty",
    ),
]
"""For an optional listener."""
ApiListener = Annotated[
    str,
    Meta(
        pattern=rf"^(fd:\d{{1,9}}|{_ADDRESS}:{_PORT})?\Z",
        description="ADDRESS:PORT, for example 127.0.0.1:8445, or empty",
    ),
]
"""The API's, which may be a descriptor too."""
