"""How long a fleet is without decisions when its controller dies or stands still.

    python -m bench.standby                  # 10 deaths of each kind, about ten minutes
    python -m bench.standby --rounds 2

Two controllers with control state in a PostgreSQL server of its own, one in charge, one waiting,
and an agent that knows both. The one in charge is killed (SIGKILL) or paused (SIGSTOP, and goes on
once the other is in charge). Printed is how long until the standby answers, and until the agent has
a decision of it. Checked: the stop switch stays as it was ordered, epochs grow by one, the paused
controller ends by itself. Exit status 1: a check failed, or a median beyond 5 s.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
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
        for how in (signal.SIGKILL, signal.SIGSTOP):
            found = [once(postgresql, how) for _ in range(rounds)]
            late |= told(how.name, found)
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


def once(postgresql: Server, how: signal.Signals) -> Takeover:
    """One death. Raises `AssertionError`: something was not as before."""
    with tempfile.TemporaryDirectory(prefix="syntony-bench-") as directory:
        place, state = Path(directory), postgresql.database()
        one = ControllerProcess(place, state=state, name="one")
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
                return _die(one, two, agent, how)
        finally:
            for each in (one, two):
                if each.ended() is None:
                    os.kill(each.pid, signal.SIGCONT)
                each.end(signal.SIGKILL)


def _die(
    one: ControllerProcess, two: ControllerProcess, agent: Agent, how: signal.Signals
) -> Takeover:
    agent.reported.clear()
    began = time.monotonic()
    os.kill(one.pid, how)
    answers_s = _seconds(began, two.up)
    decides_s = _seconds(began, lambda: _stopped(agent))
    local = f"unix:{two.socket}"
    switch = ask(local, FailoverStatusQuery()).switch
    if ask(local, ControllerQuery()).epoch != 2 or switch is None or not switch.stopped:
        raise AssertionError(f"not as before: {switch}")
    if how is signal.SIGSTOP:
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
