"""Enrolment, rotation and revocation between real processes, with real certificates and sockets."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from tests.link import ControllerProcess, hello, probe_rows
from tests.live import eventually

from syntony.agent.config import AgentConfig
from syntony.agent.spool import Spool
from syntony.agent.uplink import Uplink
from syntony.cli.enrol import command
from syntony.controller.client import ask
from syntony.errors import RemoteError, SyntonyError
from syntony.io.transport import grpc
from syntony.model.tls_files import TlsFiles
from syntony.wire.coding import encode
from syntony.wire.enrol import IdentitiesQuery
from syntony.wire.messages import (
    ATTACH,
    QUERY,
    Batch,
    ControllerMessage,
    Fleet,
    FleetQuery,
    Refuse,
    decode_controller,
)
from syntony.wire.query import Failure, decode_answer
from syntony.wire.roles import Role


def enrol(controller: ControllerProcess, *words: str) -> Result:
    """`syntony enrol …` on the controller's host."""
    done = CliRunner().invoke(command, [*words, "--controller", f"unix:{controller.socket}"])
    if done.exception is not None:
        raise done.exception
    return done


def token(controller: ControllerProcess, *words: str) -> str:
    made = msgspec.json.decode(enrol(controller, "token", *words, "--json").stdout)
    return str(made["token"])


def join(controller: ControllerProcess, name: str, secret: str, *words: str) -> TlsFiles:
    """`syntony enrol join …` on another host. Raises what the command ends with."""
    place = controller.directory / f"joined-{name}"
    at = f"127.0.0.1:{controller.join_port}"
    trust = words or ("--ca", str(controller.tls.ca))
    arguments = ["join", name, "--at", at, "--token", secret, "--dir", str(place), *trust]
    done = CliRunner().invoke(command, arguments)
    if done.exception is not None:
        raise done.exception
    return TlsFiles(
        ca=str(place / "ca.crt"), cert=str(place / f"{name}.crt"), key=str(place / f"{name}.key")
    )


class Agent:
    """An uplink that sends a batch now and then, and what it is reported."""

    def __init__(self, config: AgentConfig) -> None:
        self.reported: list[ControllerMessage] = []
        self.host = config.host
        self.directory = Path(config.spool_dir)
        self.spool = Spool(config.spool_dir, 1 << 20)
        self.spool.open()
        self.uplink = Uplink(
            config, lambda stream: hello(config.host, stream), self.reported.append, self.spool
        )
        self._second = 0

    def submit(self) -> None:
        """A second of rows."""
        self._second += 1
        self.uplink.submit("probe_1s", *probe_rows(self.host, self._second))

    def all_stored(self) -> bool:
        return self.spool.acknowledged == self._second

    def send(self) -> None:
        """A second of rows, and wait until it is stored."""
        self.submit()
        eventually(self.all_stored)


@contextlib.contextmanager
def attached(config: AgentConfig) -> Iterator[Agent]:
    agent = Agent(config)
    try:
        with agent.uplink:
            yield agent
    finally:
        agent.spool.close()


def connected(controller: ControllerProcess, host: str) -> bool:
    return any(each.connected for each in controller.fleet().agents if each.host == host)


@pytest.mark.parametrize("trust", ["ca", "fingerprint"])
def test_a_new_host_joins_and_serves(controller: ControllerProcess, trust: str) -> None:
    name = f"new-{trust}"
    fingerprint = controller.authority.fingerprint
    words = ("--fingerprint", fingerprint) if trust == "fingerprint" else ()
    tls = join(controller, name, token(controller, "agent", name), *words)
    assert Path(tls.key).stat().st_mode & 0o077 == 0
    assert Path(tls.ca).read_bytes() == controller.authority.pem
    with attached(controller.agent_config(name, tls)) as agent:
        agent.send()
        listing = ask(f"unix:{controller.socket}", IdentitiesQuery())
        (there,) = [each for each in listing.certificates if each.name == name]
        assert there.seen_ns == listing.now_ns
        assert "attached" in enrol(controller, "list").output
    eventually(lambda: not connected(controller, name))
    listing = ask(f"unix:{controller.socket}", IdentitiesQuery())
    (one,) = [each for each in listing.certificates if each.name == name]
    assert one.seen_ns < listing.now_ns
    assert (one.role, one.origin, one.revoked_ns) == ("agent", "join", 0)
    assert one.seen_ns >= one.issued_ns > 0
    assert name in enrol(controller, "list").output


def test_a_token_buys_one_certificate(controller: ControllerProcess) -> None:
    secret = token(controller, "agent", "once*")
    join(controller, "once1", secret)
    with pytest.raises(RemoteError, match="has been used"):
        join(controller, "once2", secret)


def test_another_fleets_fingerprint_gets_no_token(
    controller: ControllerProcess, tmp_path: Path
) -> None:
    secret = token(controller, "agent", "x1")
    with pytest.raises(SyntonyError, match="another fleet, or the connection is intercepted"):
        join(controller, "x1", secret, "--fingerprint", "0" * 64)
    join(controller, "x1", secret)  # it was not sent


def test_a_role_is_what_the_token_says(controller: ControllerProcess) -> None:
    tls = join(controller, "wall", token(controller, "viewer", "wall"))
    target = f"127.0.0.1:{controller.port}"
    ask(target, FleetQuery(), tls=tls)
    config = controller.agent_config("wall", tls)
    with attached(config) as agent:
        eventually(lambda: bool(agent.reported))
    assert "is of role viewer; only agents attach" in str(agent.reported[0])


@pytest.mark.parametrize("role", [Role.AGENT, Role.VIEWER, Role.SCRAPER])
def test_tokens_and_revocations_are_for_operators(
    controller: ControllerProcess, role: Role
) -> None:
    tls = controller.issue("v1", role, place=f"v1-{role}")
    words = ["--controller", f"127.0.0.1:{controller.port}", "--ca", str(tls.ca), "--cert",
             str(tls.cert), "--key", str(tls.key)]  # fmt: skip
    for order in (["token", "operator", "me"], ["revoke", "h1"]):
        done = CliRunner().invoke(command, [*order, *words])
        assert "needs a certificate of role operator" in str(done.exception)


def test_a_revoked_agent_is_cut_and_stays_out_and_others_do_not_notice(
    controller: ControllerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    tls = join(controller, "bad", token(controller, "agent", "bad"))
    config = controller.agent_config("bad", tls)
    with (
        attached(config) as agent,
        attached(controller.agent_config("good")) as other,
    ):
        agent.send()
        other.send()
        before = (agent.uplink.connections, other.uplink.connections)
        enrol(controller, "revoke", "bad", "--comment", "sold")
        eventually(lambda: not connected(controller, "bad"))
        eventually(lambda: "host left the fleet host=bad" in controller.log())
        eventually(lambda: sum(isinstance(each, Refuse) for each in agent.reported) >= 3)  # retries
        refusal = next(each for each in agent.reported if isinstance(each, Refuse))
        assert "has been revoked" in refusal.reason
        agent.uplink.submit("probe_1s", *probe_rows("bad", 99))
        other.send()
        assert (agent.uplink.connections, other.uplink.connections) == before
        assert agent.spool.acknowledged == 1
        assert not connected(controller, "bad")
        reported = [r.getMessage() for r in caplog.records if "has been revoked" in r.getMessage()]
        assert len([line for line in reported if "uplink down" in line]) == 1  # not one each retry
        refused = [
            x for x in controller.log().splitlines() if "agent refused" in x and "'bad'" in x
        ]
        assert len(refused) == 1
        # The same host, with a new token; the files are replaced under the running agent.
        assert join(controller, "bad", token(controller, "agent", "bad")) == tls
        eventually(lambda: agent.spool.acknowledged == 2)


def test_a_revoked_peer_that_does_not_listen_is_cut_too(controller: ControllerProcess) -> None:
    """It neither reads nor stops sending; its stream must end all the same."""
    tls = join(controller, "deaf", token(controller, "agent", "deaf"))
    over = threading.Event()

    def said() -> Iterator[bytes]:
        yield encode(hello("deaf", "stream"))
        while not over.wait(0.05):
            yield encode(hello("deaf", "stream")) if over.is_set() else _batch()

    with _channel(controller, tls) as channel:
        call = channel.stream_stream(ATTACH)(said(), timeout=600)
        eventually(lambda: connected(controller, "deaf"))
        enrol(controller, "revoke", "deaf")
        eventually(lambda: not connected(controller, "deaf"))
        with contextlib.suppress(grpc.RpcError):
            for _ in call:
                pass
        assert call.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        over.set()
        # The TLS connection is still there: nothing can be asked over it.
        answer = decode_answer(channel.unary_unary(QUERY)(encode(FleetQuery()), timeout=600), Fleet)
        assert isinstance(answer, Failure)
        assert "has been revoked" in answer.reason
        (again, *_) = channel.stream_stream(ATTACH)(iter([encode(hello("deaf", "s"))]), timeout=600)
        assert isinstance(decode_controller(again), Refuse)


def _batch() -> bytes:
    rows, arrow = probe_rows("deaf", 1)
    return encode(Batch(seq=1, table="probe_1s", rows=rows, dropped=0, arrow=arrow))


def _channel(controller: ControllerProcess, tls: TlsFiles) -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials(
        Path(tls.ca).read_bytes(), Path(tls.key).read_bytes(), Path(tls.cert).read_bytes()
    )
    return grpc.secure_channel(f"127.0.0.1:{controller.port}", credentials)


def test_a_revoked_operator_gives_no_orders(controller: ControllerProcess) -> None:
    tls = join(controller, "ops", token(controller, "operator", "ops"))
    target = f"127.0.0.1:{controller.port}"
    ask(target, FleetQuery(), tls=tls)
    enrol(controller, "revoke", "ops")
    with pytest.raises(RemoteError, match="has been revoked"):
        ask(target, FleetQuery(), tls=tls)


# --- the enrolment port: no client certificate, so everybody reaches it ---
