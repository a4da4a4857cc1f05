"""Authenticates HTTP requests by bearer token, browser session or client certificate."""

from __future__ import annotations

import logging
import secrets
import ssl
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from syntony.api.problems import ProblemError, ProblemType
from syntony.controller.access import Caller
from syntony.controller.access_tokens import SESSION_NS, AccessLookup, csrf_token
from syntony.errors import UsageError, WireError
from syntony.model import S
from syntony.state.access_tokens import ApiSecret, SecretKind
from syntony.wire.rest import CSRF, SessionView
from syntony.wire.roles import Identity, Role
from syntony.wire.x509 import Certificate, read_certificate

_log = logging.getLogger(__name__)
PEER_CERTIFICATE = "peer_certificate"
"""In a request's state: the client's certificate, DER; None: it sent none."""
VIA = "via"
"""In a request's state: the gateway that forwarded it."""
MAX_SECRET = 200
REQUESTS_PER_S, REQUESTS_BURST = 200.0, 400
"""Limits for one identity."""
FAILURES_PER_S, FAILURES_BURST = 0.2, 10
"""Limits for one address; beyond them, refusals give no other reason."""
DEVICE_LOGINS_BURST = 30
"""Limit for one address, which may be shared by many people; the rate is that of failures."""
UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
MAX_KEYS = 4096
"""Buckets of a rate limiter; the one that was used longest ago makes room."""


class RateLimiter:
    """One kind of action.

    Args:
        rate_per_s: how often it may be done for long.
        burst: how often at once.
    """

    def __init__(self, rate_per_s: float, burst: int) -> None:
        self._rate_per_ns = rate_per_s / S
        self._burst = float(burst)
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait_ns(self, key: str, now_ns: int) -> int:
        """How long `key` has to wait until it may do it once; 0: it may now."""
        left = self._left(key, now_ns)
        return 0 if left >= 1 else max(1, round((1 - left) / self._rate_per_ns))

    def count(self, key: str, now_ns: int) -> None:
        left = self._left(key, now_ns)
        self._buckets[key] = (max(left - 1, 0.0), now_ns)
        self._buckets.move_to_end(key)
        if len(self._buckets) > MAX_KEYS:
            self._buckets.popitem(last=False)

    def _left(self, key: str, now_ns: int) -> float:
        left, at_ns = self._buckets.get(key, (self._burst, now_ns))
        return min(self._burst, left + (now_ns - at_ns) * self._rate_per_ns)


class Authenticated(NamedTuple):
    caller: Caller
    access: ApiSecret | None
    """None: by certificate."""
    session: str = ""
    """The secret of the session; empty: no session."""

    def view(self) -> SessionView:
        role, name = self.caller.identity
        expires_ns = self.access.expires_ns if self.access else 0
        if self.caller.certificate is not None:
            expires_ns = self.caller.certificate.validity.expires_ns
        csrf = csrf_token(self.session) if self.session else ""
        return SessionView(
            role=role, name=name, csrf=csrf, expires_ns=expires_ns,
            by_provider=bool(self.session and self.access and not self.access.parent),
        )  # fmt: skip


class Identifier:
    """Authenticates callers and limits their rates. One per API.

    Args:
        access: tokens and sessions.
        refusal: why a certificate is not accepted; empty: it is.
        now: monotonic time, ns.
    """

    def __init__(
        self, access: AccessLookup, refusal: Callable[[Certificate], str], now: Callable[[], int]
    ) -> None:
        self._access, self._refusal, self._now = access, refusal, now
        self._requests = RateLimiter(REQUESTS_PER_S, REQUESTS_BURST)
        self._failures = RateLimiter(FAILURES_PER_S, FAILURES_BURST)
        self._device_logins = RateLimiter(FAILURES_PER_S, DEVICE_LOGINS_BURST)

    def identify(self, request: Request) -> Authenticated:
        """Authenticate the caller of a request. Raises `ProblemError`: an unknown caller, a session
        without its CSRF token, too many requests."""
        known = self._known(request)
        key = "/".join(known.caller.identity)
        self._limit(self._requests, key, "requests")
        self._requests.count(key, self._now())
        return known

    def has_valid_secret(self, request: Request) -> bool:
        """Whether the request's secret is known here and valid; a gateway learns of new ones from
        its leader."""
        secret, kind = presented_secret(request)
        try:
            return bool(secret) and self._access.find(secret[:MAX_SECRET]).kind == kind
        except UsageError:
            return False

    def is_valid(self, known: Authenticated) -> bool:
        """Whether the caller's credentials are still valid; for long streams."""
        if known.access is not None:
            return self._access.is_valid(known.access)
        certificate = known.caller.certificate
        return certificate is not None and not self._refusal(certificate)

    def failed(self, request: Request, error: UsageError) -> ProblemError:
        """Count a rejected token against the address that sent it."""
        address = request.client.host if request.client else ""
        self._limit(self._failures, address, "failed logins")
        self._failures.count(address, self._now())
        _log.warning("login refused from=%s reason=%s", origin(request), error)
        return _unauthenticated(str(error))

    def device_login(self, request: Request) -> None:
        """Count a login by device, which needs no credentials, against its address. Raises
        `ProblemError`: too many."""
        address = request.client.host if request.client else ""
        self._limit(self._device_logins, address, "logins by device")
        self._device_logins.count(address, self._now())

    def _limit(self, limiter: RateLimiter, key: str, what: str) -> None:
        wait_ns = limiter.wait_ns(key, self._now())
        if wait_ns:
            wait_s = -(-wait_ns // S)
            raise ProblemError(
                ProblemType.RATE,
                f"too many {what} of {key or 'this address'}; try again in {wait_s} s",
                {"Retry-After": str(wait_s)},
            )

    def _known(self, request: Request) -> Authenticated:
        authorization = request.headers.get("authorization")
        if authorization is not None:
            scheme, _, secret = authorization.partition(" ")
            if scheme.lower() != "bearer":
                raise _unauthenticated("use the header Authorization: Bearer TOKEN")
            return self._by_secret(request, secret.strip(), SecretKind.TOKEN)
        cookie = request.cookies.get(cookie_name(request))
        if cookie:
            known = self._by_secret(request, cookie, SecretKind.SESSION)
            given = request.headers.get(CSRF, "").encode()
            right = secrets.compare_digest(given, csrf_token(cookie).encode())
            if request.method in UNSAFE and not right:
                raise ProblemError(
                    ProblemType.CSRF, f"send the session's csrf, from GET session, as header {CSRF}"
                )
            return known
        der: bytes | None = request.scope.get("state", {}).get(PEER_CERTIFICATE)
        if der is None:
            raise _unauthenticated(
                "log in, or send a token (Authorization: Bearer TOKEN); make one: "
                "syntony enrol api token"
            )
        return self._by_certificate(request, der)

    def _by_secret(self, request: Request, secret: str, kind: SecretKind) -> Authenticated:
        try:
            access = self._access.find(secret[:MAX_SECRET])
            if access.kind != kind:
                raise UsageError(f"a {access.kind} is not good for this; use a {kind}")
        except UsageError as error:
            raise self.failed(request, error) from error
        identity = Identity(Role(access.role), access.name)
        if kind is SecretKind.TOKEN:
            return Authenticated(Caller(identity, origin(request)), access)
        by = "" if access.parent else f", OIDC session {access.number}"
        return Authenticated(Caller(identity, origin(request) + by), access, secret)

    def _by_certificate(self, request: Request, der: bytes) -> Authenticated:
        try:
            certificate = read_certificate(ssl.DER_cert_to_PEM_cert(der).encode())
        except WireError as error:
            raise _unauthenticated(str(error)) from error
        why = self._refusal(certificate)
        if why:
            raise _unauthenticated(why)
        return Authenticated(Caller(certificate.identity, origin(request), certificate), None)


def presented_secret(request: Request) -> tuple[str, SecretKind]:
    """The secret in a request and the kind that it should be; empty: none."""
    authorization = request.headers.get("authorization")
    if authorization is not None:
        return authorization.partition(" ")[2].strip(), SecretKind.TOKEN
    return request.cookies.get(cookie_name(request), ""), SecretKind.SESSION


def origin(request: Request) -> str:
    """The caller's address, for the audit log."""
    client, via = request.client, request.scope.get("state", {}).get(VIA)
    found = f"http {client.host}:{client.port}" if client else "http"
    return f"{found} through {via}" if via else found


def cookie_name(request: Request) -> str:
    """Name of the session's cookie. Browsers send cookies to every port of a host, so each lab has
    its own."""
    if request.url.scheme == "https":
        return "__Host-syntony"
    server = request.scope.get("server") or ("", 0)
    return f"syntony-{server[1]}"


def set_session(request: Request, response: Response, secret: str) -> None:
    """Give a browser the cookie of its session."""
    rules = cookie_rules(request)
    response.set_cookie(cookie_name(request), secret, max_age=SESSION_NS // S, **rules)


def cookie_rules(request: Request) -> dict[str, Any]:
    """Attributes of the session's cookie. Scripts cannot read it, and browsers do not send it with
    requests from other sites."""
    secure = request.url.scheme == "https"
    return {"httponly": True, "samesite": "strict", "path": "/", "secure": secure}


def _unauthenticated(detail: str) -> ProblemError:
    return ProblemError(ProblemType.UNAUTHENTICATED, detail, {"WWW-Authenticate": "Bearer"})
