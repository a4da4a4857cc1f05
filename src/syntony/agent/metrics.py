"""An agent's metrics for Prometheus, from its existing state, by the names in the metrics table."""

from __future__ import annotations

import math
import queue
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from syntony.agent.clock_server import ClockServer
from syntony.agent.job_admission import AdmissionRefusal
from syntony.agent.links import PortTotals
from syntony.agent.operations import JobTelemetry
from syntony.agent.pipeline import Pipeline
from syntony.agent.queue_pairs import QueuePairSocket
from syntony.agent.reactor.messages import ReactorState
from syntony.agent.segments import SegmentSampler
from syntony.agent.spool import Spool
from syntony.agent.takeovers import REASONS, SPARES, WHAT, TakeoverSocket
from syntony.agent.uplink import Uplink
from syntony.io.scrape import put_process
from syntony.links.counters import EVERY, LinkCounter
from syntony.links.ports import PortState
from syntony.mesh.totals import BOUNDS_NS, Totals
from syntony.metrics.sheet import Histogram, Sheet
from syntony.metrics.table import HOST
from syntony.metrics.text import render
from syntony.model import ClockState, S
from syntony.traffic.process_flows import Malformed
from syntony.wire.failover import PathsReport
from syntony.wire.parts import PartState, PartStatus

PATIENCE_S = 2.0
"""Time that a scrape waits for the loop."""
_STATES = {PortState.ACTIVE: 1.0, PortState.UNKNOWN: None}


class Scrape(NamedTuple):
    """Lets a scraper's thread query the agent's loop, which alone may read its state."""

    answer: queue.SimpleQueue[Sheet]


def page(ask: Callable[[Scrape], None], accept: str) -> tuple[str, str] | None:
    """The answer to one scrape; None if the loop does not answer in time."""
    scrape = Scrape(queue.SimpleQueue())
    ask(scrape)
    try:
        sheet = scrape.answer.get(timeout=PATIENCE_S)
    except queue.Empty:
        return None
    return render(sheet, accept)


def new_sheet(host: str) -> Sheet:
    """A sheet with the metrics that every process has."""
    sheet = Sheet({HOST: host, "role": "agent"})
    put_process(sheet)
    return sheet


def put_clock(sheet: Sheet, server: ClockServer, pipeline: Pipeline, local_ns: int) -> None:
    """Served time and its inputs."""
    piece = server.served()
    state = ClockState.UNKNOWN if piece is None else piece.state
    sheet.state("clock_state", (each.value for each in ClockState), state.value)
    sheet.put("clock_disruptions_total", server.disruptions)
    sheet.put("clock_slews_total", server.slews)
    if piece is None:
        return
    line = piece.line
    sheet.put("clock_bound_seconds", piece.bound_ns(local_ns) / S)
    sheet.put("clock_error_seconds", line.sigma_ns / S)
    sheet.put("clock_offset_seconds", piece.shift_ns(local_ns) / S)
    sheet.put("clock_drift_ratio", line.drift_ppb * 1e-9)
    sheet.put("clock_slew_left_seconds", piece.left_ns(local_ns) / S)
    if pipeline.utc is not None and pipeline.utc.state is not ClockState.UNKNOWN:
        fleet_ns = piece.to_fleet_ns(local_ns)
        utc_ns = pipeline.utc.to_utc_ns(fleet_ns) - fleet_ns
        sheet.put("clock_utc_offset_seconds", utc_ns / S)


def put_reactor(sheet: Sheet, state: ReactorState) -> None:
    """The reactor, and its counters of probes, jobs' processes and paths."""
    sheet.put("reactor_cpu_seconds_total", state.cpu_ns / S)
    sheet.put("reactor_resident_memory_bytes", state.rss_bytes)
    sheet.put("reactor_connections_total", state.connections)
    _put_engine(sheet, state)
    _put_verbs(sheet, state)
    _put_jobs(sheet, state)
    _put_paths(sheet, state)


def _put_engine(sheet: Sheet, state: ReactorState) -> None:
    counters = state.engine
    sheet.put("probe_flows", state.flows)
    sheet.put("plan_faults_total", state.plan_faults)
    sheet.put("probe_requests_sent_total", counters["sent"])
    sheet.put("probe_replies_sent_total", counters["replies"])
    sheet.put("probe_packets_received_total", counters["received"])
    for reason in ("malformed", "foreign", "replayed", "misdelivered", "unsolicited", "late"):
        sheet.put("probe_packets_rejected_total", counters[reason], reason=reason)
    sheet.put("probe_send_errors_total", counters["send_errors"])
    sheet.put("probe_skipped_total", counters["skipped"])
    sheet.put("probe_stalls_total", counters["stalls"])
    sheet.put("probe_stall_seconds_total", counters["stall_ns"] / S)
    sheet.put("probe_receive_overflow_total", counters["rx_overflow"])
    sheet.put("probe_stamps_missing_total", counters["tx_stamp_missing"])


def _put_verbs(sheet: Sheet, state: ReactorState) -> None:
    counters = state.verbs
    if not counters:
        return
    sheet.put("verbs_probe_flows", state.verbs_flows)
    sheet.put("verbs_probe_requests_sent_total", counters["sent"])
    sheet.put("verbs_probe_packets_received_total", counters["received"])
    rejected = ("malformed", "foreign", "replayed", "misdelivered")
    sheet.put("verbs_probe_packets_rejected_total", sum(counters[each] for each in rejected))
    sheet.put("verbs_probe_send_errors_total", counters["send_errors"])
    sheet.put("verbs_probe_receive_overflow_total", counters["rx_overflow"])


def put_parts(sheet: Sheet, parts: Iterable[PartStatus]) -> None:
    for part in parts:
        sheet.put("agent_part_up", float(part.state is PartState.RUNNING), part=part.name)


def _put_jobs(sheet: Sheet, state: ReactorState) -> None:
    jobs = state.jobs
    _put_admissions(sheet, "job_processes", jobs.processes, jobs.connected, state.report.refused)
    for field in Malformed:
        sheet.put(
            "job_records_unused_total", jobs.malformed.get(str(field.value), 0),
            reason=str(field.value),
        )  # fmt: skip
    sheet.put("job_records_unused_total", jobs.torn, reason="torn")


def put_queue_pairs(sheet: Sheet, at: QueuePairSocket) -> None:
    _put_admissions(sheet, "queue_pair_processes", at.processes, at.connected, at.refused())
    sheet.put("queue_pairs", at.queue_pairs)
    sheet.put("queue_pairs_left_out", at.left_out)
    sheet.put("queue_pair_records_unused_total", at.malformed)


def put_operations(sheet: Sheet, at: JobTelemetry) -> None:
    """Records of collectives and steps that are missing or could not be used."""
    sheet.put("job_operation_records_unused_total", at.socket.malformed)
    sheet.put("job_exits_lost_total", at.lost_exits)
    losses = at.nccl.losses()
    sheet.put("nccl_operations_lost_total", losses["lost"])
    sheet.put("nccl_operations_unused_total", losses["malformed"])
    sheet.put("nccl_parts_left_out_total", losses["left_out"])


def put_takeovers(sheet: Sheet, at: TakeoverSocket) -> None:
    """Lost ranks of protected jobs whose coordinator runs on this host."""
    for reason in REASONS:
        sheet.put("job_ranks_replaced_total", at.replaced[reason], reason=reason)
    sheet.put("job_takeover_stall_seconds_total", at.stall_ns / S)
    for what in WHAT:
        if what not in {"replaced", SPARES}:
            sheet.put("job_takeover_events_total", at.events[what], event=what)
    sheet.put("job_takeover_messages_unused_total", at.malformed)


def put_segments(sheet: Sheet, sampler: SegmentSampler) -> None:
    sheet.put("segment_flows", sampler.flows)
    sheet.put("segment_flows_left_out", sampler.left_out)
    sheet.put("segments_sampled_total", sampler.sampled)
    sheet.put("segments_lost_total", sampler.lost)


def _put_admissions(
    sheet: Sheet, name: str, now: int, ever: int, refused: Mapping[str, int]
) -> None:
    """Processes connected, accepted and refused at a socket of the agent."""
    sheet.put(name, now)
    sheet.put(f"{name}_connected_total", ever)
    for reason in AdmissionRefusal:
        sheet.put(f"{name}_refused_total", refused.get(reason, 0), reason=reason.value)


def put_nics(sheet: Sheet, totals: Iterable[tuple[str, str, Totals]]) -> None:
    """Loss and delay, one set per NIC and direction, independent of the number of peers."""
    for ref, direction, reported in totals:
        labels = {"nic": ref.partition("/")[2], "direction": direction}
        sheet.put("probe_sent_total", reported.sent, **labels)
        sheet.put("probe_lost_total", reported.lost, **labels)
        sheet.put("probe_unresolved_total", reported.unresolved, **labels)
        sheet.put("probe_stalled_total", reported.stalled, **labels)
        sheet.put("probe_one_way_delay_seconds", _histogram(reported), **labels)


def _histogram(reported: Totals) -> Histogram:
    buckets, below = [], 0
    for bound_ns, count in zip((*BOUNDS_NS, math.inf), reported.delays, strict=True):
        below += count
        buckets.append((bound_ns / S, below))
    return Histogram(buckets, reported.delay_sum_ns / S)


def _put_paths(sheet: Sheet, state: ReactorState) -> None:
    """Paths of jobs: current state and actions."""
    counters, report = state.counters, state.report
    sheet.put("paths_mode", 1, mode=report.mode)
    sheet.put("paths_stopped", report.stopped)
    sheet.put("paths_connections", len(report.connections) + report.left_out)
    sheet.put("paths_degraded_connections", report.degraded)
    for way, count in _subflows(report).items():
        sheet.put("paths_subflows", count, state=way)
    sheet.put("paths_events_total", counters.events)
    sheet.put("paths_joins_requested_total", counters.requested)
    sheet.put("paths_joins_failed_total", counters.joins_failed)
    sheet.put("paths_created_total", counters.created)
    sheet.put("paths_destroyed_total", counters.destroyed)
    for cause, count in counters.left.items():
        sheet.put("paths_left_total", count, cause=cause)
    sheet.put("paths_redirected_total", counters.redirected)
    for order, count in counters.refused.items():
        sheet.put("paths_refused_total", count, order=order)
    sheet.put("paths_noted_total", counters.notes)
    sheet.put("paths_events_lost_total", counters.events_lost)
    sheet.put("paths_routes_restored_total", counters.routes_restored)
    sheet.put("paths_slowest_reaction_seconds", counters.slowest_ns / S)
    sheet.put("dropped_total", counters.rows_dropped, where="paths")


def _subflows(report: PathsReport) -> dict[str, int]:
    states = Tally(sub.state for conn in report.connections for sub in conn.subflows)
    known = ("up", "standby", "coming", "stalled", "plain", "redrawn", "detour")
    return dict.fromkeys(known, 0) | states


def put_links(sheet: Sheet, ports: Iterable[PortTotals]) -> None:
    for port in ports:
        snapshot, nic = port.snapshot, port.snapshot.name
        role = str(snapshot.role)
        sheet.put("link_up", _STATES.get(snapshot.state, 0.0), nic=nic, role=role)
        sheet.put(
            "link_info", 1, nic=nic, role=role, link_layer=snapshot.link_layer,
            driver=snapshot.driver, rdma=snapshot.rdma,
        )  # fmt: skip
        sheet.put(
            "link_speed_bytes", snapshot.rate.gbps * 1e9 / 8 if snapshot.rate else None, nic=nic
        )
        sheet.put("link_flaps_total", port.flaps, nic=nic)
        sheet.put("link_counters_unreadable", port.unreadable, nic=nic)
        for key, increase in port.counters.items():
            _put_counter(sheet, nic, EVERY[key], increase)
        sheet.put("module_temperature_celsius", _known(port.optics.temperature_c), nic=nic)
        sheet.put("module_receive_power_dbm", _known(port.optics.rx_dbm), nic=nic)
        sheet.put("module_bias_amperes", _known(port.optics.bias_ma / 1000), nic=nic)


def _put_counter(sheet: Sheet, nic: str, counter: LinkCounter, increase: int) -> None:
    sheet.put(
        "link_statistic_total", increase, nic=nic, counter=counter.key, kind=counter.kind,
        suspect=counter.suspect,
    )  # fmt: skip


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def put_uplink(sheet: Sheet, uplink: Uplink, spool: Spool, records_dropped: dict[str, int]) -> None:
    """The connection to the controller, and rows that wait or were dropped."""
    sheet.put("uplink_connected", uplink.connected)
    sheet.put("uplink_connections_total", uplink.connections)
    sheet.put("spool_bytes", spool.kept_bytes)
    sheet.put("spool_limit_bytes", spool.max_bytes)
    sheet.put("spool_batches", spool.last_seq - spool.acknowledged)
    sheet.put("spool_batches_stored_total", spool.acknowledged)
    sheet.put("dropped_total", spool.dropped_rows, where="spool")
    for where, count in records_dropped.items():
        sheet.put("dropped_total", count, where=where)
