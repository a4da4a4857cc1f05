"""A small OpenID Connect provider on loopback, for tests: discovery, consent, code, ID token.

Signs with `cryptography` by hand, so that what checks the tokens does not also make them. Strict as
real ones are: a code is good once, for its redirect address and its PKCE challenge. Logins by
device (RFC 8628) are finished once `Issuer.early` is empty.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import secrets
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, SECRET = "syntony", "s3cret of: the client"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
Json = dict[str, Any]
KEYS = {name: rsa.generate_private_key(public_exponent=65537, key_size=2048) for name in "ab"}
"""Made once: they take a moment."""


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwk(name: str) -> Json:
    """The public half of a key, as a provider lists it."""
    numbers = KEYS[name].public_key().public_numbers()

    def number(value: int) -> str:
        return base64url(value.to_bytes((value.bit_length() + 7) // 8))

    return {"kty": "RSA", "use": "sig", "kid": name, "n": number(numbers.n),
            "e": number(numbers.e)}  # fmt: skip


def sign(claims: Json, key: str = "a", algorithm: str = "RS256", **header: Any) -> str:
    """A token. `HS256` is signed with the public key as if it were a secret; `none` not at all."""
    head = {"alg": algorithm, "kid": key, "typ": "JWT"} | header
    head = {name: value for name, value in head.items() if value is not None}
    data = ".".join(base64url(json.dumps(each).encode()) for each in (head, claims)).encode()
    if algorithm == "RS256":
        signature = KEYS[key].sign(data, padding.PKCS1v15(), hashes.SHA256())
    elif algorithm == "HS256":
        pem = (
            KEYS[key]
            .public_key()
            .public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        signature = hmac.digest(pem, data, "sha256")
    else:
        signature = b""
    return f"{data.decode()}.{base64url(signature)}"


class Issuer:
    """Serves until `end`.

    Args:
        tls: over which it is spoken to; None: plain HTTP.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer._get(self)

            def do_POST(self) -> None:
                issuer._post(self)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        self.person: Json = {
            "sub": "0815", "preferred_username": "olga", "groups": ["fleet-operators"]
        }  # fmt: skip
        """Who sits before the browser."""
        self.make: Callable[[Json], str] = sign
        """Makes the ID token of the claims."""
        self.keys: list[Json] = [jwk("a")]
        self.metadata: Json = {}
        """Beside, or instead of, what discovery says."""
        self.tokens: Json | None = None
        """Instead of the answer with tokens."""
        self.hang = threading.Event()
        self.hang.set()
        """Clear: every request waits."""
        self.asked: list[str] = []
        self.device: Json = {}
        """Beside, or instead of, what a login by device is answered with."""
        self.early = ["authorization_pending"]
        """What a device is told, in this order, before its person has logged in, or instead."""
        self._codes: dict[str, Json] = {}
        self._devices: set[str] = set()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def end(self) -> None:
        """Answer nothing any more."""
        self.hang.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def begun(self) -> str:
        """The code of a device whose person can be asked."""
        code = secrets.token_urlsafe()
        self._devices.add(code)
        return code

    def consent(self, url: str) -> str:
        """As a browser whose person logs in at once: where it is sent back to."""
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=600)
        connection.request("GET", f"{parts.path}?{parts.query}")
        found = connection.getresponse().headers["Location"]
        connection.close()
        assert found
        return str(found)

    def _get(self, to: BaseHTTPRequestHandler) -> None:
        parts = urllib.parse.urlsplit(to.path)
        self.asked.append(parts.path)
        self.hang.wait()
        if parts.path == "/.well-known/openid-configuration":
            _answer(to, self._discovery())
        elif parts.path == "/keys":
            _answer(to, {"keys": self.keys})
        elif parts.path == "/authorize":
            asked = dict(urllib.parse.parse_qsl(parts.query, strict_parsing=True))
            assert asked["response_type"] == "code"
            assert asked["code_challenge_method"] == "S256"
            assert "openid" in asked["scope"].split()
            code = secrets.token_urlsafe()
            self._codes[code] = asked
            back = {"code": code, "state": asked["state"], "iss": self.url}
            to.send_response(302)
            to.send_header("Location", f"{asked['redirect_uri']}?{urllib.parse.urlencode(back)}")
            to.end_headers()
        else:
            _answer(to, {}, 404)

    def _post(self, to: BaseHTTPRequestHandler) -> None:
        form = dict(
            urllib.parse.parse_qsl(to.rfile.read(int(to.headers["Content-Length"])).decode())
        )
        self.asked.append(to.path)
        self.hang.wait()
        if to.path == "/device" or form.get("grant_type") == DEVICE_GRANT:
            _answer(to, *self._by_device(to, form))
            return
        asked = self._codes.pop(form.get("code", ""), None)
        challenge = base64url(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if asked is None or asked["code_challenge"] != challenge or not self._is_client(to, form):
            _answer(to, {"error": "invalid_grant"}, 400)
            return
        assert form["grant_type"] == "authorization_code"
        assert form["redirect_uri"] == asked["redirect_uri"]
        claims = self.claims(asked["nonce"])
        _answer(to, self.tokens or {"access_token": "x", "id_token": self.make(claims)})

    def _by_device(self, to: BaseHTTPRequestHandler, form: Json) -> tuple[Json, int]:
        if not self._is_client(to, form):
            return {"error": "invalid_client"}, 401
        if to.path == "/device":
            assert "openid" in form["scope"].split()
            return {
                "device_code": self.begun(), "user_code": "WDJB-MJHT", "expires_in": 600,
                "verification_uri": f"{self.url}/activate", "interval": 1,
            } | self.device, 200  # fmt: skip
        if form["device_code"] not in self._devices:
            return {"error": "invalid_grant"}, 400
        if self.early:
            return {"error": self.early.pop(0)}, 400
        self._devices.remove(form["device_code"])
        return {"access_token": "x", "id_token": self.make(self.claims())}, 200

    def claims(self, nonce: str = "") -> Json:
        """Of an ID token."""
        now_s = int(time.time())  # noqa: TID251 - what the token says
        found = {"iss": self.url, "aud": CLIENT, "iat": now_s, "exp": now_s + 300, **self.person}
        return found | ({"nonce": nonce} if nonce else {})

    def _is_client(self, to: BaseHTTPRequestHandler, form: Json) -> bool:
        methods = self._discovery().get("token_endpoint_auth_methods_supported", ())
        if "client_secret_post" in methods:
            return (form["client_id"], form.get("client_secret")) == (CLIENT, SECRET)
        given = to.headers.get("Authorization", "")
        if not given:
            return False
        pair = base64.b64decode(given.removeprefix("Basic ")).decode().split(":")
        return [urllib.parse.unquote_plus(each) for each in pair] == [CLIENT, SECRET]

    def _discovery(self) -> Json:
        return {
            "issuer": self.url, "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token", "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"],
            "end_session_endpoint": f"{self.url}/end-session",
            "device_authorization_endpoint": f"{self.url}/device",
        } | self.metadata  # fmt: skip


def _answer(to: BaseHTTPRequestHandler, body: Any, status: int = 200) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    to.send_response(status)
    to.send_header("Content-Type", "application/json")
    to.send_header("Content-Length", str(len(data)))
    to.end_headers()
    to.wfile.write(data)
