"""The controller that started last decides; agents refuse the others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from click.testing import CliRunner
from tests.agent_link.test_membership import Agent, attached
from tests.link import ControllerProcess, hello
from tests.live import eventually

from syntony.agent.fence import FILE
from syntony.cli.controller import command
from syntony.controller.client import ask
from syntony.controller.hello_check import RefusedError
from syntony.controller.leadership import Leadership
from syntony.errors import StateError, UsageError
from syntony.io.credentials import load_credentials
from syntony.io.transport import grpc
from syntony.model.tls_files import TlsFiles
from syntony.state import ControlState
from syntony.wire.coding import encode
from syntony.wire.control import ChangesQuery, Issuer, TakeoverCommand
from syntony.wire.failover import Switch, SwitchCommand
from syntony.wire.messages import ATTACH, Ack, Decision, Refuse
from syntony.wire.probes import Plan
from syntony.wire.roles import Role

STOP = SwitchCommand(stopped=True, by="ann", why="test")
OLD = Switch(stopped=False, at_ns=10**18, by="the controller of yesterday")


@contextlib.contextmanager
def started(directory: Path, name: str) -> Iterator[ControllerProcess]:
    controller = ControllerProcess(directory, name=name)
    controller.start()
    try:
        yield controller
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(controller.pid, signal.SIGCONT)
        controller.end(signal.SIGKILL)


def epoch(agent: Agent) -> int:
    return int((agent.directory / FILE).read_text())


def _kept(agent: Agent) -> int:
    return epoch(agent) if (agent.directory / FILE).exists() else 0


def refusals(agent: Agent) -> list[str]:
    return [each.reason for each in agent.reported if isinstance(each, Refuse)]


def test_a_paused_controller_wakes_up_after_its_successor_started(tmp_path: Path) -> None:
    """The successor has a copy of its control state: neither sees the other."""
    with started(tmp_path, "one") as one:
        with attached(one.agent_config("h1")) as agent:
            ask(f"unix:{one.socket}", STOP)
            eventually(lambda: any(isinstance(each, Switch) for each in agent.reported))
            assert epoch(agent) == 1
        os.kill(one.pid, signal.SIGSTOP)
        elsewhere = tmp_path / "elsewhere"
        shutil.copytree(tmp_path / "state", elsewhere / "state")
        shutil.copytree(tmp_path / "ca", elsewhere / "ca")
        with started(elsewhere, "two") as two:
            config = msgspec.structs.replace(
                one.agent_config("h1"), controller=f"127.0.0.1:{two.port}"
            )
            with attached(config) as agent:
                eventually(lambda: any(isinstance(each, Switch) for each in agent.reported))
                assert not any(each.live for each in agent.reported if isinstance(each, Switch))
                assert epoch(agent) == 2
            os.kill(one.pid, signal.SIGCONT)
            with attached(one.agent_config("h1")) as agent:
                eventually(lambda: bool(refusals(agent)))
                assert not any(isinstance(each, Switch) for each in agent.reported)
                assert epoch(agent) == 2
            assert "has obeyed a controller of epoch 2, this one has 1" in refusals(agent)[0]


@pytest.mark.slow
def test_a_control_state_from_a_backup_does_not_win_by_itself(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with started(tmp_path, "one"):
        pass
    shutil.copytree(tmp_path / "state", backup)
    for began in (2, 3):
        with started(tmp_path, "one") as one, attached(one.agent_config("h1")) as agent:
            eventually(lambda began=began: _kept(agent) == began)  # type: ignore[misc]
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(backup, tmp_path / "state")
    with started(tmp_path, "one") as one, attached(one.agent_config("h1")) as agent:
        eventually(lambda: bool(refusals(agent)))
        assert "epoch 3, this one has 2" in refusals(agent)[0]
        assert "takeover --above 3" in refusals(agent)[0]
        local = f"unix:{one.socket}"
        words = ["takeover", "--above", "3", "--comment", "restored", "--controller", local]
        done = CliRunner().invoke(command, words)
        assert done.exception is None, done.output
        eventually(lambda: agent.uplink.connected)
        eventually(lambda: epoch(agent) == 4)
        (change,) = ask(local, ChangesQuery()).changes
        assert (change.what, change.before, change.after, change.comment) == (
            "controller epoch", "2", "4", "restored",
        )  # fmt: skip
        # The raised epoch is kept.
        one.end()
        one.start()
        eventually(lambda: epoch(agent) == 5)


class Impostor:
    """A controller with a good certificate that does not know when it is over."""

    def __init__(self, tls: TlsFiles, *sent: bytes) -> None:
        self._sent = sent
        self.attached = 0
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        service, method = ATTACH.strip("/").split("/")
        handler = grpc.stream_stream_rpc_method_handler(self._attach)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        own = load_credentials(tls)
        credentials = grpc.ssl_server_credentials([(own.key, own.certificate)], own.ca, True)
        self.port = self._server.add_secure_port("127.0.0.1:0", credentials)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait(300)

    def _attach(self, requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
        self.attached += 1
        yield from self._sent
        for _ in requests:
            pass


@pytest.mark.parametrize("sealed", [True, False])
def test_the_agent_itself_refuses_decisions_of_yesterday(tmp_path: Path, *, sealed: bool) -> None:
    """Whatever the controller believes of itself."""
    controller = ControllerProcess(tmp_path)
    config = controller.agent_config("h1")
    Path(config.spool_dir).mkdir()
    (Path(config.spool_dir) / FILE).write_text("7")
    old = encode(OLD)
    decision = encode(Decision(issuer="one", epoch=6, message=old)) if sealed else old
    now = encode(Decision(issuer="two", epoch=7, message=encode(OLD)))
    tls = controller.issue("c1", Role.CONTROLLER)
    with Impostor(tls, encode(Ack(seq=0)), decision, now) as impostor:
        there = msgspec.structs.replace(config, controller=f"127.0.0.1:{impostor.port}")
        with attached(there) as agent:
            eventually(lambda: impostor.attached >= 3)
            assert not any(isinstance(each, Switch) for each in agent.reported)
    with Impostor(tls, encode(Ack(seq=0)), now) as impostor:
        there = msgspec.structs.replace(config, controller=f"127.0.0.1:{impostor.port}")
        with attached(there) as agent:
            eventually(lambda: OLD in agent.reported)


def test_only_a_later_epoch_is_taken_over(tmp_path: Path) -> None:
    issuer = Issuer("ann", "local")
    with ControlState(tmp_path) as state:
        leadership = Leadership(state)
        with pytest.raises(RefusedError, match="takeover --above 9"):
            leadership.check(_hello(9))
        assert (leadership.epoch, leadership.seen) == (1, 9)
        for above in (-1, 0, 1 << 62, 1 << 70):
            with pytest.raises(UsageError, match="is not later"):
                asyncio.run(leadership.take_over(TakeoverCommand(above=above, by="ann"), issuer, 3))
        asyncio.run(leadership.take_over(TakeoverCommand(above=9, by="ann"), issuer, 3))
        leadership.check(_hello(9))
        leadership.check(_hello(-1))
        assert leadership.epoch == 10
    with ControlState(tmp_path) as state:
        assert state.epoch == 11


def test_an_epoch_that_is_not_recorded_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents that had seen it would refuse every successor."""
    with ControlState(tmp_path) as state:
        begin = state.database._begin

        @contextlib.contextmanager
        def fails_at_the_commit() -> Iterator[Any]:
            with begin() as connection:
                yield connection
                raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(state.database, "_begin", fails_at_the_commit)
        order = TakeoverCommand(above=9, by="ann")
        with pytest.raises(StateError):
            asyncio.run(Leadership(state).take_over(order, Issuer("ann", "local"), 3))
        assert state.epoch == 1
    with ControlState(tmp_path) as state:
        assert state.epoch == 2


def _hello(seen: int) -> Any:
    return msgspec.structs.replace(hello("h1", "s"), epoch=seen)


def plan(epoch: int, generation: int) -> bytes:
    made = Plan(generation=generation, nic_ids={}, nic_names={}, clocks={}, flows=())
    return encode(Decision(issuer="one", epoch=epoch, message=encode(made)))


def generations(agent: Agent) -> list[int]:
    return [each.generation for each in agent.reported if isinstance(each, Plan)]


def test_a_plan_does_not_expire_and_an_older_one_is_not_obeyed(tmp_path: Path) -> None:
    """Not of an earlier controller, and not of the same one once there was a newer."""
    controller = ControllerProcess(tmp_path)
    config = controller.agent_config("h1")
    Path(config.spool_dir).mkdir()
    (Path(config.spool_dir) / FILE).write_text("7")
    tls = controller.issue("c1", Role.CONTROLLER)
    drawn = random.Random(seed := random.randrange(1 << 30))
    sent = [drawn.randrange(1, 1000) for _ in range(50)]
    with Impostor(tls, *(plan(7, each) for each in sent), plan(7, 1000)) as impostor:
        there = msgspec.structs.replace(config, controller=f"127.0.0.1:{impostor.port}")
        with attached(there) as agent:
            eventually(lambda: 1000 in generations(agent))
            newest = [each for place, each in enumerate(sent) if each >= max(sent[: place + 1])]
            assert generations(agent) == [*newest, 1000], f"{seed=}"
            assert agent.uplink.connected  # one plan is refused, not all that comes with it
    # One that keeps no state counts anew after its start; a replaced one is refused whatever it
    # counts to.
    with Impostor(tls, plan(7, 3), plan(6, 2000)) as impostor:
        there = msgspec.structs.replace(config, controller=f"127.0.0.1:{impostor.port}")
        with attached(there) as agent:
            eventually(lambda: impostor.attached >= 2)
            assert set(generations(agent)) == {3}
