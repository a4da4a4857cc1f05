"""Another controller beside a lab's own, agents that go over to it, and who may decide."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fleet.waiting import await_true
from tests.live import SYNTONY

from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.lab.client import Lab
from syntony.lab.plan import CONTROLLER
from syntony.wire.traffic import TrafficQuery

PORTS = (("8643", "8653"), ("9862", "9872"))
"""Of the lab's controller, and of the other one in the same namespace."""
PATIENCE_S = 90.0


@contextmanager
def other_controller(lab: Lab) -> Iterator[Path]:
    """Another one of the same fabric; its local socket."""
    own = (lab.directory / "controller.toml").read_text(encoding="utf-8")
    for old, new in PORTS:
        own = own.replace(f":{old}", f":{new}")
    for name in ("controller.sock", "store", "state"):
        own = own.replace(f'"{lab.directory / name}"', f'"{lab.directory / f"other-{name}"}"')
    config, log = lab.directory / "other.toml", lab.directory / "logs" / "other.log"
    config.write_text(own, encoding="utf-8")
    argv = lab.enter_argv(CONTROLLER, [*SYNTONY, "controller", "--config", str(config)])
    with log.open("wb") as said, subprocess.Popen(argv, stdout=said, stderr=said) as process:
        try:
            yield lab.directory / "other-controller.sock"
        finally:
            process.terminate()
            process.wait(30)


def go_over(lab: Lab, host: str) -> None:
    """The host's agent is started anew, and listens to the other controller."""
    fault = lab.inject("agent-kill", host)
    config = lab.directory / f"agent-{host}.toml"
    (old, new), _ = PORTS
    text = config.read_text(encoding="utf-8")
    assert f":{old}" in text
    config.write_text(text.replace(f":{old}", f":{new}"), encoding="utf-8")
    lab.clear(fault.id)


class Watch:
    """Asks both again and again whether they may decide."""

    def __init__(self, sockets: tuple[Path, Path]) -> None:
        self._sockets = sockets
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.both = self.requested = 0
        self._thread.start()

    def state(self) -> tuple[bool, bool]:
        first, other = (self._deciding(socket) for socket in self._sockets)
        return first, other

    @staticmethod
    def _deciding(socket: Path) -> bool:
        try:
            return ask(f"unix:{socket}", TrafficQuery()).deciding
        except RemoteError:  # it is starting
            return False

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self.both += self.state() == (True, True)
            self.requested += 1

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def wait(self, wanted: tuple[bool, bool], what: str) -> None:
        await_true(lambda: self.state() == wanted, what, patience_s=PATIENCE_S, pause_s=0.2)
