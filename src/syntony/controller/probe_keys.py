"""Distributes and rotates probe keys: stores and sends the state of `mesh.key_rotation`."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping

from msgspec import structs

from syntony.controller.fleet import PlannedMesh
from syntony.controller.sessions import AgentSession
from syntony.errors import StateError, UsageError
from syntony.mesh.key_rotation import MASTER_BYTES, KeyRing, KeyRotation, Master, pair_key
from syntony.model import format_ns
from syntony.model.names import host_of
from syntony.state import ControlState, DatabaseConnection, log_change
from syntony.state.document import Document
from syntony.wire.control import Issuer
from syntony.wire.probes import KeysHeld, KeysStatus, PairKeys, ProbeKeys, RotateKeys

_log = logging.getLogger(__name__)
_MAX_EPOCH = (1 << 32) - 1
PERIODIC = Issuer("controller", "local")


class ProbeKeyDistribution:
    """Distributes probe keys to agents, and rotates them.

    One per controller, on its event loop; threads wait for the disk, one at a time.

    Args:
        state: stores the ring.
        sessions: attached agents.
        period_ns: between two rotations; 0: only by order.
        clock: reads this host's clock. Once it is read, phases are timed by `awake`: setting the
            host's clock ends neither a phase nor the wait for agents.
        awake: reads a clock that is never set.

    Raises:
        StateError: it cannot be read or first written.
    """

    def __init__(
        self,
        state: ControlState,
        sessions: Mapping[str, AgentSession],
        period_ns: int,
        clock: Callable[[], int],
        awake: Callable[[], int],
    ) -> None:
        self._state = state
        self._document = Document(state, "probe keys", KeyRing)
        self._sessions = sessions
        self._period_ns = period_ns
        self._host_clock, self._awake = clock, awake
        now_ns = clock()
        self._ahead_ns = now_ns - awake()
        ring = self._document.load()
        if ring is None:
            ring = KeyRing(masters=(_draw(secrets.randbelow(1 << 30)),), since_ns=now_ns)
            self._document.save(ring)
        self._rotation = KeyRotation(ring, now_ns)
        self._pairs: dict[str, dict[str, tuple[int, ...]]] | None = None
        """None: nothing is planned yet."""
        self._numbers: dict[str, int] = {}
        """Number of the last message to each host."""
        self._unkept = False
        """Whether hosts have joined since the ring was stored."""
        self._joined: set[str] = set()
        """Hosts that have attached since a write began."""
        self._one_write = asyncio.Lock()

    def _now(self) -> int:
        return self._awake() + self._ahead_ns

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that take part in rotations, attached or not."""
        return self._rotation.ring.hosts

    @property
    def known_hosts(self) -> tuple[str, ...]:
        """All hosts that have attached once and were not removed since, to any controller."""
        return (*self.hosts, *self._rotation.ring.left_behind)

    def plan(self, mesh: PlannedMesh) -> None:
        """A new plan: each host that has other pairs than before gets their keys, before it gets
        the plan."""
        before, self._pairs = self._pairs, _pairs(mesh)
        if before is None:
            self._rotation.replanned(self._pairs)
            self._send(self._sessions)
            return
        changed = [host for host, peers in self._pairs.items() if before.get(host) != peers]
        self._rotation.replanned(changed)
        self._send((*changed, *(host for host in before if host not in self._pairs)))

    def attached(self, host: str) -> None:
        self._unkept |= self._rotation.attached(host)
        self._joined.add(host)
        self._send((host,))

    def held(self, host: str, report: KeysHeld) -> None:
        """An agent has carried out a message; for older messages this is ignored, because they were
        for other pairs."""
        if report.number in {0, self._numbers.get(host)}:
            self._rotation.held(host, report.epochs, report.sending)

    async def step(self, removed: Container[str] = ()) -> None:
        """Advance if every host is ready. Raises `StateError`: nothing changes.

        Args:
            removed: hosts whose certificates are all revoked, which are not waited for.
        """
        async with self._one_write:
            self._unkept |= self._rotation.forget(removed)
            ring, now_ns = self._rotation.ring, self._now()
            if self._unkept:
                await self._keep(ring)
            if self._period_ns and now_ns - ring.since_ns >= self._period_ns:
                await self._begin(PERIODIC, f"every {format_ns(self._period_ns)}", now_ns)
            following = self._rotation.next(now_ns)
            if following is not None:
                for host in set(following.left_behind) - set(ring.left_behind):
                    _log.warning("probe keys: host excluded host=%s reason=away for too long", host)
                await self._adopt(following)
            self._send(self._rotation.unconfirmed(self._sessions, now_ns))

    async def rotate(self, order: RotateKeys, issuer: Issuer) -> KeysStatus:
        """Begin to rotate. Raises `UsageError`: a rotation is under way; `StateError`."""
        now_ns = self._now()
        async with self._one_write:
            started = await self._begin(issuer, order.why, now_ns)
        if not started:
            raise UsageError(
                f"a rotation is under way, {self._rotation.ring.phase}; "
                "`syntony probe keys` shows the agents that have not switched"
            )
        return self.status()

    def status(self) -> KeysStatus:
        ring = self._rotation.ring
        return KeysStatus(
            epochs=ring.epochs,
            sending=ring.sending,
            phase=ring.phase,
            age_ns=max(0, self._now() - ring.since_ns),
            waiting=self._rotation.waiting(),
            left_behind=ring.left_behind,
        )

    async def _begin(self, issuer: Issuer, why: str, now_ns: int) -> bool:
        newest = self._rotation.ring.epochs[-1]
        fresh = self._rotation.begin(_draw(newest % _MAX_EPOCH), now_ns)
        if fresh is None:
            return False
        change = ("probe keys", f"epoch {newest}", f"epoch {fresh.epochs[-1]}", why)
        fresh = await self._keep(
            fresh, lambda connection: log_change(connection, self._host_clock(), issuer, change)
        )
        self._rotation.adopt(fresh)
        self._send(self._sessions)
        return True

    async def _adopt(self, ring: KeyRing) -> None:
        """Keys are sent only once they are stored: a successor must not revert them."""
        ring = await self._keep(ring)
        if ring.phase is not self._rotation.ring.phase:
            _log.info("probe keys phase=%s epochs=%s", ring.phase, ring.epochs)
        if self._rotation.adopt(ring):
            self._send(self._sessions)

    async def _keep(
        self, ring: KeyRing, log: Callable[[DatabaseConnection], None] = lambda _: None
    ) -> KeyRing:
        """Store a ring, and its row of the audit log in the same transaction. Returns it with the
        hosts that attached meanwhile, which are stored next time. Raises `StateError`."""
        self._unkept, unkept = False, self._unkept
        self._joined.clear()
        try:
            await asyncio.to_thread(self._write, ring, log)
        except StateError:
            self._unkept |= unkept
            raise
        return self._with_joined(ring)

    def _write(self, ring: KeyRing, log: Callable[[DatabaseConnection], None]) -> None:
        with self._state.transaction() as connection:
            self._document.put(connection, ring)
            log(connection)

    def _with_joined(self, ring: KeyRing) -> KeyRing:
        joined = self._joined - set(ring.hosts)
        self._unkept |= bool(joined)
        return structs.replace(
            ring,
            hosts=(*ring.hosts, *sorted(joined)),
            left_behind=tuple(host for host in ring.left_behind if host not in joined),
        )

    def _send(self, hosts: Iterable[str]) -> None:
        # Agents keep the keys of their plan until there is a new one: keys without their pairs
        # would be confirmed, but none of the new epoch would be held.
        if self._pairs is None:
            return
        ring = self._rotation.ring
        for host in hosts:
            session = self._sessions.get(host)
            if session is None:
                continue
            pairs = tuple(
                PairKeys(
                    host=other,
                    nics=nics,
                    keys=tuple(pair_key(master, host, other) for master in ring.masters),
                )
                for other, nics in self._pairs.get(host, {}).items()
            )
            self._rotation.sent(host, self._now())
            number = self._numbers[host] = self._numbers.get(host, 0) + 1
            session.outbox.put(
                ProbeKeys(epochs=ring.epochs, sending=ring.sending, pairs=pairs, number=number)
            )


def _draw(after: int) -> Master:
    return Master(epoch=after + 1, secret=secrets.token_bytes(MASTER_BYTES))


def _pairs(mesh: PlannedMesh) -> dict[str, dict[str, tuple[int, ...]]]:
    """Host → every host that it probes or is probed by → the numbers of that host's NICs."""
    peers: dict[str, set[str]] = defaultdict(set)
    for host, flows in mesh.flows.items():
        for other in {host_of(dst) for dst in {flow.dst for flow in flows}}:
            peers[host].add(other)
            peers[other].add(host)
    numbers: dict[str, list[int]] = defaultdict(list)
    for ref, nic in sorted(mesh.nics.items()):
        numbers[ref.host].append(nic.nic_id)
    return {
        host: {other: tuple(numbers[other]) for other in sorted(others)}
        for host, others in peers.items()
    }
