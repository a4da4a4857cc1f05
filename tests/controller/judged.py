"""An alert desk on a store that says what a test wants, and time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from syntony.alerts.incidents import ChangeKind, IncidentChange
from syntony.alerts.observations import Observation
from syntony.controller.config import AlertSettings
from syntony.controller.fabric_changes import FabricStatus
from syntony.controller.incident_inputs import EvaluationInputs, LatencyInputs
from syntony.controller.incidents import IncidentService
from syntony.controller.silent_agents import NOBODY_REFUSED
from syntony.errors import StoreError
from syntony.fabric.extra_probes import SuspectNote, suspected
from syntony.model import ClockState, S, Timeline
from syntony.model.findings import Finding, Queue, QueueFlow
from syntony.state import ControlState
from syntony.wire.incidents import IncidentsQuery
from syntony.wire.links import LinkCounterRow, LinkStatus

T0 = 1_700_000_000 * S
CROSSING = {
    "h0/rail0->h1/rail0": frozenset({"h0/rail0", "h0/rail0->leaf0", "leaf0", "leaf0->h1/rail0"}),
    "h0/rail0->h2/rail0": frozenset({"h0/rail0", "leaf0", "leaf0->spine0", "spine0"}),
    "h2/rail0->h0/rail0": frozenset({"h2/rail0", "spine0", "spine0->leaf0", "leaf0"}),
}
JOBS = {
    "near": frozenset({("h0/rail0", "h1/rail0")}),
    "far": frozenset({("h0/rail0", "h2/rail0"), ("h2/rail0", "h0/rail0")}),
}


def port(nic: str, **fields: object) -> LinkStatus:
    values: dict[str, object] = {
        "nic": nic, "netdev": "eth0", "rdma": "", "link_layer": "Ethernet", "driver": "mlx5_core",
        "role": "compute", "state": "active", "gbps": 400.0, "flaps": 0, "last_flap_ns": None,
        "seen_ns": T0, "watched_ns": 0, "temperature_c": None, "rx_dbm": None, "bias_ma": None,
    }  # fmt: skip
    return LinkStatus(**(values | fields))  # type: ignore[arg-type]


class Links:
    def __init__(self) -> None:
        self.seen: tuple[LinkStatus, ...] = ()
        self.counted: tuple[LinkCounterRow, ...] = ()
        self.measured: dict[str, tuple[str, str]] = {}
        self.away = False

    def ports(self, *_: int) -> tuple[LinkStatus, ...]:
        if self.away:
            raise StoreError("the store does not answer")
        return self.seen

    def modules(self, *_: int) -> dict[str, tuple[str, str]]:
        return self.measured

    def counters(self, *_: int) -> tuple[LinkCounterRow, ...]:
        return self.counted


class FakeStore:
    def __init__(self) -> None:
        self.links = Links()
        self.incidents = self
        self.rows: list[dict[str, object]] = []

    def since(self, _: int) -> list[dict[str, object]]:
        return self.rows


class Control:
    """An alert desk and time."""

    def __init__(self, state: Path) -> None:
        self.store = FakeStore()
        self.state = state
        self.now_ns = T0
        self.silent: dict[str, int] = {"h0": 0, "h1": 0}
        self.findings: tuple[Finding, ...] = ()
        self.findings_ns = 0
        self.located = True
        self.timelines: tuple[Timeline, ...] = ()
        self.probed: frozenset[str] = frozenset()
        self.slas = LatencyInputs(None, None, CROSSING, JOBS)
        self.fabric: FabricStatus | None = None
        self.homes: dict[str, str] = {}
        self.answering: frozenset[str] = frozenset()
        self.in_band: dict[str, str] = {}
        self.refused = NOBODY_REFUSED
        self.notes: dict[frozenset[str], SuspectNote] = {}
        self.gateways: list[Observation] = []
        self.pairs: frozenset[tuple[str, str]] = frozenset()
        self.answered_ns: dict[str, int] = {}
        self.changes: list[IncidentChange] = []
        self.kept: ControlState | None = None
        self._blamed: set[tuple[str, str]] = set()
        self.start()

    def start(self) -> None:
        self.close()
        self.kept = ControlState(self.state)
        self.kept.read("PRAGMA synchronous = OFF")  # to wait for the disk takes longest
        self.service = IncidentService(AlertSettings(), self.kept, self.store)  # type: ignore[arg-type]

    def close(self) -> None:
        if self.kept is not None:
            self.kept.close()

    def tick(self, times: int = 1, *, after_ns: int = 2 * S) -> None:
        for _ in range(times):
            self.now_ns += after_ns
            seen = tuple(
                LinkStatus(
                    **{f: getattr(p, f) for f in p.__struct_fields__} | {"seen_ns": self.now_ns}
                )
                for p in self.store.links.seen
            )
            self.store.links.seen = seen
            self.evaluate()

    def evaluate(self) -> None:
        inputs = EvaluationInputs(
            self.silent, self.timelines, self.findings, self.slas, expected_clocks=self.probed,
            fabric=self.fabric, homes=self.homes, answering=self.answering, in_band=self.in_band,
            refused=self.refused, notes=self.notes, gateways=self.gateways, pairs=self.pairs,
            answered_ns=self.answered_ns, findings_ns=self.findings_ns, located=self.located,
        )  # fmt: skip
        self.changes += self.service.evaluate(self.now_ns, inputs)

    def news(self) -> bool:
        """Whether something else is blamed than at the last call: rules are evaluated then."""
        blamed = {(found.component, found.fault) for found in self.findings}
        blamed |= {(switch, "gone") for switch in (self.fabric.gone if self.fabric else ())}
        before, self._blamed = self._blamed, blamed
        return blamed != before

    def pages(self) -> list[str]:
        """Rule and subject of everything that somebody was informed of, in order."""
        return [
            f"{change.incident.rule} {change.incident.subject}"
            for change in self.changes
            if change.kind is ChangeKind.PAGE
        ]

    def live_incidents(self) -> list[dict[str, Any]]:
        return list(self.service.incidents(IncidentsQuery()).incidents)

    def live(self) -> dict[str, str]:
        return {each["subject"]: each["rule"] for each in self.live_incidents()}


def finding(component: str, kind: str, **fields: object) -> Finding:
    values: dict[str, object] = {
        "component": component, "kind": kind, "fault": "loss", "loss": 0.05, "delay_ns": 0.0,
        "confidence": 1.0, "window": "3 s", "explains": 90.0, "paths": 4, "alternatives": (),
    }  # fmt: skip
    return Finding(**(values | fields))  # type: ignore[arg-type]


def dark_leaf(leaf: str) -> Finding:
    """Nothing from a leaf arrives: it is dead, or all hosts at it are."""
    return finding(
        leaf, "leaf", fault="blackhole", loss=1.0, confidence=0.5, twins=1,
        alternatives=(f"hosts at {leaf}",), probabilities=(0.5,),
    )  # fmt: skip


def standing(**fields: object) -> FabricStatus:
    values: dict[str, object] = {"cables": 0, "lost": {}, "misplaced": (), "twins": {}, "gone": {}}
    return FabricStatus(**(values | fields))  # type: ignore[arg-type]


def line(node: str, state: ClockState) -> Timeline:
    return Timeline(
        node=node, ref_ns=0, offset_ns=0.0, drift_ppb=0.0, sigma_ns=1.0, state=state
    )  # fmt: skip


def queues_of(
    found: Iterable[Finding],
    pairs: Iterable[tuple[str, str]],
    crossing: Mapping[str, frozenset[str]],
) -> tuple[Queue, ...]:
    """Queues as they are found, under the traffic of one job between pairs of NICs."""
    pairs = list(pairs)
    return tuple(
        Queue(
            component=each.component, delay_ns=each.delay_ns, since_ns=0,
            confidence=each.confidence, alternatives=each.alternatives, suspects=suspected(each),
            bursts=bool(each.overflow),
            pairs=tuple(pair for pair, parts in crossing.items() if each.component in parts),
            flows=tuple(
                QueueFlow(job="train", pair=f"{a}->{b}", rate_bps=10**9)
                for a, b in pairs
                if each.component in crossing[f"{a}->{b}"]
            ),
        )
        for each in found
    )  # fmt: skip
