"""Every metric that an agent or a controller exports: the one place where they are named.

Base units (seconds, bytes, ratios of 1), counters end in ``_total``; nothing is ever exported per
pair of NICs: those rows are in the store.
"""

from __future__ import annotations

import enum
from typing import Literal, NamedTuple

PREFIX = "syntony_"
Kind = Literal["counter", "gauge", "histogram"]


class MetricOwner(enum.StrEnum):
    AGENT = "agent"
    CONTROLLER = "controller"
    BOTH = "agent, controller"


class Metric(NamedTuple):
    """One family. `name` is without the prefix; a counter's holds its ``_total``."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    role: MetricOwner

    @property
    def full_name(self) -> str:
        """As Prometheus stores it."""
        return PREFIX + self.name


HOST = "host"
"""The label in front of every metric of an agent: the host's name in the fleet. A scrape's
``instance`` is an address, which says nothing to a person."""


def _agent(name: str, kind: Kind, labels: str, meaning: str) -> Metric:
    return Metric(name, kind, (HOST, *labels.split()), meaning, MetricOwner.AGENT)


def _controller(name: str, kind: Kind, labels: str, meaning: str) -> Metric:
    return Metric(name, kind, tuple(labels.split()), meaning, MetricOwner.CONTROLLER)


def _both(name: str, kind: Kind, labels: str, meaning: str) -> Metric:
    return Metric(name, kind, (HOST, "role", *labels.split()), meaning, MetricOwner.BOTH)


_BOTH = (
    _both("build_info", "gauge", "version", "1; version and role of this process"),
    _both("process_cpu_seconds_total", "counter", "", "CPU time of this process, all threads"),
    _both("process_resident_memory_bytes", "gauge", "", "resident memory of this process"),
    _both("log_lines_held_back_total", "counter", "",
          "log lines suppressed because many of the same kind about the same object came before"),
    _both("certificate_expiry_seconds", "gauge", "",
          "time until this process's certificate expires; 0: expired or unreadable"),
)  # fmt: skip

_PARTS = (
    _agent(
        "agent_part_up",
        "gauge",
        "part",
        "1 while this part of the agent runs; `syntony agent parts` says why one does not",
    ),
)

_REACTOR = (
    _agent("reactor_cpu_seconds_total", "counter", "", "CPU time of the reactor, all threads"),
    _agent("reactor_resident_memory_bytes", "gauge", "",
           "its resident memory; absent, like all its metrics, while it does not answer"),
    _agent("reactor_connections_total", "counter", "",
           "connections of a telemetry process to it: 1 if neither process died"),
)  # fmt: skip

_JOBS = (
    _agent("job_processes", "gauge", "", "processes of jobs that are connected to the agent"),
    _agent("job_processes_connected_total", "counter", "", "processes of jobs accepted"),
    _agent("job_processes_refused_total", "counter", "reason",
           "processes refused; docs/reference/local-socket.md explains the reasons"),
    _agent("job_records_unused_total", "counter", "reason",
           "records of flows that were read and rejected: an impossible field, or torn"),
)  # fmt: skip

_TAKEOVERS = (
    _agent("job_ranks_replaced_total", "counter", "reason",
           "lost ranks of protected jobs that a spare replaced, by why they were lost"),
    _agent("job_takeover_stall_seconds_total", "counter", "",
           "time from each loss until all ranks were connected again, sum of all takeovers"),
    _agent("job_takeover_events_total", "counter", "event",
           "verified, differs: parameters compared after a takeover; ended: a job without a "
           "usable spare; unprotected; checkpoint: state saved for lack of a spare; straggler "
           "and its end: no-straggler"),
    _agent("job_takeover_messages_unused_total", "counter", "",
           "invalid messages of coordinators"),
)  # fmt: skip

_QUEUE_PAIRS = (
    _agent("queue_pair_processes", "gauge", "",
           "processes of jobs that are connected to report their queue pairs"),
    _agent("queue_pair_processes_connected_total", "counter", "",
           "processes accepted to report queue pairs"),
    _agent("queue_pair_processes_refused_total", "counter", "reason",
           "processes refused; docs/reference/local-socket.md explains the reasons"),
    _agent("queue_pairs", "gauge", "", "queue pairs that these processes report"),
    _agent("queue_pairs_left_out", "gauge", "",
           "queue pairs beyond 1,024 of the host or 256 of a process, which are not reported"),
    _agent("queue_pair_records_unused_total", "counter", "",
           "records of queue pairs that were read and rejected, or an invalid shared page"),
)  # fmt: skip

_OPERATIONS = (
    _agent("job_operation_records_unused_total", "counter", "",
           "records of collectives and steps that were read and rejected, and processes that "
           "sent an invalid page or none"),
    _agent("job_exits_lost_total", "counter", "",
           "times that the kernel had no room for ends of processes: how one or more ended is not "
           "known, unless it has Linux 6.15"),
    _agent("nccl_operations_lost_total", "counter", "",
           "operations of NCCL that were overwritten before they were read, or beyond 65,536 of "
           "processes that ended within a second"),
    _agent("nccl_operations_unused_total", "counter", "",
           "operations of NCCL that were read and rejected, and processes that sent an invalid "
           "page or none"),
    _agent("nccl_parts_left_out_total", "counter", "",
           "parts and steps of NCCL's operations for which a process had no room"),
)  # fmt: skip

_SEGMENTS = (
    _agent("segment_flows", "gauge", "", "TCP flows of jobs whose segments are sampled"),
    _agent("segment_flows_left_out", "gauge", "", "flows beyond 256 of the host"),
    _agent("segments_sampled_total", "counter", "", "segments that were sampled"),
    _agent("segments_lost_total", "counter", "",
           "samples lost because the kernel's buffer was full; their second is not reported"),
)  # fmt: skip

_CLOCK = (
    _agent("clock_state", "gauge", "state",
           "1 for the state that served time is in, 0 for the others"),
    _agent("clock_bound_seconds", "gauge", "",
           "bound of the error of served fleet time; +Inf: unknown"),
    _agent("clock_error_seconds", "gauge", "", "1-sigma of the host clock's solved offset"),
    _agent("clock_offset_seconds", "gauge", "", "fleet time minus the host's clock"),
    _agent("clock_drift_ratio", "gauge", "", "rate of the offset: 1e-6 is 1 ppm"),
    _agent("clock_slew_left_seconds", "gauge", "", "served minus solved time, still to be slewed"),
    _agent("clock_disruptions_total", "counter", "", "steps of the host's clock detected"),
    _agent("clock_slews_total", "counter", "", "changes of the host clock's rate detected"),
    _agent("clock_utc_offset_seconds", "gauge", "", "UTC minus fleet time; absent without anchors"),
)  # fmt: skip

_PROBES = (
    _agent("probe_flows", "gauge", "", "paths of the plan in force that this host probes"),
    _agent("plan_faults_total", "counter", "",
           "plans refused, and attempts at their flows that failed; the log names each"),
    _agent("probe_requests_sent_total", "counter", "", "probe requests sent"),
    _agent("probe_replies_sent_total", "counter", "", "probe replies sent"),
    _agent("probe_packets_received_total", "counter", "",
           "authentic probe packets received, requests and replies"),
    _agent("probe_packets_rejected_total", "counter", "reason",
           "packets ignored: malformed, foreign key, replayed, misdelivered, unsolicited, late"),
    _agent("probe_send_errors_total", "counter", "", "probes that the kernel refused to send"),
    _agent("probe_skipped_total", "counter", "", "probes skipped because their time had passed"),
    _agent("probe_stalls_total", "counter", "", "times that the probe thread itself was late"),
    _agent("probe_stall_seconds_total", "counter", "", "total time by which it was late"),
    _agent("probe_receive_overflow_total", "counter", "",
           "packets the kernel dropped before the probe thread read them"),
    _agent("probe_stamps_missing_total", "counter", "",
           "probes sent for which the kernel returned no send timestamp"),
    _agent("verbs_probe_flows", "gauge", "", "paths probed over verbs; absent without RDMA"),
    _agent("verbs_probe_requests_sent_total", "counter", "", "requests sent over verbs"),
    _agent("verbs_probe_packets_received_total", "counter", "",
           "authentic packets received over verbs, requests and replies"),
    _agent("verbs_probe_packets_rejected_total", "counter", "",
           "packets over verbs ignored: malformed, foreign key, replayed or misdelivered"),
    _agent("verbs_probe_send_errors_total", "counter", "",
           "packets over verbs that the NIC refused, or without a known route"),
    _agent("verbs_probe_receive_overflow_total", "counter", "",
           "times a queue pair's receive queue was full"),
    _agent("probe_sent_total", "counter", "nic direction",
           "probes of this host's flows in each direction, out: requests, in: replies"),
    _agent("probe_lost_total", "counter", "nic direction", "of these, known to have been lost"),
    _agent("probe_unresolved_total", "counter", "nic direction",
           "lost round trips whose direction of loss is unknown; counted in both directions"),
    _agent("probe_stalled_total", "counter", "nic direction",
           "probes not counted for loss because this host's own thread was late"),
    _agent("probe_one_way_delay_seconds", "histogram", "nic direction",
           "one-way delays on the fleet timeline, all peers and paths of the NIC together"),
)  # fmt: skip

_PATHS = (
    _agent("paths_mode", "gauge", "mode",
           "1 for the mode in force: what may be done to paths of jobs, or why nothing"),
    _agent("paths_stopped", "gauge", "", "1 while the fleet's stop switch is on"),
    _agent("paths_connections", "gauge", "", "connections of managed jobs"),
    _agent("paths_degraded_connections", "gauge", "",
           "… with fewer living paths than rails for 5 s or more; 0 where paths are not managed"),
    _agent("paths_subflows", "gauge", "state", "their subflows, by state"),
    _agent("paths_events_total", "counter", "", "events that path control has processed"),
    _agent("paths_joins_requested_total", "counter", "", "new subflows requested"),
    _agent("paths_joins_failed_total", "counter", "", "… that failed"),
    _agent("paths_created_total", "counter", "", "… that were established"),
    _agent("paths_destroyed_total", "counter", "", "established subflows that were closed"),
    _agent("paths_left_total", "counter", "cause",
           "paths left, by cause: failovers, moves for contention, surplus paths"),
    _agent(
        "paths_redirected_total", "counter", "",
        "times that a plain connection was moved to another path, or back",
    ),
    _agent("paths_refused_total", "counter", "order",
           "orders that the kernel did not carry out, by kind; repeated, except withdrawals "
           "and orders to a subflow that belong to a flow's move"),
    _agent("paths_late_paces_total", "counter", "",
           "rates of the controller refused because they had expired when they arrived"),
    _agent("paths_noted_total", "counter", "",
           "changes decided but not made; each is recorded with its reason"),
    _agent("paths_events_lost_total", "counter", "",
           "times that the kernel dropped events for path control"),
    _agent("paths_routes_restored_total", "counter", "", "routes restored after a flap"),
    _agent("paths_slowest_reaction_seconds", "gauge", "",
           "longest time from reading an event to having acted on it"),
)  # fmt: skip

_LINKS = (
    _agent("link_up", "gauge", "nic role", "1 while the port is active; absent where not known"),
    _agent("link_info", "gauge", "nic role link_layer driver rdma", "1; what the port is"),
    _agent("link_speed_bytes", "gauge", "nic", "speed, bytes a second"),
    _agent("link_flaps_total", "counter", "nic",
           "losses of carrier since the agent started: exact, however short"),
    _agent("link_statistic_total", "counter", "nic counter kind suspect",
           "increase of a counter of docs/reference/links.md since the agent started"),
    _agent("link_counters_unreadable", "gauge", "nic",
           "counters that exist but cannot be read, or are at their maximum"),
    _agent("module_temperature_celsius", "gauge", "nic", "temperature of the plugged module"),
    _agent("module_receive_power_dbm", "gauge", "nic",
           "lowest received optical power of the lanes"),
    _agent("module_bias_amperes", "gauge", "nic", "largest laser bias of the lanes"),
)  # fmt: skip

_UPLINK = (
    _agent("uplink_connected", "gauge", "", "1 while the controller responds"),
    _agent("uplink_connections_total", "counter", "", "streams on which the controller responded"),
    _agent("spool_bytes", "gauge", "", "size of the spool on disk"),
    _agent("spool_limit_bytes", "gauge", "", "size from which on rows are dropped"),
    _agent("spool_batches", "gauge", "", "batches kept until the controller has stored them"),
    _agent("spool_batches_stored_total", "counter", "",
           "batches the controller has stored, over the spool's life"),
    _agent("dropped_total", "counter", "where",
           "dropped rows: spool, paths, early (no fleet time yet); dropped records: pipeline, "
           "ring, reactor (in transit from it)"),
)  # fmt: skip

_FLEET = (
    _controller("controller_epoch", "gauge", "",
                "epoch of this controller; increases with each start"),
    _controller("controller_later_epoch", "gauge", "",
                "highest epoch that agents have reported; above syntony_controller_epoch: they "
                "obey another controller"),
    _controller("gateway_connected", "gauge", "gateway",
                "1 while the gateway's stream is up and not silent, as its leader sees it"),
    _controller("gateway_agents", "gauge", "gateway", "agents attached to it"),
    _controller("gateway_lag_seconds", "gauge", "gateway",
                "age of the oldest batch that it has not stored"),
    _controller("gateway_repeated_batches_total", "counter", "",
                "batches that were reported to the leader twice; it judges each once"),
    _controller("gateway_leader_connected", "gauge", "", "of a gateway: 1 while it has a leader"),
    _controller("gateway_leader_changes_total", "counter", "",
                "of a gateway: times that a leader has accepted it"),
    _controller("enrolment_refused_total", "counter", "",
                "requests at the enrolment port that were not granted; the log says why"),
    _controller("open_files", "gauge", "",
                "open file descriptors; each connection holds one, whoever made it"),
    _controller("open_files_limit", "gauge", "",
                "how many may be open; ten sixteenths of them are for connections of agents"),
    _controller("api_connections_refused_total", "counter", "",
                "connections to the API that were closed at once, as too many were open"),
    _controller("state_failures_total", "counter", "",
                "transactions and queries of control state that failed; the log says why"),
    _controller("certificates_revoked", "gauge", "", "revoked certificates not expired yet"),
    _controller("agents", "gauge", "state", "agents by state: connected, absent"),
    _controller("agent_connected", "gauge", "host", "1 while the agent is attached"),
    _controller(
        "agent_silent_seconds", "gauge", "host",
        "time since the agent's last message, while the controller was reading",
    ),
    _controller(
        "controller_away_seconds_total", "counter", "",
        "time in which this controller did not run, in gaps of 3 s and more",
    ),
    _controller("agent_dropped_total", "counter", "host", "rows that the agent reports as dropped"),
    _controller("agents_refused_total", "counter", "",
                "times that an agent was refused; the log says why"),
    _controller("plan_generation", "gauge", "",
                "number of the newest probe plan; hosts that it does not change keep an older one"),
    _controller("plan_flows", "gauge", "", "paths it probes"),
    _controller("agent_unused_nics", "gauge", "",
                "NICs that agents report and the plan cannot use; the log says why"),
    _controller("fleet_clocks", "gauge", "state", "clocks by state"),
    _controller("fleet_clock_error_seconds", "gauge", "",
                "largest 1-sigma of a synchronized clock's offset"),
    _controller("fleet_time_known", "gauge", "", "1 once there is fleet time"),
    _controller("fleet_time_steps_total", "counter", "", "steps of fleet time to UTC"),
    _controller("traffic_stopped", "gauge", "", "1 while traffic control is stopped fleet-wide"),
    _controller("traffic_hosts", "gauge", "mode", "hosts by mode of traffic control"),
)  # fmt: skip

_STORE = (
    _controller("ingest_batches_total", "counter", "", "batches stored or refused"),
    _controller("ingest_rows_total", "counter", "", "rows of agents stored"),
    _controller("ingest_refused_rows_total", "counter", "", "rows of invalid batches"),
    _controller("ingest_queued_bytes", "gauge", "", "batches that wait for the store"),
    _controller("ingest_queue_limit_bytes", "gauge", "", "limit from which on agents have to wait"),
    _controller("ingest_own_tables_shed_total", "counter", "",
                "batches of the controller's own rows, dropped while the store accepted none"),
    _controller("store_up", "gauge", "", "0 while the store refuses rows"),
    _controller("store_inserts_total", "counter", "", "insert cycles completed"),
    _controller("store_insert_seconds_total", "counter", "", "time spent in them"),
    _controller("store_failures_total", "counter", "",
                "insert cycles that failed and were retried"),
)  # fmt: skip

_LOOPS = (
    _controller("loop_runs_total", "counter", "loop", "rounds of each of the controller's loops"),
    _controller("loop_seconds_total", "counter", "loop", "time spent in them"),
    _controller("loop_failures_total", "counter", "loop", "rounds that failed; the loop continued"),
)

_INCIDENTS = (
    _controller("incidents", "gauge", "rule severity state",
                "live incidents: open, acknowledged, silenced, or explained by another"),
    _controller("incident_firing", "gauge", "rule severity component",
                "1 for each live incident that no other explains"),
    _controller("incidents_opened_total", "counter", "rule severity",
                "incidents opened or reopened since the controller started"),
    _controller("incidents_resolved_total", "counter", "rule severity",
                "incidents resolved since the controller started"),
    _controller("evaluation_timestamp_seconds", "gauge", "",
                "fleet time of the newest evaluation of the rules"),
    _controller("findings", "gauge", "kind fault", "components at fault now"),
    _controller("finding_loss_ratio", "gauge", "component kind fault",
                "probability that a component at fault loses a packet"),
    _controller("finding_delay_seconds", "gauge", "component kind fault",
                "increase of one-way delay across a component at fault"),
    _controller("sla_pairs", "gauge", "status",
                "pairs of NICs, each direction, by the verdict on their past minute"),
    _controller("messages_waiting", "gauge", "", "messages not yet accepted by a receiver"),
    _controller("messages_delivered_total", "counter", "", "messages accepted by receivers"),
    _controller("messages_refused_total", "counter", "",
                "messages dropped because a receiver refused them"),
    _controller("messages_shed_total", "counter", "", "messages dropped because too many waited"),
)  # fmt: skip

_FABRIC = (
    _controller("fabric_ways", "gauge", "", "known paths of probe flows, per direction"),
    _controller("fabric_cables", "gauge", "", "cables that they cross; absent before the first "
                "look is over"),
    _controller("fabric_cables_lost", "gauge", "",
                "cables between switches that no path takes any more, of the past 7 days"),
    _controller("fabric_nics_misplaced", "gauge", "",
                "NICs at another switch than the topology says, or than they were at"),
    _controller("fabric_changes_total", "counter", "change what",
                "changes of the fabric reported: added, removed, moved, rerouted, unseen"),
)  # fmt: skip

_PLACEMENT = (
    _controller("queues", "gauge", "", "links at which packets wait, always or in bursts"),
    _controller("queue_delay_seconds", "gauge", "component", "queueing delay there"),
    _controller("queue_flows", "gauge", "component", "jobs' flows that may share it"),
    _controller("placement_mode", "gauge", "mode", "1 for what may be done about contention"),
    _controller("placement_deciding", "gauge", "", "1 while this controller may decide"),
    _controller("placement_flows", "gauge", "state",
                "jobs' flows: placed, or unknown while their path is not known"),
    _controller("placement_moves_total", "counter", "result",
                "moves: ordered, would-move, no-port; and their results: helped, kept (could not "
                "be judged), no-gain, undone, ended (with their flow), late (expired when they "
                "reached the agent), failed (not carried out)"),
)  # fmt: skip

_RUNNING_JOBS = (
    _controller("jobs_running", "gauge", "", "jobs that run"),
    _controller("jobs_judged_total", "counter", "result",
                "evaluations of running jobs by the rules of `syntony why`: judged, "
                "failed, too-large, too-slow"),
    _controller("jobs_judged_seconds_total", "counter", "", "time that this took"),
)  # fmt: skip

_AUDITS = (
    _controller("audits_ordered_total", "counter", "", "audits that agents were ordered to run"),
    _controller("audit_reports_total", "counter", "", "hosts' reports received"),
    _controller(
        "audit_reports_waiting",
        "gauge",
        "",
        "hosts whose report on a running audit has not arrived",
    ),
)

GROUPS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    ("Process", _BOTH),
    ("Parts of the agent", _PARTS),
    ("The reactor", _REACTOR),
    ("Processes of jobs at the agent's socket", _JOBS),
    ("Lost ranks", _TAKEOVERS),
    ("Queue pairs of jobs, at the agent's second socket", _QUEUE_PAIRS),
    ("Collectives and steps of jobs", _OPERATIONS),
    ("Segments of jobs' TCP flows", _SEGMENTS),
    ("Clock", _CLOCK),
    ("Probes, loss and delay", _PROBES),
    ("Paths of jobs", _PATHS),
    ("Links and modules", _LINKS),
    ("Spool and uplink", _UPLINK),
    ("Fleet", _FLEET),
    ("Ingest and store", _STORE),
    ("The controller's loops", _LOOPS),
    ("Incidents and findings", _INCIDENTS),
    ("The fabric as learnt", _FABRIC),
    ("Contention and placement", _PLACEMENT),
    ("Running jobs", _RUNNING_JOBS),
    ("Audits", _AUDITS),
)
EVERY: dict[str, Metric] = {metric.name: metric for _, group in GROUPS for metric in group}
"""By name without the prefix."""
