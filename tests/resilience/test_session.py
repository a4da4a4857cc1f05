"""Frames, and what a worker makes of the coordinator's messages: over real sockets."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.live import eventually

from syntony.io.interposer import facts
from syntony.torch import priority
from syntony.torch.messages import (
    HEADER,
    MAX_TEXT,
    CoordinatorConnection,
    FrameError,
    decode,
    encode,
    make_socket,
    sizes,
)
from syntony.torch.session import CoordinatorSession, LostError, NewerError

MPTCP = 262


def test_a_frame_comes_back_as_it_was() -> None:
    frame = encode({"kind": "x", "n": 1}, b"abc")
    text, record = sizes(frame[: HEADER.size])
    assert decode(frame[HEADER.size : HEADER.size + text]) == {"kind": "x", "n": 1}
    assert frame[HEADER.size + text :] == b"abc"
    assert record == 3


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"kind": 1}', b"\xff", b"{"])
def test_what_is_no_message(text: bytes) -> None:
    with pytest.raises(FrameError):
        decode(text)


def test_a_frame_too_large_is_refused_before_it_is_read() -> None:
    with pytest.raises(FrameError):
        sizes(HEADER.pack(MAX_TEXT + 1, 0))


class Coordinator:
    """The other end of one worker's connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}:secret"
        self.peer: socket.socket | None = None

    def accept(self) -> None:
        self.peer, _ = self._listener.accept()

    def say(self, record: bytes = b"", **message: Any) -> None:
        assert self.peer is not None
        self.peer.sendall(encode(message, record))

    def close(self) -> None:
        self._listener.close()
        if self.peer is not None:
            self.peer.close()


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    made = Coordinator()
    yield made
    made.close()


@pytest.fixture
def session(coordinator: Coordinator) -> Iterator[CoordinatorSession]:
    made = CoordinatorSession(coordinator.target, "w")
    coordinator.accept()
    yield made
    made.close()


def outcome(action: Callable[[], Any]) -> Any:
    """What it returned or raised, once it has."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(action())
        except (NewerError, LostError) as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(300.0)
    return found[0] if found else "still waiting"


def test_a_survivor_reports_anew_to_a_generation_that_overtakes(
    coordinator: Coordinator, session: CoordinatorSession
) -> None:
    coordinator.say(kind="freeze", generation=1)
    coordinator.say(kind="freeze", generation=2)
    eventually(lambda: session.wanted == 2, "both arrive")
    assert isinstance(outcome(lambda: session.wait_plan_of(1)), NewerError)
    coordinator.say(kind="plan", generation=2, boundary=5)
    assert outcome(lambda: session.wait_plan_of(2))["boundary"] == 5


def test_plans_of_past_generations_do_not_count(
    coordinator: Coordinator, session: CoordinatorSession
) -> None:
    coordinator.say(kind="plan", generation=1, boundary=4)
    coordinator.say(kind="freeze", generation=2)
    coordinator.say(kind="plan", generation=2, boundary=5)
    coordinator.say(kind="form", generation=2, address="a:1")
    eventually(lambda: session.wanted == 2, "it is received")
    assert outcome(lambda: session.wait_address(2)) == "a:1"
    assert outcome(session.wait_plan)["generation"] == 2
    assert isinstance(outcome(lambda: session.wait_address(1)), NewerError)


def test_without_a_coordinator_nobody_waits_for_it(
    coordinator: Coordinator, session: CoordinatorSession
) -> None:
    coordinator.close()
    assert isinstance(outcome(lambda: session.wait_plan_of(0)), LostError)
    assert outcome(lambda: session.wait_ack(3)) is None
    assert outcome(session.wait_release) is None
    session.send("heard")


def test_a_record_is_acknowledged(coordinator: Coordinator, session: CoordinatorSession) -> None:
    coordinator.say(kind="ack", boundary=7, floor=6)
    assert outcome(lambda: session.wait_ack(7)) is None
    assert (session.acked, session.floor, session.reason) == (7, 6, "")


def test_a_spare_gets_its_share_before_it_says_that_it_is_ready(
    coordinator: Coordinator, session: CoordinatorSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored: list[int] = []

    def restore(pid: int) -> None:
        assert not session._said["waiting"]
        restored.append(pid)
        coordinator.say(kind="assign", rank=3, world=4)

    monkeypatch.setattr(priority, "restore", restore)
    assert outcome(session.wait_rank) == 3
    assert outcome(session.wait_rank) == 3
    assert restored == [os.getpid()], "once: then it has a rank"


def test_a_refused_connection_is_an_error(coordinator: Coordinator) -> None:
    coordinator.close()
    with pytest.raises(OSError, match="refused"):
        CoordinatorConnection(coordinator.target, {})


def test_a_forked_child_says_nothing_and_its_parent_goes_on(
    coordinator: Coordinator, session: CoordinatorSession
) -> None:
    with session._out:  # as another thread may at that moment
        child = os.fork()
        if not child:
            session.send("finished")
            session.wait_release()
            os._exit(7 if session.lost else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    session.send("boundary", b"record", boundary=0)
    coordinator.say(kind="ack", boundary=0, floor=0)
    session.wait_ack(0)
    assert not session.lost
    assert session.acked == 0
    assert coordinator.peer is not None
    coordinator.peer.settimeout(600)
    heard = b""
    while b"record" not in heard:
        heard += coordinator.peer.recv(4096)
    assert b"finished" not in heard


@pytest.mark.parametrize(
    ("address", "several"), [("127.0.0.1", False), ("localhost", False), ("10.0.0.1", True)]
)
def test_connections_between_hosts_have_several_paths(address: str, several: bool) -> None:
    """Where the kernel can."""
    with make_socket(address) as made:
        assert (made.proto == MPTCP) == (several and facts().mptcp)
