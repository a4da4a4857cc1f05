"""Members of the fleet, and the probe plan for them. Pure: time is an argument."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from syntony.controller.config import ControllerConfig
from syntony.controller.ingest import BatchOutcome
from syntony.fabric.learn import FIRST_NS, FLEET_NS, INTERVAL_NS
from syntony.mesh.plan import MeshNic, make_plan, over_verbs
from syntony.model import MS, NicRef, S
from syntony.model.names import host_of, nic_number
from syntony.wire.messages import Hello, NicInfo
from syntony.wire.parts import PartStatus
from syntony.wire.probes import Plan, ProbeFlow

SETTLE_NS = 500 * MS
"""A new plan waits this long for further arrivals: starting agents give one plan, not one each. A
controller's first plan does not, once all hosts of its predecessor are back."""
SETTLE_LIMIT_NS = 5 * S
"""… but no longer than this after the first."""
ABSENCE_NS = 300 * S
"""A host that is absent for less keeps its place in the plan: a restart must not change the
mesh."""
RETURN_NS = 15 * S
"""For the same reason, a controller's first plan waits this long for its predecessor's hosts, whose
agents retry every 5 s at least. Agents keep their plans meanwhile."""
QUIET_NS = 2 * S
"""… but no longer than this after one of them came back: where there is a standby, agents retry
every second, and one host that is down must not keep a new leader from deciding."""
MAX_ID = (1 << 32) - 1


class AddressOwners(msgspec.Struct, frozen=True):
    """Address → the host that has it, as stored for the next controller."""

    hosts: dict[str, str]


class Member:
    def __init__(self, hello: Hello) -> None:
        self.attach(hello)
        self.has_rdma = False
        """Whether it ever had a NIC with RDMA: a restarted agent finds RDMA ports only later."""
        self.left_ns = 0
        self.newest_ns = 0
        self.batches = 0
        self.rows = 0
        self.dropped = 0
        self.refused_rows = 0
        self.probes_per_s = 0.0
        self.via = ""
        """The gateway that its agent was last attached to; empty: none."""
        self.in_band = ""
        """The NIC (``host/nic``) that its agent's last connection came from; empty: another
        network than the fabric."""
        self.faults: tuple[str, ...] = ()
        """Reported NICs that are not used → why."""
        self._parts: tuple[PartStatus, ...] = ()
        self._parts_ns = 0

    def attach(self, hello: Hello) -> None:
        """Its agent is connected, and says this."""
        self.hello = hello
        of_nics = {clock for nic in hello.nics for clock in (nic.clock, nic.verbs_clock)}
        self.clocks = frozenset({hello.host} | of_nics)
        """Names of the clocks of the host and its NICs."""
        self.connected = True

    def count(self, outcome: BatchOutcome) -> None:
        self.batches += 1
        self.dropped = outcome.dropped
        if outcome.refused:
            self.refused_rows += outcome.rows
            return
        self.rows += outcome.rows
        self.newest_ns = max(self.newest_ns, outcome.newest_ns)
        if outcome.probes_per_s is not None:
            self.probes_per_s = outcome.probes_per_s

    def take_parts(self, parts: tuple[PartStatus, ...], now_ns: int) -> None:
        """Set the state of the parts of its agent; `now_ns` is monotonic."""
        self._parts, self._parts_ns = parts, now_ns

    @property
    def part_states(self) -> tuple[tuple[str, str, str], ...]:
        """Name, state and reason of each part of its agent."""
        return tuple((part.name, str(part.state), part.reason) for part in self._parts)

    def parts(self, now_ns: int) -> tuple[PartStatus, ...]:
        """As its agent last reported, aged by the time since; `now_ns` is monotonic."""
        waited_ns = now_ns - self._parts_ns
        return tuple(
            msgspec.structs.replace(part, age_ns=part.age_ns + waited_ns) for part in self._parts
        )


class PlannedMesh(NamedTuple):
    """One plan and what follows from it; immutable once made."""

    generation: int
    nics: dict[NicRef, MeshNic]
    flows: dict[str, tuple[ProbeFlow, ...]]
    plans: dict[str, Plan]
    """Per host; one that did not change is the same object as before, of that generation."""
    clocks: dict[str, frozenset[str]]
    """Per host: its own clocks and those of every NIC it probes or is probed by."""
    verbs: dict[str, tuple[ProbeFlow, ...]]
    """Flows over verbs."""
    probed: frozenset[str] = frozenset()
    """Clocks of NICs that probe or are probed: each must be on the fleet timeline."""


class Fleet:
    """Members, NIC numbers and the plan in force.

    Args:
        config: mesh settings.
    """

    def __init__(self, config: ControllerConfig) -> None:
        self.members: dict[str, Member] = {}
        self.mesh = PlannedMesh(0, {}, {}, {}, {}, {})
        self.refused = 0
        """Number of refused agents."""
        self.contested: dict[NicRef, str] = {}
        """NICs left out of the plan, by an address that another host claims as well."""
        self.withheld: dict[NicRef, tuple[str, ...]] = {}
        """NICs of the plan, by addresses other than the probed one that another host claims as
        well: connections to these are attributed to neither NIC."""
        self.owners: dict[str, str] = {}
        """Address → the host that has it by the plan in force; for hosts of the previous
        controller's plan that are not back yet, by that plan."""
        self._config = config
        self._nic_ids: dict[NicRef, int] = {}
        self._taken: set[int] = set()
        self._due_ns: int | None = None
        self._limit_ns = 0
        self._awaited: set[str] = set()
        self._awaited_until_ns = self._returned_until_ns = 0
        self._away: set[str] = set()
        """Members that are not connected."""
        self._ports: tuple[int, dict[tuple[str, str], int]] = (0, {})
        self._further: frozenset[tuple[str, str]] = frozenset()

    def await_return(self, hosts: Iterable[str], now_ns: int) -> None:
        """Hosts that were in the fleet when the previous controller ended: no plan without them
        yet."""
        self._awaited = set(hosts) - self.members.keys()
        self._awaited_until_ns = self._returned_until_ns = now_ns + RETURN_NS

    def join(self, hello: Hello, now_ns: int, faults: Sequence[str] = ()) -> None:
        """A host sent its hello; a new plan becomes due if it contains anything new.

        Args:
            hello: with the usable NICs.
            now_ns: monotonic.
            faults: why others are not usable.
        """
        member = self.members.get(hello.host)
        known = member is not None and (
            (member.hello.nics, member.hello.reads_device_stamps)
            == (hello.nics, hello.reads_device_stamps)
        )
        if member is None:
            member = self.members[hello.host] = Member(hello)
        else:
            member.attach(hello)
        if hello.host in self._awaited:
            self._returned_until_ns = min(now_ns + QUIET_NS, self._awaited_until_ns)
        self._away.discard(hello.host)
        member.has_rdma |= any(nic.rdma for nic in hello.nics)
        member.faults = tuple(faults)
        if not known or any(ref not in self.mesh.nics for ref in _refs(hello)):
            self._request(now_ns)

    def leave(self, host: str, now_ns: int) -> None:
        """A host's stream ended."""
        member = self.members.get(host)
        if member is not None and member.connected:
            member.connected = False
            self._away.add(host)
            member.left_ns = now_ns

    def remove(self, hosts: Iterable[str], now_ns: int) -> tuple[str, ...]:
        """Remove hosts whose streams have ended; they own no address any more, nor do those that a
        previous controller knew. Returns those that were in the fleet."""
        connected = {host for host, member in self.members.items() if member.connected}
        left = {host for host in hosts if host not in connected}
        gone = [host for host in left if self.members.pop(host, None) is not None]
        self._away.difference_update(gone)
        kept = {a: host for a, host in self.owners.items() if host not in left} if left else {}
        if gone or (left and len(kept) < len(self.owners)):
            self.owners = kept
            self._request(now_ns)
        return tuple(sorted(gone))

    def heirs(self) -> dict[str, str]:
        """Absent host → a connected one that has one of its addresses now, as if it was renamed."""
        if not self._away:
            return {}
        now = {
            address: host
            for host, member in self.members.items()
            if member.connected
            for address in _addresses(member.hello)
        }
        return {
            host: now[address]
            for host in self._away
            for address in _addresses(self.members[host].hello)
            if address in now
        }

    def is_clock(self, node: str) -> bool:
        member = self.members.get(host_of(node))
        return member is not None and node in member.clocks

    def parts(self, now_ns: int) -> dict[str, tuple[PartStatus, ...]]:
        """Host → the parts of its agent, for agents that have reported; `now_ns` is monotonic."""
        reported = {host: member.parts(now_ns) for host, member in self.members.items()}
        return {host: parts for host, parts in reported.items() if parts}

    def due(self, now_ns: int) -> bool:
        """Whether a new plan should be made now."""
        if self._awaited:
            self._awaited -= self.members.keys()
            if self._awaited and now_ns < self._returned_until_ns:
                return False
            if not self._awaited and self._due_ns is not None:
                self._due_ns = now_ns  # there is nobody left to wait for
            self._awaited.clear()
        if self._due_ns is None and any(
            host in self.mesh.flows and self._gone(host, now_ns) for host in self._away
        ):
            self._request(now_ns)
        return self._due_ns is not None and now_ns >= self._due_ns

    def replan(self, now_ns: int, generation: int = 0) -> PlannedMesh:
        """Make the plan of the present members and put it in force.

        Args:
            now_ns: monotonic.
            generation: the plan's number, unless plans in force had higher ones.

        May run in a separate thread while the other methods are called from another: members that
        join meanwhile make the next plan due.
        """
        self._due_ns = None
        hosts = [host for host in sorted(self.members) if not self._gone(host, now_ns)]
        device_stamps = all(
            member.hello.reads_device_stamps or not member.has_rdma
            for member in map(self.members.__getitem__, hosts)
        )
        nics = {
            nic.ref: nic if device_stamps else nic._replace(verbs_clock="")
            for host in hosts
            for nic in self._mesh_nics(host)
        }
        nics = self._without_contested(nics)
        config = self._config
        flows = make_plan(
            list(nics.values()),
            peers=config.mesh_peers,
            ecmp_paths=config.ecmp_paths,
            interval_ns=config.probe_interval_ns,
            seed=config.seed,
            further=[(_ref(a), _ref(b)) for a, b in sorted(self._further)],
        )
        generation = max(generation, self.mesh.generation + 1)
        verbs = over_verbs(flows, nics, config.verbs_classes, config.verbs_interval_ns)
        plans = self._plans(generation, nics, flows, verbs, device_stamps=device_stamps)
        plans = {host: _kept(plan, self.mesh.plans.get(host)) for host, plan in plans.items()}
        clocks = _clocks(nics, flows, verbs)
        self.mesh = PlannedMesh(generation, nics, flows, plans, clocks, verbs, _probed(nics, flows))
        return self.mesh

    def set_extra_pairs(self, pairs: frozenset[tuple[str, str]], now_ns: int) -> None:
        """Set the pairs of NICs to probe in addition to the mesh's; a new plan becomes due if they
        changed. `now_ns` is monotonic."""
        if pairs != self._further:
            self._further = pairs
            self._request(now_ns)

    def flows(self) -> tuple[tuple[str, ProbeFlow], ...]:
        """(source NIC, flow) of the plan in force."""
        return tuple(
            (f"{host}/{flow.src}", flow) for host, mine in self.mesh.flows.items() for flow in mine
        )

    def verbs_flows(self) -> tuple[tuple[str, ProbeFlow], ...]:
        """The same for flows over verbs."""
        return tuple(
            (f"{host}/{flow.src}", flow) for host, mine in self.mesh.verbs.items() for flow in mine
        )

    def probe_ports(self) -> dict[tuple[str, str], int]:
        """(prober, target) → the target's port; the same object while a plan is in force."""
        if self._ports[0] != self.mesh.generation:
            ports = {(src, flow.dst): flow.dst_port for src, flow in self.flows()}
            self._ports = (self.mesh.generation, ports)
        return self._ports[1]

    def in_band(self) -> dict[str, str]:
        """Host → the NIC that its agent's connection crosses, for those that have no other network
        for management."""
        return {host: member.in_band for host, member in self.members.items() if member.in_band}

    def nic_names(self) -> dict[str, str]:
        """Address → ``host/nic``, of the plan in force."""
        return {nic.address: str(ref) for ref, nic in self.mesh.nics.items()}

    def _request(self, now_ns: int) -> None:
        if self._due_ns is None:
            self._limit_ns = now_ns + SETTLE_LIMIT_NS
        self._due_ns = min(now_ns + SETTLE_NS, self._limit_ns)

    def _gone(self, host: str, now_ns: int) -> bool:
        member = self.members[host]
        return not member.connected and now_ns - member.left_ns > ABSENCE_NS

    def _mesh_nics(self, host: str) -> Iterable[MeshNic]:
        for info in sorted(self.members[host].hello.nics, key=lambda info: info.name):
            if info.addresses:
                yield self._mesh_nic(NicRef(host, info.name), info)

    def _without_contested(self, nics: dict[NicRef, MeshNic]) -> dict[NicRef, MeshNic]:
        """Remove addresses that several hosts claim, and NICs that would be probed at one. The
        previous owner keeps an address: neither a second claim nor the controller's restart takes
        it away. Without a previous owner, none gets it."""
        claims = _by_address(nics)
        lost: dict[NicRef, set[str]] = defaultdict(set)
        for address, refs in claims.items():
            if len({each.host for each in refs}) > 1:
                for ref in refs:
                    if ref.host != self.owners.get(address):
                        lost[ref].add(address)
        self.contested = {
            ref: nics[ref].address for ref, those in lost.items() if nics[ref].address in those
        }
        self.withheld = {
            ref: tuple(sorted(those)) for ref, those in lost.items() if ref not in self.contested
        }
        left = {
            ref: nic._replace(others=tuple(each for each in nic.others if each not in lost[ref]))
            if ref in lost
            else nic
            for ref, nic in nics.items()
            if ref not in self.contested
        }
        away = {a: host for a, host in self.owners.items() if host not in self.members}
        self.owners = away | {a: refs[0].host for a, refs in _by_address(left).items()}
        return left

    def _mesh_nic(self, ref: NicRef, info: NicInfo) -> MeshNic:
        return MeshNic(
            ref=ref,
            nic_id=self._nic_id(ref),
            rail=info.rail,
            address=info.addresses[0],
            port=info.port,
            clock=info.clock,
            others=info.addresses[1:],
            rdma=info.rdma,
            verbs_clock=info.verbs_clock,
        )

    def _nic_id(self, ref: NicRef) -> int:
        """A number that depends on the name, to survive restarts; the next one if taken."""
        if ref not in self._nic_ids:
            number = nic_number(ref)
            while number in self._taken or number == 0:
                number = (number + 1) & MAX_ID
            self._taken.add(number)
            self._nic_ids[ref] = number
        return self._nic_ids[ref]

    def _plans(
        self,
        generation: int,
        nics: dict[NicRef, MeshNic],
        flows: dict[str, tuple[ProbeFlow, ...]],
        verbs: dict[str, tuple[ProbeFlow, ...]],
        *,
        device_stamps: bool,
    ) -> dict[str, Plan]:
        own: dict[str, set[NicRef]] = defaultdict(set)
        for ref in nics:
            own[ref.host].add(ref)
        targets = {
            host: {_ref(dst) for dst in {flow.dst for flow in mine}} for host, mine in flows.items()
        }
        sources = _sources(flows)
        # In steps, so that few joins change the plans of all hosts.
        first_trace_ns = min(-(-len(flows) * FLEET_NS // FIRST_NS) * FIRST_NS, INTERVAL_NS)
        return {
            host: Plan(
                generation=generation,
                nic_ids={ref.nic: nics[ref].nic_id for ref in sorted(own[host])},
                nic_names={nics[ref].nic_id: str(ref) for ref in sorted(sources[host])},
                clocks={
                    str(ref): nics[ref].clock
                    for ref in sorted(own[host] | targets[host] | sources[host])
                },
                flows=mine,
                others={
                    str(ref): nics[ref].others for ref in sorted(targets[host]) if nics[ref].others
                },
                verbs=verbs.get(host, ()),
                verbs_clocks={
                    str(ref): nics[ref].verbs_clock
                    for ref in sorted(own[host] | targets[host])
                    if nics[ref].verbs_clock
                },
                device_stamps=device_stamps,
                first_trace_ns=first_trace_ns,
            )
            for host, mine in flows.items()
        }


def _kept(plan: Plan, before: Plan | None) -> Plan:
    """The plan before, if only its number would change."""
    if before is None or msgspec.structs.replace(plan, generation=before.generation) != before:
        return plan
    return before


def _by_address(nics: dict[NicRef, MeshNic]) -> dict[str, list[NicRef]]:
    found: dict[str, list[NicRef]] = defaultdict(list)
    for ref, nic in nics.items():
        for address in dict.fromkeys((nic.address, *nic.others)):
            found[address].append(ref)
    return found


def _sources(flows: dict[str, tuple[ProbeFlow, ...]]) -> dict[str, set[NicRef]]:
    sources: dict[str, set[NicRef]] = defaultdict(set)
    for host, mine in flows.items():
        for src, dst in {(flow.src, flow.dst) for flow in mine}:
            sources[_ref(dst).host].add(NicRef(host, src))
    return sources


def _probed(nics: dict[NicRef, MeshNic], flows: dict[str, tuple[ProbeFlow, ...]]) -> frozenset[str]:
    pairs = {(host, flow.src, flow.dst) for host, mine in flows.items() for flow in mine}
    ends = {end for host, src, dst in pairs for end in (NicRef(host, src), _ref(dst))}
    return frozenset(nics[end].clock for end in ends)


def _clocks(
    nics: dict[NicRef, MeshNic],
    flows: dict[str, tuple[ProbeFlow, ...]],
    verbs: dict[str, tuple[ProbeFlow, ...]],
) -> dict[str, frozenset[str]]:
    clocks: dict[str, set[str]] = defaultdict(set)
    for ref, nic in nics.items():
        clocks[ref.host] |= {ref.host, nic.clock}
    for host, mine in flows.items():
        for src, dst in {(flow.src, flow.dst) for flow in mine}:
            ours, theirs = nics[NicRef(host, src)], nics[_ref(dst)]
            clocks[host].add(theirs.clock)
            clocks[theirs.ref.host].add(ours.clock)
    for host, mine in verbs.items():
        for src, dst in {(flow.src, flow.dst) for flow in mine}:
            ours, theirs = nics[NicRef(host, src)], nics[_ref(dst)]
            clocks[host] |= {each.verbs_clock or each.ref.host for each in (ours, theirs)}
    return {host: frozenset(nodes) for host, nodes in clocks.items()}


def _refs(hello: Hello) -> Iterable[NicRef]:
    return (NicRef(hello.host, info.name) for info in hello.nics if info.addresses)


def _addresses(hello: Hello) -> Iterable[str]:
    return (address for info in hello.nics for address in info.addresses)


def _ref(text: str) -> NicRef:
    host, _, nic = text.partition("/")
    return NicRef(host, nic)
