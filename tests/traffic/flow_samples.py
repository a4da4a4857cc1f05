"""What the kernel says of a flow, for machines under test."""

from __future__ import annotations

from typing import Any

from syntony.model import MS
from syntony.model.paths import FlowSample, FourTuple


def flow_sample(flow: FourTuple, at_ns: int, **values: Any) -> FlowSample:
    """A sample of a subflow that is idle and acknowledges nothing, except for `values`."""
    usual = {
        "token": 1, "inode": 1, "bytes_acked": 0, "bytes_received": 0, "unacked": 0,
        "retransmits": 0, "backoff": 0, "last_ack_ns": 0, "rtt_ns": MS, "delivery_bps": 1,
    }  # fmt: skip
    return FlowSample(flow=flow, at_ns=at_ns, **(usual | values))
