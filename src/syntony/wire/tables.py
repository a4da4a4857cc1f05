"""Column schemas: what agents send in Arrow batches and what the store keeps.

One description per table, three renderings: Arrow (agent, controller), SQL (store), documentation.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

ColumnType = Literal["int64", "uint64", "uint32", "uint16", "float32", "float64", "string"]


class Column(NamedTuple):
    """One column: its type and what it means, unit included."""

    name: str
    type: ColumnType
    meaning: str


class Table(NamedTuple):
    """One table; the first column of every table is the fleet time."""

    name: str
    columns: tuple[Column, ...]
    about: tuple[str, ...]
    """What a row is of; no agent may leave these out. The first sorts the rows of a minute."""
    retention_days: int
    owner: str = ""
    """The column that names whose rows these are, a host or one of its NICs: an agent may write its
    own only. Empty: the controller alone writes the table."""


PROBE = Table(
    "probe_1s",
    (
        Column("ts_ns", "int64", "start of the second, fleet timeline"),
        Column("src", "string", "sending NIC, host/nic"),
        Column("dst", "string", "receiving NIC, host/nic"),
        Column("prober", "string", "NIC whose engine sent the requests, host/nic"),
        Column("sport", "uint16", "UDP source port of the prober: the path's entropy"),
        Column("flow_label", "uint32", "IPv6 flow label of the prober's packets"),
        Column("dscp", "uint16", "traffic class"),
        Column("sent", "uint32", "probes put on the wire in this direction"),
        Column("lost", "uint32", "known not to have arrived in this direction"),
        Column("unresolved", "uint32", "round trip broken, direction not known"),
        Column("stalled", "uint32", "left out: an engine was late, not the network"),
        Column("count", "uint32", "one-way delays measured; 0 makes the owd columns void"),
        Column("owd_min_ns", "int64", "one-way delay, smallest"),
        Column("owd_p50_ns", "int64", "one-way delay, median"),
        Column("owd_p90_ns", "int64", "one-way delay, 90th percentile"),
        Column("owd_p99_ns", "int64", "one-way delay, 99th percentile"),
        Column("owd_max_ns", "int64", "one-way delay, largest"),
        Column("clk_err_ns", "float32", "1-sigma of the clock error in the delays"),
    ),
    about=("src", "dst", "sport"),
    retention_days=7,
    owner="prober",
)

HEARD = Table(
    "heard_1s",
    (
        Column("ts_ns", "int64", "start of the second, fleet timeline"),
        Column("src", "string", "NIC that probed, host/nic"),
        Column("dst", "string", "NIC that received, host/nic"),
        Column("received", "uint32", "authentic requests received in the second"),
    ),
    about=("src", "dst"),
    retention_days=7,
    owner="dst",
)

VERBS = PROBE._replace(name="verbs_1s")
"""The same over verbs: ``sport`` is the prober's queue pair by its place, ``flow_label`` the label
that the path's UDP source port follows from."""

VERBS_HEARD = HEARD._replace(name="verbs_heard_1s")

AGENT = Table(
    "agent_1s",
    (
        Column("ts_ns", "int64", "start of the second, fleet timeline"),
        Column("host", "string", "the agent's host"),
        Column("tx", "uint64", "probe packets sent since the engine started, replies included"),
        Column("rx", "uint64", "authentic probe packets received since the engine started"),
        Column("rejected", "uint64", "malformed, foreign, replayed or misdelivered packets"),
        Column("stalls", "uint64", "times the engine itself was late"),
        Column("dropped", "uint64", "rows or records ever shed by this agent"),
        Column("cpu_ns", "uint64", "CPU time of the agent process since it started"),
        Column("rss_bytes", "uint64", "resident memory of the agent process"),
    ),
    about=("host",),
    retention_days=30,
    owner="host",
)

PATH_EVENTS = Table(
    "path_events",
    (
        Column("ts_ns", "int64", "when it was done, fleet timeline"),
        Column("host", "string", "the agent's host"),
        Column("job", "string", "SYNTONY_JOB of the processes that hold the connection"),
        Column("connection", "string", "MPTCP token on this host, hexadecimal"),
        Column(
            "cause", "string", "join, local-carrier, local-nic, remote-nic, peer, path, fabric, …"
        ),
        Column("evidence", "string", "what was seen"),
        Column("action", "string", "create, destroy, would-leave, keep-last-path, stop, start, …"),
        Column("old_path", "string", "host/nic:port > host/nic:port that is left"),
        Column("new_path", "string", "the path that is taken, or remains"),
        Column("detect_ns", "int64", "from the last instant all was well until it was known"),
        Column("act_ns", "int64", "from then until the kernel had done it"),
        Column("result", "string", "empty, or why the kernel refused"),
    ),
    about=("host",),
    retention_days=90,
    owner="host",
)

CLOCK = Table(
    "clock_1s",
    (
        Column("ts_ns", "int64", "fleet time of the solve"),
        Column("node", "string", "clock: host, or host/nic with hardware stamps"),
        Column("ref_ns", "int64", "local instant the offset refers to"),
        Column("offset_ns", "float64", "fleet = local + offset at ref_ns"),
        Column("drift_ppb", "float64", "rate of the offset"),
        Column("sigma_ns", "float64", "1-sigma of the offset"),
        Column("state", "string", "UNKNOWN, SYNCHRONIZED, HOLDOVER, DISRUPTED"),
        Column("drift_sigma_ppb", "float64", "1-sigma of the drift"),
        Column("bound_ns", "float64", "bound on the clock's error at ts_ns; not finite: none"),
        Column("reason", "string", "why the state is not SYNCHRONIZED"),
    ),
    about=("node",),
    retention_days=90,
)

LINK_PORT = Table(
    "link_ports",
    (
        Column("ts_ns", "int64", "fleet time of the look at the port"),
        Column("nic", "string", "port, host/name"),
        Column("netdev", "string", "interface, empty if none"),
        Column("rdma", "string", "RDMA port, device:number, empty if none"),
        Column("link_layer", "string", "Ethernet or InfiniBand"),
        Column("driver", "string", "kernel driver"),
        Column("role", "string", "compute, frontend, management, virtual"),
        Column("state", "string", "active, no-peer, disabled, training, …, unknown"),
        Column("gbps", "float64", "speed; 0 where not known"),
        Column("flaps", "uint64", "losses of carrier since the agent began to watch"),
        Column("temperature_c", "float32", "module's temperature; NaN where not measured"),
        Column("rx_dbm", "float32", "darkest lane's received light; NaN where not measured"),
        Column("bias_ma", "float32", "largest laser bias of the lanes; NaN where not measured"),
        Column("pcie_gts", "float32", "GT/s per lane of its slot; NaN where there is none"),
        Column("pcie_max_gts", "float32", "GT/s that card and slot can"),
        Column("pcie_width", "float32", "lanes in use"),
        Column("pcie_max_width", "float32", "lanes that card and slot have"),
        Column("tx_bps", "float64", "highest rate of sending in a second of the last ten, bits/s"),
        Column("rx_bps", "float64", "the same of receiving"),
    ),
    about=("nic",),
    retention_days=30,
    owner="nic",
)

LINK_EVENT = Table(
    "link_events",
    (
        Column("ts_ns", "int64", "fleet time at which it was noticed"),
        Column("nic", "string", "port, host/name; the host alone where no port is named"),
        Column("kind", "string", "carrier, state, reset, kernel, module"),
        Column("losses", "uint32", "losses of carrier this row stands for"),
        Column("before", "string", "state before"),
        Column("after", "string", "state after"),
        Column("detail", "string", "evidence"),
        Column("remedy", "string", "what to do"),
    ),
    about=("nic",),
    retention_days=90,
    owner="nic",
)

LINK_COUNTER = Table(
    "link_counters",
    (
        Column("ts_ns", "int64", "fleet time of the reading"),
        Column("nic", "string", "port, host/name"),
        Column("counter", "string", "source:name, see the reference of links"),
        Column("increase", "uint64", "since the reading before; 0 when it became unreadable"),
        Column("reading", "string", "counted, reset, saturated, unknown"),
    ),
    about=("nic", "counter"),
    retention_days=30,
    owner="nic",
)

PATH = Table(
    "path_learnt",
    (
        Column("ts_ns", "int64", "fleet time at which the path was learnt"),
        Column("src", "string", "sending NIC, host/nic"),
        Column("dst", "string", "receiving NIC, host/nic; its address if no agent probes it"),
        Column("sport", "uint16", "source port of the flow"),
        Column("dport", "uint16", "destination port of the flow"),
        Column("hops", "string", "who answered, one address a hop; * for a silent one"),
        Column("proto", "string", "tcp; udp or empty"),
    ),
    about=("src", "dst", "sport"),
    retention_days=7,
    owner="src",
)

FINDING = Table(
    "finding",
    (
        Column("ts_ns", "int64", "end of the window, fleet time"),
        Column("component", "string", "device, a->b (one direction) or a--b (cable)"),
        Column("kind", "string", "nic, host, leaf, spine, link, cable, …"),
        Column("fault", "string", "blackhole, loss, delay, clock"),
        Column("loss", "float64", "probability that it loses a packet"),
        Column("delay_ns", "float64", "how much later packets are than before"),
        Column("confidence", "float64", "posterior probability against its alternatives"),
        Column("span", "string", "the stretch of time that shows it most clearly"),
        Column("explains", "float64", "lost probes (late paths) it accounts for"),
        Column("paths", "uint32", "paths across it that suffered"),
        Column("alternatives", "string", "what else explains the same, twins first, by commas"),
        Column("probabilities", "string", "of each alternative, by commas"),
        Column("twins", "uint32", "alternatives that exactly the same paths cross: the first ones"),
    ),
    about=("component",),
    retention_days=90,
)

FABRIC_CHANGE = Table(
    "fabric_changes",
    (
        Column("ts_ns", "int64", "fleet time at which it was told"),
        Column("change", "string", "added, removed, moved, rerouted, unseen"),
        Column("what", "string", "device, cable, paths"),
        Column("name", "string", "which; a..b: paths between these switches"),
        Column("detail", "string", "from where to where, how many"),
    ),
    about=("name",),
    retention_days=365,
)

INCIDENT = Table(
    "incidents",
    (
        Column("ts_ns", "int64", "fleet time of the change"),
        Column("number", "uint64", "the incident's number"),
        Column("change", "string", "opened, reopened, explained, acknowledged, resolved, …"),
        Column("rule", "string", "the rule that was broken"),
        Column("subject", "string", "what it is about"),
        Column("severity", "string", "info, warning, critical"),
        Column("state", "string", "open, acknowledged, resolved: after the change"),
        Column("summary", "string", "one line for a person"),
        Column("remedy", "string", "what to do"),
        Column("opened_ns", "int64", "fleet time at which it was opened first"),
        Column("resolved_ns", "int64", "fleet time at which it was over; 0 while it is not"),
        Column("value", "float64", "what the rule's metric was"),
        Column("worst", "float64", "the worst it was"),
        Column("evidence", "string", "what was seen, one line each"),
        Column("jobs", "string", "jobs hit, by commas"),
        Column("cause", "uint64", "number of the incident that explains this one; 0: none"),
        Column("reopened", "uint32", "how often it came back within 15 minutes"),
        Column("repeats", "uint32", "incidents like it within the week before"),
        Column("acknowledged_by", "string", "who is on it"),
        Column("comment", "string", "what they said"),
    ),
    about=("rule", "subject"),
    retention_days=365,
)

QUEUE_PAIR = Table(
    "queue_pair_1s",
    (
        Column("ts_ns", "int64", "second in which the newest of its messages arrived, fleet time"),
        Column("src", "string", "sending host"),
        Column("dst", "string", "receiving host"),
        Column("job", "string", "SYNTONY_JOB of the sending process"),
        Column("device", "string", "RDMA device that sends"),
        Column("local", "string", "address of the sender's GID"),
        Column("number", "uint32", "sending queue pair"),
        Column("remote", "string", "address of the receiver's GID"),
        Column("peer_number", "uint32", "receiving queue pair"),
        Column("count", "uint32", "messages measured: a sample"),
        Column("owd_min_ns", "int64", "one-way delay, before the post to receive polled, smallest"),
        Column("owd_p50_ns", "int64", "… median"),
        Column("owd_max_ns", "int64", "… largest"),
        Column("sent", "uint64", "messages that take a receive, since the generation began"),
        Column("bytes_posted", "uint64", "bytes of all that was posted, since then"),
        Column("errors", "uint32", "completions with an error, since then"),
    ),
    about=("src", "number"),
    retention_days=7,
)

JOB_PROCESS = Table(
    "job_processes",
    (
        Column("ts_ns", "int64", "begin of the window, fleet time"),
        Column("window_ns", "int64", "its length"),
        Column("host", "string", "where the process runs"),
        Column("job", "string", "SYNTONY_JOB in its environment"),
        Column("pid", "uint32", "its number, as its agent sees it"),
        Column("uid", "uint32", "its user"),
        Column("program", "string", "its name: any that it likes"),
        Column("rank", "int64", "by the framework's or the launcher's word; -1: not known"),
        Column("ranks", "uint32", "of the job; 0: not known"),
        Column("began_ns", "int64", "when it began, fleet time"),
        Column("threads", "uint32", "that it has"),
        Column("cpu_ns", "int64", "CPU time in the window"),
        Column("runq_ns", "int64", "its threads were ready and had no core or no CPU quota"),
        Column("irq_ns", "float32", "interrupts took of the job's cores here; NaN: not known"),
        Column("ended", "uint16", "1: it has ended within the window"),
        Column("state", "string", "its first thread: R, S, D, T…, as ps shows it; empty: unknown"),
        Column("lived_ns", "float64", "from ts_ns until it ended, also below 0; NaN: not known"),
        Column("exit_status", "float32", "below 0: of a signal; NaN: it runs, or not visible"),
        Column("oom_killed", "float32", "1: killed for lack of memory; NaN: it runs, or not known"),
        Column("handles_term", "float32", "1: it handles SIGTERM; NaN: not known"),
        Column("frame", "string", "where its Python is, if the hook reports nothing else for 5 s"),
    ),
    about=("job", "host", "pid"),
    retention_days=30,
    owner="host",
)

GPU = Table(
    "gpu_readings",
    (
        Column("ts_ns", "int64", "begin of the window: the reading before, fleet time"),
        Column("window_ns", "int64", "its length"),
        Column("host", "string", "where the GPU is"),
        Column("gpu", "string", "its UUID"),
        Column("bus", "string", "its PCI address"),
        Column("model", "string", "by the driver's word"),
        Column("job", "string", "SYNTONY_JOB of a process that computes on it; a row for each"),
        Column("pid", "uint32", "that process; 0: none of a job"),
        Column("rank", "int64", "its rank; -1: not known"),
        Column("error", "string", "why it could not be read; empty: it could"),
        Column("sm_clock_mhz", "float32", "clock of its cores; NaN here and below: not known"),
        Column("memory_clock_mhz", "float32", "clock of its memory"),
        Column("throttle", "string", "why its clock is no higher, by commas; none; empty: unknown"),
        Column("temperature_c", "float32", "of the GPU"),
        Column("power_w", "float32", "that it draws"),
        Column("ecc_errors", "float64", "corrected and uncorrected in the window"),
        Column("xid", "uint32", "newest Xid in the window; 0: none"),
        Column("nvlink_errors", "float64", "replays, recoveries and CRC errors of its NVLinks"),
        Column("nvlink_bps", "float64", "bit/s over NVLink or xGMI, both directions"),
        Column("pcie_gts", "float32", "GT/s per lane; less while idle"),
        Column("pcie_max_gts", "float32", "GT/s that card and slot can"),
        Column("pcie_width", "float32", "lanes"),
        Column("pcie_max_width", "float32", "lanes that card and slot have"),
        Column("pcie_replays", "float64", "packets sent again over PCIe in the window"),
        Column("pcie_bps", "float64", "bit/s over PCIe, both directions"),
    ),
    about=("host", "gpu"),
    retention_days=30,
    owner="host",
)

COLLECTIVE = Table(
    "job_collectives",
    (
        Column("ts_ns", "int64", "when the rank began it, fleet time"),
        Column("host", "string", "of the rank"),
        Column("job", "string", "SYNTONY_JOB of the process"),
        Column("pid", "uint32", "the process"),
        Column("rank", "int64", "in the job; -1: not known"),
        Column("comm", "string", "communicator: its name and what its ranks are"),
        Column("ranks", "uint32", "of the communicator"),
        Column("seq", "uint64", "number of the operation in it, of this process"),
        Column("op", "string", "all_reduce, all_gather, …"),
        Column("bytes", "uint64", "of the operation"),
        Column("done_ns", "int64", "when it was done, fleet time; 0: not yet, a row may follow"),
        Column("dropped", "uint32", "records of the host lost since the rows before"),
    ),
    about=("job", "comm", "seq", "rank"),
    retention_days=7,
    owner="host",
)

STEP = Table(
    "job_steps",
    (
        Column("ts_ns", "int64", "begin: end of the step before, fleet time"),
        Column("host", "string", "of the rank"),
        Column("job", "string", "SYNTONY_JOB of the process"),
        Column("rank", "int64", "in the job; -1: not known"),
        Column("step", "uint64", "number of the step"),
        Column("end_ns", "int64", "end: the optimizer had stepped, fleet time"),
        Column("data_ns", "int64", "waited for data"),
    ),
    about=("job", "rank"),
    retention_days=7,
    owner="host",
)

JOB_FLOW = Table(
    "job_flow_1s",
    (
        Column("ts_ns", "int64", "start of the second, fleet time"),
        Column("job", "string", "SYNTONY_JOB of the sending process"),
        Column("src", "string", "sending NIC, host/nic"),
        Column("dst", "string", "receiving NIC, host/nic; its address if no agent has it"),
        Column("sport", "uint16", "TCP port that sends"),
        Column("dport", "uint16", "TCP port that receives"),
        Column(
            "connection",
            "string",
            "MPTCP token of the sending host; plain TCP: tcp-…, redrawn-… on other ports",
        ),
        Column("tx_bps", "float64", "acknowledged by the receiver, bit/s"),
        Column("rtt_ns", "int64", "the kernel's smoothed round trip, median of its looks"),
        Column("retransmits", "uint32", "segments sent again"),
        Column("hops", "string", "directed links from NIC to NIC, by blanks; empty: not known"),
        Column("dscp", "float32", "of the sending socket's packets; NaN: not known"),
        Column(
            "window_limited_ns",
            "float32",
            "of the second its data waited for the receiver's window; NaN: not known",
        ),
    ),
    about=("job", "src", "dst", "sport"),
    retention_days=7,
)

JOB_DELAY = Table(
    "job_delay_1s",
    (
        Column("ts_ns", "int64", "start of the second in which segments arrived, fleet time"),
        Column("job", "string", "SYNTONY_JOB of the sending process"),
        Column("src", "string", "sending NIC, host/nic"),
        Column("dst", "string", "receiving NIC, host/nic; its address if no agent has it"),
        Column("sport", "uint16", "TCP port that sends"),
        Column("dport", "uint16", "TCP port that receives"),
        Column(
            "count", "uint32", "bytes whose segments were measured; 0 makes the owd columns void"
        ),
        Column("owd_min_ns", "int64", "one-way delay from NIC to NIC, smallest"),
        Column("owd_p50_ns", "int64", "… median"),
        Column("owd_max_ns", "int64", "… largest"),
        Column("bound_ns", "int64", "how far each may be off for both clocks"),
        Column("clk_err_ns", "float32", "1-sigma of the clock error in the delays"),
        Column("discarded", "uint32", "bytes seen at both ends, sent more than once or perhaps"),
        Column("unmatched", "uint32", "bytes that arrived and that the sender did not see leave"),
        Column("why", "string", "why none was measured"),
    ),
    about=("job", "src", "dst", "sport"),
    retention_days=7,
)

TAKEOVER = Table(
    "job_takeovers",
    (
        Column("ts_ns", "int64", "when it was known, fleet time"),
        Column("host", "string", "whose agent was told"),
        Column("job", "string", "SYNTONY_JOB of the job's coordinator"),
        Column("what", "string", "replaced, verified, differs, ended, unprotected, …"),
        Column("rank", "int64", "that was lost; -1: all"),
        Column("at", "string", "host that it was lost on"),
        Column("step", "int64", "boundary that all went on from; -1: none"),
        Column("generation", "uint32", "of connections, after it"),
        Column("reason", "string", "killed by signal 9, stopped, drained, …"),
        Column("worker", "string", "process that holds the rank since"),
        Column("stall_ns", "int64", "from the loss until all were connected again"),
        Column("sha256_before", "string", "of parameters and optimizers, when compared last"),
        Column("sha256", "string", "… when they were compared after it, on all ranks"),
        Column("spares", "int64", "that wait, where what is spares; else -1"),
    ),
    about=("host", "job"),
    retention_days=90,
    owner="host",
)

_ALL = (
    PROBE, HEARD, AGENT, CLOCK, LINK_PORT, LINK_EVENT, LINK_COUNTER, PATH, FINDING, FABRIC_CHANGE,
    PATH_EVENTS, INCIDENT, QUEUE_PAIR, VERBS, VERBS_HEARD, JOB_PROCESS, GPU, COLLECTIVE, STEP,
    JOB_FLOW, JOB_DELAY, TAKEOVER,
)  # fmt: skip
TABLES: dict[str, Table] = {table.name: table for table in _ALL}
