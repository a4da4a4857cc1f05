"""The Kubernetes API server as a pod reaches it: JSON over HTTPS with the pod's service account."""

from __future__ import annotations

import http
import json
import os
import ssl
from pathlib import Path
from typing import Any

from syntony.errors import MissingError, RemoteError
from syntony.io.http_request import ERRORS, http_request

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
STRATEGIC, MERGE = "application/strategic-merge-patch+json", "application/merge-patch+json"
"""Kinds of patches: by Kubernetes' merge keys, and RFC 7386."""
MAX_ANSWER_BYTES = 64 << 20
"""Of one answer that is read."""


class ConflictError(RemoteError):
    """Somebody else changed the object since it was read: read it again."""


class KubernetesApi:
    """Requests, each on a connection of its own, with the token that is in the file now.

    Args:
        host, port: None: from the environment that Kubernetes gives each container.
        account: directory with ``ca.crt`` and ``token``; the kubelet replaces the token hourly.

    Raises:
        MissingError: not in a pod, or without a service account.
    """

    def __init__(
        self, host: str | None = None, port: int | None = None, account: Path = SERVICE_ACCOUNT
    ) -> None:
        self._host = host or os.environ.get("KUBERNETES_SERVICE_HOST", "")
        self._port = port or int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
        self._account = account
        if not self._host:
            raise MissingError("not in a Kubernetes pod: KUBERNETES_SERVICE_HOST is not set")
        try:
            self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
        except OSError as error:
            raise MissingError(
                f"{account}/ca.crt: {error.strerror}: give the pod a service account"
            ) from error

    def get(self, path: str) -> dict[str, Any]:
        """An object or a list. Raises `RemoteError`: refused, or no answer."""
        return self._request("GET", path, b"", {})

    def patch(self, path: str, body: dict[str, Any], kind: str) -> dict[str, Any]:
        """Change an object; the object afterwards.

        Raises:
            ConflictError: the body names a version of it that is not the newest.
            RemoteError: refused, or no answer.
        """
        return self._request("PATCH", path, json.dumps(body).encode(), {"Content-Type": kind})

    def _request(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> dict[str, Any]:
        what = f"{method} {path} at {self._host}:{self._port}"
        try:
            token = (self._account / "token").read_text(encoding="ascii").strip()
            headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", **headers}
            url = f"https://{self._host}:{self._port}{path}"
            answer = http_request(
                method, url, body, headers, most_bytes=MAX_ANSWER_BYTES, tls=self._tls
            )
        except ERRORS as error:
            raise RemoteError(f"{what}: {error}") from error
        if answer.status == http.HTTPStatus.CONFLICT:
            raise ConflictError(f"{what}: {_message(answer.body)}")
        if answer.status // 100 != 2:
            raise RemoteError(f"{what}: {answer.status}: {_message(answer.body)}")
        try:
            found = json.loads(answer.body)
        except ValueError as error:
            raise RemoteError(f"{what}: an answer that is not JSON") from error
        if not isinstance(found, dict):
            raise RemoteError(f"{what}: an answer that is not an object")
        return found


def _message(data: bytes) -> str:
    """The text of a Status object."""
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data[:200].decode(errors="replace")
