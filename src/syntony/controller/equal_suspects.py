"""Suspects that probes cannot distinguish, because nothing is left to compare them with. Pure.

If hosts are dead at all of their NICs and no other host is at their switches, the switches may be
dead instead. If all other NICs are dead, the last two probe only each other, and either may be the
one that loses packets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from syntony.fabric.extra_probes import suspected
from syntony.fabric.names import (
    REPLIES_OF,
    ComponentKind,
    hosts_at,
    link_ends,
)
from syntony.model import S
from syntony.model.findings import Finding
from syntony.model.names import host_of

WORTH_JOINING = 2
"""Minimum number of dead hosts that are compared with their switches."""
TOGETHER_NS = 2 * S
"""Maximum time between deaths of one cause: agents report every second."""
_HOSTS = frozenset({ComponentKind.HOST, ComponentKind.NIC, ComponentKind.REPLIES})
_SWITCHES = frozenset({
    ComponentKind.LEAF, ComponentKind.SPINE, ComponentKind.AGG, ComponentKind.CORE,
    ComponentKind.SWITCH,
})  # fmt: skip


def with_switches_of_dead_hosts(
    findings: Sequence[Finding],
    homes: Mapping[str, str],
    silent_ns: Mapping[str, int],
    known_ns: Mapping[str, int],
    *,
    up: Collection[str] = frozenset(),
) -> tuple[Finding, ...]:
    """The findings, with switches in place of dead hosts where the two look the same.

    If hosts are dead at all NICs, and are all the hosts at no more switches than that, each of
    these switches is named instead, together with the hosts at it.

    Hosts that do not report are dead or cut off: their replies are missing. If they died one after
    the other, they are named themselves; if one of these switches is up, the hosts at each.

    Args:
        findings: of localisation.
        homes: NIC → the switch that it is at.
        silent_ns: host → for how long its agent has sent no report.
        known_ns: component → for how long an incident has named it as lossy.
        up: as `DarkHosts.switches_up`.
    """
    named = [each for each in findings if each.fault == "blackhole" and each.kind in _HOSTS]
    if len(named) < WORTH_JOINING:
        return tuple(findings)
    nics = _nics_of(homes)
    dead = {found: _named_nics(found, nics) for found in named}
    dead = {
        found: of
        for found, of in dead.items()
        # A host that reports while it does not answer is short of processor time.
        if found.kind != ComponentKind.REPLIES
        or all(silent_ns.get(host_of(nic), 0) > TOGETHER_NS for nic in of)
    }
    everything = frozenset[str]().union(*dead.values())
    hosts = {host for host in map(host_of, everything) if nics[host] <= everything}
    replaced: set[Finding] = set()
    added: list[Finding] = []
    for group, switches in _groups(hosts, nics, homes):
        of_group = [found for found, of in dead.items() if {host_of(nic) for nic in of} & group]
        names = {name for found in of_group for name in suspected(found)}
        if not _died_together(group, names, silent_ns, known_ns):
            continue
        both = [_of_switch(switch, of_group, len(switches)) for switch in sorted(switches)]
        if switches & {*up}:
            # Hosts that do not answer at a switch that is up do not answer at the others either.
            both = [*map(_hosts_alone, both)]
        replaced |= {*of_group}
        added += both
    return (*added, *(found for found in findings if found not in replaced))


def _groups(
    hosts: set[str], nics: Mapping[str, frozenset[str]], homes: Mapping[str, str]
) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """Dead hosts that are connected by switches, with these, if no other host is at them. One
    switch that all share is a matter of localisation."""
    at: dict[str, set[str]] = defaultdict(set)
    for nic, switch in homes.items():
        at[switch].add(host_of(nic))
    left = {*hosts}
    while left:
        group, switches, more = set[str](), set[str](), {min(left)}
        while more:
            group |= more
            switches |= {homes[nic] for host in more for nic in nics[host]}
            more = set[str]().union(*(at[switch] for switch in switches)) - group
        left -= group
        if group <= hosts and len(group) >= WORTH_JOINING and 1 < len(switches) <= len(group):
            yield frozenset(group), frozenset(switches)


def _died_together(
    hosts: Iterable[str],
    names: Iterable[str],
    silent_ns: Mapping[str, int],
    known_ns: Mapping[str, int],
) -> bool:
    """Whether no host has been silent, or named as lossy, for longer than the others."""
    ages_ns = [age_ns for host in hosts if (age_ns := silent_ns.get(host, 0)) > TOGETHER_NS]
    if ages_ns and max(ages_ns) - min(ages_ns) > TOGETHER_NS:
        return False
    return all(known_ns.get(name, 0) <= TOGETHER_NS for name in names)


class DarkHosts:
    """Since when hosts have answered no probe. One per controller."""

    def __init__(self) -> None:
        self._since_ns: dict[str, int] = {}

    def switches_up(
        self,
        homes: Mapping[str, str],
        answering: Collection[str],
        answered_ns: Mapping[str, int],
        now_ns: int,
    ) -> frozenset[str]:
        """Switches that answered a path learner while no host at them answered a probe: they are
        not why. To be called at every evaluation.

        Args:
            homes: NIC → the switch that it is at.
            answering: hosts whose NICs answer the probes of others; empty: nothing is probed.
            answered_ns: switch → when the newest trace that it answered began.
            now_ns: fleet time.
        """
        dark = {*map(host_of, homes)} - {*answering} if answering else set[str]()
        self._since_ns = {host: self._since_ns.get(host, now_ns) for host in dark}
        since_ns: dict[str, int] = {}
        for nic, switch in homes.items():
            known_ns = self._since_ns.get(host_of(nic), now_ns)
            since_ns[switch] = max(known_ns, since_ns.get(switch, known_ns))
        return frozenset(
            switch for switch, known_ns in since_ns.items() if answered_ns.get(switch, 0) > known_ns
        )


def without_switches_up(findings: Iterable[Finding], up: Collection[str]) -> tuple[Finding, ...]:
    """The findings; of a switch that is up, and that could not be distinguished from the hosts at
    it, these are named alone.

    Args:
        findings: of localisation.
        up: as `DarkHosts.switches_up`.
    """
    return tuple(
        _hosts_alone(found)
        if found.component in up and found.alternatives[:1] == (hosts_at(found.component),)
        else found
        for found in findings
    )


def _hosts_alone(found: Finding) -> Finding:
    """The finding of a switch or the hosts at it after the switch is excluded."""
    return msgspec.structs.replace(
        found.without_twin(), component=found.alternatives[0], kind=ComponentKind.HOST.value
    )


def _of_switch(switch: str, found: Sequence[Finding], switches: int) -> Finding:
    return msgspec.structs.replace(
        max(found, key=lambda each: each.explains),
        component=switch,
        kind=ComponentKind.LEAF.value,
        confidence=0.5,
        alternatives=(hosts_at(switch),),
        probabilities=(0.5,),
        twins=1,
        explains=sum(each.explains for each in found) / switches,
        paths=sum(each.paths for each in found) // switches,
    )


def with_lone_peers(
    findings: Sequence[Finding],
    pairs: Collection[tuple[str, str]],
    dead: Collection[str],
) -> tuple[Finding, ...]:
    """The findings; of losses at a NIC that probes only one other, while all others that either
    probes are dead, both are suspects. Losses at a NIC that has nobody left to probe are those of
    the dead.

    Args:
        findings: of localisation.
        pairs: NICs that probe each other.
        dead: NICs that are known to be down, cut off, or at a dead switch.
    """
    at = {found: nic for found in findings if (nic := _nic_at_fault(found)) and nic not in dead}
    if not at or not dead:
        return tuple(findings)
    peers: dict[str, set[str]] = defaultdict(set)
    for one, other in pairs:
        peers[one].add(other)
        peers[other].add(one)
    gone = {*dead}
    kept = []
    for found in findings:
        nic = at.get(found, "")
        living = peers[nic] - gone
        compared = len(living) > 1 or any(peers[each] - gone - {nic} for each in living)
        if compared or living == peers[nic]:
            kept.append(found)
        elif living:
            kept.append(_or_its_peer(found, *living))
    return tuple(kept)


def _or_its_peer(found: Finding, peer: str) -> Finding:
    odds = [each / 2 for each in (found.confidence, *found.probabilities)]
    return msgspec.structs.replace(
        found,
        confidence=odds[0],
        alternatives=(peer, *found.alternatives),
        probabilities=(sum(odds), *odds[1:]),
        twins=found.twins + 1,
    )


def dead_nics(
    findings: Iterable[Finding],
    homes: Mapping[str, str],
    switches: Collection[str],
    hosts: Container[str],
) -> frozenset[str]:
    """NICs of hosts that are down or cut off, and NICs at switches that are.

    Args:
        findings: of localisation.
        homes: NIC → the switch that it is at.
        switches: those that are known to be down.
        hosts: the same.
    """
    found = {
        each.component
        for each in findings
        if each.fault == "blackhole"
        and each.kind in _SWITCHES
        and {*suspected(each)} <= {each.component, hosts_at(each.component)}
    }
    return frozenset(
        nic for nic, at in homes.items() if at in found or at in switches or host_of(nic) in hosts
    )


def _nic_at_fault(found: Finding) -> str:
    """The NIC at which everything lies that a finding of loss names; empty: there is none, or
    several."""
    if not found.loss or found.kind == ComponentKind.REPLIES:
        return ""
    nics = {_nic_of(name) for name in suspected(found)}
    return nics.pop() if len(nics) == 1 else ""


def _nic_of(name: str) -> str:
    """A NIC, or the NIC at one end of a link or cable; empty for all else."""
    return next((end for end in link_ends(name) or (name,) if "/" in end), "")


def _named_nics(found: Finding, nics: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """A NIC, or all of a host; for the replies of either the same."""
    name = found.component.removeprefix(REPLIES_OF)
    if name in nics.get(host_of(name), ()):
        return frozenset({name})
    return nics.get(name, frozenset())


def _nics_of(homes: Mapping[str, str]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for nic in homes:
        found[host_of(nic)].add(nic)
    return {host: frozenset(of_host) for host, of_host in found.items()}
