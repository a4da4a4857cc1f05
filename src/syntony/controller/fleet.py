"""Who is in the fleet, and the probe plan that follows from it. Pure: time is an argument."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from syntony.controller.config import ControllerConfig
from syntony.mesh.plan import MeshNic
from syntony.model import NicRef, S
from syntony.model.names import nic_number
from syntony.wire.messages import Hello, NicInfo, Plan, ProbeFlow

SETTLE_NS = 1 * S
"""A new plan waits this long for further arrivals: starting agents give one plan, not one each."""
SETTLE_LIMIT_NS = 5 * S
"""… but no longer than this after the first."""
ABSENCE_NS = 300 * S
"""A host away for less keeps its place in the plan: restarts and flaps must not reshape the mesh."""
MAX_ID = (1 << 32) - 1


class Planner(Protocol):
    """`syntony.mesh.plan.make_plan`."""

    def __call__(
        self, nics: Sequence[MeshNic], *, peers: int, ecmp_paths: int, interval_ns: int, seed: int
    ) -> dict[str, tuple[ProbeFlow, ...]]: ...


class Member:
    """One host and what it has done."""

    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        self.connected = True
        self.left_ns = 0
        self.newest_ns = 0
        self.batches = 0
        self.rows = 0
        self.dropped = 0
        self.refused_rows = 0
        self.probes_per_s = 0.0


class Fleet:
    """Members, NIC numbers and the plan in force.

    Args:
        config: mesh settings.
        planner: makes the flows.
        key: authenticates probe packets of every plan of this controller's life (16 bytes).
        key_id: its number; differs from a predecessor's.
    """

    def __init__(self, config: ControllerConfig, planner: Planner, key: bytes, key_id: int) -> None:
        self.members: dict[str, Member] = {}
        self.generation = 0
        self._config = config
        self._planner = planner
        self._key = key
        self._key_id = key_id
        self._nic_ids: dict[NicRef, int] = {}
        self._nics: dict[NicRef, MeshNic] = {}
        self._flows: dict[str, tuple[ProbeFlow, ...]] = {}
        self._due_ns: int | None = None
        self._limit_ns = 0

    def join(self, hello: Hello, now_ns: int) -> None:
        """A host said hello; a new plan becomes due if it brings something new."""
        member = self.members.get(hello.host)
        known = member is not None and member.hello.nics == hello.nics
        if member is None:
            self.members[hello.host] = Member(hello)
        else:
            member.hello = hello
            member.connected = True
        planned = {ref for ref in self._nics if ref.host == hello.host}
        if not known or planned != set(_refs(hello)):
            self._request(now_ns)

    def leave(self, host: str, now_ns: int) -> None:
        """A host's stream ended."""
        member = self.members.get(host)
        if member is not None and member.connected:
            member.connected = False
            member.left_ns = now_ns

    def due(self, now_ns: int) -> bool:
        """Whether a new plan should be made now."""
        if self._due_ns is None and any(self._gone(host, now_ns) for host in self._flows):
            self._request(now_ns)
        return self._due_ns is not None and now_ns >= self._due_ns

    def replan(self, now_ns: int) -> dict[str, Plan]:
        """Make the plan of the present members; each host's part of it."""
        self._due_ns = None
        nics = [nic for host in sorted(self.members) for nic in self._mesh_nics(host, now_ns)]
        self._nics = {nic.ref: nic for nic in nics}
        config = self._config
        self._flows = self._planner(
            nics,
            peers=config.mesh_peers,
            ecmp_paths=config.ecmp_paths,
            interval_ns=config.probe_interval_ns,
            seed=config.seed,
        )
        self.generation += 1
        sources = self._sources()
        return {host: self._plan(host, sources[host]) for host in self._flows}

    def plan_of(self, host: str) -> Plan | None:
        """The host's part of the plan in force, if it has one."""
        if host not in self._flows:
            return None
        return self._plan(host, self._sources()[host])

    def clocks_of(self) -> dict[str, frozenset[str]]:
        """Per host: its own clocks and those of every NIC it probes or is probed by."""
        clocks: dict[str, set[str]] = defaultdict(set)
        for ref, nic in self._nics.items():
            clocks[ref.host].add(nic.clock)
        for host, flows in self._flows.items():
            for flow in flows:
                ours, theirs = self._nics[NicRef(host, flow.src)], self._nics[_ref(flow.dst)]
                clocks[host].add(theirs.clock)
                clocks[theirs.ref.host].add(ours.clock)
        return {host: frozenset(nodes) for host, nodes in clocks.items()}

    def flows(self) -> tuple[tuple[str, ProbeFlow], ...]:
        """(source NIC, flow) of the plan in force."""
        return tuple(
            (f"{host}/{flow.src}", flow)
            for host in sorted(self._flows)
            for flow in self._flows[host]
        )

    def _request(self, now_ns: int) -> None:
        if self._due_ns is None:
            self._limit_ns = now_ns + SETTLE_LIMIT_NS
        self._due_ns = min(now_ns + SETTLE_NS, self._limit_ns)

    def _gone(self, host: str, now_ns: int) -> bool:
        member = self.members[host]
        return not member.connected and now_ns - member.left_ns > ABSENCE_NS

    def _mesh_nics(self, host: str, now_ns: int) -> Iterable[MeshNic]:
        if self._gone(host, now_ns):
            return
        for info in sorted(self.members[host].hello.nics, key=lambda info: info.name):
            if info.addresses:
                yield self._mesh_nic(NicRef(host, info.name), info)

    def _mesh_nic(self, ref: NicRef, info: NicInfo) -> MeshNic:
        return MeshNic(
            ref=ref,
            nic_id=self._nic_id(ref),
            rail=info.rail,
            address=info.addresses[0],
            port=info.port,
            clock=info.clock,
        )

    def _nic_id(self, ref: NicRef) -> int:
        """A number that depends on the name, so that it survives restarts; the next if taken."""
        if ref not in self._nic_ids:
            taken = set(self._nic_ids.values())
            number = nic_number(ref)
            while number in taken or number == 0:
                number = (number + 1) & MAX_ID
            self._nic_ids[ref] = number
        return self._nic_ids[ref]

    def _sources(self) -> dict[str, set[NicRef]]:
        """Per host: the NICs that probe it."""
        sources: dict[str, set[NicRef]] = defaultdict(set)
        for host, flows in self._flows.items():
            for flow in flows:
                sources[_ref(flow.dst).host].add(NicRef(host, flow.src))
        return sources

    def _plan(self, host: str, sources: set[NicRef]) -> Plan:
        flows = self._flows[host]
        mine = {ref: nic for ref, nic in self._nics.items() if ref.host == host}
        partners = {_ref(flow.dst) for flow in flows} | sources | mine.keys()
        return Plan(
            generation=self.generation,
            nic_ids={ref.nic: nic.nic_id for ref, nic in mine.items()},
            nic_names={self._nics[ref].nic_id: str(ref) for ref in sorted(sources)},
            clocks={str(ref): self._nics[ref].clock for ref in sorted(partners)},
            key_id=self._key_id,
            key=self._key,
            flows=flows,
        )


def _refs(hello: Hello) -> Iterable[NicRef]:
    return (NicRef(hello.host, info.name) for info in hello.nics if info.addresses)


def _ref(text: str) -> NicRef:
    host, _, nic = text.partition("/")
    return NicRef(host, nic)
