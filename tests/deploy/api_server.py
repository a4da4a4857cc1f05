"""A stand-in for the Kubernetes API server: nodes and pods over TLS, with bearer tokens and RBAC.

It keeps what our clients rely on: versions of objects and conflicts, merge patches (RFC 7386),
conditions merged by type in strategic merge patches, 403 for whatever no rule allows.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from syntony.controller.pki import create_authority
from syntony.io.kubernetes import MERGE, STRATEGIC
from syntony.model import S
from syntony.wire.roles import Role


class Rule(NamedTuple):
    """What a role allows, as in RBAC."""

    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()


@dataclass
class FakeApiServer:
    """Objects by path, and what was asked."""

    rules: tuple[Rule, ...]
    token: str = "first"  # noqa: S105 - of a stand-in
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    conflicts: int = 0
    """So many patches find that somebody was faster."""
    port: int = 0
    account: Path = Path()

    def add_node(self, name: str, **spec: Any) -> dict[str, Any]:
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        node: dict[str, Any] = {
            "metadata": {"name": name, "resourceVersion": "1", "labels": {"zone": "a"}},
            "spec": {"podCIDR": "10.0.0.0/24", **spec},
            "status": {"conditions": [ready]},
        }
        self.objects[f"/api/v1/nodes/{name}"] = node
        return node

    def condition(self, name: str) -> dict[str, Any]:
        listed = self.objects[f"/api/v1/nodes/{name}"]["status"]["conditions"]
        (found,) = (each for each in listed if each["type"] == "FleetAuditFailed")
        return dict(found)

    def allows(self, verb: str, path: str) -> bool:
        resource, name = _parsed(path)
        return any(
            rule.resource == resource
            and verb in rule.verbs
            and (not rule.names or name in rule.names)
            for rule in self.rules
        )

    def answer(self, method: str, target: str, kind: str, body: bytes) -> tuple[int, Any]:
        url = urlsplit(target)
        path = unquote(url.path)
        patch = json.loads(body) if body else {}
        self.asked.append((method, path, patch))
        listing = path == "/api/v1/nodes"
        verb = {"GET": "list" if listing else "get", "PATCH": "patch"}[method]
        if not self.allows(verb, path):
            return 403, {"message": f"cannot {verb} {path}"}
        if listing:
            (label,) = parse_qs(url.query)["labelSelector"]
            nodes = [each for key, each in self.objects.items() if "/nodes/" in key]
            return 200, {"items": [n for n in nodes if label in n["metadata"]["labels"]]}
        found = self.objects.get(path.removesuffix("/status"))
        if found is None:
            return 404, {"message": f"{path} not found"}
        return (200, found) if verb == "get" else self._patched(found, path, kind, patch)

    def _patched(
        self, found: dict[str, Any], path: str, kind: str, patch: dict[str, Any]
    ) -> tuple[int, Any]:
        meta = found["metadata"]
        if self.conflicts and "resourceVersion" in patch.get("metadata", {}):
            self.conflicts -= 1
            meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)
        if (
            patch.get("metadata", {}).get("resourceVersion", meta["resourceVersion"])
            != (meta["resourceVersion"])
        ):
            return 409, {"message": "the object has been modified"}
        part = "status" if path.endswith("/status") else "spec"
        # As the real one: a patch of the main resource leaves the status alone, and vice versa.
        patch = {key: value for key, value in patch.items() if key in {part, "metadata", "data"}}
        if kind == STRATEGIC:
            for condition in patch["status"].pop("conditions"):
                listed = found["status"]["conditions"]
                listed[:] = [each for each in listed if each["type"] != condition["type"]]
                listed.append(condition)
        elif kind != MERGE:
            return 415, {"message": kind}
        _merge(found, patch)
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)
        return 200, found


def _parsed(path: str) -> tuple[str, str]:
    """``nodes/status``, ``gpu001`` of a path."""
    words = path.removeprefix("/api/v1/").split("/")
    words = words[2:] if words[0] == "namespaces" else words
    return "/".join([words[0], *words[2:]]), words[1] if len(words) > 1 else ""


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


@contextmanager
def serving(place: Path, rules: tuple[Rule, ...]) -> Iterator[FakeApiServer]:
    """A server on loopback and the files of a pod's service account for it."""
    fake = FakeApiServer(rules)

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != f"Bearer {fake.token}":
                code, answer = 401, {"message": "Unauthorized"}
            else:
                kind = self.headers.get("Content-Type") or ""
                code, answer = fake.answer(self.command, self.path, kind, body)
            data = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PATCH = _serve  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            pass

    authority = create_authority(place / "ca")
    files = authority.issue(
        "api", Role.CONTROLLER, addresses=["127.0.0.1"], lifetime_ns=3600 * S, directory=place
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    fake.account = place / "account"
    fake.account.mkdir()
    (fake.account / "ca.crt").write_bytes(authority.pem)
    (fake.account / "token").write_text(fake.token)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        fake.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()
