"""A controller's incident book, killed again and again: `python -m` with a JSON order on stdin.

The world goes on by itself: at each tick some ports flap and an operator gives orders. A life of
the controller is a forked process that dies by SIGKILL before a given write, between two of them,
before a commit, after it, or just after a receiver has taken a message. The next life goes on at
the tick that was not finished, as the real one goes on with what it then observes.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from syntony.alerts.incidents import Incident, IncidentState
from syntony.controller.config import AlertSettings
from syntony.controller.incident_inputs import EvaluationInputs
from syntony.controller.incidents import IncidentService
from syntony.controller.notify import NotifyResult, Receiver
from syntony.errors import ConfigError
from syntony.model import S
from syntony.state import ControlState
from syntony.state.database import Database, DatabaseConnection
from syntony.wire.control import Issuer
from syntony.wire.incidents import IncidentAction, SilenceAction
from syntony.wire.links import LinkStatus

T0 = 1_700_000_000 * S
TICK_NS = 1_500 * S
"""Longer than any rule's `stable`, and than an incident can be reopened: a life that counts from
the beginning resolves some ticks later, which must not decide whether the next is the same."""
HELD = 8
"""Ticks that a state of the world lasts: longer than any rule's `open_after` and `clear_after`,
whose counts start again with a life. Orders are given in the last of them."""
ANN = Issuer("ann", "local")


class World:
    """Which ports flap, and what the operator orders, tick by tick."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.flaps: list[dict[str, int]] = []
        self.orders: list[tuple[str, str]] = []
        for _ in range(5):
            bad = {f"h{host}/rail0": draw.choice([0, 4, 9, 20]) for host in range(3)}
            order = (draw.choice(["ack", "resolve", "silence", ""]), f"h{draw.randrange(3)}/rail0")
            self.flaps += [bad] * HELD
            self.orders += [*[("", "")] * (HELD - 1), order]
        # At the end everything is well, for long enough to be reported.
        self.flaps += [dict.fromkeys(self.flaps[0], 0)] * HELD
        self.orders += [("", "")] * HELD


class Killer:
    """Ends this process at the n-th point."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.passed = 0

    def point(self) -> None:
        self.passed += 1
        if self.passed == self.left:
            os.kill(os.getpid(), signal.SIGKILL)


class KilledDatabase(Database):
    """Another database, with a point before each write, before and after each commit."""

    def __init__(self, inner: Database, killer: Killer) -> None:
        self._inner = inner
        self._killer = killer
        self.epoch, self.durable = inner.epoch, inner.durable

    @contextlib.contextmanager
    def transaction(self) -> Iterator[DatabaseConnection]:
        with self._inner.transaction() as connection:
            self._connection = connection
            yield self
            self._killer.point()
        self._killer.point()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        self._killer.point()
        return self._connection.execute(sql, values)

    def read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._inner.read(sql, *values)

    def close(self) -> None:
        self._inner.close()

    _begin = _query = _errors = None  # type: ignore[assignment]


class Links:
    """What the store tells of links."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.flaps: dict[str, int] = {}

    def ports(self, *_: int) -> tuple[LinkStatus, ...]:
        return tuple(
            LinkStatus(
                nic=nic, netdev="rail0", rdma="", link_layer="Ethernet", driver="x", role="compute",
                state="active", gbps=400.0, flaps=flaps, last_flap_ns=None, seen_ns=self.now_ns,
                watched_ns=0, temperature_c=None, rx_dbm=None, bias_ma=None,
            )
            for nic, flaps in self.flaps.items()
        )  # fmt: skip

    def counters(self, *_: int) -> tuple[()]:
        return ()

    def modules(self, *_: int) -> dict[str, tuple[str, str]]:
        return {}


def opened(place: Path | str) -> ControlState:
    """Control state; a server takes a moment to notice that the life before has ended."""
    for _ in range(100):
        with contextlib.suppress(ConfigError):
            return ControlState(place)
        time.sleep(0.1)
    return ControlState(place)


class Life:
    """One process's."""

    def __init__(self, place: Path | str, directory: Path, world: World, killer: Killer) -> None:
        self._killer, self._world, self._directory = killer, world, directory
        self.state = opened(place)
        if isinstance(place, Path):
            # The machine goes on when a process is killed: nothing need reach the disk.
            self.state.read("PRAGMA synchronous = OFF")
        self.state.database = KilledDatabase(self.state.database, killer)
        self.links = Links()
        receivers = tuple(
            Receiver(name=name, kind="webhook", url=f"http://{name}.example")
            for name in ("duty", "wall")
        )
        store: Any = type("Store", (), {"links": self.links, "jobs": self.links})()
        self.service = IncidentService(AlertSettings(receivers=receivers), self.state, store)
        self.service.notifier._post = self._post

    def _post(self, url: str, body: bytes, headers: dict[str, str]) -> NotifyResult:
        reported = {"url": url, "key": headers["Idempotency-Key"], "body": json.loads(body)}
        with (self._directory / "received").open("a") as file:
            file.write(json.dumps(reported) + "\n")
        self._killer.point()
        return NotifyResult(True, False, "200")

    def tick(self, number: int) -> None:
        now_ns = T0 + number * TICK_NS
        self.links.now_ns, self.links.flaps = now_ns, self._world.flaps[number]
        self._order(*self._world.orders[number], now_ns)
        self.service.evaluate(now_ns, EvaluationInputs({}))
        self.service.deliver(number * TICK_NS, now_ns, now_ns)
        (self._directory / "tick").write_text(str(number + 1))

    def _order(self, what: str, subject: str, now_ns: int) -> None:
        if what == "silence":
            if not self._done(f"silence of * on {subject}", now_ns):
                order = SilenceAction(by="", subject=subject, for_ns=7 * TICK_NS)
                self.service.silence(order, ANN, now_ns)
            return
        # What opened in this tick may be what an order before the crash has just resolved.
        live = [each for each in self.service.live() if each.opened_ns < now_ns]
        found = [each for each in live if each.subject == subject]
        for each in found if what else ():
            if not self._done(f"incident {each.number}", now_ns):
                order_ = IncidentAction(number=each.number, what=what, by="")
                self.service.act(order_, ANN, now_ns)

    def _done(self, what: str, now_ns: int) -> bool:
        """An operator without an answer looks before ordering again."""
        return any((each.what, each.at_ns) == (what, now_ns) for each in self.state.changes(0, 999))


def summary(state: ControlState, service: IncidentService) -> dict[str, Any]:
    book = service._book.state
    return {
        "numbers": [each.number for each in book.incidents],
        "next": book.next_number,
        "incidents": sorted(_reported(each) for each in book.incidents),
        "silences": [(each.subject, each.first_ns) for each in book.silences],
        "changes": [(each.what, each.at_ns, each.after) for each in state.changes(0, 999)],
        "waiting": service.notifier.waiting(),
        "acked": [
            each.number for each in book.incidents if each.state is IncidentState.ACKNOWLEDGED
        ],
    }


def _reported(each: Incident) -> tuple[str, str, int, str, str]:
    return (each.rule, each.subject, each.reopened, each.state.value, each.acknowledged_by)


def lives(place: Path | str, directory: Path, seed: int, kills: Sequence[int]) -> dict[str, Any]:
    """Lives until the world ends: the first dies at point `kills[0]`, and so on; the last does
    not."""
    world = World(seed)
    (directory / "tick").write_text("0")
    (directory / "received").touch()
    died = 0
    for kill in [*kills, 0]:
        child = os.fork()
        if not child:
            _live(place, directory, world, kill)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            died += 1
            continue
        if status:
            raise SystemExit(f"a life ended with status {status}")
        break
    found: dict[str, Any] = json.loads((directory / "summary").read_text())
    received = [json.loads(line) for line in (directory / "received").read_text().splitlines()]
    return {**found, "received": received, "died": died}


def _live(place: Path | str, directory: Path, world: World, kill: int) -> None:
    try:
        killer = Killer(kill)
        life = Life(place, directory, world, killer)
        for number in range(int((directory / "tick").read_text()), len(world.flaps)):
            life.tick(number)
        reported = summary(life.state, life.service) | {"points": killer.passed}
        (directory / "summary").write_text(json.dumps(reported))
        life.state.close()
    except BaseException:  # noqa: BLE001 — a forked child must never return into its parent
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def main() -> None:
    """Runs [place, directory, seed, kills] of stdin, prints what became of each."""
    for order in json.load(sys.stdin):
        place, directory, seed, kills = order
        Path(directory).mkdir()
        where = place if "://" in place else Path(place)
        print(json.dumps(lives(where, Path(directory), seed, kills)), flush=True)


if __name__ == "__main__":
    main()
