"""The list of fault kinds, and the parser of fault requests. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from syntony.errors import UsageError
from syntony.lab.faults.base import OPTIONS, FaultOrder, LabFault, TargetKind
from syntony.lab.faults.clocks import ClockDrift, ClockStep
from syntony.lab.faults.identities import CertRevoke, CertRotate, KeyRotate
from syntony.lab.faults.links import Flap, LinkDown, SwitchDown
from syntony.lab.faults.packets import Blackhole, PacketLoss
from syntony.lab.faults.processes import AGENT_FAULTS, SERVER_FAULTS, CpuHog
from syntony.lab.faults.shaping import AddedDelay, FlowRate, ReducedRate
from syntony.lab.faults.wiring import Mtu, RailSwap
from syntony.lab.plan import CONTROLLER, LabPlan
from syntony.lab.state import is_gateway
from syntony.model.names import did_you_mean

_ALL: tuple[type[LabFault], ...] = (
    LinkDown,
    Flap,
    SwitchDown,
    Blackhole,
    PacketLoss,
    AddedDelay,
    ReducedRate,
    FlowRate,
    Mtu,
    RailSwap,
    *AGENT_FAULTS,
    CpuHog,
    ClockStep,
    ClockDrift,
    CertRevoke,
    CertRotate,
    *SERVER_FAULTS,
    KeyRotate,
)
KINDS: Mapping[str, type[LabFault]] = {kind.name: kind for kind in _ALL}


def parse_order(plan: LabPlan, kind: str, target: str, options: Mapping[str, str]) -> FaultOrder:
    """Parse what the user wrote and check it against this lab. Raises `UsageError`: an unknown
    kind, target or option, or a value that does not fit; with the nearest match."""
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS) or f"; kinds: {', '.join(KINDS)}"
        raise UsageError(f"no fault {kind!r}{hint}")
    fault = KINDS[kind]
    for name in options:
        if name not in fault.options:
            known = f"it takes {', '.join(f'--{each}' for each in fault.options) or 'none'}"
            raise UsageError(f"fault {kind} has no option --{name}; {known}")
    target = _target(plan, fault, target)
    merged = {**fault.options, **options}
    missing = [name for name, text in merged.items() if not text]
    if missing and missing != ["side"]:
        raise UsageError(f"fault {kind} needs --{missing[0]}")
    values = {name: _read(name, text) for name, text in merged.items() if text}
    order = FaultOrder(fault, target, dict(options), values)
    fault.check(plan, order)
    return order


def _read(name: str, text: str) -> int | float | str:
    try:
        return OPTIONS[name](text)
    except UsageError as error:
        raise UsageError(f"--{name}: {error}") from error


def _target(plan: LabPlan, fault: type[LabFault], given: str) -> str:
    if fault.target is TargetKind.CONTROLLER:
        return plan.node(given or CONTROLLER, (CONTROLLER,), "controller")
    if not given:
        raise UsageError(
            f"fault {fault.name} needs a {fault.target}: syntony lab fault KIND TARGET;"
            " see: syntony lab status"
        )
    if fault.target is TargetKind.LINK:
        return plan.link(given).name
    if fault.target is TargetKind.GATEWAY:
        if not is_gateway(given):
            raise UsageError(f"no gateway {given!r} in this lab; its gateways are gateway1, …")
        return given
    if fault.target is TargetKind.SWITCH:
        return plan.node(given, plan.switches, "switch")
    return plan.node(given, plan.hosts, "host")
