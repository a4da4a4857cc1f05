"""Table of all link counters: source, meaning, which side is at fault, ceiling.

Sources: InfiniBand Architecture 1.4 §16.1.3.5 (PortCounters and their widths), the kernel's
Documentation/ABI/stable/sysfs-class-infiniband and testing/sysfs-class-net, NVIDIA's "Understanding
mlx5 ethtool counters" and "Understanding mlx5 Linux counters".
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class CounterSource(enum.StrEnum):
    """Where a counter is read; the value is the place below the device, or how it is asked for."""

    NET = "net"
    """``/sys/class/net/X/``"""
    STATISTICS = "net/statistics"
    """``/sys/class/net/X/statistics/``"""
    IB = "ib/counters"
    """``/sys/class/infiniband/D/ports/P/counters/``"""
    IB_HW = "ib/hw_counters"
    """``/sys/class/infiniband/D/ports/P/hw_counters/``"""
    ETHTOOL = "ethtool"
    """``ethtool -S X``"""


class Kind(enum.StrEnum):
    """What an increase is a sign of."""

    FLAP = "flap"
    TRAINING = "training"
    PHYSICAL = "physical"
    CORRUPTION = "corruption"
    LOSS = "loss"
    CONGESTION = "congestion"
    PAUSE = "pause"
    HOST = "host"
    MODULE = "module"
    MISCONFIGURED = "misconfigured"
    TRAFFIC = "traffic"


class Side(enum.StrEnum):
    """Which side to examine when it increases."""

    CABLE = "cable"
    """Cable, optics or either port."""
    NETWORK = "network"
    """Beyond the first switch port: congestion, a slow receiver elsewhere, a lossy path."""
    HOST = "host"
    """This host: PCIe, memory, CPU, buffers, its application."""
    PEER = "peer"
    """The other end of the queue pair, or the port that this one is plugged into."""
    NONE = "none"
    """Ordinary traffic, or a cause that this counter alone does not show."""


class LinkCounter(NamedTuple):
    name: str
    """As the file or the driver's string names it. ``N`` stands for a priority 0–7."""
    source: CounterSource
    kind: Kind
    suspect: Side
    meaning: str
    unit: str = "events"
    ceiling: int | None = None
    """Where it stops counting: this value means "at least"."""
    quiet: bool = False
    """Increases on healthy links, too: recorded, never a reason for an alert by itself."""

    @property
    def key(self) -> str:
        """``source:name``: one name may exist in two places with two meanings."""
        return f"{self.source}:{self.name}"


_4_BIT, _8_BIT, _16_BIT, _32_BIT = (1 << 4) - 1, (1 << 8) - 1, (1 << 16) - 1, (1 << 32) - 1

_NET = (
    LinkCounter("carrier_changes", CounterSource.NET, Kind.FLAP, Side.CABLE,
            "carrier gained and lost since the interface was made; counts what events miss",
        quiet=True),
    LinkCounter("carrier_up_count", CounterSource.NET, Kind.FLAP, Side.CABLE,
            "carrier gained since the interface was made",
        quiet=True),
    LinkCounter("carrier_down_count", CounterSource.NET, Kind.FLAP, Side.CABLE,
            "carrier lost since the interface was made: the count of flaps"),
    LinkCounter("rx_crc_errors", CounterSource.STATISTICS, Kind.CORRUPTION, Side.CABLE,
            "frames received with a wrong checksum", "packets"),
    LinkCounter("rx_frame_errors", CounterSource.STATISTICS, Kind.CORRUPTION, Side.CABLE,
            "frames received misaligned", "packets"),
    LinkCounter("rx_errors", CounterSource.STATISTICS, Kind.CORRUPTION, Side.CABLE,
            "frames received bad, all causes", "packets"),
    LinkCounter("rx_missed_errors", CounterSource.STATISTICS, Kind.HOST, Side.HOST,
            "frames dropped by the NIC because the host gave it no buffers", "packets"),
    LinkCounter("rx_over_errors", CounterSource.STATISTICS, Kind.HOST, Side.HOST,
            "frames that overran the NIC's receive buffer", "packets"),
    LinkCounter("rx_dropped", CounterSource.STATISTICS, Kind.HOST, Side.HOST,
            "frames received and dropped by this host's stack", "packets", quiet=True),
    LinkCounter("tx_errors", CounterSource.STATISTICS, Kind.PHYSICAL, Side.CABLE,
            "frames that could not be sent", "packets"),
    LinkCounter("tx_carrier_errors", CounterSource.STATISTICS, Kind.FLAP, Side.CABLE,
            "frames not sent because the carrier was lost", "packets"),
    LinkCounter("tx_dropped", CounterSource.STATISTICS, Kind.HOST, Side.HOST,
            "frames dropped before they reached the wire", "packets"),
    LinkCounter("rx_bytes", CounterSource.STATISTICS, Kind.TRAFFIC, Side.NONE,
            "bytes received", "bytes", quiet=True),
    LinkCounter("tx_bytes", CounterSource.STATISTICS, Kind.TRAFFIC, Side.NONE,
            "bytes sent", "bytes", quiet=True),
    LinkCounter("rx_packets", CounterSource.STATISTICS, Kind.TRAFFIC, Side.NONE,
            "frames received", "packets", quiet=True),
    LinkCounter("tx_packets", CounterSource.STATISTICS, Kind.TRAFFIC, Side.NONE,
            "frames sent", "packets", quiet=True),
)  # fmt: skip

_INFINIBAND = (
    LinkCounter("link_downed", CounterSource.IB, Kind.FLAP, Side.CABLE,
            "the link failed to recover and went down", ceiling=_8_BIT),
    LinkCounter("link_error_recovery", CounterSource.IB, Kind.TRAINING, Side.CABLE,
            "the link retrained and recovered", ceiling=_8_BIT),
    # With PAM4 signalling symbol errors are ordinary: forward error correction repairs them.
    LinkCounter("symbol_error", CounterSource.IB, Kind.PHYSICAL, Side.CABLE,
            "symbols received in error on any lane; ordinary with PAM4 (HDR and faster)",
            ceiling=_16_BIT, quiet=True),
    LinkCounter("local_link_integrity_errors", CounterSource.IB, Kind.PHYSICAL, Side.CABLE,
            "local physical errors went over the threshold", ceiling=_4_BIT),
    LinkCounter("port_rcv_errors", CounterSource.IB, Kind.CORRUPTION, Side.CABLE,
            "packets received damaged: checksum, length or virtual lane", "packets", _16_BIT),
    LinkCounter("port_rcv_remote_physical_errors", CounterSource.IB, Kind.CORRUPTION, Side.NETWORK,
            "packets received that a switch had marked bad: the fault is upstream", "packets",
            _16_BIT),
    LinkCounter("port_rcv_switch_relay_errors", CounterSource.IB, Kind.LOSS, Side.NETWORK,
            "packets a switch could not forward", "packets", _16_BIT, quiet=True),
    LinkCounter("port_rcv_constraint_errors", CounterSource.IB, Kind.MISCONFIGURED, Side.NETWORK,
            "packets refused on reception by partition rules", "packets", _8_BIT),
    LinkCounter("port_xmit_constraint_errors", CounterSource.IB, Kind.MISCONFIGURED, Side.HOST,
            "packets refused on sending by partition rules", "packets", _8_BIT),
    LinkCounter("port_xmit_discards", CounterSource.IB, Kind.CONGESTION, Side.NETWORK,
            "packets discarded because the port was down or congested", "packets", _16_BIT),
    LinkCounter("port_xmit_wait", CounterSource.IB, Kind.CONGESTION, Side.NETWORK,
            "ticks with data to send and no credit: the network pushes back", "ticks", _32_BIT,
            quiet=True),
    LinkCounter("excessive_buffer_overrun_errors", CounterSource.IB, Kind.LOSS, Side.PEER,
            "the peer sent beyond its credits: lossless operation is broken", ceiling=_4_BIT),
    LinkCounter("VL15_dropped", CounterSource.IB, Kind.LOSS, Side.NETWORK,
            "subnet management packets dropped", "packets", _16_BIT, quiet=True),
    LinkCounter("port_rcv_data", CounterSource.IB, Kind.TRAFFIC, Side.NONE,
            "data received, in words of 4 bytes", "words", quiet=True),
    LinkCounter("port_xmit_data", CounterSource.IB, Kind.TRAFFIC, Side.NONE,
            "data sent, in words of 4 bytes", "words", quiet=True),
)  # fmt: skip

_ROCE = (
    LinkCounter("out_of_sequence", CounterSource.IB_HW, Kind.LOSS, Side.NETWORK,
            "packets received out of order: loss, or reordering on the way", "packets"),
    LinkCounter("packet_seq_err", CounterSource.IB_HW, Kind.LOSS, Side.NETWORK,
            "sequence errors reported by the receiver (NAK)", "packets"),
    # The remote process may simply have died: an acknowledgement also fails to come then.
    LinkCounter("local_ack_timeout_err", CounterSource.IB_HW, Kind.LOSS, Side.NONE,
            "acknowledgements that never came: a lossy path, or a remote rank that died"),
    LinkCounter("implied_nak_seq_err", CounterSource.IB_HW, Kind.LOSS, Side.NETWORK,
            "acknowledgements that skipped an expected one"),
    LinkCounter("roce_adp_retrans", CounterSource.IB_HW, Kind.LOSS, Side.NETWORK,
            "adaptive retransmissions"),
    LinkCounter("roce_adp_retrans_to", CounterSource.IB_HW, Kind.LOSS, Side.NETWORK,
            "adaptive retransmissions that ran into the timeout"),
    LinkCounter("roce_slow_restart", CounterSource.IB_HW, Kind.LOSS, Side.NETWORK,
            "times slow restart was used after a loss"),
    LinkCounter("roce_slow_restart_trans", CounterSource.IB_HW, Kind.LOSS, Side.NETWORK,
            "times the state went to slow restart"),
    LinkCounter("roce_slow_restart_cnps", CounterSource.IB_HW, Kind.CONGESTION, Side.NETWORK,
            "congestion notifications made by slow restart", quiet=True),
    LinkCounter("np_ecn_marked_roce_packets", CounterSource.IB_HW, Kind.CONGESTION, Side.NETWORK,
            "packets received with a congestion mark", "packets", quiet=True),
    LinkCounter("np_cnp_sent", CounterSource.IB_HW, Kind.CONGESTION, Side.NETWORK,
            "congestion notifications sent to senders", "packets", quiet=True),
    LinkCounter("rp_cnp_handled", CounterSource.IB_HW, Kind.CONGESTION, Side.NETWORK,
            "congestion notifications received and obeyed", "packets", quiet=True),
    LinkCounter("rp_cnp_ignored", CounterSource.IB_HW, Kind.MISCONFIGURED, Side.HOST,
            "congestion notifications received and ignored: congestion control is off here",
            "packets"),
    LinkCounter("out_of_buffer", CounterSource.IB_HW, Kind.HOST, Side.HOST,
            "packets dropped because no receive request was posted", "packets"),
    LinkCounter("rnr_nak_retry_err", CounterSource.IB_HW, Kind.HOST, Side.PEER,
            "the peer was not ready to receive until retries ran out"),
    LinkCounter("req_cqe_error", CounterSource.IB_HW, Kind.LOSS, Side.NONE,
            "requests that completed with an error: a queue pair broke"),
    LinkCounter("resp_cqe_error", CounterSource.IB_HW, Kind.LOSS, Side.NONE,
            "responses that completed with an error: a queue pair broke"),
    LinkCounter("rx_icrc_encapsulated", CounterSource.IB_HW, Kind.CORRUPTION, Side.NETWORK,
            "RoCE packets whose invariant checksum is wrong: corrupted between the hosts",
            "packets"),
)  # fmt: skip

_ETHTOOL = (
    LinkCounter("link_down_events_phy", CounterSource.ETHTOOL, Kind.FLAP, Side.CABLE,
            "times the physical link went down"),
    LinkCounter("rx_pcs_symbol_err_phy", CounterSource.ETHTOOL, Kind.PHYSICAL, Side.CABLE,
            "symbols beyond repair by forward error correction"),
    LinkCounter("rx_corrected_bits_phy", CounterSource.ETHTOOL, Kind.PHYSICAL, Side.CABLE,
            "bits repaired by forward error correction", "bits", quiet=True),
    LinkCounter("rx_crc_errors_phy", CounterSource.ETHTOOL, Kind.CORRUPTION, Side.CABLE,
            "frames received with a wrong checksum", "packets"),
    LinkCounter("rx_discards_phy", CounterSource.ETHTOOL, Kind.HOST, Side.HOST,
            "frames dropped by the port because its buffer was full: the host is slow", "packets"),
    LinkCounter("tx_discards_phy", CounterSource.ETHTOOL, Kind.CONGESTION, Side.NETWORK,
            "frames dropped on sending, head-of-line or lifetime", "packets"),
    LinkCounter("outbound_pci_stalled_rd", CounterSource.ETHTOOL, Kind.HOST, Side.HOST,
            "share of time with NIC reads stalled on PCIe", "percent", quiet=True),
    LinkCounter("outbound_pci_stalled_wr", CounterSource.ETHTOOL, Kind.HOST, Side.HOST,
            "share of time with NIC writes stalled on PCIe", "percent", quiet=True),
    # Received pause frames: the switch stopped us. Sent ones: we stopped the switch.
    LinkCounter("rx_prioN_pause", CounterSource.ETHTOOL, Kind.PAUSE, Side.NETWORK,
            "pause frames received for priority N: the network asks us to stop", "packets"),
    LinkCounter("rx_prioN_pause_duration", CounterSource.ETHTOOL, Kind.PAUSE, Side.NETWORK,
            "time this port was paused by the network", "microseconds"),
    LinkCounter("tx_prioN_pause", CounterSource.ETHTOOL, Kind.PAUSE, Side.HOST,
            "pause frames sent for priority N: this host is slow", "packets"),
    LinkCounter("tx_prioN_pause_duration", CounterSource.ETHTOOL, Kind.PAUSE, Side.HOST,
            "time this port had the network paused", "microseconds"),
    LinkCounter("tx_pause_storm_warning_events", CounterSource.ETHTOOL, Kind.PAUSE, Side.HOST,
            "times this port paused the network for long"),
    LinkCounter("tx_pause_storm_error_events", CounterSource.ETHTOOL, Kind.PAUSE, Side.HOST,
            "times this port paused the network for so long that pausing was switched off"),
    LinkCounter("module_unplug", CounterSource.ETHTOOL, Kind.MODULE, Side.CABLE,
            "times the module was pulled out"),
    LinkCounter("module_bus_stuck", CounterSource.ETHTOOL, Kind.MODULE, Side.CABLE,
            "the module's management bus was stuck: reseat it"),
    LinkCounter("module_high_temp", CounterSource.ETHTOOL, Kind.MODULE, Side.CABLE,
            "times the module was too hot"),
    LinkCounter("module_bad_shorted", CounterSource.ETHTOOL, Kind.MODULE, Side.CABLE,
            "the module or its cable is shorted: replace it"),
)  # fmt: skip

TABLE: tuple[LinkCounter, ...] = (*_NET, *_INFINIBAND, *_ROCE, *_ETHTOOL)
"""All of them."""

_PRIORITIES = range(8)


def expand(counter: LinkCounter) -> tuple[LinkCounter, ...]:
    """One row per priority where the name holds ``N``; else the row itself."""
    if "prioN" not in counter.name:
        return (counter,)
    return tuple(
        counter._replace(
            name=counter.name.replace("prioN", f"prio{priority}"),
            meaning=counter.meaning.replace("priority N", f"priority {priority}"),
        )
        for priority in _PRIORITIES
    )


EVERY: dict[str, LinkCounter] = {row.key: row for counter in TABLE for row in expand(counter)}
"""By `key`, priorities written out."""


def of_source(source: CounterSource) -> dict[str, LinkCounter]:
    """Name → counter of one source."""
    return {row.name: row for row in EVERY.values() if row.source is source}
