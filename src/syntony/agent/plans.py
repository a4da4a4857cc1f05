"""Checks which part of a received probe plan this agent can carry out. Pure.

An invalid flow is left out; a plan that is invalid as a whole is rejected, and the last valid one
stays in force.
"""

from __future__ import annotations

import functools
import ipaddress
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from syntony.errors import SyntonyError
from syntony.model import HOUR_NS, US
from syntony.wire.probes import Plan, ProbeFlow

MIN_INTERVAL_NS, MAX_INTERVAL_NS = 100 * US, HOUR_NS
"""The minimum is the probe engine's."""
_U32 = (1 << 32) - 1
_MAX_LABEL = (1 << 20) - 1
_MAX_DSCP = 63
_MAX_SL = 15
_NUMBERS = attrgetter(
    "dst_port", "src_port", "flow_id", "dst_nic_id", "flow_label", "dscp", "sl", "interval_ns"
)
_RANGES = (
    ("port", 1, 0xFFFF), ("source port", 1, 0xFFFF), ("flow number", 0, _U32),
    ("NIC number", 1, _U32), ("flow label", 0, _MAX_LABEL), ("DSCP", 0, _MAX_DSCP),
    ("service level", 0, _MAX_SL), ("interval", MIN_INTERVAL_NS, MAX_INTERVAL_NS),
)  # fmt: skip
"""What `_NUMBERS` are called, their least and most."""


class Usable(NamedTuple):
    """A plan without its unusable flows, and the reason for each."""

    plan: Plan
    faults: tuple[str, ...]


def usable(plan: Plan, nics: Collection[str], family: str) -> Usable | None:
    """The usable part of a plan; None if its numbers are invalid.

    Args:
        plan: as the controller sent it.
        nics: names of this agent's NICs.
        family: ``ipv4`` or ``ipv6``: the family of its probe sockets.
    """
    if not all(0 < number <= _U32 for number in plan.nic_ids.values()):
        return None
    faults = {flow.flow_id: fault for flow in plan.flows if (fault := _fault(flow, nics, family))}
    counts: Counter[int] = Counter(flow.flow_id for flow in plan.flows)
    faults |= {number: f"{count} flows have it" for number, count in counts.items() if count > 1}
    flows = tuple(flow for flow in plan.flows if flow.flow_id not in faults)
    others = {
        nic: kept
        for nic, addresses in plan.others.items()
        if (kept := tuple(each for each in addresses if _parsed(each) is not None))
    }
    reported = tuple(f"flow={number} reason={fault}" for number, fault in faults.items())
    plan = msgspec.structs.replace(plan, flows=flows, others=others)
    if plan.verbs:
        within = usable(msgspec.structs.replace(plan, flows=plan.verbs, verbs=()), nics, family)
        if within is not None:
            plan = msgspec.structs.replace(plan, verbs=within.plan.flows)
            reported += tuple(f"over=verbs {fault}" for fault in within.faults)
    return Usable(plan, reported)


def start_flows(
    flows: Sequence[ProbeFlow], set_flows: Callable[[Sequence[ProbeFlow]], None]
) -> tuple[tuple[ProbeFlow, ...], tuple[str, ...]]:
    """Start as many flows as the host allows: a source port that another program holds affects only
    the flows that need it.

    Args:
        flows: of a plan.
        set_flows: replaces the probe engine's flows as a whole; raises `SyntonyError`.

    Returns:
        The flows that are probed, and why the others are not.
    """
    try:
        set_flows(flows)
    except SyntonyError:
        pass
    else:
        return tuple(flows), ()
    sockets: dict[tuple[str, int], list[ProbeFlow]] = {}
    for flow in flows:
        sockets.setdefault((flow.src, flow.src_port), []).append(flow)
    started: list[ProbeFlow] = []
    faults = []
    for (nic, port), group in sockets.items():
        try:
            set_flows([*started, *group])
        except SyntonyError as error:
            faults.append(f"nic={nic} port={port} flows={len(group)} reason={error}")
        else:
            started += group
    set_flows(started)  # the last attempt may have failed
    return tuple(started), tuple(faults)


def _fault(flow: ProbeFlow, nics: Collection[str], family: str) -> str:
    if flow.src not in nics:
        return f"this host has no NIC {flow.src[:80]!r}"
    if fault := _address_fault(flow.dst_addr, family):
        return fault
    for (what, least, most), value in zip(_RANGES, _NUMBERS(flow), strict=True):
        if not least <= value <= most:
            return f"{what} {value} is out of range"
    return ""


@functools.lru_cache(maxsize=4096)
def _address_fault(text: str, family: str) -> str:
    """Cached: the flows of a plan lead to few addresses, over many ports."""
    address = _parsed(text)
    if address is None:
        return f"{text[:80]!r} is not an IP address"
    if f"ipv{address.version}" != family:
        return f"{address} is not {family}"
    if address.is_multicast or address.is_unspecified:
        return f"{address} is not a unicast address"
    return ""


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
