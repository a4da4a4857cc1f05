"""Probe keys: one for each pair of hosts, rotated in two phases. Pure: time is an argument.

The controller keeps master keys, one an epoch. From it follows the key of every pair of hosts, and
each host gets those of its own pairs only. A rotation goes through four phases, each of which ends
when every host has said that it has carried it out:

* ``spreading``: everyone accepts the new epoch, and sends with the old one;
* ``switching``: everyone sends with the new one, and accepts both;
* ``draining``: packets of the old epoch that are under way arrive;
* ``steady``: the old epoch is gone, from the controller too.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Container, Iterable

import msgspec

from syntony.model import HOUR_NS, S

KEY_BYTES = 16
MASTER_BYTES = 32
PATIENCE_NS = HOUR_NS
"""A phase waits this long for a host that is not connected; then it is left behind. A restarted
controller begins the wait again: the clock of its predecessor's host may have shown another time.
"""
DRAIN_NS = 3 * S
"""Beyond the time after which a probe counts as lost (1 s), and an agent's pause."""
RETURN_NS = 30 * S
"""A restarted controller continues no rotation until its agents had time to reconnect."""
RESEND_NS = 5 * S
"""Interval at which a host that has not confirmed is sent its keys again."""
_PERSON = b"syntony probes 2"


class RotationPhase(enum.StrEnum):
    STEADY = "steady"
    SPREADING = "spreading"
    SWITCHING = "switching"
    DRAINING = "draining"


class Master(msgspec.Struct, frozen=True, kw_only=True):
    """The master key of one epoch; it never leaves the controller."""

    epoch: int
    """Number of the pairs' keys in packets, 1 to 2^32 - 1."""
    secret: bytes


class KeyRing(msgspec.Struct, frozen=True, kw_only=True):
    """State that must survive a restart of the controller; it is stored before hosts are
    informed."""

    masters: tuple[Master, ...]
    """Oldest first: one, or two while a rotation is under way."""
    phase: RotationPhase = RotationPhase.STEADY
    since_ns: int = 0
    """When the phase began, on the caller's clock."""
    hosts: tuple[str, ...] = ()
    """Hosts whose agents have keys; each phase waits for all of them."""
    left_behind: tuple[str, ...] = ()
    """Hosts that the last phases did not wait for any longer."""

    @property
    def epochs(self) -> tuple[int, ...]:
        """Epochs that every host accepts once the phase is carried out."""
        return tuple(master.epoch for master in self.masters)

    @property
    def sending(self) -> int:
        """The epoch to send with."""
        spreading = self.phase is RotationPhase.SPREADING
        return self.epochs[0] if spreading else self.epochs[-1]


def pair_key(master: Master, one: str, other: str) -> bytes:
    """The key of two hosts: BLAKE2b keyed by the master over both names and the epoch (RFC 7693).
    Keys of some pairs reveal nothing about those of others."""
    reported = "\n".join((str(master.epoch), *sorted((one, other)))).encode()
    return hashlib.blake2b(
        reported, digest_size=KEY_BYTES, key=master.secret, person=_PERSON
    ).digest()


class KeyRotation:
    """Decides which hosts a rotation waits for, and when its next phase begins.

    Args:
        ring: as it was kept; hosts must say again what they hold.
        now_ns: of the clock that `ring` was kept by.
    """

    def __init__(self, ring: KeyRing, now_ns: int) -> None:
        # The clock may have been set back while nobody looked.
        self.ring = msgspec.structs.replace(ring, since_ns=min(ring.since_ns, now_ns))
        self._began_ns = now_ns
        self._held: dict[str, tuple[tuple[int, ...], int]] = {}
        self._sent_ns: dict[str, int] = {}

    def begin(self, master: Master, now_ns: int) -> KeyRing | None:
        """The ring with a new rotation; None while one is under way."""
        ring = self.ring
        if ring.phase is not RotationPhase.STEADY:
            return None
        return msgspec.structs.replace(
            ring, masters=(*ring.masters, master), phase=RotationPhase.SPREADING, since_ns=now_ns,
            left_behind=(),
        )  # fmt: skip

    def attached(self, host: str) -> bool:
        """A host's agent has connected and is sent its keys; which it holds is unknown. Returns
        whether the host is new: then the ring must be stored soon."""
        self._held.pop(host, None)
        if host in self.ring.hosts:
            return False
        self.ring = msgspec.structs.replace(
            self.ring,
            hosts=(*self.ring.hosts, host),
            left_behind=tuple(each for each in self.ring.left_behind if each != host),
        )
        return True

    def forget(self, removed: Container[str]) -> bool:
        """Hosts have left the fleet; no phase waits for them. Returns whether the ring has changed
        and must be stored soon."""
        hosts = tuple(host for host in self.ring.hosts if host not in removed)
        left_behind = tuple(host for host in self.ring.left_behind if host not in removed)
        if (hosts, left_behind) == (self.ring.hosts, self.ring.left_behind):
            return False
        self.ring = msgspec.structs.replace(self.ring, hosts=hosts, left_behind=left_behind)
        return True

    def sent(self, host: str, now_ns: int) -> None:
        self._sent_ns[host] = now_ns

    def replanned(self, hosts: Iterable[str]) -> None:
        """These hosts, connected or not, have new peers and need other keys."""
        for host in hosts:
            self._held.pop(host, None)

    def held(self, host: str, epochs: tuple[int, ...], sending: int) -> None:
        """A host's agent has confirmed its keys."""
        self._held[host] = (epochs, sending)

    def waiting(self) -> tuple[str, ...]:
        """Hosts that have not carried out this phase."""
        wanted = (self.ring.epochs, self.ring.sending)
        return tuple(host for host in self.ring.hosts if self._held.get(host) != wanted)

    def unconfirmed(self, hosts: Iterable[str], now_ns: int) -> tuple[str, ...]:
        """Those of these hosts that should be sent their keys again."""
        waiting = set(self.waiting())
        return tuple(
            host
            for host in hosts
            if host in waiting and now_ns - self._sent_ns.get(host, now_ns) >= RESEND_NS
        )

    def next(self, now_ns: int) -> KeyRing | None:
        """The ring of the next phase if this one is over; store it, then `adopt` it."""
        ring = self.ring
        if ring.phase is RotationPhase.STEADY or now_ns - self._began_ns < RETURN_NS:
            return None
        waited_ns = now_ns - max(ring.since_ns, self._began_ns)
        if ring.phase is RotationPhase.DRAINING:
            if waited_ns < DRAIN_NS:
                return None
            return msgspec.structs.replace(
                ring, masters=ring.masters[-1:], phase=RotationPhase.STEADY, since_ns=now_ns
            )
        behind = self.waiting()
        if behind and waited_ns < PATIENCE_NS:
            return None
        following = {
            RotationPhase.SPREADING: RotationPhase.SWITCHING,
            RotationPhase.SWITCHING: RotationPhase.DRAINING,
        }
        return msgspec.structs.replace(
            ring,
            phase=following[ring.phase],
            since_ns=now_ns,
            hosts=tuple(host for host in ring.hosts if host not in behind),
            left_behind=(*ring.left_behind, *behind),
        )

    def adopt(self, ring: KeyRing) -> bool:
        """Use a stored ring; returns whether hosts must be informed."""
        reported = (self.ring.epochs, self.ring.sending) != (ring.epochs, ring.sending)
        self.ring = ring
        return reported
