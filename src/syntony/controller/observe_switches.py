"""Switches that are down, from the ports of hosts at them and the paths that left them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import exp

from syntony.alerts.observations import Observation
from syntony.controller.observe import APART, MAX_NAMED, is_known
from syntony.fabric.names import OR, link_ends
from syntony.fabric.numbering import IMPLIED_PRICE
from syntony.links.ports import PortState
from syntony.model import S
from syntony.model.findings import Finding
from syntony.model.names import host_of
from syntony.wire.links import LinkStatus

SWITCH_METRICS = frozenset({"switch_down"})
WORTH_JOINING = 2
"""Minimum hosts with ports down that are evidence against their switch."""
TOGETHER_NS = 30 * S
"""Carriers that are lost further apart do not prove that their switch died; agents that were paused
notice them late."""


def of_switches(
    ports: Iterable[LinkStatus],
    homes: Mapping[str, str],
    gone: Mapping[str, int],
    silent: frozenset[str],
    now_ns: int,
) -> list[Observation]:
    """Whether each switch is down, from the ports of hosts at it and the paths that left it.

    Carriers go at once, paths within a minute. A switch with only hosts of silent agents is
    unknown, and so is one whose ports went down one after the other; a single port down is a fault
    of that port.

    Args:
        ports: of hosts.
        homes: NIC → the switch that it is at.
        gone: switch that no path takes any more, alone or with the cables that may be the cause
            instead → its cables that are known to be lost by now.
        silent: hosts whose agents send no reports.
        now_ns: fleet time.
    """
    states = _known_ports(ports, homes, silent, now_ns)
    found = [_of_ports(switch, at, len(homes)) for switch, at in states.items()]
    return found + [
        Observation("switch_down", switch, 1.0, _why_gone(switch, cables))
        for switch, cables in gone.items()
        if switch not in states
    ]


def without_switches_lost_apart(
    findings: Iterable[Finding],
    ports: Iterable[LinkStatus],
    homes: Mapping[str, str],
    silent: frozenset[str],
    now_ns: int,
) -> tuple[Finding, ...]:
    """The findings without switches that lose everything because their ports went down one after
    the other; arguments as `of_switches`."""
    states = _known_ports(ports, homes, silent, now_ns)
    apart = {switch for switch, at in states.items() if _all_down(at) and not _together(at)}
    return tuple(each for each in findings if each.component not in apart)


def _known_ports(
    ports: Iterable[LinkStatus], homes: Mapping[str, str], silent: frozenset[str], now_ns: int
) -> dict[str, list[LinkStatus]]:
    """Ports of known state, by the switch that they are at; each switch is there."""
    states: dict[str, list[LinkStatus]] = {}
    for port in ports:
        if port.nic in homes:
            at = states.setdefault(homes[port.nic], [])
            if is_known(port, silent, now_ns) and port.state != PortState.UNKNOWN:
                at.append(port)
    return states


def _all_down(ports: Sequence[LinkStatus]) -> bool:
    hosts = {host_of(port.nic) for port in ports}
    return len(hosts) >= WORTH_JOINING and all(each.state != PortState.ACTIVE for each in ports)


def _together(ports: Iterable[LinkStatus]) -> bool:
    """Whether enough hosts lost carriers at one time, or nobody knows when."""
    lost: dict[str, int] = {}
    for port in ports:
        host = host_of(port.nic)
        lost[host] = max(lost.get(host, 0), port.last_flap_ns or 0)
    times = sorted(lost.values())
    return any(later - one <= TOGETHER_NS for one, later in pairwise(times))


def _why_gone(subject: str, cables: int) -> tuple[str, ...]:
    reasons = ["no path that took it takes it any more"]
    if cables:
        reasons.append(f"cables at it that no path takes any more: {cables}")
    if OR in subject:
        reasons += [_odds(subject.split(OR)), APART]
    elif cables > 2:
        reasons.append(
            f"{subject} is down, or all but one of its cables are lost: both look the same"
        )
    return tuple(reasons)


def _odds(suspects: Sequence[str]) -> str:
    """Suspects with their probabilities: as localisation's of a switch that paths list and of
    cables that they imply."""
    weights = {name: exp(-IMPLIED_PRICE) if link_ends(name) else 1.0 for name in suspects}
    total = sum(weights.values())
    ranked = sorted(weights, key=lambda name: (-weights[name], name))
    return ", ".join(f"{name} {weights[name] / total:.0%}" for name in ranked)


def _of_ports(switch: str, ports: Sequence[LinkStatus], nics_of_all: int) -> Observation:
    if len({host_of(port.nic) for port in ports}) < WORTH_JOINING:
        return Observation("switch_down", switch, None)
    if any(port.state == PortState.ACTIVE for port in ports):
        return Observation("switch_down", switch, 0.0)
    if not _together(ports):
        return Observation("switch_down", switch, None)
    nics = ", ".join(sorted(port.nic for port in ports)[:MAX_NAMED])
    hosts = len({host_of(port.nic) for port in ports})
    share = f"cuts off {len(ports)} of {nics_of_all} NICs, {len(ports) / nics_of_all:.0%}"
    evidence = f"all {len(ports)} ports at it: {nics}", f"{share}, of {hosts} hosts"
    return Observation("switch_down", switch, 1.0, evidence)
