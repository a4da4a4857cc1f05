"""How long a fleet is without decisions when its controller dies, hangs or loses its database.

    python -m bench.standby                  # 10 deaths of each kind, about ten minutes
    python -m bench.standby --rounds 2

Two controllers with control state in a PostgreSQL server of its own, one in charge, one waiting,
and an agent that knows both. The one in charge is killed (SIGKILL), paused (SIGSTOP, and goes on
once the other is in charge) or gets no answer of its database any more. Printed is how long until
the standby answers, and until the agent has a decision of it. Checked: the stop switch stays as it
was ordered, epochs grow by one, the one that was replaced ends by itself. Exit status 1: a check
failed, or a median beyond 5 s.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
from tests.agent_link.test_membership import Agent, attached
from tests.link import ControllerProcess
from tests.live import eventually
from tests.postgres import Server, server

from syntony.controller.client import ask
from syntony.wire.control import ControllerQuery
from syntony.wire.failover import FailoverStatusQuery, Switch, SwitchCommand

PROMISED_S = 5.0
SOCKET = ".s.PGSQL.5432"


class Way:
    """The leader's connections to the database, which can be held up."""

    def __init__(self, directory: Path, server: Path) -> None:
        self._server = str(server / SOCKET)
        self._open = threading.Event()
        self._open.set()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(directory / SOCKET))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, *, held: bool) -> None:
        """Pass nothing on, in either direction; both ends stay connected."""
        (self._open.clear if held else self._open.set)()

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._open.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


class Takeover(NamedTuple):
    """Seconds from the death."""

    answers_s: float
    decides_s: float
    """Until the agent has obeyed it."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    late = False
    with server() as postgresql:
        for how in (signal.SIGKILL, signal.SIGSTOP, None):
            found = [once(postgresql, how) for _ in range(rounds)]
            late |= told(how.name if how is not None else "database", found)
    print(f"load {Path('/proc/loadavg').read_text().split()[0]}, {os.cpu_count()} cores")
    return int(late)


def told(name: str, found: list[Takeover]) -> bool:
    """Print one kind of death; whether its median is later than promised."""
    answers = [each.answers_s for each in found]
    decides = [each.decides_s for each in found]
    median_s = statistics.median(decides)
    print(
        f"{name}: standby answers after {statistics.median(answers):.2f} s "
        f"(longest {max(answers):.2f}), agent obeys it after {median_s:.2f} s "
        f"(longest {max(decides):.2f}), {len(found)} rounds"
    )
    return median_s > PROMISED_S


def once(postgresql: Server, how: signal.Signals | None) -> Takeover:
    """One death; None: the loss of the database. Raises `AssertionError`: something was not as
    before."""
    with tempfile.TemporaryDirectory(prefix="syntony-bench-") as directory:
        place, state = Path(directory), postgresql.database()
        way = Way(place, postgresql.directory)
        through = state.replace(str(postgresql.directory), directory)
        one = ControllerProcess(place, state=through, name="one")
        two = ControllerProcess(place, state=state, name="two", standby=True)
        try:
            one.start()
            two.begin()
            eventually(lambda: "standby, waiting" in two.log())
            both = tuple(f"127.0.0.1:{each.port}" for each in (one, two))
            config = msgspec.structs.replace(one.agent_config("h1"), controller=both)
            with attached(config) as agent:
                ask(f"unix:{one.socket}", SwitchCommand(stopped=True, by="bench", why="bench"))
                eventually(lambda: _stopped(agent))
                return _die(one, two, agent, how or way)
        finally:
            for each in (one, two):
                if each.ended() is None:
                    os.kill(each.pid, signal.SIGCONT)
                each.end(signal.SIGKILL)


def _die(
    one: ControllerProcess, two: ControllerProcess, agent: Agent, how: signal.Signals | Way
) -> Takeover:
    agent.reported.clear()
    began = time.monotonic()
    if isinstance(how, Way):
        how.hold(held=True)
    else:
        os.kill(one.pid, how)
    answers_s = _seconds(began, two.up)
    decides_s = _seconds(began, lambda: _stopped(agent))
    local = f"unix:{two.socket}"
    switch = ask(local, FailoverStatusQuery()).switch
    if ask(local, ControllerQuery()).epoch != 2 or switch is None or not switch.stopped:
        raise AssertionError(f"not as before: {switch}")
    if how is not signal.SIGKILL:
        if isinstance(how, Way):
            how.hold(held=False)
        else:
            os.kill(one.pid, signal.SIGCONT)
        eventually(lambda: one.ended() is not None)
        if not two.up():
            raise AssertionError("the one that had taken over ended, too")
    return Takeover(answers_s, decides_s)


def _stopped(agent: Agent) -> bool:
    switches = [each for each in list(agent.reported) if isinstance(each, Switch)]
    return any(each.stopped for each in switches)


def _seconds(began: float, condition: Callable[[], bool]) -> float:
    eventually(condition)
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
