"""The tables of a bundle: names, columns and types. `docs/reference/bundle.md` prints them.

Instants and durations are ns; instants lie on the bundle's timeline.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

FORMAT, VERSION = "syntony-bundle", 1

Kind = Literal["instant", "whole", "number", "text", "flag", "names"]
"""`instant` and `whole` are int64 (exact), `number` float64, `flag` boolean, `names` a list of
texts."""


class BundleColumn(NamedTuple):
    """One column. If a required one has nulls, the table cannot be used."""

    name: str
    kind: Kind
    required: bool
    meaning: str


def _required(name: str, kind: Kind, meaning: str) -> BundleColumn:
    return BundleColumn(name, kind, True, meaning)


def _optional(name: str, kind: Kind, meaning: str) -> BundleColumn:
    return BundleColumn(name, kind, False, meaning)


_CLASS = (
    _optional("tc", "number", "traffic class"),
    _optional("sl", "number", "service level"),
    _optional("dscp", "number", "DSCP of the packets"),
    _optional("gid_index", "number", "GID index"),
    _optional("roce_version", "number", "1 or 2"),
)
CLASS_COLUMNS = tuple(column.name for column in _CLASS)
"""Columns that decide in which queue a packet waits, and by which header it is forwarded."""
WAITS = (
    _optional("gpu_wait_ns", "number", "the proxy waited for the GPU (NCCL state 8)"),
    _optional("credit_wait_ns", "number", "… for credit of the peer (20)"),
    _optional("net_wait_ns", "number", "… for the network to send (9)"),
    _optional("recv_wait_ns", "number", "… for data to arrive (10)"),
    _optional("flush_wait_ns", "number", "… for the flush over PCIe (11)"),
    _optional("consume_wait_ns", "number", "… for the GPU to consume (12)"),
)
_SLOT = (
    _optional("pcie_gts", "number", "NICs, GPUs: GT/s per lane"),
    _optional("pcie_max_gts", "number", "NICs, GPUs: GT/s that slot and card can"),
    _optional("pcie_width", "number", "NICs, GPUs: lanes"),
    _optional("pcie_max_width", "number", "NICs, GPUs: lanes that slot and card have"),
)
_JOB = (_optional("job", "text", "job; the manifest's where there is no such column"),)
_CLOCK = (_optional("clk_err_ns", "number", "1-sigma of the clock behind the row's instants"),)
_DROPPED = (_optional("dropped", "number", "records lost since the one before"),)
NOT_KNOWN = frozenset({"UNKNOWN", "DISRUPTED"})
"""States of a clock, `clk_state`, that compares with no other."""

TABLES: dict[str, tuple[BundleColumn, ...]] = {
    "collectives": (
        _required("comm", "text", "communicator"),
        _required("seq", "whole", "number of the operation in its communicator"),
        _required("op", "text", "all_reduce, all_gather, …"),
        _required("rank", "whole", "rank in the job"),
        _required("host", "text", "host of the rank"),
        _required("enqueue_ns", "instant", "when the rank enqueued it"),
        *_JOB,
        _optional("done_ns", "instant", "when its last part was done; null: not yet"),
        _optional("bytes", "number", "bytes of the operation"),
        _optional("nranks", "number", "ranks of the communicator"),
        _optional("gpu", "text", "UUID of the rank's GPU"),
        _optional("step", "number", "step that it belongs to"),
        *WAITS,
        *_CLOCK,
        *_DROPPED,
    ),
    "flows": (
        _required("flow", "text", "queue pair or connection, unique in the job"),
        _required("at_ns", "instant", "begin of the window"),
        _required("window_ns", "whole", "length of the window"),
        _required("src", "text", "sending NIC, `HOST/NIC`"),
        _required("dst", "text", "receiving NIC, `HOST/NIC`"),
        *_JOB,
        _optional("bytes", "number", "sent in the window"),
        _optional("rate_bps", "number", "bit/s while the flow had data to send"),
        _optional("owd_p50_ns", "number", "in-band one-way delay, median of the window"),
        _optional("owd_p99_ns", "number", "… 99th percentile"),
        _optional("rtt_p50_ns", "number", "the kernel's smoothed round trip, TCP, median"),
        _optional("one_way_p50_ns", "number", "… from NIC to NIC, of TCP segments, median"),
        _optional("one_way_count", "number", "how many were measured"),
        _optional("one_way_bound_ns", "number", "how far that may be off for both clocks"),
        _optional("one_way_why", "text", "why it was not measured"),
        _optional("hops", "names", "directed links from NIC to NIC, in order"),
        _optional("rank", "number", "sending rank"),
        _optional("peer_rank", "number", "receiving rank"),
        _optional("channel", "number", "channel of the communicator"),
        _optional("rail", "text", "rail or plane"),
        _optional("proto", "text", "rc, uc, ud, srd, tcp"),
        _optional("retransmits", "number", "packets sent again in the window"),
        _optional("cqe_errors", "number", "completions with an error"),
        _optional("credit_blocked_ns", "number", "waited for the peer's credit, or its window"),
        _optional("poll_gap_ns", "number", "longest time that the poller was away"),
        *_CLASS,
        *_CLOCK,
        *_DROPPED,
    ),
    "probes": (
        _required("at_ns", "instant", "begin of the window"),
        _required("src", "text", "sending NIC, `HOST/NIC`"),
        _required("dst", "text", "receiving NIC, `HOST/NIC`"),
        _optional("sent", "number", "probes sent"),
        _optional("lost", "number", "probes lost"),
        _optional("owd_p50_ns", "number", "out-of-band one-way delay, median"),
        _optional("owd_p99_ns", "number", "… 99th percentile"),
        _optional("hops", "names", "directed links from NIC to NIC, in order"),
        *_CLASS,
        *_CLOCK,
    ),
    "links": (
        _required("at_ns", "instant", "begin of the window"),
        _required("window_ns", "whole", "length of the window"),
        _required("link", "text", "a name of `hops`, or a NIC as `HOST/NIC`"),
        _optional("up", "flag", "carrier at the end of the window"),
        _optional("downs", "number", "losses of carrier in the window"),
        _optional("speed_bps", "number", "speed as trained"),
        _optional("nominal_bps", "number", "speed that it should have"),
        _optional("utilisation", "number", "0 to 1, all traffic"),
        _optional(
            "symbol_errors", "number", "symbol, CRC and uncorrected FEC errors in the window"
        ),
        _optional("pause_ns", "number", "time for which its sender was paused (PFC)"),
        *_SLOT,
        _optional("planned", "flag", "a planned change covers the window"),
    ),
    "hosts": (
        _required("at_ns", "instant", "begin of the window"),
        _required("window_ns", "whole", "length of the window"),
        _required("host", "text", "host"),
        _optional("gpu", "text", "UUID: the row is of this GPU; null: of the host"),
        _optional("runq_ns", "number", "run-queue delay of the job's threads in the window"),
        _optional("cpu_ns", "number", "CPU time of the job's processes in the window"),
        _optional("irq_ns", "number", "interrupt time of the job's cores"),
        _optional("sm_clock_mhz", "number", "GPU: SM clock"),
        _optional("throttle", "text", "GPU: throttle reasons, by commas; empty: none"),
        _optional("xid", "number", "GPU: newest Xid in the window"),
        _optional("ecc_errors", "number", "GPU: ECC errors in the window"),
        _optional("memory_clock_mhz", "number", "GPU: memory clock"),
        _optional("temperature_c", "number", "GPU: temperature"),
        _optional("power_w", "number", "GPU: power that it draws"),
        _optional("nvlink_errors", "number", "GPU: NVLink replays, recoveries, CRC errors"),
        _optional("nvlink_bps", "number", "GPU: bit/s over NVLink or xGMI, both directions"),
        _optional("pcie_bps", "number", "GPU: bit/s over PCIe, both directions"),
        _optional("pcie_replays", "number", "GPU: packets sent again over PCIe"),
        *_SLOT,
        _optional("clk_state", "text", "SYNCHRONIZED, HOLDOVER, DISRUPTED or UNKNOWN"),
        *_CLOCK,
    ),
    "processes": (
        _required("at_ns", "instant", "begin of the window"),
        _required("window_ns", "whole", "length of the window"),
        _required("host", "text", "host of the process"),
        _required("rank", "whole", "its rank in the job"),
        _optional("pid", "number", "its number on the host"),
        *_JOB,
        _optional("state", "text", "its first thread at the end of the window: a letter of `ps`"),
        _optional("ended", "flag", "it ended in the window"),
        _optional("lived_ns", "number", "time from `at_ns` until it ended, also below 0"),
        _optional("exit_status", "number", "its exit status; below 0: the signal that ended it"),
        _optional("oom_killed", "flag", "the kernel killed it for lack of memory"),
        _optional("handles_term", "flag", "it handles SIGTERM"),
        _optional("frame", "text", "where its Python is, if it reports nothing else for 5 s"),
        _optional("cpu_ns", "number", "CPU time of its threads in the window"),
        _optional("runq_ns", "number", "run-queue delay of its threads in the window"),
    ),
    "steps": (
        _required("step", "whole", "number of the step"),
        _required("rank", "whole", "rank in the job"),
        _required("begin_ns", "instant", "begin"),
        _required("end_ns", "instant", "end"),
        *_JOB,
        _optional("host", "text", "host of the rank"),
        _optional("work", "number", "work estimate, for example tokens"),
        _optional("data_ns", "number", "waited for data"),
        _optional("compute_ns", "number", "computed"),
        _optional("comm_ns", "number", "waited for communication"),
        _optional("checkpoint_ns", "number", "wrote a checkpoint"),
    ),
}
