"""What one evaluation of the rules takes into account, as observations for the incident book. Pure.

Some observations depend on incidents that are live: a host that was silent before is still missed,
and a delay keeps its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from syntony.alerts.incidents import Incident
from syntony.alerts.observations import Measured, Observation, measured
from syntony.alerts.rules import Rule
from syntony.controller import (
    clock_watch,
    equal_suspects,
    impact,
    job_takeovers,
    job_verdicts,
    observe,
    observe_switches,
    planes,
    port_traffic,
    silent_agents,
    stalled_queue_pairs,
)
from syntony.controller.fabric_changes import FabricStatus
from syntony.controller.planes import PlaneComparison
from syntony.controller.port_traffic import PortTraffic
from syntony.controller.silent_agents import NOBODY_REFUSED, Refused
from syntony.fabric.extra_probes import SuspectNote
from syntony.fabric.names import directions, pairs_across
from syntony.model import S
from syntony.model.clocks import Timeline
from syntony.model.findings import Finding, Queue
from syntony.model.names import host_of
from syntony.model.sla import SlaRow
from syntony.traffic.queue_pair_stalls import StallsSeen
from syntony.wire.job_diagnosis import JobResult
from syntony.wire.links import LinkCounterRow, LinkStatus
from syntony.wire.parts import PartStatus

SILENT_NS = 10 * S
"""An agent without a report for this long is silent; it sends one every second."""
MAX_HOLD_NS = 60 * S
"""Longest time that a loss is held back because an overflowing queue may cause it."""
_ALWAYS = (
    observe.LINK_METRICS | clock_watch.METRICS | silent_agents.HOST_METRICS
    | silent_agents.TOGETHER | silent_agents.FLEET_METRICS | observe.FINDING_METRICS
    | observe.PART_METRICS | silent_agents.GATEWAY_METRICS | silent_agents.GATEWAYS_TOGETHER
)  # fmt: skip


class LatencyInputs(NamedTuple):
    """Latency, and the jobs that depend on it."""

    rows: tuple[SlaRow, ...] | None = None
    """Verdicts on pairs of NICs; None: not evaluated yet."""
    queues: tuple[Queue, ...] | None = None
    """Links at which packets wait; None: not evaluated yet."""
    crossing: Mapping[str, frozenset[str]] = {}
    """``a->b`` → components that its paths cross."""
    jobs: Mapping[str, frozenset[tuple[str, str]]] = {}
    """Job → the pairs of NICs between which it has connections."""
    planes: PlaneComparison | None = None
    """Comparison of probes over UDP and verbs; None: not evaluated yet."""
    stalls: StallsSeen | None = None
    """Jobs' queue pairs without progress; None: not evaluated yet."""
    nics: Mapping[str, str] = {}
    """Address → ``host/nic``."""
    job_results: tuple[JobResult, ...] | None = None
    """Verdicts of `syntony why` on running jobs; None: not evaluated yet."""
    lost_ranks: Sequence[Observation] | None = None
    """Lost ranks of the past hour; None: not evaluated yet."""


class EvaluationInputs(NamedTuple):
    """What the controller has in memory when it evaluates its rules."""

    silent_ns: Mapping[str, int]
    """Host → for how long its agent has sent no report."""
    timelines: tuple[Timeline, ...] = ()
    """Of every clock."""
    findings: tuple[Finding, ...] = ()
    """Of localisation."""
    slas: LatencyInputs = LatencyInputs()
    """Findings about latency."""
    expected_clocks: Collection[str] = frozenset()
    """Those of NICs that probe or are probed."""
    fabric: FabricStatus | None = None
    """State of the learnt fabric; None: not evaluated yet."""
    homes: Mapping[str, str] = {}
    """NIC → the switch that it is at."""
    agent_parts: Mapping[str, Sequence[PartStatus]] = {}
    """Host → the parts of its agent, for those that reported."""
    answering: Collection[str] = frozenset()
    """Hosts whose NICs answer the probes of others."""
    in_band: Mapping[str, str] = {}
    """Host → the NIC that its agent's connection crosses, if it is one of the fabric."""
    heirs: Mapping[str, str] = {}
    """Absent host → another one that has one of its addresses now."""
    refused: Refused = NOBODY_REFUSED
    """Hosts that may not report."""
    notes: Mapping[frozenset[str], SuspectNote] = {}
    """By suspects that cannot be distinguished: the attempts to do so."""
    gateways: Sequence[Observation] = ()
    """Expected gateways."""
    pairs: Collection[tuple[str, str]] = ()
    """NICs that probe one another: from, to."""
    answered_ns: Mapping[str, int] = {}
    """Switch → fleet time at which the newest trace that it answered began."""
    up: Collection[str] = frozenset()
    """Switches that are up although no host at them answers (`IncidentService`)."""
    findings_ns: int = 0
    """End of the seconds that findings are of, fleet time; 0: now."""
    located: bool = True
    """Whether localisation has answered lately; if not, its findings are neither confirmed nor
    over."""

    @property
    def silent(self) -> frozenset[str]:
        """Hosts whose agents are silent."""
        return frozenset(host for host, age_ns in self.silent_ns.items() if age_ns > SILENT_NS)


class LinkReadings(NamedTuple):
    """What the store has of links."""

    ports: Sequence[LinkStatus]
    """Every port, with its flaps of the past hour."""
    counters: Iterable[LinkCounterRow]
    """Increases of the past hour."""
    modules: Mapping[str, tuple[str, str]]
    """NIC → state and detail of its module in the past day."""


class LiveIncidents:
    """The live incidents, by what they are about.

    Args:
        rules: in force.
        incidents: those of the book.
    """

    def __init__(self, rules: Iterable[Rule], incidents: Iterable[Incident]) -> None:
        self._metrics = {rule.name: rule.metric for rule in rules}
        self._live = [each for each in incidents if each.live]

    def about(self, metrics: Container[str]) -> list[Incident]:
        """Those about any of these metrics."""
        return [each for each in self._live if self._metrics.get(each.rule) in metrics]

    def subjects(self, metrics: Container[str]) -> frozenset[str]:
        """Their subjects."""
        return frozenset(each.subject for each in self.about(metrics))

    def members(self, metrics: Container[str]) -> dict[str, tuple[str, ...]]:
        """Their components, by subject."""
        return {each.subject: each.members for each in self.about(metrics)}

    def explained_clocks(self) -> frozenset[str]:
        """Clocks that are not synchronized because of something other than the fleet's."""
        of_fleet = {each.number for each in self.about(clock_watch.FLEET_METRICS)}
        return frozenset(
            each.subject
            for each in self.about(clock_watch.CLOCK_METRICS)
            if each.cause and each.cause not in of_fleet
        )


def observations(
    fleet_ns: int,
    inputs: EvaluationInputs,
    links: LinkReadings,
    clocks: Iterable[Observation],
    live: LiveIncidents,
    *,
    links_known: bool,
) -> Measured:
    """All observations of one evaluation, and which metrics they cover.

    Args:
        fleet_ns: now.
        inputs: what the controller has in memory.
        links: what the store last said of links.
        clocks: observations of the clocks.
        live: incidents before this evaluation.
        links_known: whether it has said so since the last evaluation; if not, rules about links are
            not evaluated.
    """
    slas = inputs.slas
    findings = _trusted(fleet_ns, inputs, links.ports, live)
    # Also of hosts whose agents are silent: their jobs may go on.
    traffic = port_traffic.of_ports(
        (port for port in links.ports if fleet_ns - port.seen_ns <= observe.STALE_NS),
        slas.jobs.values(),
        inputs.homes,
    )
    found = impact.with_jobs_at([*_of_hosts(fleet_ns, inputs, links, live), *clocks], slas.jobs)
    found += _of_findings(fleet_ns, inputs, findings, live, traffic)
    found += observe.of_parts(inputs.agent_parts, inputs.silent)
    metrics = _ALWAYS if inputs.located else _ALWAYS - observe.FINDING_METRICS
    for more, of in (
        _of_latency(inputs, findings, live, traffic),
        _of_jobs(inputs),
        _of_switches(fleet_ns, inputs, links.ports),
    ):
        found += more
        metrics |= of
    if not links_known:
        metrics -= observe.LINK_METRICS | observe_switches.SWITCH_METRICS
    removed = inputs.refused.removed
    return measured(
        (each for each in found if host_of(each.subject) not in removed),
        metrics,
        dict.fromkeys(observe.FINDING_METRICS, inputs.findings_ns or fleet_ns),
    )


def _of_hosts(
    fleet_ns: int, inputs: EvaluationInputs, links: LinkReadings, live: LiveIncidents
) -> list[Observation]:
    """Ports, agents and gateways."""
    silent_ns, refused = inputs.silent_ns, inputs.refused
    silences = [
        # Hosts that were silent before: one that has not reported since this controller
        # started is still silent, not healthy because nothing is known of it.
        *silent_agents.of_hosts(
            silent_ns,
            live.subjects(silent_agents.HOST_METRICS),
            inputs.answering,
            refused.reasons,
            in_band=inputs.in_band,
            heirs=inputs.heirs,
        ),
        *silent_agents.of_fleet(silent_ns, inputs.in_band, inputs.homes),
        *silent_agents.of_sets(
            silent_ns,
            inputs.answering,
            _known_sets(live, refused.removed),
            inputs.in_band,
            homes=inputs.homes,
            down_ns={
                each.subject: fleet_ns - each.since_ns
                for each in live.about(observe_switches.SWITCH_METRICS)
            },
            up=inputs.up,
        ),
    ]
    between_switches = observe.LOSSES | observe.FABRIC_METRICS | observe_switches.SWITCH_METRICS
    faults_ns = [
        fleet_ns - each.since_ns for each in live.about(between_switches) if "/" not in each.subject
    ]
    return [
        *observe.of_links(links.ports, links.counters, inputs.silent, fleet_ns, inputs.homes),
        *observe.of_modules(links.modules),
        *silent_agents.held_while_routes_change(
            silences, silent_ns, inputs.in_band, inputs.answering, faults_ns
        ),
        *inputs.gateways,
        *silent_agents.of_gateway_sets(
            inputs.gateways, live.members(silent_agents.GATEWAYS_TOGETHER)
        ),
    ]


def _known_sets(live: LiveIncidents, removed: Container[str]) -> dict[str, tuple[str, ...]]:
    """Agents of one incident that fell silent together, and still belong to the fleet, by
    subject."""
    return {
        subject: tuple(host for host in hosts if host not in removed)
        for subject, hosts in live.members(silent_agents.TOGETHER).items()
    }


def _trusted(
    fleet_ns: int, inputs: EvaluationInputs, ports: Sequence[LinkStatus], live: LiveIncidents
) -> tuple[Finding, ...]:
    """The findings of localisation that agree with what is known of agents, ports and pairs."""
    known_ns = {each.subject: fleet_ns - each.since_ns for each in live.about(observe.LOSSES)}
    findings = equal_suspects.with_switches_of_dead_hosts(
        inputs.findings, inputs.homes, inputs.silent_ns, known_ns, up=inputs.up
    )
    findings = silent_agents.without_hosts_that_report(
        findings, inputs.silent_ns, inputs.homes, live.subjects(observe.SWITCH_OR_HOSTS)
    )
    findings = equal_suspects.without_switches_up(findings, inputs.up)
    findings = observe_switches.without_switches_lost_apart(
        findings, ports, inputs.homes, inputs.silent, fleet_ns
    )
    down = live.subjects(observe_switches.SWITCH_METRICS)
    answering = inputs.answering
    gone = inputs.silent.difference(answering) if answering else frozenset[str]()
    dead = equal_suspects.dead_nics(findings, inputs.homes, down, gone)
    dead |= (
        observe.without_carrier(ports, inputs.silent, fleet_ns)
        if ports
        else live.subjects({"port_down"})  # a new leader's store does not answer yet
    )
    return equal_suspects.with_lone_peers(findings, inputs.pairs, dead)


def _of_findings(
    fleet_ns: int,
    inputs: EvaluationInputs,
    findings: Sequence[Finding],
    live: LiveIncidents,
    traffic: PortTraffic,
) -> list[Observation]:
    slas = inputs.slas
    senders = {src for pairs in slas.jobs.values() for src, _ in pairs} | traffic.sending.keys()
    found = observe.of_findings(findings, inputs.notes, senders)
    found = silent_agents.held_while_hosts_stop(
        found,
        observe.LOSSES,
        inputs.silent_ns,
        inputs.answering,
        nics=Counter(host_of(nic) for nic in inputs.homes),
        in_band=inputs.in_band,
    )
    found = impact.with_jobs(found, slas.jobs, slas.crossing)
    lossy = {each.subject for each in found if each.metric in observe.LOSSES and each.value}
    subjects = {each.subject for each in found} if traffic.is_any else lossy
    ways = {name: (name,) if name in lossy else directions(name) for name in subjects}
    pairs = pairs_across(subjects.union(*ways.values()), slas.crossing)
    found = impact.under_load(
        found,
        findings,
        slas.queues or (),
        known=live.subjects(observe.DELAY | observe.QUEUE_METRICS),
        crowded={job for each in live.about(observe.QUEUE_METRICS) for job in each.jobs},
        long={
            each.subject
            for each in live.about(observe.LOSSES)
            if fleet_ns - each.held_ns >= MAX_HOLD_NS
        },
        unknown={
            name: traffic.fills({way: pairs[way] for way in each}) for name, each in ways.items()
        },
    )
    return impact.with_impact(found, pairs, len(slas.crossing), jobs_known=bool(slas.jobs))


def _of_latency(
    inputs: EvaluationInputs,
    findings: Sequence[Finding],
    live: LiveIncidents,
    traffic: PortTraffic,
) -> tuple[list[Observation], frozenset[str]]:
    """Latency, and the metrics of it that have been evaluated; so do the functions below."""
    slas, silent = inputs.slas, inputs.silent
    found: list[Observation] = []
    metrics = frozenset[str]()
    if slas.rows is not None:
        found += observe.of_slas(slas.rows)
        metrics |= observe.SLA_METRICS
    if slas.planes is not None:
        differ = planes.observations(slas.planes, silent)
        found += impact.with_jobs(differ, slas.jobs, slas.crossing)
        metrics |= planes.METRICS
    if slas.queues is not None:
        found += observe.of_queues(
            slas.queues, findings, slas.crossing, live.subjects(observe.DELAY), traffic
        )
        metrics |= observe.QUEUE_METRICS
    return found, metrics


def _of_jobs(inputs: EvaluationInputs) -> tuple[list[Observation], frozenset[str]]:
    slas = inputs.slas
    found: list[Observation] = []
    metrics = frozenset[str]()
    if slas.stalls is not None:
        found += stalled_queue_pairs.observations(slas.stalls, slas.nics, inputs.silent)
        metrics |= stalled_queue_pairs.METRICS
    if slas.job_results is not None:
        found += job_verdicts.observations(slas.job_results)
        metrics |= job_verdicts.METRICS
    if slas.lost_ranks is not None:
        found += slas.lost_ranks
        metrics |= job_takeovers.METRICS
    return found, metrics


def _of_switches(
    fleet_ns: int, inputs: EvaluationInputs, ports: Sequence[LinkStatus]
) -> tuple[list[Observation], frozenset[str]]:
    """Cables and switches that paths have left, and switches whose ports are all down."""
    slas, fabric, homes = inputs.slas, inputs.fabric, inputs.homes
    found: list[Observation] = []
    metrics = frozenset[str]()
    if fabric is not None:
        found += observe.of_fabric(fabric, fleet_ns)
        metrics |= observe.FABRIC_METRICS
    if homes:
        gone = {} if fabric is None else fabric.gone
        found += observe_switches.of_switches(ports, homes, gone, inputs.silent, fleet_ns)
        metrics |= observe_switches.SWITCH_METRICS
    return impact.with_jobs(found, slas.jobs, slas.crossing), metrics
