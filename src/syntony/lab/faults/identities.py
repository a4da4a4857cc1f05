"""Faults of identities: certificates revoked, certificates and keys replaced while in use."""

from __future__ import annotations

from syntony.controller.client import ask
from syntony.controller.pki import create_authority
from syntony.lab.faults.base import FaultContext, FaultOrder, LabFault, TargetKind
from syntony.lab.provision import TLS, issue_agent
from syntony.lab.state import socket_in_charge
from syntony.model import S
from syntony.wire.enrol import RevokeCommand
from syntony.wire.probes import RotateKeys
from syntony.wire.x509 import read_certificate

_TIMEOUT_NS = 5 * S
_BY = "lab fault"


class _CertificateFault(LabFault):
    target = TargetKind.HOST

    def _serial(self) -> str:
        pem = self.site.directory / TLS / f"{self.order.target}.crt"
        return read_certificate(pem.read_bytes()).serial

    def _issue(self) -> None:
        authority = create_authority(self.site.directory / TLS)
        issue_agent(self.site.directory, self.site.plan, authority, self.order.target)

    def _revoke(self, serial: str) -> None:
        command = RevokeCommand(what=serial, by=_BY, comment=self.name, unseen=True)
        ask(_socket(self.site), command, timeout_ns=_TIMEOUT_NS)


class CertRevoke(_CertificateFault):
    """The agent is disconnected and cannot reconnect."""

    name = "cert-revoke"
    meaning = "the certificate of the host's agent is revoked; at the end it gets a new one"

    def apply(self) -> None:
        self._revoke(self._serial())

    def undo(self) -> None:
        self._issue()


class CertRotate(_CertificateFault):
    """The agent continues with a new certificate and key."""

    name = "cert-rotate"
    meaning = "the agent's certificate and key are replaced, the old ones revoked"

    @classmethod
    def own_duration_ns(cls, order: FaultOrder) -> int:  # noqa: ARG003 - the signature of all kinds
        return 1 * S

    def apply(self) -> None:
        before = self._serial()
        self._issue()
        self._revoke(before)

    def undo(self) -> None:
        """The new certificate stays."""


class KeyRotate(LabFault):
    """All hosts switch to new probe keys."""

    name = "key-rotate"
    target = TargetKind.CONTROLLER
    meaning = "the fleet's probe keys are replaced while probes are under way"

    @classmethod
    def own_duration_ns(cls, order: FaultOrder) -> int:  # noqa: ARG003 - the signature of all kinds
        return 1 * S

    def apply(self) -> None:
        command = RotateKeys(by=_BY, why=self.name)
        ask(_socket(self.site), command, timeout_ns=_TIMEOUT_NS)

    def undo(self) -> None:
        """The new keys stay."""


def _socket(site: FaultContext) -> str:
    return f"unix:{socket_in_charge(site.directory)}"
