"""Converts the controller's knowledge into observations for the rules. Pure.

There are no observations of a port whose agent is silent: its last state proves nothing, and the
silence has its own incident.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

from syntony.alerts.incident_texts import shown
from syntony.alerts.observations import Observation
from syntony.alerts.render import instant
from syntony.controller import finding_texts
from syntony.controller.containment import NameContainment
from syntony.controller.fabric_changes import FabricStatus
from syntony.controller.port_traffic import NO_TRAFFIC, PortTraffic
from syntony.fabric.extra_probes import SuspectNote, suspected
from syntony.fabric.history import DELAY_S
from syntony.fabric.names import (
    ARROW,
    HOSTS_AT,
    OR,
    ComponentKind,
    directions,
    link_ends,
    pairs_across,
)
from syntony.fabric.overflow import Overflow
from syntony.links.counters import EVERY, Kind
from syntony.links.ports import PortState
from syntony.links.roles import LinkRole
from syntony.model import S, parse_duration_ns
from syntony.model.findings import Finding, Queue, QueueFlow
from syntony.model.names import host_of
from syntony.model.sla import SlaRow, SlaStatus
from syntony.sla.subjects import troubles
from syntony.wire.links import LinkCounterRow, LinkStatus
from syntony.wire.parts import PartState, PartStatus

STALE_NS = 150 * S
"""Two readings of a port were missed: its state is unknown."""
WORTH_COMPARING = 3
"""Minimum ports of a kind: fewer have no majority to compare with."""
LINK_METRICS = frozenset(
    {"flaps_1h", "port_down", "port_degraded", "port_errors_1h", "module_beyond_limit"}
)
PART_METRICS = frozenset({"agent_part_down_s"})
FABRIC_METRICS = frozenset({"cable_lost", "nic_misplaced"})
FOUND_AGAIN_NS = 75 * S
"""The cables of a switch that came back are found again within one round of path tracing."""
UNPROVEN_NS = 60 * S
"""A cable that all paths left, where it is not proven that its switches are up, waits for so long:
a switch may have died, and the paths have moved to one that never answers."""
QUEUE_METRICS = frozenset({"queueing_ns"})
APART = "no path tells these apart"
BURSTS = "packets wait so long in bursts, which are known by what they lose"
OUTLIVED = "the switch has answered path tracing since: it is up"
UNUSED = "delayed in nearly every second, and no job sends across it"
BOTH = "delayed in nearly every second in both directions; nothing sends across it in both"
STOPPED = "the NICs at it stopped sending within two seconds of one another; no host at it reports"
MAX_NAMED = 5
"""Maximum pairs and flows named in evidence."""
SLA_METRICS = frozenset({"latency_sla", "latency_unusual"})
DELAY = frozenset({"component_delay_ns"})
LOSSES = frozenset({"switch_loss", "link_loss", "nic_loss", "ambiguous_loss"})
SWITCH_OR_HOSTS = frozenset({"switch_or_hosts"})
FINDING_METRICS = DELAY | LOSSES | SWITCH_OR_HOSTS
MIN_LOST = 10
"""Minimum lost probes for a page: the rate's 1-sigma is then a third of it."""
MIN_PATHS = 2
"""Minimum paths with losses: losses of a single path belong to that path."""
MIN_CONGESTING_BPS = 1_000_000
"""Jobs that send less than this across a link do not congest it."""
DELAY_SPAN_NS = DELAY_S * S
"""The newest delay is of at most this window. If it is compared with a time in which another fault
was there, it shows while that one's incident is still open."""
OVERFLOWS = {
    Overflow.OPEN: "what overflows, or its cable, which cannot be told while packets always wait",
    Overflow.ALL: "what overflows, since they are lost while packets wait",
}
_SWITCHES = frozenset({"leaf", "spine", "agg", "core", "switch"})
_LINKS = frozenset({"link", "cable"})
_ERRORS = frozenset({Kind.PHYSICAL, Kind.CORRUPTION, Kind.TRAINING, Kind.MODULE})


def of_links(
    ports: Iterable[LinkStatus],
    counters: Iterable[LinkCounterRow],
    silent: frozenset[str],
    now_ns: int,
    homes: Mapping[str, str] | None = None,
) -> list[Observation]:
    """Observations of ports over one hour. Management and virtual NICs never open an incident.

    Args:
        ports: every port, with its flaps of the past hour.
        counters: increases of the past hour.
        silent: hosts whose agents send no reports.
        now_ns: fleet time.
        homes: NIC → the switch that it is at.
    """
    ports = tuple(ports)
    alone = _alone(homes or {}, {each.nic for each in ports if each.state == PortState.ACTIVE})
    compute = Counter(host_of(port.nic) for port in ports if port.role == LinkRole.COMPUTE)
    watched = [port for port in ports if port.role in {LinkRole.COMPUTE, LinkRole.FRONTEND}]
    usual = _usual_speeds(watched)
    errors = _errors(counters)
    found = []
    for port in watched:
        known = is_known(port, silent, now_ns)
        found.append(_flaps(port))
        found.append(_errors_of(port, errors))
        if port.role == LinkRole.COMPUTE:
            of_host = compute[host_of(port.nic)]
            found += [_down(port, known, alone, of_host), _degraded(port, known, usual)]
    return found


def is_known(port: LinkStatus, silent: Container[str], now_ns: int) -> bool:
    """Whether what was read of a port still holds: its agent reports, and has read it lately."""
    return host_of(port.nic) not in silent and now_ns - port.seen_ns <= STALE_NS


def without_carrier(
    ports: Iterable[LinkStatus], silent: Container[str], now_ns: int
) -> frozenset[str]:
    """NICs that are known not to be active; arguments as `of_links`."""
    well = {PortState.ACTIVE, PortState.UNKNOWN}
    return frozenset(
        port.nic for port in ports if is_known(port, silent, now_ns) and port.state not in well
    )


def _flaps(port: LinkStatus) -> Observation:
    last = () if port.last_flap_ns is None else (f"carrier lost at {instant(port.last_flap_ns)}",)
    return Observation("flaps_1h", port.nic, float(port.flaps), (*_where(port), *last))


def _alone(homes: Mapping[str, str], active: Container[str]) -> dict[str, str]:
    """NICs at whose switch no other host has a carrier → that switch."""
    hosts: dict[str, set[str]] = {}
    for nic, switch in homes.items():
        if nic in active:
            hosts.setdefault(switch, set()).add(host_of(nic))
    return {
        nic: switch
        for nic, switch in homes.items()
        if not hosts.get(switch, set()) - {host_of(nic)}
    }


def _down(port: LinkStatus, known: bool, alone: Mapping[str, str], of_host: int) -> Observation:
    """`of_host`: number of compute ports of its host."""
    if not known or port.state == PortState.UNKNOWN:
        return Observation("port_down", port.nic, None)
    if port.state == PortState.ACTIVE:
        return Observation("port_down", port.nic, 0.0)
    at = alone.get(port.nic)
    suspects = f"{port.nic}, its cable or {at} is down"
    twins = (f"no other host's port at {at} is up: {suspects}",) if at else ()
    share = f"1 of {of_host} compute ports of its host, {1 / of_host:.0%} of what it can send"
    evidence = (f"state {port.state}", *_where(port), share, *twins)
    return Observation("port_down", port.nic, 1.0, evidence)


def _degraded(port: LinkStatus, known: bool, usual: Mapping[tuple[str, str], float]) -> Observation:
    most = usual.get((port.link_layer, port.driver))
    if not known or not port.gbps or most is None:
        return Observation("port_degraded", port.nic, None)
    missing = max(0.0, 1 - port.gbps / most)
    evidence = (f"{port.gbps:g} Gb/s where {most:g} are usual",) if missing else ()
    return Observation("port_degraded", port.nic, missing, evidence)


def _usual_speeds(ports: Sequence[LinkStatus]) -> dict[tuple[str, str], float]:
    """Per layer and driver: the speed of most compute ports, if there are enough of them."""
    speeds: dict[tuple[str, str], list[float]] = {}
    for port in ports:
        if port.role == LinkRole.COMPUTE and port.gbps:
            speeds.setdefault((port.link_layer, port.driver), []).append(port.gbps)
    return {
        kind: statistics.mode(values)
        for kind, values in speeds.items()
        if len(values) >= WORTH_COMPARING
    }


def _errors(counters: Iterable[LinkCounterRow]) -> dict[str, list[LinkCounterRow]]:
    found: dict[str, list[LinkCounterRow]] = {}
    for row in counters:
        counter = EVERY.get(row.counter)
        if counter is not None and not counter.quiet and counter.kind in _ERRORS:
            found.setdefault(row.nic, []).append(row)
    return found


def _errors_of(port: LinkStatus, errors: Mapping[str, list[LinkCounterRow]]) -> Observation:
    rows = errors.get(port.nic, [])
    evidence = tuple(f"{row.counter.partition(':')[2]} +{row.increase}" for row in rows)
    return Observation(
        "port_errors_1h", port.nic, float(sum(row.increase for row in rows)), evidence
    )


def of_modules(states: Mapping[str, tuple[str, str]]) -> list[Observation]:
    """Modules that report values: whether each exceeds its limit."""
    return [
        Observation("module_beyond_limit", nic, float(state == "beyond limit"), (detail,))
        for nic, (state, detail) in states.items()
    ]


def _where(port: LinkStatus) -> tuple[str, ...]:
    return (f"{port.rdma} {port.driver}".strip(),) if port.rdma or port.driver else ()


def of_findings(
    findings: Iterable[Finding],
    notes: Mapping[frozenset[str], SuspectNote] | None = None,
    senders: Container[str] = frozenset(),
) -> list[Observation]:
    """Findings of localisation: loss by the kind of component, delay for any component. Findings
    outside the fabric (a clock, a host that answers probes late) are not incidents of it.

    Args:
        findings: of localisation.
        notes: by suspects that cannot be distinguished: the attempts to do so.
        senders: NICs that send, for jobs or others: packets that are late on the way out of one
            wait for its own traffic.
    """
    findings = tuple(findings)
    return [
        _of_finding(found, findings, notes or {})._replace(apart_from=_apart_from(found, findings))
        for found in findings
        if found.fault != "clock"
        and found.kind != ComponentKind.REPLIES
        and not (found.fault == "delay" and _source(found.component) in senders)
    ]


def _apart_from(found: Finding, findings: Iterable[Finding]) -> frozenset[str]:
    """Metrics that do not explain a component that loses over twice as much as a lossy switch
    around it: both were found at once. The losses of a dead switch may look like anything."""
    wholes = (each for each in findings if each.fault == "loss" and 2 * each.loss < found.loss)
    names = (name for each in wholes for name in suspected(each))
    beside = found.fault == "loss" and any(
        NameContainment.holds(name, found.component) for name in names
    )
    return frozenset({"switch_loss", "ambiguous_loss"}) if beside else frozenset()


def _of_parts(found: Finding, findings: Iterable[Finding]) -> Iterator[str]:
    """Loss of its parts in addition to its own."""
    for each in findings:
        if found.fault == each.fault == "loss" and NameContainment.holds(
            found.component, each.component
        ):
            yield f"{subject_of(each)} loses another {shown(each.loss, 'ratio')} of what crosses it"


def _source(link: str) -> str:
    """The device at which one direction of a link begins; empty for anything else."""
    ends = link_ends(link)
    return ends[0] if ends is not None and ARROW in link else ""


def subject_of(found: Finding) -> str:
    return OR.join(suspected(found))


def _of_finding(
    found: Finding, findings: Iterable[Finding], notes: Mapping[frozenset[str], SuspectNote]
) -> Observation:
    names = suspected(found)
    ambiguous = len(names) > 1
    subject = subject_of(found)
    hosts_too = any(name.startswith(HOSTS_AT) for name in names)
    apart = STOPPED if hosts_too else APART if found.twins else "not distinguished yet"
    note = notes.get(frozenset(names), SuspectNote(apart, pending=False))
    evidence = (
        finding_texts.effect_text(found),
        finding_texts.suspects_text(found),
        *finding_texts.component_text(found, names),
        *((note.text,) if ambiguous else (OUTLIVED,) if hosts_too else ()),
        *_of_parts(found, findings),
    )
    if found.fault == "delay":
        return Observation(
            "component_delay_ns",
            subject,
            found.delay_ns,
            evidence,
            span_ns=DELAY_SPAN_NS,
            pending=ambiguous and note.pending,
        )
    metric = "nic_loss"
    if hosts_too:
        metric = "switch_or_hosts"
    elif ambiguous or found.kind == ComponentKind.GROUP:
        metric = "ambiguous_loss"
    elif found.kind in _SWITCHES:
        metric = "switch_loss"
    elif found.kind in _LINKS:
        metric = "link_loss"
    enough = found.explains >= MIN_LOST and found.paths >= MIN_PATHS
    return Observation(
        metric,
        subject,
        found.loss * found.flows if enough else None,
        evidence,
        span_ns=parse_duration_ns(found.window),
        pending=ambiguous and note.pending,
    )


def of_fabric(fabric: FabricStatus, now_ns: int) -> list[Observation]:
    """Cables between switches that no path takes any more; NICs at another switch. The cables of a
    switch that came back are pending: they are found again one after the other. So are those that
    are not proven to be lost."""
    subjects = {
        OR.join(sorted(suspects)): suspects
        for cable in fabric.lost
        for suspects in [(cable, *fabric.twins.get(cable, ()))]
    }
    fresh = {name for name, at_ns in fabric.back.items() if now_ns - at_ns < FOUND_AGAIN_NS}
    reason = "paths that crossed it were learnt elsewhere"
    lost = [
        Observation(
            "cable_lost",
            each,
            1.0,
            (reason, *((APART,) if OR in each else ())),
            pending=any(fresh & {cable, *(link_ends(cable) or ())} for cable in suspects)
            or (
                fabric.proven.isdisjoint(suspects)
                and now_ns - max(fabric.lost.get(one, 0) for one in suspects) < UNPROVEN_NS
            ),
        )
        for each, suspects in sorted(subjects.items())
    ]
    return lost + [
        Observation(
            "nic_misplaced",
            each.nic,
            1.0,
            (f"at {each.at}; {each.expected} {each.why}",),
            past=not each.planned,
        )
        for each in fabric.misplaced
    ]


def of_queues(
    queues: Collection[Queue],
    findings: Iterable[Finding],
    crossing: Mapping[str, Collection[str]],
    known: Iterable[str] = (),
    traffic: PortTraffic = NO_TRAFFIC,
) -> list[Observation]:
    """Links at which packets wait, and the flows that share them. If nothing sends, or across a
    cable that delays both directions only in one, the link is not congested: its delay is the
    component's own, unless a finding names the same place for it, as losses do if packets wait in
    bursts. Packets at the sending NIC wait for the NIC's own traffic: that is normal at full speed.

    Args:
        queues: with the flows of jobs that share them.
        findings: of localisation.
        crossing: ``a->b`` → components that the paths between them cross.
        known: delays and queues of live incidents. A change of delay is a finding for a minute; a
            delay at the same place after that is the same fault, and keeps its name.
        traffic: of no known job.
    """
    findings = tuple(findings)
    cables = [ways for queue in queues if len(ways := directions(_suspects(queue))) > 1]
    pairs = pairs_across(itertools.chain(*cables), crossing)
    filled = [(queue, _fills(queue, pairs, traffic)) for queue in queues]
    slow = [
        name
        for found in findings
        if found.fault == "delay"
        for name in (found.component, *found.alternatives)
    ]
    known = tuple(known)
    lossy = [found for found in findings if found.loss]
    return [
        _own_delay(queue, next((name for name in known if _touch(queue, name)), _suspects(queue)))
        if fills is None
        else _congestion(queue, fills, lossy)
        for queue, fills in filled
        if (fills is not None and "/" not in _source(queue.component))
        or not (fills is not None or queue.bursts or any(_touch(queue, n) for n in slow))
    ]


def _fills(
    queue: Queue, pairs: Mapping[str, Collection[str]], traffic: PortTraffic
) -> tuple[str, ...] | None:
    """Why traffic of no known job may fill it, in each direction of a cable, where no job does.
    None: nothing does."""
    ways = {way: pairs.get(way) or queue.pairs for way in directions(_suspects(queue))}
    idle = {way: among for way, among in ways.items() if not is_congested(queue, among)}
    return traffic.fills(idle) or (None if idle else ())


def _suspects(queue: Queue) -> str:
    """The places at which packets may wait."""
    return OR.join(queue.suspects or (queue.component,))


def is_congested(queue: Queue, among: Collection[str]) -> bool:
    """Whether jobs send across it, between these pairs of NICs."""
    sent_bps = sum(flow.rate_bps for flow in queue.flows if flow.pair in among)
    return sent_bps >= MIN_CONGESTING_BPS


def _touch(queue: Queue, subject: str) -> bool:
    """Whether a queue and a subject may be the same fault."""
    return any(
        NameContainment.same(each, subject) for each in (queue.component, *queue.alternatives)
    )


def _apart(queue: Queue) -> tuple[str, ...]:
    return (APART,) if len(queue.suspects) > 1 else ()


def _own_delay(queue: Queue, subject: str) -> Observation:
    reported = BOTH if len(directions(_suspects(queue))) > 1 else UNUSED
    return Observation("component_delay_ns", subject, queue.delay_ns, (*_apart(queue), reported))


def _congestion(queue: Queue, unknown: tuple[str, ...], lossy: Iterable[Finding]) -> Observation:
    """`unknown`: traffic of no known job; `lossy`: components that lose."""
    bursts = (BURSTS,) if queue.bursts else ()
    return Observation(
        "queueing_ns",
        _suspects(queue),
        queue.delay_ns,
        (
            *_apart(queue), *bursts, *unknown, _sharers(queue),
            *map(_flow, queue.flows[:MAX_NAMED]), *_overflowing(queue, lossy),
        ),
        tuple(sorted({flow.job for flow in queue.flows})),
    )  # fmt: skip


def _overflowing(queue: Queue, lossy: Iterable[Finding]) -> list[str]:
    """Loss at a queue, and its possible causes."""
    return [
        f"{found.loss:.3%} of its packets are lost: {OVERFLOWS[Overflow(found.overflow)]}"
        for found in lossy
        if found.overflow in OVERFLOWS and _touch(queue, found.component)
    ]


def _sharers(queue: Queue) -> str:
    reported = ", ".join(queue.pairs[:MAX_NAMED])
    more = len(queue.pairs) - MAX_NAMED
    return f"shared by {reported}" + (f" and {more} more pairs" if more > 0 else "")


def _flow(flow: QueueFlow) -> str:
    return f"job {flow.job}: {flow.pair}"


def of_slas(rows: Iterable[SlaRow]) -> list[Observation]:
    """Latency that violates an objective, or is only worse than usual or than similar pairs."""
    reported = tuple(rows)
    kinds = (
        ("latency_sla", frozenset({SlaStatus.BREACH})),
        ("latency_unusual", frozenset({SlaStatus.BREACH, SlaStatus.WARNING})),
    )
    return [
        Observation(metric, trouble.subject, trouble.share, trouble.reasons)
        for metric, bad in kinds
        for trouble in troubles(reported, bad)
    ]


def of_parts(
    parts: Mapping[str, Sequence[PartStatus]], silent: frozenset[str]
) -> list[Observation]:
    """Agents: how long a part has been down, the longest of all; unknown for silent agents."""
    found = []
    for host, reported in parts.items():
        down = [part for part in reported if part.state is not PartState.RUNNING]
        longest_s = max((part.age_ns / S for part in down), default=0.0)
        evidence = tuple(f"{part.name} {part.state}: {part.reason}" for part in down[:MAX_NAMED])
        value = None if host in silent else longest_s
        found.append(Observation("agent_part_down_s", host, value, evidence))
    return found
