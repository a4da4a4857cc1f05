"""Who gets in, who does not and what they are reported; and what flows once attached."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.link import ControllerProcess, hello, open_spool, probe_rows
from tests.live import eventually

from syntony.agent.config import AgentConfig
from syntony.agent.fence import Fence
from syntony.agent.stream import Stream
from syntony.agent.uplink import REPEAT_NS, UnsentAuditReports, Uplink
from syntony.controller.client import ask
from syntony.controller.pki import create_authority
from syntony.errors import RemoteError, WireError
from syntony.io.transport import grpc
from syntony.model import HOUR_NS, Edge, S
from syntony.model.tls_files import TlsFiles
from syntony.wire.audit import AuditReport
from syntony.wire.clocks import ClockQuery, Clocks, Edges, Timelines
from syntony.wire.coding import encode
from syntony.wire.messages import (
    ATTACH,
    MAX_UNACKED,
    PROTOCOL,
    Ack,
    Batch,
    ControllerMessage,
    Decision,
    FleetQuery,
    Hello,
    Refuse,
    Unknown,
    bundles,
    decode_bundle,
    decode_controller,
)
from syntony.wire.probes import MatrixQuery, Plan, ProbeKeys
from syntony.wire.roles import Role


class Agent:
    """An uplink with everything it was reported."""

    def __init__(
        self, config: AgentConfig, says: str | None = None, *, reads_stored: bool = False
    ) -> None:
        self.reported: list[ControllerMessage] = []
        self.spool = open_spool(config.spool_dir, 1 << 20)
        name = says or config.host
        self.uplink = Uplink(
            config,
            lambda stream: msgspec.structs.replace(hello(name, stream), reads_stored=reads_stored),
            self.reported.append,
            self.spool,
        )

    def of(self, kind: type[ControllerMessage]) -> list[ControllerMessage]:
        return [message for message in self.reported if isinstance(message, kind)]


@contextlib.contextmanager
def attached(config: AgentConfig, says: str | None = None) -> Iterator[Agent]:
    agent = Agent(config, says)
    try:
        with agent.uplink:
            yield agent
    finally:
        agent.spool.close()


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_batches_are_acknowledged_and_counted(controller: ControllerProcess) -> None:
    with attached(controller.agent_config("a1")) as agent:
        for second in range(100):  # more than the window
            agent.uplink.submit("probe_1s", *probe_rows("a1", second))
        eventually(lambda: agent.spool.acknowledged == 100)
        status = {status.host: status for status in controller.fleet().agents}["a1"]
        assert (status.connected, status.batches, status.rows, status.dropped) == (
            True,
            100,
            100,
            0,
        )
        assert status.probes_per_s == 40
    eventually(lambda: not {s.host: s for s in controller.fleet().agents}["a1"].connected)


def test_what_is_submitted_together_is_sent_at_the_end_or_when_released(
    controller: ControllerProcess,
) -> None:
    with attached(controller.agent_config("a2")) as agent:
        eventually(lambda: agent.uplink.connected)
        with agent.uplink.together():
            for second in (0, 1):
                agent.uplink.submit("probe_1s", *probe_rows("a2", second))
            time.sleep(0.3)
            assert agent.spool.acknowledged == 0
            agent.uplink.release()
            eventually(lambda: agent.spool.acknowledged == 2)
            agent.uplink.submit("probe_1s", *probe_rows("a2", 2))
            time.sleep(0.3)
            assert agent.spool.acknowledged == 2
        eventually(lambda: agent.spool.acknowledged == 3)


def test_what_earlier_processes_left_is_delivered_first_and_counted_once(
    controller: ControllerProcess,
) -> None:
    config = controller.agent_config("b1")
    for life in range(3):
        spool = open_spool(config.spool_dir, 1 << 20)
        for second in range(5):
            spool.append("probe_1s", *probe_rows("b1", 10 * life + second))
        spool.close()
    with attached(config) as agent:
        agent.uplink.submit("probe_1s", *probe_rows("b1", 99))
        eventually(lambda: agent.spool.acknowledged == 16)
        eventually(lambda: agent.spool.oldest_stream() == (agent.spool.stream, None))
        status = {status.host: status for status in controller.fleet().agents}["b1"]
        assert (status.rows, status.dropped) == (16, 0)
        assert agent.uplink.connections <= 4


def test_what_is_handed_in_together_leaves_as_one_message(tmp_path: Path) -> None:
    config = AgentConfig(
        host="t1",
        controller="127.0.0.1:1",
        tls=TlsFiles(ca="ca", cert="cert", key="key"),
        nics=(),
        spool_dir=str(tmp_path),
    )
    spool = open_spool(tmp_path, 1 << 20)
    uplink = Uplink(config, lambda stream: hello("t1", stream), print, spool)
    stream = Stream(spool, Fence(tmp_path))
    leaving = uplink._messages(cast(Any, SimpleNamespace(stream=stream)))
    next(leaving)  # the hello
    sent = queue.SimpleQueue[bytes]()
    sender = threading.Thread(target=lambda: deque(map(sent.put, leaving)), daemon=True)
    sender.start()
    with uplink.together():
        for second in range(3):
            uplink.submit("probe_1s", *probe_rows("t1", second))
        uplink.send_edges([_edge("t1", "t2")])
        with pytest.raises(queue.Empty):
            sent.get(timeout=0.05)
    kinds = [type(message) for message in decode_bundle(sent.get(timeout=600))]
    assert kinds == [Edges, Batch, Batch, Batch]
    uplink.submit("probe_1s", *probe_rows("t1", 3))
    (last,) = decode_bundle(sent.get(timeout=600))
    assert isinstance(last, Batch)
    assert last.seq == 4
    uplink.close()
    sender.join(300)
    spool.close()


def test_a_report_of_an_audit_that_a_connection_may_have_lost_is_sent_again() -> None:
    def report(order: str) -> AuditReport:
        return AuditReport(order=order, report=b"{}")

    reports = UnsentAuditReports()
    for order, at_ns in (("old", 0), ("new", REPEAT_NS)):
        reports.add(report(order))
        assert reports.take(at_ns) == [report(order)]
    reports.add(report("waiting"))
    reports.disconnected(REPEAT_NS + 1)
    now_ns = REPEAT_NS + 2
    assert [*reports.take(now_ns), *reports.take(now_ns)] == [report("new"), report("waiting")]
    assert not reports
    reports.disconnected(3 * REPEAT_NS)
    assert not reports


def test_decisions_say_how_far_the_stream_is_stored(tmp_path: Path) -> None:
    """Only those that are obeyed; acknowledgements by themselves count as before."""
    spool = open_spool(tmp_path / "spool", 1 << 20)
    for second in range(9):
        spool.append("probe_1s", *probe_rows("t1", second))
    stream = Stream(spool, Fence(tmp_path))

    def said(epoch: int, stored: int) -> Decision:
        message = encode(Timelines(timelines=()))
        return Decision(issuer="c", epoch=epoch, message=message, stored=stored)

    for message, acknowledged in (
        (said(2, 3), 3), (said(2, 0), 3), (said(2, 2), 3), (Ack(seq=5), 5), (said(2, 6), 6),
    ):  # fmt: skip
        assert isinstance(stream.take(encode(message)), Ack | Timelines)
        assert spool.acknowledged == acknowledged
    with pytest.raises(WireError):
        stream.take(encode(said(1, 8)))
    assert spool.acknowledged == 6
    spool.close()


def test_more_than_a_window_is_delivered_to_an_agent_that_waits_for_decisions(
    controller: ControllerProcess,
) -> None:
    agent = Agent(controller.agent_config("w1"), reads_stored=True)
    try:
        with agent.uplink:
            for second in range(3 * MAX_UNACKED + 1):
                agent.uplink.submit("probe_1s", *probe_rows("w1", second))
            eventually(lambda: agent.spool.acknowledged == 3 * MAX_UNACKED + 1)
    finally:
        agent.spool.close()


def test_agents_without_keys_of_pairs_are_refused(controller: ControllerProcess) -> None:
    old = msgspec.structs.replace(GREETING, protocol=2, stream="before")
    (reported,) = _raw_told(controller, encode(old))
    assert isinstance(reported, Refuse)
    assert "(protocol 2) is too old for this controller" in reported.reason


def test_an_agent_of_a_later_version_is_served_if_it_speaks_ours_too(
    controller: ControllerProcess,
) -> None:
    later = msgspec.structs.replace(GREETING, protocol=PROTOCOL + 1, oldest=PROTOCOL)
    unheard = encode(later).replace(b"hello", b"hullo", 1)
    rows, arrow = probe_rows("r1", 7)
    batch = encode(Batch(seq=1, table="probe_1s", rows=rows, dropped=0, arrow=arrow))
    reported = _raw_told(controller, encode(later), unheard, *bundles([unheard, batch]))
    assert any(message == Ack(seq=1) for message in reported)
    assert controller.log().count("messages skipped host=r1 kind='hullo'") == 1


def test_agents_get_a_plan_for_one_another_and_timelines(controller: ControllerProcess) -> None:
    with (
        attached(controller.agent_config("p1")) as one,
        attached(controller.agent_config("p2")) as two,
    ):
        eventually(lambda: bool(one.of(Plan)) and bool(two.of(Plan)))
        plan = one.of(Plan)[-1]
        assert isinstance(plan, Plan)
        assert set(plan.nic_ids) == {"rail0", "rail1"}
        assert {flow.src for flow in plan.flows} == {"rail0", "rail1"}
        assert all(
            flow.dst in plan.clocks and not flow.dst.startswith("p1/") for flow in plan.flows
        )
        keys = one.of(ProbeKeys)[-1]
        assert isinstance(keys, ProbeKeys)
        assert all(len(key) == 16 for pair in keys.pairs for key in pair.keys)
        assert "p2" in {pair.host for pair in keys.pairs}

        def send_edge() -> bool:
            one.uplink.send_edges([_edge("p1", "p2"), _edge("elsewhere", "p2")])
            return bool(one.of(Timelines))

        eventually(send_edge)
        clocks = ask(f"unix:{controller.socket}", ClockQuery())
        assert isinstance(clocks, Clocks)
        assert {timeline.node for timeline in clocks.timelines} == {"p1", "p2"}


def _edge(a: str, b: str) -> Edge:
    return Edge(
        a=a,
        b=b,
        ref_ns=1_700_000_000 * S,
        theta_ns=100.0,
        drift_ppb=1.0,
        sigma_ns=5.0,
        drift_sigma_ppb=1.0,
        rtt_floor_ns=20_000.0,
        probes=400,
    )


def test_a_malformed_batch_is_counted_and_the_rest_goes_on(controller: ControllerProcess) -> None:
    rows, good = probe_rows("m1", 0)
    _, foreign = probe_rows("other", 0)
    with attached(controller.agent_config("m1")) as agent:
        for table, count, data in (
            ("probe_1s", rows, good),
            ("probe_1s", 3, b"not arrow"),
            ("no_such_table", 4, good),
            ("heard_1s", 5, good),
            ("probe_1s", 6, good),
            ("probe_1s", rows, foreign),
            ("probe_1s", rows, good),
        ):
            agent.uplink.submit(table, count, data)
        eventually(lambda: agent.spool.acknowledged == 7)
        status = {status.host: status for status in controller.fleet().agents}["m1"]
        assert (status.rows, status.dropped) == (2, 3 + 4 + 5 + 6 + 1)


def test_another_hosts_certificate_is_refused(
    controller: ControllerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with attached(controller.agent_config("c1"), says="c2") as agent:
        eventually(lambda: bool(agent.of(Refuse)))
        assert not agent.uplink.connected
    refusal = agent.of(Refuse)[0]
    assert isinstance(refusal, Refuse)
    assert "'c2' attached with the certificate of 'c1'" in refusal.reason
    assert len(_warnings(caplog)) == 1


def test_a_certificate_of_another_ca_is_refused(
    controller: ControllerProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = create_authority(tmp_path / "ca").issue(
        "s1", Role.AGENT, addresses=[], lifetime_ns=HOUR_NS, directory=tmp_path / "tls"
    )
    # The stranger trusts the fleet's CA; it is the controller that must refuse it.
    mixed = msgspec.structs.replace(stranger, ca=controller.tls.ca)
    with attached(controller.agent_config("s1", mixed)) as agent:
        eventually(lambda: bool(_warnings(caplog)))
        assert agent.reported == []
    assert "does not accept this certificate" in _warnings(caplog)[0]
    assert "s1" not in {status.host for status in controller.fleet().agents}


def test_a_controller_of_another_ca_is_not_trusted(
    controller: ControllerProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_authority(tmp_path / "ca")
    paths = msgspec.structs.replace(controller.issue("w1", place="w1"), ca=f"{tmp_path}/ca/ca.crt")
    with attached(controller.agent_config("w1", paths)) as agent:
        eventually(lambda: bool(_warnings(caplog)))
        assert agent.reported == []
    (line,) = _warnings(caplog)
    assert "a certificate is not accepted" in line


def test_a_controller_at_another_address_is_not_trusted(
    controller: ControllerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    config = controller.agent_config("w2")
    elsewhere = msgspec.structs.replace(config, controller=f"127.0.0.2:{controller.port}")
    with (
        _forwarded("127.0.0.2", controller.port),
        attached(elsewhere) as agent,
    ):
        eventually(lambda: bool(_warnings(caplog)))
        assert agent.reported == []
    (line,) = _warnings(caplog)
    assert "was not made for this address" in line


@contextlib.contextmanager
def _forwarded(address: str, port: int) -> Iterator[None]:
    """The loopback controller, reachable at another loopback address."""
    listener = socket.create_server((address, port))
    ends: list[socket.socket] = [listener]
    threads: list[threading.Thread] = []

    def start(work: Callable[..., None], *words: socket.socket) -> None:
        threads.append(threading.Thread(target=work, args=words, daemon=True))
        threads[-1].start()

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", port))
                ends.extend((client, server))
                start(pump, client, server)
                start(pump, server, client)

    start(accept)
    try:
        yield
    finally:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(300)
        for end in ends:
            end.close()


def test_an_expired_certificate_is_one_clear_line(
    controller: ControllerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    expired = controller.issue("e1", lifetime_ns=-60 * S, place="expired")
    with attached(controller.agent_config("e1", expired)):
        eventually(lambda: bool(_warnings(caplog)))
    (line,) = _warnings(caplog)
    assert "e1.crt expired on" in line
    assert "issue a new one" in line


def _raw_attach(controller: ControllerProcess, *messages: bytes, tls: bool = True) -> Refuse:
    """The refusal that a stream of our own making meets."""
    for message in _raw_told(controller, *messages, tls=tls):
        if isinstance(message, Refuse):
            return message
    raise AssertionError("not refused")


def _raw_told(
    controller: ControllerProcess, *messages: bytes, tls: bool = True
) -> Iterator[ControllerMessage | Unknown]:
    """What a stream of our own making is reported; it stays open until nobody listens."""
    over = threading.Event()

    def said() -> Iterator[bytes]:
        yield from messages
        over.wait(300)

    paths = controller.issue("r1", place="raw")
    if tls:
        credentials = grpc.ssl_channel_credentials(
            Path(paths.ca).read_bytes(), Path(paths.key).read_bytes(), Path(paths.cert).read_bytes()
        )
        channel = grpc.secure_channel(f"127.0.0.1:{controller.port}", credentials)
    else:
        channel = grpc.insecure_channel(f"unix:{controller.socket}")
    with channel:
        try:
            for data in channel.stream_stream(ATTACH)(said(), timeout=600):
                yield decode_controller(data)
        finally:
            over.set()


GREETING = hello("r1", "stream1")


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ((b"\xff\x00garbage",), "not a message"),
        ((encode(MatrixQuery()),), "not a message"),
        (
            (encode(Hello(protocol=PROTOCOL + 1, version="9", host="r1", nics=(), stream="s")),),
            "prot",
        ),
        ((encode(hello("r1", "../etc")),), "an invalid name"),
        ((encode(GREETING), b"garbage"), "not a message"),
        ((encode(GREETING), encode(GREETING)), "second hello"),
        ((encode(GREETING), *bundles([encode(GREETING)] * 2)), "second hello"),
        ((encode(GREETING), *bundles([encode(GREETING), b"garbage"])), "second hello"),
        (tuple(bundles([encode(GREETING)] * 2)), "not a message"),
    ],
)
def test_streams_that_make_no_sense_are_refused(
    controller: ControllerProcess, messages: tuple[bytes, ...], reason: str
) -> None:
    assert reason in _raw_attach(controller, *messages).reason
    assert controller.up()


def test_the_local_socket_takes_questions_only(controller: ControllerProcess) -> None:
    refusal = _raw_attach(controller, encode(GREETING), tls=False)
    assert "attach over TLS" in refusal.reason


def test_no_certificate_no_connection(controller: ControllerProcess) -> None:
    ca = (controller.directory / "tls" / "ca.crt").read_bytes()
    target = f"127.0.0.1:{controller.port}"
    for channel in (
        grpc.secure_channel(target, grpc.ssl_channel_credentials(ca)),
        grpc.insecure_channel(target),
    ):
        with channel, pytest.raises(grpc.RpcError) as caught:
            list(channel.stream_stream(ATTACH)(iter([encode(GREETING)]), timeout=600))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_questions_over_tls_and_their_failures(controller: ControllerProcess) -> None:
    target = f"127.0.0.1:{controller.port}"
    tls = controller.issue("q1", Role.VIEWER, place="q1")
    assert isinstance(ask(target, ClockQuery(), tls=tls), Clocks)
    with pytest.raises(RemoteError, match="ask for up to 7 days"):
        ask(target, MatrixQuery(window_ns=0), tls=tls)
    with pytest.raises(RemoteError, match="certificates are needed"):
        ask(target, ClockQuery())
    with pytest.raises(RemoteError, match="no controller answers at unix:/nonexistent"):
        ask("unix:/nonexistent/socket", FleetQuery())
    expired = controller.issue("q2", Role.VIEWER, lifetime_ns=-60 * S, place="q2")
    with pytest.raises(WireError, match="expired on"):
        ask(target, ClockQuery(), tls=expired)
