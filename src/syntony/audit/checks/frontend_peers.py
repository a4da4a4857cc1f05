"""3 Front-end network: the ways to other hosts and to storage, for peers that the spec names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from syntony.audit.check import Compare, HostCheck, Key, Section
from syntony.audit.checks.disks import mounts_of
from syntony.audit.checks.frontend import FrontendCheck, records
from syntony.audit.facts import AbsentError, FactError, Facts, UnreadableError
from syntony.audit.parse.text import json_of, whole
from syntony.audit.pci import CLASS_NET
from syntony.audit.presence import PRESENT
from syntony.audit.result import ComparedValue, Result, Status, Suspect
from syntony.model import MS, format_ns

Peer = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9\[][A-Za-z0-9._:\[\]-]{0,254}$")]
"""A name or address, perhaps with a port; never an option of a command."""


def reach(count: int, peers: tuple[str, ...]) -> tuple[str, ...]:
    """The command that connects to peers."""
    return ("syntony", "audit", "reach", "--json", "--count", str(count), *peers)


class Mesh(HostCheck):
    """Every peer answers over the front-end network, at once and every time.

    Expected results: none of `count` TCP connections to each of the spec's `peers` lost; the 99th
    percentile of their set-up (of fewer than 100, the slowest) below `slow_ns`. Skipped without
    peers.
    """

    id = "fe.mesh"
    section = Section.FRONTEND
    reads = ("$ syntony audit reach --json PEER…",)
    meaning = "an access list, a route or a firewall keeps hosts apart, or packets are lost"
    remedy = "try the pair by hand in both directions; look at routes and at the switches between"
    suspect = Suspect.HOST

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        peers: tuple[Peer, ...] = ()
        """``gpu002:22``"""
        count: int = 20
        slow_ns: int = 20 * MS

    limits: Input

    def asks(self) -> tuple[str, ...]:
        return (f"$ {' '.join(reach(self.limits.count, self.limits.peers))}",)

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        peers = self.limits.peers
        if not peers:
            yield self.skip(host, 'no peers; name them in the spec: [checks."fe.mesh"] peers')
            return
        text = host.run(*reach(self.limits.count, peers))
        reported = {str(each.get("peer")): each for each in records(json_of(text, "`audit reach`"))}
        for peer in peers:
            yield self._one(host, peer, reported.get(peer))

    def _one(self, host: Facts, peer: str, reported: dict[str, Any] | None) -> Result:
        lost, p99 = (reported or {}).get("lost"), (reported or {}).get("p99_ns")
        what = "p99"
        if p99 is None and reported is not None:  # of few connections there is only a slowest one
            p99, what = reported.get("max_ns"), f"slowest of {reported.get('tries')}"
        if reported is None or not isinstance(lost, int):
            return self.unknown(host, f"nothing was measured to {peer}", peer)
        limit = self.limits.slow_ns
        slow = isinstance(p99, int) and p99 >= limit
        got = f"{lost} lost" + (f", {what} {format_ns(p99)}" if isinstance(p99, int) else "")
        why = str(reported.get("error") or "connect()")
        expected = f"0 lost, {what} < {format_ns(limit)}"
        return self.verdict(lost == 0 and not slow, host, got, expected, why, at=peer,
                            bad=Status.FAIL if lost else Status.WARN)  # fmt: skip


_USUAL_SIZES = (56, 1472, 8972, 8972 + 184)
"""A small one, and MTUs of 1,500, 9,000 and 9,184."""
_RECEIVED = re.compile(r"(\d{1,6}) packets transmitted, (\d{1,6}) (?:packets )?received")


class FrontEndPathMtu(FrontendCheck):
    """Packets as large as the interface allows reach every peer.

    Expected results: one of three pings with the don't-fragment bit and the front-end MTU comes
    back from each of the spec's `peers`; each host asks, so both directions are tried.
    """

    id = "fe.pmtu"
    section = Section.FRONTEND
    reads = ("$ ping -c 3 -i 0.2 -W 1 -M do -s SIZE PEER", "/proc/net/route",
             "/proc/net/ipv6_route", "/sys/class/net/*/mtu")  # fmt: skip
    meaning = "a hop has a smaller MTU and says nothing: large transfers hang"
    remedy = "set the MTU of the hop; tracepath finds it"
    suspect = Suspect.SWITCH

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        peers: tuple[Peer, ...] = ()

    limits: Input

    def asks(self) -> tuple[str, ...]:
        # A recorder cannot know the MTU beforehand: it tries the usual ones.
        pings = (f"$ ping -c 3 -i 0.2 -W 1 -M do -s {size} {peer}"
                 for peer in self.limits.peers for size in _USUAL_SIZES)  # fmt: skip
        return (*pings, *self.reads[1:])

    def look(self, host: Facts, names: tuple[str, ...]) -> Iterator[Result | ComparedValue]:
        if not self.limits.peers:
            yield self.skip(host, 'no peers; name them in the spec: [checks."fe.pmtu"] peers')
            return
        mtu = whole(host.read(f"{CLASS_NET}/{names[0]}/mtu"))
        if mtu is None:
            raise UnreadableError(f"{CLASS_NET}/{names[0]}/mtu holds no number")
        for peer in self.limits.peers:
            yield self._one(host, peer, mtu)

    def _one(self, host: Facts, peer: str, mtu: int) -> Result:
        small, large = (self._answers(host, peer, size) for size in (56, mtu - 28))
        if not small:
            return self.unknown(host, f"{peer} does not answer small pings either", peer)
        return self.verdict(large, host, "lost" if not large else "passes", f"{mtu} bytes pass",
                            "ping -M do", at=peer)  # fmt: skip

    @staticmethod
    def _answers(host: Facts, peer: str, size: int) -> bool:
        try:
            text = host.run("ping", "-c", "3", "-i", "0.2", "-W", "1", "-M", "do", "-s", str(size),
                            peer)  # fmt: skip
        except AbsentError as error:
            raise UnreadableError(str(error)) from error
        except UnreadableError:
            return False
        match = _RECEIVED.search(text)
        return match is not None and int(match[2]) > 0


_NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "lustre", "beegfs", "ceph", "gpfs", "wekafs", "cifs", "smb3", "fuse.s3fs",
     "fuse.sshfs", "fuse.juicefs", "fuse.cephfs", "9p", "virtiofs", "panfs", "pvfs2", "daos"}
)  # fmt: skip


class Storage(HostCheck):
    """What the host mounts and pulls from answers.

    Expected results: every network file system that most hosts of the role mount is mounted here
    too, and each of the spec's `mounts`; a TCP connection to each of its `endpoints` (NFS, Lustre,
    S3, registry).
    """

    id = "fe.storage"
    section = Section.FRONTEND
    reads = ("$ syntony audit reach --json ENDPOINT…", "/proc/mounts")
    meaning = "jobs cannot load data, write checkpoints or pull images"
    remedy = "mount it (mount -a, the automounter); look at the server, its export and the route"
    suspect = Suspect.CONFIG
    keys = (Key("fe.mount", "network file system that is mounted", Compare.PRESENT,
                variant="mount point"),)  # fmt: skip

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        endpoints: tuple[Peer, ...] = ()
        mounts: tuple[str, ...] = ()

    limits: Input

    def asks(self) -> tuple[str, ...]:
        if not self.limits.endpoints:
            return ("/proc/mounts",)
        return (f"$ {' '.join(reach(3, self.limits.endpoints))}", "/proc/mounts")

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        mounts = mounts_of(host.read("/proc/mounts"))
        remote = [mount for mount in mounts if mount.kind in _NETWORK_FILE_SYSTEMS]
        for mount in remote:
            yield self.reading(host, "fe.mount", PRESENT, mount.where, variant=mount.where,
                               evidence=f"{mount.kind} {mount.source}")  # fmt: skip
        mounted = {mount.where for mount in mounts}
        for where in self.limits.mounts:
            here = where in mounted
            yield self.verdict(here, host, "mounted" if here else f"{where} is not mounted",
                               "mounted", "/proc/mounts", at=where)  # fmt: skip
        if self.limits.endpoints:
            yield from self._endpoints(host)
        if not remote and not self.limits.endpoints and not self.limits.mounts:
            yield self.skip(
                host, "no network file system is mounted, and the spec names none "
                '([checks."fe.storage"] endpoints, mounts)'
            )  # fmt: skip

    def _endpoints(self, host: Facts) -> Iterator[Result]:
        text = host.run(*reach(3, self.limits.endpoints))
        reported = {str(each.get("peer")): each for each in records(json_of(text, "`audit reach`"))}
        for endpoint in self.limits.endpoints:
            lost = reported.get(endpoint, {}).get("lost")
            if not isinstance(lost, int):
                yield self.unknown(host, f"nothing was measured to {endpoint}", endpoint)
                continue
            why = str(reported[endpoint].get("error") or "connect()")
            yield self.verdict(lost == 0, host, f"{lost} of 3 lost", "0 lost", why, at=endpoint)


CLOCKS = ("syntony", "audit", "clocks", "--json")
_PAGE = "/run/syntony/clock.json"


class PeerTime(HostCheck):
    """The host's clock agrees with its peers' clocks, and how far that is known is enough.

    Expected results: for every host that this one exchanges probes with, the bound on how far the
    two clocks are apart below `bound_ns`, and the offset itself below `offset_ns`: no time service
    says so, the probes do. An offset that the bound makes doubtful is a warning. Skipped where no
    agent runs; offsets are skipped in a lab, whose clocks are wrong on purpose.
    """

    id = "fe.time"
    section = Section.FRONTEND
    reads = ("$ syntony audit clocks --json", _PAGE)
    meaning = "two hosts' logs and one-way delays cannot be compared; time-outs fire too early"
    remedy = (
        "see `syntony clock status` for why; compare the time servers of the two (chronyc sources)"
    )
    suspect = Suspect.CONFIG

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        bound_ns: int = 1 * MS
        offset_ns: int = 1 * MS

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        try:
            reported = json_of(host.run(*CLOCKS), "`syntony audit clocks`")
        except FactError as error:
            if host.exists(_PAGE) or "was not recorded" in str(error):
                yield self.unknown(host, str(error))
            else:
                yield self.skip(host, "no agent of Syntony runs here")
            return
        peers = records(reported.get("peers")) if isinstance(reported, dict) else []
        if not peers:
            yield self.unknown(host, "the agent knows no peer's clock")
        synthetic = isinstance(reported, dict) and reported.get("synthetic") is True
        for peer in peers:
            yield from self._peer(host, peer, synthetic=synthetic)
        if peers and synthetic:
            yield self.skip(host, "a lab's clocks are wrong on purpose", "offsets")

    def _peer(self, host: Facts, peer: dict[str, Any], *, synthetic: bool) -> Iterator[Result]:
        name = str(peer.get("peer", "?"))[:80]
        bound, offset = _number(peer.get("bound_ns")), _number(peer.get("offset_ns"))
        if bound is None or offset is None:
            why = str(peer.get("why") or "nothing is known of its clock")
            yield self.unknown(host, why[:160], name)
            return
        limit = self.limits.bound_ns
        yield self.verdict(
            bound < limit, host, f"± {format_ns(round(bound))}", f"bound < {format_ns(limit)}",
            " ".join(CLOCKS), at=name,
        )  # fmt: skip
        if synthetic:
            return
        most = self.limits.offset_ns
        surely = abs(offset) - bound >= most
        yield self.verdict(
            abs(offset) + bound < most, host,
            f"{format_ns(round(offset))} ± {format_ns(round(bound))}", f"within {format_ns(most)}",
            "this host's clock and the peer's, by the fleet's probes", at=name,
            bad=Status.FAIL if surely else Status.WARN,
        )  # fmt: skip


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18
    return float(value) if good else None
