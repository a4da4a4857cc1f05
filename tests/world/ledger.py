"""What must hold at every step, whatever happens. The first thing that does not ends the world."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from copy import copy
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from syntony.controller.notify import NotifyResult
from syntony.model import ClockState, Timeline
from syntony.wire.clocks import Timelines
from syntony.wire.failover import Switch
from syntony.wire.traffic import Move

if TYPE_CHECKING:
    from tests.world.agent import Agent
    from tests.world.postgres import Session
    from tests.world.world import World

    from syntony.agent.spool import Spool


class BrokenError(Exception):
    """An invariant does not hold."""


class Order(NamedTuple):
    """The stop switch as the operator meant it."""

    number: int
    stopped: bool


class _Reading(NamedTuple):
    """A host's clock at one instant of true time, and its way to fleet time."""

    host: str
    line: Timeline
    local_ns: int


class _Kept:
    """Of one host's spool."""

    def __init__(self) -> None:
        self.streams: dict[int, str] = {}
        """Number → stream, of what is not acknowledged."""
        self.dropped = 0
        """As the spool said last."""
        self.base = 0
        """… and when it was opened last."""
        self.refused = 0
        self.missing = 0
        """Since then, neither in the spool nor in the store."""
        self.flips = 0
        """Bits that are wrong on the disk since the spool was opened last."""

    def copy(self) -> _Kept:
        made = copy(self)
        made.streams = dict(self.streams)
        return made


class Ledger:
    """Told of everything that is promised to somebody."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._spools: dict[str, _Kept] = {}
        self._before: dict[str, _Kept] = {}
        self._epochs: dict[str, int] = {}
        self._obeyed: dict[str, int] = {}
        self._committers: dict[int, object] = {}
        self._issuers: dict[int, str] = {}
        self._recorded = 0
        """The newest epoch in control state."""
        self._raised = 0
        """… by an order that was acknowledged."""
        self.moves: set[str] = set()
        """Those that were carried out."""
        self.orders: list[Order] = []
        self.acknowledged_order: Order | None = None
        self._given = 0
        """Orders that the audit log must have, once each if they were acknowledged."""
        self._next = 0
        """Whose fleet time the next new one is compared with."""
        self.revoked = False
        """The hostile host's certificate, and that was acknowledged."""
        self.checks = 0

    def broken(self, what: str) -> None:
        """Ends the world."""
        if self._world.loop.broken is None:
            self._world.log.say("ledger", f"BROKEN: {what}")
            self._world.loop.broken = BrokenError(what)

    def hold(self, what: bool, otherwise: str | Callable[[], str]) -> None:
        """Check one promise."""
        self.checks += 1
        if not what:
            self.broken(otherwise if isinstance(otherwise, str) else otherwise())

    # --- nothing acknowledged is lost or doubled ---

    def opened(self, agent: Agent) -> None:
        """A spool was opened, perhaps as it was some time ago."""
        found = self._spools.setdefault(agent.host.name, _Kept())
        now, flips = agent.spool.dropped_rows, found.flips
        self.hold(
            now - found.dropped <= flips,
            lambda: (
                f"{agent.host.name}: {now - found.dropped} batches lost by a start, "
                f"{flips} bits were wrong"
            ),
        )
        found.flips = 0
        # Each life accounts for what it finds lost: it may end before the number is acknowledged.
        held = _held(agent.spool)
        self._gone(agent, [number for number in found.streams if number not in held])
        found.base = now
        found.missing = found.refused = 0

    def flipped(self, host: str) -> None:
        """A bit of its spool is wrong: that costs the batch that it is in."""
        if host in self._spools:
            self._spools[host].flips += 1

    def appended(self, agent: Agent, number: int | None) -> None:
        found = self._spools[agent.host.name]
        if number is None:
            found.refused += 1
        else:
            found.streams[number] = agent.spool.stream
            self.hold(
                number > agent.spool.acknowledged,
                lambda: (
                    f"{agent.host.name} takes batch {number} for acknowledged before it is sent"
                ),
            )
        found.dropped = agent.spool.dropped_rows

    def acknowledged(self, agent: Agent, before: int) -> None:
        """The spool let go of batches."""
        self._gone(agent, range(before + 1, agent.spool.acknowledged + 1))

    def _gone(self, agent: Agent, numbers: Iterable[int]) -> None:
        """The spool has these no longer: they are in the store, or counted as lost."""
        found, host = self._spools[agent.host.name], agent.host.name
        for number in numbers:
            stream = found.streams.pop(number, None)
            if stream is not None and (host, stream, number) not in self._world.store.batches:
                found.missing += 1
        found.dropped = agent.spool.dropped_rows
        counted = found.dropped - found.base - found.refused
        self.hold(
            found.missing <= counted,
            lambda: (
                f"{host}: {found.missing} batches are neither in the spool nor in the store, "
                f"{counted} are counted as lost"
            ),
        )

    def snapshot(self, host: str) -> None:
        if host in self._spools:
            self._before[host] = self._spools[host].copy()

    def restored(self, host: str) -> None:
        """The disk went back in time."""
        self._spools[host] = self._before[host].copy()
        self._epochs.pop(host, None)
        self._obeyed.pop(host, None)

    # --- one leader acts per epoch ---

    def committed(self, session: Session) -> None:
        """A transaction of control state was committed."""
        server = self._world.server
        self.hold(
            server.lock_holder == session.pid,
            lambda: f"{session.node.name} changes control state without holding it",
        )
        row = server.database.execute("SELECT epoch FROM lease").fetchone()
        if row is not None:
            self._recorded = row[0]
            first = self._committers.setdefault(row[0], session.node)
            self.hold(
                first is session.node,
                f"{session.node.name} changes control state in another controller's epoch {row[0]}",
            )

    def obeyed(self, agent: Agent, issuer: str, epoch: int) -> None:
        """A decision was admitted."""
        before = self._epochs.get(agent.host.name, 0)
        self.hold(
            epoch >= before,
            lambda: f"{agent.host.name} obeys {issuer} of epoch {epoch} after epoch {before}",
        )
        self._epochs[agent.host.name] = epoch
        self.hold(
            epoch <= self._recorded,
            lambda: f"{issuer} decides in epoch {epoch}, which is not recorded: {self._recorded}",
        )
        first = self._issuers.setdefault(epoch, issuer)
        self.hold(first == issuer, lambda: f"{first} and {issuer} decide in epoch {epoch}")

    def raised(self, epoch: int) -> None:
        """An order to raise the epoch was acknowledged."""
        self._raised = max(self._raised, epoch)

    # --- a stop is obeyed for ever ---

    def woke(self, agent: Agent) -> None:
        """It started again, and goes by what it kept."""
        if agent.host.name in self._obeyed:
            self.switched(agent, again=True)
        self.hold(
            agent.fence.highest >= self._epochs.get(agent.host.name, 0),
            f"{agent.host.name} has forgotten whom it obeyed",
        )

    def took_over(self, name: str, epoch: int, switch: Switch | None) -> None:
        """A controller begins, with the switch as it found it."""
        self.hold(
            epoch > self._raised,
            lambda: f"{name} begins in epoch {epoch}, and {self._raised} was acknowledged",
        )
        wanted = self.acknowledged_order
        order = self.order_of(switch.by) if switch is not None else None
        self.hold(
            wanted is None or (order is not None and order.number >= wanted.number),
            lambda: f"{name} begins with {order}, and {wanted} was acknowledged",
        )

    def knows_revoked(self, name: str, refusal: str) -> None:
        """A controller begins; why it refuses the hostile host."""
        self.hold(
            bool(refusal) or not self.revoked,
            f"{name} begins, and would serve an agent whose certificate is revoked",
        )

    def switched(self, agent: Agent, *, again: bool = False) -> None:
        """It goes by another position of the switch than before."""
        host, position = agent.host.name, agent.switch.position
        order = self.order_of(position.by) if position is not None else None
        if position is None or order is None:
            self.broken(f"{host} obeys an order that no operator gave: {position}")
            return
        before = self._obeyed.get(host, 0)
        self.hold(
            order.number >= before if again else order.number > before,
            f"{host} goes back from order {before} to order {order.number}",
        )
        self.hold(
            order.stopped == position.stopped, f"{host} makes of {order} that it is {position}"
        )
        self._obeyed[host] = order.number

    def order_of(self, by: str) -> Order | None:
        """Of the operator's orders, by the name that it was given under."""
        _, mark, number = by.partition("order-")
        return self.orders[int(number) - 1] if mark and number.isdigit() else None

    # --- moves ---

    def moved(self, agent: Agent, move: Move, fleet_ns: int | None) -> None:
        """An order to move a job's queue pairs is carried out, perhaps without effect."""
        host = agent.host.name
        self.hold(
            fleet_ns is not None and fleet_ns < move.expires_ns,
            f"{host} obeys move {move.move_id}, which expired at {move.expires_ns}: {fleet_ns}",
        )
        self.hold(move.move_id not in self.moves, f"{host} gets move {move.move_id} twice")
        self.moves.add(move.move_id)

    # --- the audit log ---

    def gives_order(self) -> str:
        """A reason by which this order is found in the audit log."""
        self._given += 1
        return f"world {self._given}"

    def logged(self, why: str) -> None:
        """An order was acknowledged."""
        times = self._log().count(why)
        self.hold(times == 1, f"the order {why!r} was acknowledged, and is logged {times} times")

    def logged_once(self) -> None:
        """No order is in the log twice, acknowledged or not."""
        twice = [why for why, times in Counter(self._log()).items() if times > 1]
        self.hold(not twice, f"these orders are logged twice: {twice}")

    def _log(self) -> list[str]:
        rows = self._world.server.database.execute(
            "SELECT comment FROM change WHERE comment LIKE 'world %'"
        )
        return [comment for (comment,) in rows]

    # --- fleet time ---

    def timed(self, agent: Agent, message: Timelines) -> None:
        """New timelines came: fleet time does not go back, and clocks agree within their bounds."""
        name, clock = agent.host.name, agent.host.clock
        lines = {line.node: line for line in message.timelines}
        new, old = lines.get(name), agent.line
        local_ns = clock.read_ns(self._world.loop.true_ns)
        self.hold(
            new is None or new.epoch <= clock.epoch,
            lambda: f"{name} is told of an epoch of its clock that only it can know of: {new}",
        )
        if new is None or not _sound(new, clock.epoch):
            return
        if old is not None and _sound(old, clock.epoch):
            self._agree(_Reading(name, new, local_ns), _Reading(name, old, local_ns))
        agents = list(self._world.agents.values())
        self._next += 1
        for place in range(self._next, self._next + len(agents)):
            other = agents[place % len(agents)]
            theirs = other.line
            if other is agent or theirs is None or theirs.component != new.component:
                continue
            if other.node.alive and _sound(theirs, other.host.clock.epoch):
                self._agree(_Reading(name, new, local_ns), self._read(other, theirs))
                break

    def together(self) -> None:
        """All clocks of the fleet agree, each within its bound, and are one part."""
        readings = [
            self._read(agent, agent.line)
            for agent in self._world.agents.values()
            if agent.line is not None and _sound(agent.line, agent.host.clock.epoch)
        ]
        parts = {reading.line.component for reading in readings}
        self.hold(
            len(readings) == len(self._world.agents) and len(parts) == 1,
            lambda: f"{len(readings)} clocks know fleet time, of parts {sorted(parts)}",
        )
        for one, other in combinations(readings, 2):
            self._agree(one, other)

    def _read(self, agent: Agent, line: Timeline) -> _Reading:
        clock = agent.host.clock
        return _Reading(agent.host.name, line, clock.read_ns(self._world.loop.true_ns))

    def _agree(self, one: _Reading, other: _Reading) -> None:
        (a, line_a, at_a), (b, line_b, at_b) = one, other
        apart_ns = line_a.to_fleet_ns(at_a) - line_b.to_fleet_ns(at_b)
        bound_ns = line_a.bound_ns(at_a) + line_b.bound_ns(at_b)
        self.hold(
            abs(apart_ns) <= bound_ns,
            lambda: (
                f"fleet time of {a} and of {b} (before, if the same) are {apart_ns} ns apart, "
                f"{bound_ns:.0f} is the bound"
            ),
        )


def _sound(line: Timeline, epoch: int) -> bool:
    known = line.state in {ClockState.SYNCHRONIZED, ClockState.HOLDOVER}
    return known and line.epoch == epoch


def _held(spool: Spool) -> set[int]:
    """Numbers that it can still deliver, as it says."""
    return {
        number
        for segment in spool._segments
        for number, rows in enumerate(segment.rows, segment.first_seq)
        if rows
    }


LOSES = 0.15


class Pager:
    """A receiver that knows messages by their keys, as the documentation says one must."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._keys: dict[str, str] = {}
        self._said: dict[tuple[Any, ...], str] = {}
        self.open: dict[tuple[str, str], tuple[int, int]] = {}
        """(rule, subject) → number and beginning of the incident that was paged last."""
        self._numbers: dict[int, tuple[str, str, int]] = {}
        self.down = False
        self.loses = LOSES
        """Probability that a message is taken, and the answer is lost."""
        self.pages = 0
        self.paged: set[tuple[str, str]] = set()
        """(rule, subject)."""

    def post(self, url: str, body: bytes, headers: dict[str, str]) -> NotifyResult:
        """As `notify.post_json`."""
        loop = self._world.loop
        loop.spend(3_000_000)
        if self.down:
            return NotifyResult(False, False, "ConnectionRefusedError")
        self._take(json.loads(body), headers["Idempotency-Key"], body.decode())
        if self._world.chance.random() < self.loses:
            return NotifyResult(False, False, "TimeoutError")
        return NotifyResult(True, False, "200 OK")

    def _take(self, message: dict[str, Any], key: str, text: str) -> None:
        ledger, known = self._world.ledger, self._keys.get(key)
        if known is not None:
            ledger.hold(known == text, f"two messages have the key {key}")
            return
        self._keys[key] = text
        incident, event = message["incident"], message["event"]
        place = (incident["rule"], incident["subject"])
        self._world.log.say("pager", f"{event} {incident['number']} {place}")
        said = (event, incident["number"], incident["opened_ns"], incident["pages"])
        before = self._said.setdefault(said, key)
        ledger.hold(before == key, f"{event} of incident {incident['number']} is sent twice")
        this = incident["number"], incident["opened_ns"]
        first = self._numbers.setdefault(incident["number"], (*place, incident["opened_ns"]))
        ledger.hold(
            first == (*place, incident["opened_ns"]),
            f"incident {incident['number']} is {place}, and was {first}",
        )
        if event == "page":
            self.pages += 1
            self.paged.add(place)
            known_as = self.open.setdefault(place, this)
            ledger.hold(known_as == this, f"{place} is paged as {this}, and is {known_as} already")
        elif event == "clear":
            self.open.pop(place, None)
