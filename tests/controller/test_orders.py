"""Orders against a real controller process: who may give them, and what a kill leaves of them."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.doc_tables import allow_list
from tests.link import ControllerProcess, running
from tests.live import eventually

from syntony.controller.client import ask
from syntony.controller.dispatch import QUESTIONS
from syntony.errors import RemoteError
from syntony.model import S
from syntony.model.tls_files import TlsFiles
from syntony.wire.control import ChangesQuery
from syntony.wire.failover import FailoverStatusQuery, SwitchCommand
from syntony.wire.messages import FleetQuery
from syntony.wire.query import Query
from syntony.wire.roles import Role
from syntony.wire.traffic import PlacementCommand, TrafficQuery

STOP = SwitchCommand(stopped=True, by="ann", why="maintenance")
REPO = Path(__file__).parents[2]


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerProcess]:
    with running(tmp_path) as process:
        yield process


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    """For tests that leave it as it was, but for orders and certificates of others."""
    with running(tmp_path_factory.mktemp("shared")) as process:
        yield process


def remote(controller: ControllerProcess) -> str:
    return f"127.0.0.1:{controller.port}"


def test_a_stop_outlives_other_orders_and_the_controller(controller: ControllerProcess) -> None:
    """Another order after the stop once made a restarted controller start the fleet again."""
    local = f"unix:{controller.socket}"
    ask(local, STOP)
    ask(local, PlacementCommand(what="placement", mode="off", by="bob"))
    for _ in range(2):
        controller.end(signal.SIGKILL)
        controller.start()
        switch = ask(local, FailoverStatusQuery()).switch
        assert switch is not None
        assert (switch.stopped, switch.by) == (True, "ann")
        assert ask(local, TrafficQuery()).mode == "off"
    reported = ask(local, ChangesQuery()).changes
    assert [(each.who, each.origin, each.what, each.before, each.after) for each in reported] == [
        ("ann", "local", "failover switch", "", "stopped"),
        ("bob", "local", "placement mode", "observe", "off"),
    ]


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.CONTROLLER])
def test_roles_may_do_what_the_table_says_and_nothing_else(
    shared: ControllerProcess, role: Role
) -> None:
    """Not "anyone who is not attached as an agent now": a stopped agent once gave orders."""
    tls = shared.issue("n1", role, place=role)
    requests: tuple[Query[Any], ...] = (FleetQuery(), STOP)
    for query in requests:
        if role in QUESTIONS[type(query)].roles:
            ask(remote(shared), query, tls=tls)
        else:
            with pytest.raises(RemoteError, match="this needs a certificate"):
                ask(remote(shared), query, tls=tls)


def test_a_remote_order_is_logged_with_certificate_user_and_address(
    controller: ControllerProcess,
) -> None:
    tls = controller.issue("ops", Role.OPERATOR)
    ask(remote(controller), STOP, tls=tls)
    (change,) = ask(remote(controller), ChangesQuery(), tls=tls).changes
    assert change.who == "ops ann"
    assert change.origin.startswith("ipv4:127.0.0.1:")
    assert change.comment == "maintenance"


def test_a_damaged_state_stops_the_start_with_one_line(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "control.db").write_bytes(b"not a database" * 100)
    controller = ControllerProcess(tmp_path)
    with pytest.raises(AssertionError, match=r"control state .*control\.db is unusable"):
        controller.start()


def test_nobody_orders_namelessly(shared: ControllerProcess) -> None:
    with pytest.raises(RemoteError, match="needs the name of its issuer"):
        ask(f"unix:{shared.socket}", SwitchCommand(stopped=True, by="  "))


def test_every_request_is_on_the_list_and_the_docs_print_it() -> None:
    assert set(QUESTIONS) == set(Query.__subclasses__())
    assert allow_list() in (REPO / "docs/reference/security.md").read_text()


def issued_without_role(controller: ControllerProcess, name: str) -> TlsFiles:
    """A certificate of the fleet's CA that names its holder only."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    tls = controller.issue(name, Role.AGENT, place="plain")
    current = x509.load_pem_x509_certificate(Path(tls.cert).read_bytes())
    plain = (
        x509.CertificateBuilder()
        .subject_name(current.subject)
        .issuer_name(current.issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(current.not_valid_before_utc)
        .not_valid_after(current.not_valid_after_utc)
        .public_key(current.public_key())
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(controller.authority.key, hashes.SHA256())
    )
    Path(tls.cert).write_bytes(plain.public_bytes(serialization.Encoding.PEM))
    return tls


def test_a_certificate_without_a_role_is_refused(shared: ControllerProcess) -> None:
    tls = issued_without_role(shared, "h7")
    with pytest.raises(RemoteError, match="'h7' has no role"):
        ask(remote(shared), STOP, tls=tls)


def test_idle_connections_lock_nobody_out_for_long(controller: ControllerProcess) -> None:
    """Connections without a handshake once held every descriptor for two minutes."""
    tls = controller.issue("ops", Role.OPERATOR)
    used = len(list(Path(f"/proc/{controller.pid}/fd").iterdir()))
    limits = (used + 50, used + 50)
    resource.prlimit(controller.pid, resource.RLIMIT_NOFILE, limits)

    def answers() -> bool:
        try:
            ask(remote(controller), FleetQuery(), tls=tls, timeout_ns=5 * S)
        except RemoteError:
            return False
        return True

    with contextlib.ExitStack() as idle:
        for _ in range(80):
            idle.enter_context(socket.create_connection(("127.0.0.1", controller.port), 30))
        eventually(answers)


def test_the_controller_takes_as_many_descriptors_as_it_may(shared: ControllerProcess) -> None:
    soft, hard = resource.prlimit(shared.pid, resource.RLIMIT_NOFILE)
    assert soft == hard
