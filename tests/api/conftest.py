"""A real controller with its API on loopback, and one that anybody can reach, over TLS."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.link import ControllerProcess
from tests.ports import free_port

from syntony.controller.client import ask
from syntony.model import HOUR_NS
from syntony.wire.access_tokens import AccessTokenCommand


class Response(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def problem(self) -> tuple[int, str, str]:
        """Status, name of the type, and the line for a person."""
        assert self.headers["content-type"] == "application/problem+json", self
        found = self.json
        assert found["status"] == self.status
        assert found["title"]
        assert "\n" not in found["detail"]
        return self.status, found["type"].rpartition(":")[2], found["detail"]


class Asked:
    """What is asked over HTTP."""

    api_port: int

    def call(
        self,
        method: str,
        path: str,
        token: str = "",
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> Response:
        """One request; a body that is not bytes goes as JSON."""
        if context is not None:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                "127.0.0.1", self.api_port, timeout=600, context=context
            )
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=600)
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection.request(method, path, body, sent | (headers or {}))
        response = connection.getresponse()
        data = response.read()
        connection.close()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Response(response.status, names, data)


class ApiController(Asked, ControllerProcess):
    """A controller process with an API.

    Args:
        address: where it listens; not loopback: over TLS.
    """

    def __init__(self, directory: Path, address: str = "127.0.0.1", **kwargs: Any) -> None:
        super().__init__(directory, **kwargs)
        self.api_port = free_port()
        self.local = f"unix:{self.socket}"
        self.tls_api = address != "127.0.0.1"
        with self.config.open("a") as file:
            file.write(f'api = {{ listen = "{address}:{self.api_port}" }}\n')

    @property
    def url(self) -> str:
        return f"{'https' if self.tls_api else 'http'}://127.0.0.1:{self.api_port}"

    def token(self, role: str = "viewer", name: str = "v", **fields: Any) -> str:
        """A new access token."""
        given: dict[str, Any] = {"valid_ns": HOUR_NS, "by": "test"} | fields
        return ask(self.local, AccessTokenCommand(role=role, name=name, **given)).token


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiController]:
    """One for a whole module."""
    controller = ApiController(tmp_path_factory.mktemp("api"))
    controller.start()
    try:
        yield controller
    finally:
        controller.end(signal.SIGKILL)
