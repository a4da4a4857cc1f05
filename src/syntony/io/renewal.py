"""Renews a member's certificate at two thirds of its life: an agent's, a gateway's, a controller's.

The new one is used from the next connection on: by those that dial, and by scrapers of
``/metrics``.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Self

from syntony.errors import RemoteError, SyntonyError
from syntony.io.credentials import (
    civil_now,
    load_credentials,
    new_request,
    store_credentials,
)
from syntony.io.process import name_thread
from syntony.model import MS, S
from syntony.model.tls_files import TlsFiles
from syntony.wire.enrol import Issued, RenewQuery
from syntony.wire.query import Failure
from syntony.wire.x509 import read_certificate, read_validity

_log = logging.getLogger(__name__)
MIN_WAIT_NS = 500 * MS
MAX_WAIT_NS = 60 * S
"""Interval of reading the file, which may be replaced by hand."""
_CLOSE_TIMEOUT_S = 5.0


class Renewal:
    """Renews one member's certificate: in its own thread as a context, or by calls of `step`.

    Args:
        files: certificate and key to renew; must be writable.
        ask: sends a request to the certificate issuer; raises `RemoteError`: nobody answers.
        now: ns since 1970, UTC.
    """

    def __init__(
        self,
        files: TlsFiles,
        ask: Callable[[RenewQuery], Issued | Failure],
        now: Callable[[], int] = civil_now,
    ) -> None:
        self._files = files
        self._ask = ask
        self._now = now
        self._closing = threading.Event()
        self._reported = ""
        self._thread = threading.Thread(target=self._run, name="renewal", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        name_thread("renewal")
        wait_ns = MIN_WAIT_NS
        while not self._closing.wait(wait_ns / S):
            wait_ns = self.step()

    def step(self) -> int:
        """Renew if it is time to. Returns how long to wait until the next step, ns."""
        try:
            return self._renew_if_due()
        except SyntonyError as error:
            return self._failed(error)

    def _renew_if_due(self) -> int:
        certificate = load_credentials(self._files).certificate
        validity, now_ns = read_validity(certificate), self._now()
        if now_ns < validity.renewal_ns:
            return min(MAX_WAIT_NS, max(MIN_WAIT_NS, validity.renewal_ns - now_ns))
        request = new_request(read_certificate(certificate).identity.name)
        answer = self._ask(RenewQuery(csr=request.csr))
        if isinstance(answer, Failure):
            raise RemoteError(f"the controller answered: {answer.reason}")
        validity = read_validity(answer.certificate)
        store_credentials(self._files, answer.certificate, request.key)
        self._reported = ""
        _log.info("certificate renewed until=%s", f"{validity.not_after:%Y-%m-%d %H:%M:%S}")
        return MIN_WAIT_NS

    def _failed(self, error: SyntonyError) -> int:
        """Log it, once for each reason; returns how long to wait."""
        left_ns = time_left_ns(self._files, self._now)
        if str(error) != self._reported and not self._closing.is_set():
            self._reported = str(error)
            _log.warning(
                "certificate not renewed, retrying file=%s expires_in_s=%d reason=%s",
                self._files.cert, left_ns // S, error,
            )  # fmt: skip
        # A tenth of what is left: some twenty tries before the end. Jitter, so that a fleet does
        # not come at once.
        wait_ns = min(MAX_WAIT_NS, max(MIN_WAIT_NS, left_ns // 10))
        return int(wait_ns * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret


def time_left_ns(files: TlsFiles, now: Callable[[], int] = civil_now) -> int:
    """Until the certificate in force expires, ns; 0 where it has, or cannot be read."""
    try:
        validity = read_validity(load_credentials(files).certificate)
    except SyntonyError:
        return 0
    return max(0, validity.expires_ns - now())
