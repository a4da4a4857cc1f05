"""The taxonomy of causes, one file for each class. Each has `find(facts)`, which returns findings.

The order is the order of explanation: findings of an earlier class are the cause of those of later
classes that it explains (`EXPLAINS`, docs/decisions/0240).
"""

from __future__ import annotations

from collections.abc import Callable

from syntony.workload.classes import (
    bad_link,
    class_mismatch,
    clock_fault,
    contention,
    data_stall,
    flapping,
    gpu_throttle,
    hang,
    host_jitter,
    incast,
    pcie,
    pfc_storm,
    rail_imbalance,
    reduced_capacity,
    slow_flow,
    slow_receiver,
    straggler,
)
from syntony.workload.facts import BundleFacts
from syntony.workload.verdict import FaultClass as F
from syntony.workload.verdict import RuleFinding

RULES: dict[F, Callable[[BundleFacts], list[RuleFinding]]] = {
    F.CLOCK_FAULT: clock_fault.find,
    F.HANG: hang.find,
    F.FLAPPING: flapping.find,
    F.REDUCED_CAPACITY: reduced_capacity.find,
    F.PCIE: pcie.find,
    F.PFC_STORM: pfc_storm.find,
    F.CLASS_MISMATCH: class_mismatch.find,
    F.BAD_LINK: bad_link.find,
    F.GPU_THROTTLE: gpu_throttle.find,
    F.HOST_JITTER: host_jitter.find,
    F.SLOW_RECEIVER: slow_receiver.find,
    F.DATA_STALL: data_stall.find,
    F.STRAGGLER: straggler.find,
    F.INCAST: incast.find,
    F.CONTENTION: contention.find,
    F.SLOW_FLOW: slow_flow.find,
    F.RAIL_IMBALANCE: rail_imbalance.find,
}

QUEUES = frozenset({F.INCAST, F.CONTENTION, F.SLOW_FLOW})
_NETWORK = QUEUES | {F.BAD_LINK, F.RAIL_IMBALANCE, F.SLOW_RECEIVER}
EXPLAINS: dict[F, frozenset[F]] = {
    F.FLAPPING: _NETWORK | {F.REDUCED_CAPACITY, F.CLASS_MISMATCH},
    F.REDUCED_CAPACITY: _NETWORK | {F.CLASS_MISMATCH},
    F.PCIE: _NETWORK | {F.CLASS_MISMATCH, F.HOST_JITTER, F.PFC_STORM, F.STRAGGLER},
    F.PFC_STORM: _NETWORK | {F.CLASS_MISMATCH},
    F.BAD_LINK: QUEUES | {F.RAIL_IMBALANCE},
    F.CLASS_MISMATCH: QUEUES,
    F.GPU_THROTTLE: frozenset({F.STRAGGLER}),
    F.HOST_JITTER: QUEUES | {F.STRAGGLER, F.SLOW_RECEIVER},
    F.DATA_STALL: frozenset({F.STRAGGLER}),
    F.SLOW_RECEIVER: QUEUES | {F.RAIL_IMBALANCE, F.STRAGGLER},
    F.INCAST: frozenset({F.CONTENTION, F.SLOW_FLOW, F.RAIL_IMBALANCE}),
    F.CONTENTION: frozenset({F.SLOW_FLOW, F.RAIL_IMBALANCE}),
    F.SLOW_FLOW: frozenset({F.RAIL_IMBALANCE}),
}
"""Classes whose findings an earlier class explains if it affects most of the same flows or
ranks."""
