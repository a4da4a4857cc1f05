"""The fleet's CA replaced as docs/how-to/replace-ca.md says, between real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509
from tests.agent_link.test_membership import attached, connected, join, token
from tests.link import ControllerProcess
from tests.live import eventually

from syntony.cli.enrol import command
from syntony.controller.client import ask
from syntony.controller.pki import Authority, load_authority
from syntony.errors import RemoteError
from syntony.io.credentials import new_request, store_credentials
from syntony.model.tls_files import TlsFiles
from syntony.wire.enrol import Issued, RenewQuery
from syntony.wire.messages import FleetQuery
from syntony.wire.roles import Role


def issuer_is(authority: Authority, tls: TlsFiles) -> bool:
    certificate = x509.load_pem_x509_certificate(Path(tls.cert).read_bytes())
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except Exception:  # noqa: BLE001 - cryptography's own, of several kinds
        return False
    return True


def trusts(controller: ControllerProcess, tls: TlsFiles) -> bool:
    try:
        ask(f"127.0.0.1:{controller.port}", FleetQuery(), tls=tls)
    except RemoteError:
        return False
    return True


def renew(controller: ControllerProcess, tls: TlsFiles) -> None:
    request = new_request(Path(tls.cert).stem)
    issued = ask(f"127.0.0.1:{controller.port}", RenewQuery(csr=request.csr), tls=tls)
    assert isinstance(issued, Issued)
    store_credentials(tls, issued.certificate, request.key)


@pytest.mark.slow
def test_the_ca_is_replaced_while_the_fleet_runs(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path)
    before, following = controller.authority, tmp_path / "following"
    words = ["authority", str(following), "--address", "127.0.0.1"]
    assert CliRunner().invoke(command, words).exit_code == 0
    after = load_authority(following)
    both, only_after = before.pem + after.pem, after.pem
    controller.start()
    try:
        viewer = controller.issue("w1", Role.VIEWER, place="viewer")
        host = join(controller, "h1", token(controller, "agent", "h1"))
        config = controller.agent_config("h1", host)
        with attached(config) as agent:
            agent.send()
            # 1. Everybody trusts both; nobody is restarted or cut.
            for each in (controller.tls, viewer, host):
                Path(each.ca).write_bytes(both)
            agent.send()
            assert trusts(controller, viewer)
            assert agent.uplink.connections == 1
            # 2. The controller shows and issues certificates of the new one.
            controller.end()
            text = controller.config.read_text()
            text = text.replace(f'"{tmp_path / "ca"}"', f'"{following}"')
            for path in (controller.tls.cert, controller.tls.key):
                text = text.replace(f'"{path}"', f'"{following / "tls" / Path(path).name}"')
            controller.config.write_text(text)
            controller.start()
            agent.send()
            late = join(
                controller, "h2", token(controller, "agent", "h2"),
                "--fingerprint", after.fingerprint,
            )  # fmt: skip
            assert issuer_is(after, late)
            assert not issuer_is(before, late)
            with attached(controller.agent_config("h2", late)) as newcomer:
                newcomer.send()
            assert issuer_is(before, host)
            renew(controller, host)
            assert issuer_is(after, host)
        # 3. Nobody trusts the one before any more: what it signed is of no use.
        for each in (controller.tls, viewer, host):
            Path(each.ca).write_bytes(only_after)
        eventually(lambda: not connected(controller, "h1"))
        with attached(config):
            eventually(lambda: connected(controller, "h1"))
        assert not trusts(controller, viewer)
    finally:
        controller.end()


@pytest.mark.parametrize("side", ["member", "controller"])
def test_without_the_step_of_both_nobody_gets_in(tmp_path: Path, side: str) -> None:
    """What the how-to's order is for."""
    controller = ControllerProcess(tmp_path)
    CliRunner().invoke(command, ["authority", str(tmp_path / "b"), "--address", "127.0.0.1"])
    viewer = controller.issue("w1", Role.VIEWER, place="viewer")
    after = load_authority(tmp_path / "b").pem
    controller.start()
    try:
        assert trusts(controller, viewer)
        one = viewer if side == "member" else controller.tls
        Path(one.ca).write_bytes(after)
        assert not trusts(controller, viewer)
    finally:
        controller.end()
