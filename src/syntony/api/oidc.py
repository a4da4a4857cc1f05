"""Client of an OpenID Connect provider: logins, and identities from its ID tokens.

Authorization code flow with PKCE (OpenID Connect Core 1.0 section 3.1, RFC 7636), and for command
lines the device flow (RFC 8628). PyJWT checks signatures and the registered claims; `person_of`
checks the others.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import ssl
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import jwt
import msgspec

from syntony.api.problems import ProblemError, ProblemType
from syntony.controller.config import OidcConfig
from syntony.errors import ConfigError
from syntony.input_files import MAX_SECRET_BYTES, read_text
from syntony.io.http_request import ERRORS, http_request
from syntony.model import HOUR_NS, S
from syntony.model.names import is_loopback, is_name
from syntony.wire.rest import OIDC_CALLBACK, DeviceLogin
from syntony.wire.roles import Identity, Role

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
              "EdDSA")  # fmt: skip
"""Accepted signature algorithms: only asymmetric ones."""
REQUIRED = ["iss", "sub", "aud", "exp", "iat"]
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
DEVICE_PENDING, DEVICE_SLOW_DOWN = "authorization_pending", "slow_down"
DEVICE_INTERVAL_S = 5
"""Default if the provider names none (RFC 8628 section 3.2)."""
LEEWAY_S = 60
"""Allowed difference between the provider's clock and this host's."""
MAX_ANSWER_BYTES = 1 << 20
MAX_SUBJECT = 255
"""Characters, OpenID Connect Core section 2."""
REFRESH_NS = HOUR_NS
"""The provider's metadata and keys are fetched again after this long …"""
MIN_KEY_REFRESH_NS = 10 * S
"""… and its keys also when one is missing, at most once in this interval."""
_T = TypeVar("_T")


class Login(NamedTuple):
    """Values of one login attempt, derived from a secret in the browser's cookie."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def of(cls, secret: str) -> Login:
        """Derive the values; none of them reveals another."""
        return cls(*(_base64(f"{use} {secret}".encode()) for use in cls._fields))

    @property
    def challenge(self) -> str:
        """The verifier's challenge, S256."""
        return _base64(self.verifier.encode())


class Person(NamedTuple):
    """A person whom the provider has authenticated."""

    identity: Identity
    subject: str


class Metadata(msgspec.Struct, frozen=True):
    """A provider's metadata (OpenID Connect Discovery 1.0), as far as used here."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str | None = None
    """OpenID Connect RP-Initiated Logout 1.0; None: it has none."""
    device_authorization_endpoint: str | None = None
    """RFC 8628; None: it has none."""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Keys(msgspec.Struct, frozen=True):
    keys: tuple[dict[str, Any], ...]


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str


class _Device(msgspec.Struct, frozen=True):
    device_code: str
    user_code: str
    verification_uri: str
    expires_in: int
    verification_uri_complete: str | None = None
    interval: int | None = None


class _GrantError(msgspec.Struct, frozen=True):
    """The error of a refused grant (RFC 6749 section 5.2)."""

    error: str = ""


class GrantRefusedError(ProblemError):
    """The provider refuses a grant.

    Args:
        code: OAuth's error code.
        detail: for a person.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(ProblemType.UNAUTHENTICATED, detail)
        self.code = code


class Provider:
    """The provider of the configuration. One per API. Its methods block; thread-safe. Raises
    `ConfigError`: an invalid address, an unreadable file, or no role that may log in."""

    def __init__(self, config: OidcConfig) -> None:
        _check(config)
        self._config = config
        self._secret = _secret(config.client_secret_file)
        self._tls = _tls(config.ca)
        self._metadata: tuple[int, Metadata] | None = None
        self._keys: tuple[int, _Keys] | None = None
        self.issuer, self.label = config.issuer, config.label
        self.redirect = config.url.rstrip("/") + OIDC_CALLBACK

    def login_url(self, login: Login) -> str:
        """Address to redirect a browser to. Raises `ProblemError`: the provider does not answer."""
        parameters = {
            "response_type": "code", "client_id": self._config.client_id,
            "redirect_uri": self.redirect, "scope": " ".join(self._config.scopes),
            "state": login.state, "nonce": login.nonce, "code_challenge": login.challenge,
            "code_challenge_method": "S256",
        }  # fmt: skip
        return _with_query(self._discover().authorization_endpoint, parameters)

    def logout_url(self) -> str:
        """Address at which a browser ends its login at the provider; empty: there is none.
        Raises `ProblemError`: the provider does not answer.

        No `id_token_hint`: ID tokens are not kept. A provider may ask the person whether to end it.
        """
        endpoint = self._discover().end_session_endpoint
        back = f"{self._config.url.rstrip('/')}/"
        parameters = {"client_id": self._config.client_id, "post_logout_redirect_uri": back}
        return _with_query(endpoint, parameters) if endpoint else ""

    def person(self, code: str, login: Login) -> Person:
        """The person of a completed login. Raises `ProblemError`: the provider does not answer, or
        refuses the code; the ID token is not acceptable; the person has no role here."""
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": self.redirect,
            "code_verifier": login.verifier,
        }  # fmt: skip
        return self._person(self._post(self._discover().token_endpoint, form, _Tokens), login.nonce)

    def device_login(self) -> DeviceLogin:
        """Begin a login that a person completes in a browser on any device. Raises `ProblemError`:
        the provider does not answer, or does not support the device flow."""
        endpoint = self._discover().device_authorization_endpoint
        if not endpoint:
            raise self._wrong("has no logins by device (device_authorization_endpoint)")
        form = {"scope": " ".join(self._config.scopes)}
        found = self._post(endpoint, form, _Device)
        complete = found.verification_uri_complete or ""
        for url in filter(None, (found.verification_uri, complete)):
            if not _is_safe(url) or not _plain(url):
                raise self._wrong(f"sends people to an address that is not https: {url[:200]!r}")
        if not _plain(found.user_code):
            raise self._wrong("gives a code that cannot be shown")
        return DeviceLogin(
            device_code=found.device_code, user_code=found.user_code,
            verification_uri=found.verification_uri, verification_uri_complete=complete,
            expires_in_s=found.expires_in, interval_s=found.interval or DEVICE_INTERVAL_S,
        )  # fmt: skip

    def device_person(self, device_code: str) -> Person:
        """The person of a login by device. Its ID token has no nonce: the provider sends it
        directly to the holder of the device code.

        Raises:
            GrantRefusedError: not completed yet (`DEVICE_PENDING`, `DEVICE_SLOW_DOWN`), or expired.
            ProblemError: as `person` does.
        """
        form = {"grant_type": DEVICE_GRANT, "device_code": device_code}
        return self._person(self._post(self._discover().token_endpoint, form, _Tokens), None)

    def _person(self, tokens: _Tokens, nonce: str | None) -> Person:
        try:
            claims = self._claims(tokens.id_token, [] if nonce is None else ["nonce"])
        except jwt.PyJWTError as error:
            raise _refused(f"the ID token is not acceptable: {error}") from error
        return person_of(claims, self._config, nonce)

    def _claims(self, token: str, required: list[str]) -> dict[str, Any]:
        """Claims of an ID token with a valid signature and valid registered claims."""
        header = jwt.get_unverified_header(token)
        algorithm = str(header.get("alg"))
        if algorithm not in ALGORITHMS:
            raise jwt.InvalidAlgorithmError(f"signed by {algorithm!r}")
        key = self._key(header.get("kid"))
        named = None if "alg" in key else algorithm
        return jwt.decode(
            token,
            jwt.PyJWK(key, named),
            algorithms=ALGORITHMS,
            audience=self._config.client_id,
            issuer=self._config.issuer,
            leeway=LEEWAY_S,
            options={"require": REQUIRED + required, "enforce_minimum_key_length": True},
        )

    def _key(self, kid: str | None) -> dict[str, Any]:
        found = self._find_key(kid, REFRESH_NS) or self._find_key(kid, MIN_KEY_REFRESH_NS)
        if found is None:
            raise jwt.InvalidKeyError(f"signed with a key {kid!r} that the provider does not list")
        return found

    def _find_key(self, kid: str | None, max_age_ns: int) -> dict[str, Any] | None:
        """The key of this id; without an id, the only key."""
        known, now_ns = self._keys, time.monotonic_ns()
        if known is None or now_ns - known[0] > max_age_ns:
            known = self._keys = (now_ns, self._get(self._discover().jwks_uri, _Keys))
        signing = [key for key in known[1].keys if key.get("use", "sig") == "sig"]
        fitting = [key for key in signing if kid is None or key.get("kid") == kid]
        return fitting[0] if len(fitting) == 1 else None

    def _post(self, url: str, form: dict[str, str], kind: type[_T]) -> _T:
        """Send a form with this client's credentials."""
        form = form | {"client_id": self._config.client_id}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if self._secret:
            methods = self._discover().token_endpoint_auth_methods_supported
            if "client_secret_basic" in methods:
                pair = map(urllib.parse.quote_plus, (self._config.client_id, self._secret))
                headers["Authorization"] = (
                    "Basic " + base64.b64encode(":".join(pair).encode()).decode()
                )
            elif "client_secret_post" in methods:
                form["client_secret"] = self._secret
            else:
                raise self._wrong(f"takes a client's secret by none of {', '.join(methods)}")
        body = urllib.parse.urlencode(form).encode()
        return self._fetch("POST", url, body, headers, kind)

    def _discover(self) -> Metadata:
        known, now_ns = self._metadata, time.monotonic_ns()
        if known is not None and now_ns - known[0] < REFRESH_NS:
            return known[1]
        place = f"{self._config.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = self._get(place, Metadata)
        if found.issuer != self._config.issuer:
            raise self._wrong(f"calls itself {found.issuer[:200]!r}")
        places = [found.authorization_endpoint, found.token_endpoint, found.jwks_uri]
        places += filter(None, (found.end_session_endpoint, found.device_authorization_endpoint))
        for url in places:
            if not _is_safe(url):
                raise self._wrong(f"has an address that is not https: {url[:200]!r}")
        self._metadata = now_ns, found
        return found

    def _get(self, url: str, kind: type[_T]) -> _T:
        return self._fetch("GET", url, b"", {}, kind)

    def _fetch(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], kind: type[_T]
    ) -> _T:
        sent = {"Accept": "application/json", **headers}
        try:
            answer = http_request(
                method, url, body, sent, most_bytes=MAX_ANSWER_BYTES, tls=self._tls
            )
        except ERRORS as error:
            raise self._wrong(f"does not answer: {type(error).__name__}: {error}") from error
        if answer.status != 200:
            text = answer.body[:200].decode("utf-8", "replace")
            if method == "POST" and answer.status in {400, 401}:
                raise GrantRefusedError(
                    _grant_error(answer.body), f"the identity provider refuses the login: {text}"
                )
            raise self._wrong(f"answers {answer.status} {answer.reason} at {url}")
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._wrong(f"sends an unusable answer at {url}: {error}") from error

    def _wrong(self, how: str) -> ProblemError:
        text = f"the identity provider {self._config.issuer} {how}; log in with a token, or later"
        return ProblemError(ProblemType.PROVIDER, text)


def person_of(claims: Mapping[str, Any], config: OidcConfig, nonce: str | None) -> Person:
    """The identity and role that the claims of a valid ID token give. Pure.

    Args:
        nonce: of the login; None: the token did not come through a browser.

    Raises:
        ProblemError: a token of another login or client, without a usable name, or without a role.
    """
    if nonce is not None and not secrets.compare_digest(
        str(claims.get("nonce")).encode(), nonce.encode()
    ):
        raise _refused("the ID token is of another login (nonce)")
    audiences, party = claims.get("aud"), claims.get("azp")
    several = isinstance(audiences, list) and len(audiences) > 1
    if party != config.client_id and (several or party is not None):
        raise _refused("the ID token was made for another client (azp)")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT or not _plain(subject):
        raise _refused("the ID token has no usable sub")
    name = claims.get(config.name_claim)
    if not isinstance(name, str) or not is_name(name):
        raise ProblemError(
            ProblemType.DENIED,
            f"the claim {config.name_claim} is {str(name)[:80]!r}, which cannot be a name here; "
            "set name_claim of [oidc] to another one",
        )
    role = _role(claims.get(config.role_claim), config)
    if role is None:
        raise ProblemError(
            ProblemType.DENIED,
            f"{name} has no role here: the claim {config.role_claim} names none of the operators "
            "and viewers of [oidc]",
        )
    return Person(Identity(role, name), subject)


def _role(value: object, config: OidcConfig) -> Role | None:
    listed = value if isinstance(value, list) else [value]
    has = {each for each in listed if isinstance(each, str)}
    if has & set(config.operators):
        return Role.OPERATOR
    return Role.VIEWER if has & set(config.viewers) else None


def _check(config: OidcConfig) -> None:
    for name, url in (("issuer", config.issuer), ("url", config.url)):
        if not _is_safe(url) or urllib.parse.urlsplit(url).query:
            raise ConfigError(f"oidc.{name}: {url!r} is no https:// address")
    if "openid" not in config.scopes:
        raise ConfigError('oidc.scopes: "openid" must be among them')
    if not config.client_id:
        raise ConfigError("oidc.client_id: the provider gives it when Syntony is registered there")
    if not config.operators and not config.viewers:
        raise ConfigError(
            f"oidc: name values of {config.role_claim!r} in operators or viewers; "
            "without them nobody may log in"
        )


def _with_query(url: str, parameters: Mapping[str, str]) -> str:
    parts = urllib.parse.urlsplit(url)
    query = "&".join(filter(None, (parts.query, urllib.parse.urlencode(parameters))))
    return parts._replace(query=query, fragment="").geturl()


def _is_safe(url: str) -> bool:
    """Whether the connection is confidential: https, or this machine."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    if not host or parts.username is not None:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))


def check_files(config: OidcConfig) -> None:
    """Raises `ConfigError`: a file that the configuration names cannot be used."""
    _secret(config.client_secret_file)
    _tls(config.ca)


def _secret(path: str) -> str:
    if not path:
        return ""
    try:
        found = read_text(path, MAX_SECRET_BYTES).strip()
    except OSError as error:
        raise ConfigError(
            f"oidc.client_secret_file: {path}: cannot be read: {error.strerror}"
        ) from error
    if not found:
        raise ConfigError(f"oidc.client_secret_file: {path}: is empty")
    return found


def _tls(ca: str) -> ssl.SSLContext:
    try:
        text = read_text(ca, MAX_SECRET_BYTES) if ca else None
        return ssl.create_default_context(cadata=text)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"oidc.ca: {ca}: cannot be used: {reason}") from error


def _grant_error(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_GrantError).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def _refused(why: str) -> ProblemError:
    return ProblemError(ProblemType.UNAUTHENTICATED, why)


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _base64(data: bytes) -> str:
    digest = hashlib.sha256(data).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
