"""Silent agents as observations for the rules: single ones, groups that fell silent together, and
most of the fleet. Pure."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from syntony.alerts.observations import Observation
from syntony.controller.containment import FLEET
from syntony.fabric.extra_probes import suspected
from syntony.fabric.names import OR, hosts_at, link_ends, suspects
from syntony.model import S
from syntony.model.findings import Finding
from syntony.model.names import host_of, some

HOST_METRICS = frozenset({"host_silent_s"})
TOGETHER = frozenset({"silent_together"})
GATEWAY_METRICS = frozenset({"gateway_absent_s"})
GATEWAYS_TOGETHER = frozenset({"gateways_together"})
FLEET_METRICS = frozenset({"silent_agents_ratio"})
EARLY_S = 8.0
"""Earlier than the silence of a single host is an incident."""
WORTH_BLAMING = 3
"""Minimum silent agents of which a majority is evidence of a common cause."""
TOGETHER_S = 2.0
"""Maximum time between the last reports of agents with a common cause of silence: each reports
every second, and is read in turn."""
WORTH_JOINING = 3
"""This many hosts do not die independently within `TOGETHER_S` …"""
WORTH_JOINING_ALIVE = 2
"""… and if this many have NICs that answer probes, the hosts themselves did not die; as many that
are all hosts at a switch have that in common."""
BACK_NS = 30 * S
"""Time that agents may take to return once their connection to the controller is restored."""
MAX_REROUTE_NS = 45 * S
"""Time that a live host may need to connect again past a dead switch: routes converge, and the
agent dials until a connection takes another path."""
FAULT_EARLIER_NS = 10 * S
"""A fault that was known for longer when a host fell silent did not silence it."""
MAX_LISTED = 5
NAMED = 3
_NO_NICS: Mapping[str, str] = {}
_NEVER: Mapping[str, int] = {}
UNPROBED = "no other host that reports probes it: it may be up"


class Refused(NamedTuple):
    """Hosts that may not report."""

    reasons: Mapping[str, str]
    """Host → why its agent's certificate is refused."""
    removed: frozenset[str]
    """Names whose certificates are all revoked: hosts that no longer belong to the fleet."""


NOBODY_REFUSED = Refused({}, frozenset())


def of_hosts(
    silent_ns: Mapping[str, int],
    missed: frozenset[str],
    answering: Collection[str],
    refused: Mapping[str, str],
    *,
    in_band: Mapping[str, str] = _NO_NICS,
    heirs: Mapping[str, str] = _NO_NICS,
) -> list[Observation]:
    """Agents: how long each has sent no report; unknown for those that never did.

    Args:
        silent_ns: host → for how long its agent has sent no report.
        missed: hosts that were silent before.
        answering: hosts whose NICs answer the probes of others; empty: nothing is probed.
        refused: host → why its agent's certificate is refused.
        in_band: host → the NIC of the fabric that its agent's connection crosses.
        heirs: host → another one that has one of its addresses now.
    """
    known = [
        Observation(
            "host_silent_s", host, age_ns / S,
            _why(host, age_ns, answering, refused, in_band=in_band, heirs=heirs),
            via=_via((host,), in_band), span_ns=BACK_NS,
        )
        for host, age_ns in silent_ns.items()
    ]  # fmt: skip
    unknown = sorted(missed - silent_ns.keys())
    return known + [Observation("host_silent_s", host, None) for host in unknown]


def _why(
    host: str,
    age_ns: int,
    answering: Collection[str],
    refused: Mapping[str, str],
    *,
    in_band: Mapping[str, str],
    heirs: Mapping[str, str],
) -> tuple[str, ...]:
    """Further facts about a silent agent."""
    if age_ns / S <= EARLY_S:
        return ()
    if host in refused:
        return (f"{refused[host]}: the host joins again with a new token (syntony enrol token)",)
    if host in heirs:
        renamed = f"if it was renamed, syntony enrol revoke {host}"
        return (f"{heirs[host]} has its address now: {renamed}",)
    way = (f"its agent reported over {in_band[host]}",) if host in in_band else ()
    if host in answering:
        reported = "its NICs answer probes: the host is up; its agent, or its way here, is not"
        return (reported, *way)
    if answering:
        return ("none of its NICs answers probes: the host is down or cut off", *way)
    return (UNPROBED, *way)


def _via(hosts: Iterable[str], in_band: Mapping[str, str]) -> tuple[str, ...]:
    """What hosts report over, themselves if that is not the fabric; empty if none does so."""
    via = tuple(in_band.get(host, host) for host in hosts)
    return via if any("/" in each for each in via) else ()


def held_while_routes_change(
    found: Iterable[Observation],
    silent_ns: Mapping[str, int],
    in_band: Mapping[str, str],
    answering: Container[str],
    faults_ns: Iterable[int],
) -> list[Observation]:
    """Observations of silence; those pending that a fault between switches may explain until routes
    have left the part at fault and agents have connected again.

    Args:
        found: of hosts, sets and the fleet.
        silent_ns, in_band, answering: as `of_hosts`.
        faults_ns: for how long each fault between switches has been known.
    """
    faults_ns = tuple(faults_ns)

    def is_waiting(host: str) -> bool:
        age_ns = silent_ns.get(host, 0)
        recent = any(known_ns <= age_ns + FAULT_EARLIER_NS for known_ns in faults_ns)
        return recent and host in in_band and host in answering and age_ns <= MAX_REROUTE_NS

    def wait(each: Observation) -> bool:
        silent = [host for host in each.members or (each.subject,) if silent_ns.get(host, 0) > S]
        return bool(silent) and all(map(is_waiting, silent))

    return [each._replace(pending=True) if faults_ns and wait(each) else each for each in found]


def held_while_hosts_stop(
    found: Iterable[Observation],
    metrics: Container[str],
    silent_ns: Mapping[str, int],
    answering: Collection[str],
    *,
    nics: Mapping[str, int],
    in_band: Container[str],
) -> list[Observation]:
    """The observations; losses pending at the edge of a host that answers at none of its NICs and
    has not reported since. Its agent hangs, or it is down: then it is soon silent, which explains
    them. A host that loses a NIC, or all, goes on reporting, unless it does so over its only NIC.

    Args:
        found: of findings.
        metrics: those of losses.
        silent_ns, answering, in_band: as `of_hosts`.
        nics: host → how many NICs it has.
    """

    def stops(host: str) -> bool:
        alone = host in in_band and nics.get(host) == 1
        since_ns = silent_ns.get(host, 0)
        return since_ns > TOGETHER_S * S and host not in answering and not alone

    def waits(each: Observation) -> bool:
        return each.metric in metrics and any(map(stops, _hosts_at_edge(each.subject)))

    return [each._replace(pending=True) if answering and waits(each) else each for each in found]


def _hosts_at_edge(subject: str) -> set[str]:
    """Hosts that are suspects, by themselves, by a NIC, or by its link."""
    ends = (link_ends(name) or (name,) for name in suspects(subject))
    return {host_of(end) for names in ends for end in names}


def without_hosts_that_report(
    findings: Iterable[Finding],
    silent_ns: Mapping[str, int],
    homes: Mapping[str, str],
    known: Container[str],
) -> tuple[Finding, ...]:
    """The findings; a switch that could not be distinguished from its hosts is named alone if any
    of them reports, because a host that is stopped does not. If none reported before, one that
    reports again proves nothing.

    Args:
        findings: of localisation.
        silent_ns: host → for how long its agent has sent no report.
        homes: NIC → the switch that it is at.
        known: earlier reports of switches and their hosts.
    """
    recent = {host for host, age_ns in silent_ns.items() if age_ns <= TOGETHER_S * S}
    alive = {hosts_at(switch) for nic, switch in homes.items() if host_of(nic) in recent}
    return tuple(
        found.without_twin()
        if alive & {*found.alternatives[:1]} and OR.join(suspected(found)) not in known
        else found
        for found in findings
    )


def gateway_subject(name: str) -> str:
    """The subject of a gateway's incident: a host may have the same name."""
    return f"gateway {name}"


def of_gateways(
    absent_ns: Mapping[str, int],
    ever_connected: Container[str],
    behind: Mapping[str, str],
    silent_ns: Mapping[str, int],
    answering: Collection[str],
) -> list[Observation]:
    """Expected gateways: how long each has sent nothing. Agents attach to another one, and are not
    silent because of it. Those that found none, or stay with a gateway that has lost its leader,
    are silent because of it, unless their hosts died.

    Args:
        absent_ns: name → for how long it has sent nothing.
        ever_connected: connected to this controller since its start; others are not known yet.
        behind: host → the gateway that its agent was last attached to.
        silent_ns: host → for how long its agent has sent no report.
        answering: hosts whose NICs answer the probes of others; empty: nothing is probed.
    """
    cut_off: dict[str, list[str]] = {name: [] for name in absent_ns}
    for host, name in sorted(behind.items()):
        silent = silent_ns.get(host, 0) > (EARLY_S - TOGETHER_S) * S
        if name in cut_off and silent and (host in answering or not answering):
            cut_off[name].append(host)
    return [
        Observation(
            "gateway_absent_s",
            gateway_subject(name),
            age_ns / S if age_ns / S > EARLY_S or name in ever_connected else None,
            _without_gateway(cut_off[name]) if age_ns / S > EARLY_S - TOGETHER_S else (),
            members=tuple(cut_off[name]),
            span_ns=BACK_NS,
        )
        for name, age_ns in absent_ns.items()
    ]


def _without_gateway(hosts: list[str]) -> tuple[str, ...]:
    if not hosts:
        return ("its agents report: they have attached to others",)
    return (f"agents attached to it that have not reported since: {some(hosts, NAMED)}",)


def of_gateway_sets(
    gateways: Iterable[Observation], known: Mapping[str, tuple[str, ...]]
) -> list[Observation]:
    """Number of gateways still absent of those lost within `TOGETHER_S`: the cause is something
    that they share, such as a host, a switch or power.

    Args:
        gateways: from `of_gateways`.
        known: sets that are incidents: members, by subject.
    """
    by_subject = {each.subject: each for each in gateways}
    ages_ns = {
        subject: round(each.value * S)
        for subject, each in by_subject.items()
        if each.value is not None
    }
    sets = {
        # One that was stopped on purpose meanwhile, or revoked, is no longer expected.
        name: tuple(each for each in members if each in by_subject)
        for name, members in known.items()
    }
    taken = {each for members in sets.values() for each in members}
    apart = {subject: age_ns for subject, age_ns in ages_ns.items() if subject not in taken}
    for members in _together(apart, WORTH_JOINING_ALIVE):
        names = tuple(each.removeprefix(gateway_subject("")) for each in members)
        sets[f"gateways {some(names, NAMED)}"] = members
    found = []
    for name, members in sets.items():
        absent = [each for each in members if ages_ns.get(each, 0) > (EARLY_S - TOGETHER_S) * S]
        value = float(len(absent)) if all(each in ages_ns for each in members) else None
        hosts = tuple(host for each in absent for host in by_subject[each].members)
        what = f"last messages of {len(absent)} of {len(members)} gateways within {TOGETHER_S:g} s"
        found.append(
            Observation(
                "gateways_together",
                name,
                value,
                (what, *(_without_gateway(list(hosts)) if hosts else ())) if absent else (),
                members=(*members, *hosts),
                span_ns=BACK_NS,
            )
        )
    return found


def of_fleet(
    silent_ns: Mapping[str, int],
    in_band: Mapping[str, str] = _NO_NICS,
    homes: Mapping[str, str] = _NO_NICS,
) -> list[Observation]:
    """Number of silent agents of all: if most are silent at once, the cause is something that they
    share, such as the switches at which they report over the fabric. Arguments as `of_hosts` and
    `of_sets`."""
    if len(silent_ns) < WORTH_BLAMING:
        return [Observation("silent_agents_ratio", FLEET, None)]
    silent = sorted(host for host, age_ns in silent_ns.items() if age_ns / S > EARLY_S)
    names = ", ".join(silent[:MAX_LISTED]) + (" …" if len(silent) > MAX_LISTED else "")
    evidence: tuple[str, ...] = ()
    if silent:
        evidence = (f"{len(silent)} of {len(silent_ns)} agents: {names}",)
    ratio = len(silent) / len(silent_ns)
    via = _via(silent, in_band)
    switches = tuple(sorted({homes[nic] for nic in via if nic in homes}))
    if switches:
        evidence += (f"they report over the fabric, by {some(switches, NAMED)}",)
    return [
        Observation(
            "silent_agents_ratio",
            FLEET,
            ratio,
            evidence,
            members=tuple(silent),
            via=(*via, *switches),
            span_ns=BACK_NS,
        )
    ]


def of_sets(
    silent_ns: Mapping[str, int],
    answering: Collection[str],
    known: Mapping[str, tuple[str, ...]],
    in_band: Mapping[str, str] = _NO_NICS,
    *,
    homes: Mapping[str, str] = _NO_NICS,
    down_ns: Mapping[str, int] = _NEVER,
    up: Container[str] = frozenset(),
) -> list[Observation]:
    """Number still silent of those that fell silent together.

    Hosts whose NICs continue to answer probes have lost their connection to the controller; the
    others show no sign of life. These are distinguished. If they are all hosts at a switch, that
    may be down: then it is named, too.

    Args:
        silent_ns: host → for how long its agent has sent no report.
        answering: hosts whose NICs answer the probes of others.
        known: sets that are incidents, by subject.
        in_band: host → the NIC of the fabric that its agent's connection crosses.
        homes: NIC → the switch that it is at.
        down_ns: switch → for how long it has been known to be down.
        up: switches that are known to have been up while nothing came from the hosts at them.
    """
    at: dict[str, set[str]] = {}
    for nic, switch in homes.items():
        at.setdefault(switch, set()).add(host_of(nic))

    def of_set(name: str, hosts: tuple[str, ...]) -> Observation:
        found = _of_set(name, hosts, silent_ns, answering, in_band)
        since_ns = min((age_ns for host in hosts if (age_ns := silent_ns.get(host))), default=0)
        theirs = tuple(
            sorted(
                each
                for each, of in at.items()
                # A switch that was down before has not silenced them.
                if len(of) > 1
                and of <= {*hosts}
                and down_ns.get(each, 0) <= since_ns
                and each not in up
            )
        )
        if not (theirs and found.value) or {*answering, *in_band} & {*hosts}:
            return found
        told = f"all hosts at {', '.join(theirs[:NAMED])}: if one of these is down, it is the cause"
        return found._replace(evidence=(*found.evidence, told), via=theirs)

    found = [of_set(name, hosts) for name, hosts in known.items()]
    taken = {host for hosts in known.values() for host in hosts}
    for alive in (True, False):
        ages = {
            host: age_ns
            for host, age_ns in silent_ns.items()
            if host not in taken and (host in answering) is alive
        }
        least = WORTH_JOINING_ALIVE if alive else WORTH_JOINING
        sets = _together(ages, least, at.values())
        found += [of_set(some(hosts, NAMED), hosts) for hosts in sets]
    return found


def _together(
    ages_ns: Mapping[str, int], least: int, shared: Collection[set[str]] = ()
) -> Iterator[tuple[str, ...]]:
    """Sets of hosts whose last reports were within `TOGETHER_S`, the longest silent first: at least
    this many, or some that have something in common."""
    waiting = sorted(ages_ns, key=lambda host: -ages_ns[host])
    while waiting and ages_ns[waiting[0]] > EARLY_S * S:
        since_ns = ages_ns[waiting[0]] - TOGETHER_S * S
        near = [host for host in waiting if ages_ns[host] >= since_ns]
        joined = len(near) >= least or (len(near) > 1 and {*near} in shared)
        if joined:
            yield tuple(sorted(near))
        waiting = waiting[len(near) if joined else 1 :]


def _of_set(
    name: str,
    hosts: tuple[str, ...],
    silent_ns: Mapping[str, int],
    answering: Collection[str],
    in_band: Mapping[str, str],
) -> Observation:
    if not all(host in silent_ns for host in hosts):
        return Observation("silent_together", name, None)
    silent = [host for host in hosts if silent_ns[host] > (EARLY_S - TOGETHER_S) * S]
    alive = sum(host in answering for host in silent)
    what = f"last reports of {len(silent)} of {len(hosts)} agents within {TOGETHER_S:g} s"
    if alive:
        where = f"{alive} of these hosts answer probes: their network to the controller is at fault"
    else:
        who = (
            "none of these hosts answers" if answering else "no other host that reports sends them"
        )
        where = f"{who} probes: check what they share, for example power"
    evidence = (what, where) if silent else ()
    return Observation(
        "silent_together", name, float(len(silent)), evidence, members=hosts,
        via=tuple(in_band.get(host, host) for host in silent), span_ns=BACK_NS,
    )  # fmt: skip
