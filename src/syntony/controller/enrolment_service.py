"""Enrolment on the controller's event loop: handles orders and requests, ends streams of revoked
members, removes revoked hosts from the fleet, and renews the controller's own certificate."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

from syntony.controller.config import ControllerConfig
from syntony.controller.enrolment import Enrolment
from syntony.controller.fleet import Fleet
from syntony.controller.join_server import JoinServer
from syntony.controller.listen import ServerCertificate
from syntony.controller.pki import Authority, read_request
from syntony.controller.sessions import AgentSession, end_refused
from syntony.errors import StateError
from syntony.io.credentials import civil_now, load_credentials
from syntony.io.renewal import Renewal
from syntony.model import S
from syntony.state import ControlState
from syntony.state.identities import IdentityStore
from syntony.wire.control import Issuer
from syntony.wire.enrol import Issued, RenewQuery, RevokeCommand, Revoked
from syntony.wire.x509 import read_certificate

_log = logging.getLogger(__name__)
ENFORCE_INTERVAL_NS = 5 * S
"""Revocations by another controller with the same control state take effect here after this long;
those made here at once."""


class EnrolmentService:
    """Handles requests about membership on the controller's event loop.

    One per controller.

    Args:
        config: certificates, enrolment.
        state: stores tokens, certificates and revocations.
        sessions: host → its attached agent.
        fleet: from which revoked hosts are removed.

    Raises:
        ConfigError: the CA cannot be used.
        StateError: revocations cannot be read.
    """

    def __init__(
        self,
        config: ControllerConfig,
        state: ControlState,
        sessions: Mapping[str, AgentSession],
        fleet: Fleet,
    ) -> None:
        self._config = config
        self._sessions = sessions
        self._fleet = fleet
        self.enrolment = Enrolment(config.enrolment, IdentityStore(state), civil_now)
        self._reported = self.enrolment.revocations
        self._renewal: Renewal | None = None
        """Renewal of our own certificate; None: another CA issues it."""
        if (authority := self.enrolment.authority) is not None:
            self._renewal = Renewal(config.tls, partial(self._signed, authority), civil_now)
        self.certificate: ServerCertificate | None = None
        """Set by `open`."""

    def open(self, now: Callable[[], int]) -> tuple[ServerCertificate, JoinServer | None]:
        """Open the controller's certificate, and the enrolment port if configured, not started.

        Args:
            now: fleet time, for the audit log.

        Raises:
            ConfigError, MissingError: certificates or addresses that cannot be used.
        """
        self.certificate = ServerCertificate(self._config)
        listen = self._config.enrolment.listen
        if not listen:
            return self.certificate, None
        # gRPC checks for each port separately whether the files have changed.
        shown = ServerCertificate(self._config)
        return self.certificate, JoinServer(listen, shown, self.enrolment, now)

    async def revoke(self, order: RevokeCommand, issuer: Issuer, at_ns: int) -> Revoked:
        """Revoke, and end the affected streams. Raises `UsageError`, `StateError`."""
        revoked = await asyncio.to_thread(self.enrolment.revoke, order, issuer, at_ns)
        self._cut()
        return revoked

    async def enforce(self) -> None:
        """One round: end streams whose certificate is now refused, renew our own; by the known
        state if control state does not answer."""
        for session in self._sessions.values():
            self.enrolment.note(session.certificate)
        try:
            await asyncio.to_thread(self.enrolment.refresh)
        except StateError as error:
            _log.error("revocations not read, keeping the known ones reason=%s", error)
        self._cut()
        for host in self._fleet.remove(self.enrolment.removed, time.monotonic_ns()):
            _log.info("host left the fleet host=%s reason=every certificate is revoked", host)
        if self._renewal is not None:
            await asyncio.to_thread(self._renewal.step)

    def _cut(self) -> None:
        end_refused(list(self._sessions.values()), self.enrolment.refusal)
        revocations = self.enrolment.revocations
        if revocations != self._reported:
            self._reported = revocations
            for session in self._sessions.values():
                session.outbox.put(revocations)

    def _signed(self, authority: Authority, query: RenewQuery) -> Issued:
        """A certificate like our own one for another key."""
        own = read_certificate(load_credentials(self._config.tls).certificate)
        _, public = read_request(query.csr)
        issued = authority.sign(
            public, own.identity, addresses=own.addresses, lifetime_ns=own.validity.lifetime_ns
        )
        return Issued(certificate=issued, ca=authority.pem)
