"""Enrolment on the controller's event loop: orders and requests in, streams of revoked members cut,
revoked hosts out of the fleet, the controller's own certificate renewed."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Callable, Mapping

from syntony.controller.config import ControllerConfig
from syntony.controller.enrolment import Enrolment
from syntony.controller.fleet import Fleet
from syntony.controller.join_server import JoinServer
from syntony.controller.listen import ServerCertificate
from syntony.controller.pki import read_request
from syntony.controller.sessions import Session, end_refused
from syntony.errors import StateError, SyntonyError
from syntony.io.credentials import load_credentials, new_request, store_credentials
from syntony.model import S
from syntony.state import ControlState
from syntony.state.identities import Identities
from syntony.wire.control import Issuer
from syntony.wire.enrol import RevokeCommand, Revoked
from syntony.wire.x509 import civil_ns, read_certificate

_log = logging.getLogger(__name__)
ENFORCE_INTERVAL_NS = 5 * S
"""Revocations made through another controller with the same control state are in force here after
this long; those made here at once."""


def civil_now() -> int:
    """ns since 1970, UTC, by this host's clock: what certificates live on."""
    return civil_ns(dt.datetime.now(dt.UTC))


class Membership:
    """One per controller.

    Args:
        config: certificates, enrolment.
        state: where tokens, certificates and revocations are kept.
        sessions: host to its attached agent.
        fleet: that a revoked host leaves.

    Raises:
        ConfigError: the CA cannot be used.
        StateError: revocations cannot be read.
    """

    def __init__(
        self,
        config: ControllerConfig,
        state: ControlState,
        sessions: Mapping[str, Session],
        fleet: Fleet,
    ) -> None:
        self._config = config
        self._sessions = sessions
        self._fleet = fleet
        self.enrolment = Enrolment(config.enrolment, Identities(state), civil_now)
        self._reported = self.enrolment.revocations
        self.certificate: ServerCertificate | None = None
        """Once opened."""

    def open(self, now: Callable[[], int]) -> tuple[ServerCertificate, JoinServer | None]:
        """The controller's certificate, and the enrolment port if there is to be one, not started.

        Args:
            now: fleet time, for the audit log.

        Raises:
            ConfigError, MissingError: certificates or addresses that cannot be used.
        """
        self.certificate = ServerCertificate(self._config)
        listen = self._config.enrolment.listen
        if not listen:
            return self.certificate, None
        # gRPC asks each port by itself whether the files have changed.
        shown = ServerCertificate(self._config)
        return self.certificate, JoinServer(listen, shown, self.enrolment, now)

    async def revoke(self, order: RevokeCommand, issuer: Issuer, at_ns: int) -> Revoked:
        """Revoke, and cut the streams concerned. Raises `UsageError`, `StateError`."""
        revoked = await asyncio.to_thread(self.enrolment.revoke, order, issuer, at_ns)
        self._cut()
        return revoked

    async def enforce(self) -> None:
        """One round: end streams whose certificate is not accepted any more, renew our own; by what
        is known, where control state does not answer."""
        for session in self._sessions.values():
            self.enrolment.note(session.certificate)
        try:
            await asyncio.to_thread(self.enrolment.refresh)
        except StateError as error:
            _log.error("revocations not read, those known hold reason=%s", error)
        self._cut()
        for host in self._fleet.remove(self.enrolment.removed, time.monotonic_ns()):
            _log.info("host left the fleet host=%s reason=every certificate is revoked", host)
        try:
            await asyncio.to_thread(self._renew_own)
        except SyntonyError as error:
            _log.error("the controller's certificate is not renewed reason=%s", error)

    def _cut(self) -> None:
        end_refused(list(self._sessions.values()), self.enrolment.refusal)
        revocations = self.enrolment.revocations
        if revocations != self._reported:
            self._reported = revocations
            for session in self._sessions.values():
                session.outbox.put(revocations)

    def _renew_own(self) -> None:
        authority = self.enrolment.authority
        files = self._config.tls
        if authority is None:
            return
        own = read_certificate(load_credentials(files).certificate)
        if civil_now() < own.validity.renewal_ns:
            return
        key, csr = new_request(own.identity.name)
        _, public = read_request(csr)
        issued = authority.sign(
            public, own.identity, addresses=own.addresses, lifetime_ns=own.validity.lifetime_ns
        )
        store_credentials(files, issued, key)
        _log.info("certificate renewed file=%s", files.cert)
