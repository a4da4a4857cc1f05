"""Requests over HTTP: their paths, their parameters, and errors as RFC 9457 problem details.

Paths and parameters follow from the message: ``LinkHistoryQuery(nic=…)`` is
``GET /api/v1/link-history?nic=…``, an order ``POST /api/v1/switch`` with a JSON body.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec

from syntony.errors import UsageError
from syntony.model.names import did_you_mean
from syntony.wire.enrol import RenewQuery
from syntony.wire.query import Query, row_fields

PREFIX = "/api/v1"
SESSION, EVENTS, OPENAPI = f"{PREFIX}/session", f"{PREFIX}/events", f"{PREFIX}/openapi.json"
OIDC = f"{PREFIX}/oidc"
OIDC_LOGIN, OIDC_CALLBACK, OIDC_LOGOUT = (
    f"{OIDC}/{each}" for each in ("login", "callback", "logout")
)
OIDC_DEVICE = f"{OIDC}/device"
OIDC_DEVICE_TOKEN = f"{OIDC_DEVICE}/token"
PAGE_SIZE, CURSOR = "page_size", "cursor"
"""Parameters of every request whose answer has rows; see docs/reference/api.md."""
NEXT_CURSOR = "X-Syntony-Next-Cursor"
"""Header of an answer with further pages: the value of `CURSOR` for the next page."""
CSRF = "X-Syntony-CSRF"
MAX_PAGE_ROWS = 100_000
MAX_BODY_BYTES = 256 << 10
"""Maximum size of an order: an audit that names ten thousand hosts takes 120 KB."""
WORDS = ("by", "why", "comment")
"""Free text in orders: it goes into the audit log."""
MAX_WORDS = 500
"""Maximum characters of each."""
ISSUING: frozenset[type[Query[Any]]] = frozenset({RenewQuery})
"""Requests that issue a certificate: POST over HTTP, although they change nothing else."""
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_INT64 = 1 << 63
_Q = TypeVar("_Q", bound=Query[Any])


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reason why a request was not carried out (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    """One line for a person: what is wrong and what to do."""


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Exchange a token for a browser's session."""

    token: str


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """Who the caller is to the API."""

    role: str
    name: str
    csrf: str
    """Value of the header `CSRF` for requests that change something; empty: none is needed."""
    expires_ns: int
    """Civil time; 0: it does not expire."""
    by_provider: bool = False
    """Whether the person logged in at an identity provider, where the login continues."""


class OidcView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the login page offers an OpenID Connect provider."""

    offered: bool
    label: str = ""
    """Its name for people."""


class DeviceLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A login that a person completes in a browser on any device (RFC 8628)."""

    device_code: str
    """Secret of the client that began the login; for `DeviceTokenRequest`."""
    user_code: str
    """Code that the person compares or enters."""
    verification_uri: str
    """Address at which to enter it."""
    verification_uri_complete: str = ""
    """Address that contains the code; empty: there is none."""
    expires_in_s: int
    interval_s: int
    """Minimum interval between requests for the token."""


class DeviceTokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ask whether the person has completed the login."""

    device_code: str


class DeviceToken(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a login by device."""

    token: str = ""
    """Token for the API; empty: not completed yet."""
    slow_down: bool = False
    """Increase the interval of requests by 5 s."""


@cache
def route_name(kind: type[Query[Any]]) -> str:
    """Route of a kind of request: ``LinkHistoryQuery`` → ``link-history``."""
    name = kind.__name__.removesuffix("Query").removesuffix("Command")
    return _WORD.sub("-", name).lower()


def is_question(kind: type[Query[Any]]) -> bool:
    """Whether it is a GET, which changes nothing: by its name, except for `ISSUING`."""
    return kind.__name__.endswith("Query") and kind not in ISSUING


def has_rows(kind: type[msgspec.Struct]) -> bool:
    """Whether an answer of this kind can be fetched page by page."""
    return bool(row_fields(kind))


def split_rows(answer: msgspec.Struct, size: int) -> list[msgspec.Struct]:
    """Split an answer into pages with at most `size` rows of each list, for `join_pages`."""
    rows = {name: getattr(answer, name) for name in row_fields(type(answer))}
    longest = max(map(len, rows.values()), default=0)
    return [
        msgspec.structs.replace(
            answer, **{name: values[first : first + size] for name, values in rows.items()}
        )
        for first in range(0, max(longest, 1), size)
    ]


def parameters(query: Query[Any]) -> list[tuple[str, str]]:
    """Encode a request as query parameters, without default values."""
    found = []
    for field in msgspec.structs.fields(query):
        value = getattr(query, field.name)
        if not field.required and value == field.default:
            continue
        plain = msgspec.to_builtins(value, str_keys=True)
        for each in plain if isinstance(plain, (list, tuple)) else [plain]:
            text = each if isinstance(each, str) else msgspec.json.encode(each).decode()
            found.append((field.name, text))
    return found


def body(order: Query[Any]) -> bytes:
    """Encode an order as a JSON body."""
    fields = {field.name: getattr(order, field.name) for field in msgspec.structs.fields(order)}
    return msgspec.json.encode(fields)


def from_parameters(kind: type[_Q], given: Iterable[tuple[str, str]]) -> _Q:
    """Decode a request. Raises `UsageError`: unknown, repeated or missing parameters, bad value."""
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    found: dict[str, Any] = {}
    for name, text in given:
        _check_name(name, known)
        if get_args(known[name].type)[1:] == (Ellipsis,):
            found.setdefault(name, []).append(text)
        elif name in found:
            raise UsageError(f"parameter {name!r} is given twice; give it once")
        else:
            found[name] = text
    return _converted(kind, found, strict=False)


def from_body(kind: type[_Q], data: bytes) -> _Q:
    """Decode an order. ``by`` may be missing: the token's name is known. Raises `UsageError`: not
    JSON, unknown or missing fields, wrong values."""
    try:
        found = msgspec.json.decode(data or b"{}")
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError("the body must be a JSON object")
    known = [field.name for field in msgspec.structs.fields(kind)]
    for name in found:
        _check_name(name, known)
    for name in WORDS:
        said = found.get(name)
        if isinstance(said, str) and len(said) > MAX_WORDS:
            raise UsageError(f"{name} has {len(said):,} letters; give {MAX_WORDS} at most")
    if "by" in known:
        found.setdefault("by", "")
    return _converted(kind, found, strict=True)


def _check_name(name: str, known: Iterable[str]) -> None:
    if name not in known:
        hint = did_you_mean(name, known) or f"; known: {', '.join(known) or 'none'}"
        raise UsageError(f"unknown parameter {name[:80]!r}{hint}")


def _converted(kind: type[_Q], found: dict[str, Any], *, strict: bool) -> _Q:
    try:
        query: _Q = msgspec.convert(found, kind, strict=strict)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"{route_name(kind)}: {error}") from error
    for field in msgspec.structs.fields(query):
        value = getattr(query, field.name)
        if isinstance(value, int) and not -_INT64 <= value < _INT64:
            raise UsageError(f"{route_name(kind)}: {field.name} does not fit in 64 bits")
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{route_name(kind)}: {field.name} must be a finite number")
    return query
