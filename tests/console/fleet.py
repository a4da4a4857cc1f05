"""A fleet with a planted fault, as a controller would answer: for tests of the console.

Answers are the wire's own structs: a field that changes there changes here or does not type.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import msgspec
from tests.console.fleet_work import HOSTILE, audit_view, cost, job_report, jobs

from syntony.alerts.incidents import Incident, IncidentState
from syntony.alerts.render import plain
from syntony.alerts.rules import Severity
from syntony.model import MS, S
from syntony.model.clocks import ClockState, Timeline
from syntony.model.findings import Finding, Queue
from syntony.wire.clocks import ClockHistory, Clocks, ClockSample, ClockTruths
from syntony.wire.control import Change, Changes, ControllerStatus
from syntony.wire.fabric import FabricChange, FabricChanges, FabricMap, Findings, MapDevice
from syntony.wire.failover import (
    ConnectionView,
    FailoverLog,
    FailoverStatus,
    FleetConnections,
    HostPaths,
    PathEventRow,
    PathsReport,
    SubflowView,
    Switch,
)
from syntony.wire.incidents import IncidentsReply, RulesReply
from syntony.wire.links import (
    LinkCounterRow,
    LinkEventRow,
    LinkHistory,
    Links,
    LinkStatus,
)
from syntony.wire.messages import AgentStatus, Fleet, NicInfo
from syntony.wire.parts import PartState, PartStatus
from syntony.wire.probes import Matrix, MatrixCell, Series, SeriesPoint
from syntony.wire.sla import Queues
from syntony.wire.traffic import LinkLoadView, MoveList, MoveView, PlacedFlow, Traffic

BAD = "h5/rail1"
"""The NIC that loses packets."""
MAX_PAIRED_HOSTS = 600
"""Larger fleets are not probed pair by pair here: their matrix is empty."""
RETURNS = 60
"""Attempts to use the bad NIC's path again, one a second."""
SILENT_PAIR = ("h2/rail0", "h6/rail0")


class Shape(NamedTuple):
    """How large the fleet is."""

    hosts: int = 8
    rails: int = 2
    leaves: int = 2
    """Of each rail."""
    spines: int = 2


def nics(shape: Shape) -> list[str]:
    """Every NIC, ``h3/rail0``."""
    return [f"h{host}/rail{rail}" for host in range(shape.hosts) for rail in range(shape.rails)]


def answers(now_ns: int, shape: Shape | None = None) -> dict[str, Any]:
    """Route to answer, of a fleet at an instant."""
    shape = shape or Shape()
    chance = random.Random(7)
    return {
        "fleet": _fleet(now_ns, shape),
        "controller": ControllerStatus(
            name="gateway", version="0.1.0", epoch=7, seen_epoch=7, durable=True,
            up_ns=3600 * S, agents=shape.hosts,
        ),
        "incidents": _incidents(now_ns),
        "rules": _rules(),
        "clock": _clocks(now_ns, shape, chance),
        "clock-truth": ClockTruths(clocks=()),
        "clock-history": _clock_history(now_ns, shape, chance),
        "findings": _findings(now_ns),
        "queues": _queues(now_ns),
        "topology": topology(shape),
        "links": _links(now_ns, shape),
        "link-history": _link_history(now_ns),
        "matrix": matrix(shape, chance),
        "series": _series(now_ns, chance),
        "fabric-changes": FabricChanges(
            changes=(
                FabricChange(
                    ts_ns=now_ns - 900 * S, change="removed", what="cable",
                    name="leaf1-1--spine0", detail="no learnt path crosses it any more",
                ),
            )
        ),
        "failover-status": _status(now_ns, shape),
        "failover-log": _failovers(now_ns),
        "connections": _connections(),
        "traffic": _traffic(now_ns),
        "moves": _moves(now_ns),
        "jobs": jobs(now_ns),
        "job-report": job_report(now_ns, chance),
        "changes": _changes(now_ns),
        "audit-view": audit_view(now_ns, shape.hosts, ()),
        "cost": cost(),
    }  # fmt: skip


def _fleet(now_ns: int, shape: Shape) -> Fleet:
    agents = []
    for host in range(shape.hosts):
        gone = host == 7
        failed = PartStatus(
            name="nic:rail1", state=PartState.WAITING, reason="no such device", age_ns=40 * S
        )
        running = PartStatus(name="failover", state=PartState.RUNNING)
        agents.append(
            AgentStatus(
                host=f"h{host}",
                connected=not gone,
                nics=tuple(
                    NicInfo(
                        name=f"rail{rail}", rail=rail, addresses=(f"10.{rail}.0.{host % 250}",),
                        clock=f"h{host}", stamping="kernel", port=8620,
                    )
                    for rail in range(shape.rails)
                ),
                version="0.1.0",
                last_batch_ns=now_ns - (90 * S if gone else S),
                batches=900,
                rows=120_000,
                dropped=0,
                probes_per_s=0.0 if gone else 896.0,
                parts=(running, failed) if host == 3 else (running,),
            )
        )  # fmt: skip
    return Fleet(agents=tuple(agents), rows_stored=4_000_000, probes_per_s=6272.0)


def _incident(number: int, now_ns: int, **fields: Any) -> dict[str, Any]:
    """As a controller tells it."""
    whole: dict[str, Any] = {
        "rule": "link-loss",
        "subject": BAD,
        "severity": Severity.CRITICAL,
        "state": IncidentState.OPEN,
        "remedy": "Reseat the cable; if it persists, replace it.",
        "opened_ns": now_ns - 240 * S,
        "updated_ns": now_ns - S,
        "value": 0.31,
        "worst": 0.34,
        "unit": "ratio",
        "pages": 1,
    }
    return plain(Incident(number=number, **(whole | fields)))


def _incidents(now_ns: int) -> IncidentsReply:
    return IncidentsReply(
        incidents=(
            _incident(
                12,
                now_ns,
                summary=f"{BAD} loses 31 % of what crosses it",
                jobs=("train-7", HOSTILE),
                evidence=(
                    "14 of 14 paths over h5/rail1 lose packets; 0 of 98 others",
                    "loss in 58 of the last 60 s: not a queue's overflow, which comes in bursts",
                    "ruled out: leaf1-1 (its other 3 NICs lose nothing), host h5 (rail0 is well)",
                ),
                repeats=2,
            ),
            _incident(
                13,
                now_ns,
                summary="train-7 waits for h5: slow-flow",
                rule="job-slow-network",
                subject="h4/rail1<->h5/rail1",
                severity=Severity.WARNING,
                cause=12,
                unit="",
                value=0.93,
                worst=0.93,
                pages=0,
            ),
            _incident(
                11,
                now_ns,
                summary="no report from agent for 90 s",
                rule="agent-silent",
                subject="h7",
                severity=Severity.WARNING,
                state=IncidentState.ACKNOWLEDGED,
                acknowledged_by="ops (alice)",
                comment="planned reboot",
                opened_ns=now_ns - 90 * S,
                unit="s",
                value=90.0,
                worst=90.0,
                evidence=("its host answered the last probe 91 s ago",),
                remedy="Look at the host: power, network, then `systemctl status syntony-agent`.",
            ),
            _incident(
                9,
                now_ns,
                summary="h1/rail0 flapped 9 times within the hour",
                rule="link-flaps",
                subject="h1/rail0",
                severity=Severity.WARNING,
                state=IncidentState.RESOLVED,
                unit="",
                value=9.0,
                worst=11.0,
                opened_ns=now_ns - 3000 * S,
                resolved_ns=now_ns - 1200 * S,
                evidence=("carrier lost 9 times, 7 s apart",),
            ),
        ),
        silences=(
            {
                "number": 2,
                "rule": "*",
                "subject": "leaf0-*",
                "first_ns": now_ns - 600 * S,
                "last_ns": now_ns + 6600 * S,
                "who": "ops (bob)",
                "comment": "new firmware",
            },
        ),
        waiting=0,
    )


def _rules() -> RulesReply:
    rule = {
        "name": "link-loss", "metric": "loss", "severity": "critical", "above": 0.01, "below": None,
        "unit": "ratio", "explained_by": ("switch-down", "nic-down"), "enabled": True,
        "remedy": "Reseat the cable; if it persists, replace it.",
    }  # fmt: skip
    return RulesReply(rules=(rule,))


def _clocks(now_ns: int, shape: Shape, chance: random.Random) -> Clocks:
    lines = []
    for host in range(shape.hosts):
        state = {3: ClockState.HOLDOVER, 7: ClockState.UNKNOWN}.get(host, ClockState.SYNCHRONIZED)
        lines.append(
            Timeline(
                node=f"h{host}",
                ref_ns=now_ns,
                offset_ns=chance.uniform(-4e6, 4e6),
                drift_ppb=chance.uniform(-9000, 9000),
                sigma_ns=chance.uniform(30, 120) * (20 if host == 3 else 1),
                state=state,
                component="h0",
                asymmetry_ns=chance.uniform(200, 900),
                reason={3: "no probe for 12 s", 7: "its agent is not connected"}.get(host, ""),
            )
        )
    return Clocks(timelines=tuple(lines))


def _clock_history(now_ns: int, shape: Shape, chance: random.Random) -> ClockHistory:
    samples = tuple(
        ClockSample(
            ts_ns=now_ns - back * 10 * S, node=f"h{host}", ref_ns=now_ns,
            offset_ns=0.0, drift_ppb=1000.0 * host + chance.gauss(0, 3), sigma_ns=50.0,
            drift_sigma_ppb=1.0, state=ClockState.SYNCHRONIZED,
            bound_ns=600 + 100 * host + chance.gauss(0,
            40) + (4000 if host == 3 and back < 6 else 0),
        )
        for host in range(min(shape.hosts, 8))
        for back in range(60, 0, -1)
    )  # fmt: skip
    return ClockHistory(samples=samples, step_ns=10 * S)


def _findings(now_ns: int) -> Findings:
    found = Finding(
        component=BAD, kind="nic", fault="loss", loss=0.31, delay_ns=0.0, confidence=0.98,
        window="the last 240 s", explains=210.0, paths=14, alternatives=("leaf1-1",),
        probabilities=(0.01,),
    )  # fmt: skip
    return Findings(ts_ns=now_ns, findings=(found,))


def _queues(now_ns: int) -> Queues:
    queue = Queue(
        component="leaf0-0->spine1", delay_ns=1.4e6, since_ns=now_ns - 30 * S, confidence=0.9,
        alternatives=(), pairs=("h0/rail0->h4/rail0",),
    )  # fmt: skip
    return Queues(queues=(queue,), looked=True)


def topology(shape: Shape) -> FabricMap:
    """Devices and cables: every rail has its leaves, all leaves all spines."""
    devices = [MapDevice(name=f"spine{n}", kind="spine") for n in range(shape.spines)]
    cables = []
    for rail in range(shape.rails):
        for leaf in range(shape.leaves):
            name = f"leaf{rail}-{leaf}"
            devices.append(MapDevice(name=name, kind="leaf"))
            cables += [(name, f"spine{n}") for n in range(shape.spines)]
    for nic in nics(shape):
        host, _, rail_name = nic.partition("/rail")
        at = int(host[1:]) * shape.leaves // shape.hosts
        devices.append(MapDevice(name=nic, kind="nic"))
        cables.append((nic, f"leaf{rail_name}-{at}"))
    return FabricMap(configured=True, devices=tuple(devices), cables=tuple(cables))


def _links(now_ns: int, shape: Shape) -> Links:
    ports = tuple(
        LinkStatus(
            nic=nic, netdev=nic.partition("/")[2], rdma="", link_layer="Ethernet",
            driver="mlx5_core",
            role="compute", state="no-peer" if nic == "h1/rail1" else "active", gbps=400.0,
            flaps=9 if nic == "h1/rail0" else 0,
            last_flap_ns=now_ns - 1300 * S if nic == "h1/rail0" else None,
            seen_ns=now_ns - (90 * S if nic.startswith("h7/") else S), watched_ns=3600 * S,
            tx_bps=310e9, rx_bps=287e9, temperature_c=51.5, rx_dbm=-2.1, bias_ma=7.4,
        )
        for nic in nics(shape)
    )  # fmt: skip
    return Links(ports=ports, now_ns=now_ns)


def _link_history(now_ns: int) -> LinkHistory:
    return LinkHistory(
        events=(
            LinkEventRow(
                ts_ns=now_ns - 1300 * S, nic=BAD, kind="carrier", losses=1, before="up",
                after="down", detail="for 210 ms", remedy="clean the cable",
            ),
        ),
        counters=(
            LinkCounterRow(
                nic=BAD, counter="rx_symbol_errors", increase=88_120, last_ns=now_ns - 2 * S,
                reading="counted",
            ),
        ),
        now_ns=now_ns,
    )  # fmt: skip


def matrix(shape: Shape, chance: random.Random) -> Matrix:
    """Every pair of NICs of one rail."""
    cells: list[MatrixCell] = []
    found = nics(shape) if shape.hosts <= MAX_PAIRED_HOSTS else []
    by_rail: dict[str, list[str]] = {}
    for nic in found:
        by_rail.setdefault(nic.partition("/")[2], []).append(nic)
    for members in by_rail.values():
        pairs = ((src, dst) for src in members for dst in members if src != dst)
        cells += [_cell(*pair, chance) for pair in pairs]
    return Matrix(cells=tuple(cells))


def _cell(src: str, dst: str, chance: random.Random) -> MatrixCell:
    base = 11_000 + chance.randrange(3_000) + (40_000 if src == "h0/rail0" else 0)
    lost = 31 if BAD in {src, dst} else 0
    silent = (src, dst) == SILENT_PAIR or "h7/" in f"{src} {dst}"
    return MatrixCell(
        src=src, dst=dst, paths=8, sent=100, lost=100 if silent else lost,
        owd_min_ns=None if silent else base - 900, owd_p50_ns=None if silent else base,
        owd_p99_ns=None if silent else base * 3, clk_err_ns=90, dropped=0,
    )  # fmt: skip


def _series(now_ns: int, chance: random.Random) -> Series:
    return Series(
        points=tuple(
            SeriesPoint(
                ts_ns=now_ns - back * S, src="h0/rail0", dst="h4/rail0", sent=10,
                lost=3 if back < 60 else 0, owd_min_ns=10_000,
                owd_p50_ns=12_000 + chance.randrange(900),
                owd_p99_ns=30_000 + chance.randrange(20_000),
            )
            for back in range(300, 0, -1)
        )
    )  # fmt: skip


def _paths(mode: str) -> PathsReport:
    up = SubflowView(path="h4/rail0:4000 > h5/rail0:29500", state="up", rate_bps=180_000_000)
    stalled = SubflowView(path="h4/rail1:4001 > h5/rail1:29500", state="stalled", rate_bps=0)
    connection = ConnectionView(
        job="train-7",
        connection="9f2c11aa",
        subflows=(up, stalled),
        degraded="1 of 2 rails for 31 s",
    )
    return PathsReport(mode=mode, stopped=False, connections=(connection,), degraded=1)


def _status(now_ns: int, shape: Shape) -> FailoverStatus:
    hosts = tuple(
        HostPaths(host=f"h{host}", age_ns=S, report=_paths("observe" if host == 2 else "act"))
        for host in range(min(shape.hosts, 7))
    )
    thrown = Switch(stopped=False, at_ns=now_ns - 7200 * S, by="ops (alice)")
    return FailoverStatus(switch=thrown, hosts=hosts)


def _failovers(now_ns: int) -> FailoverLog:
    event = PathEventRow(
        ts_ns=now_ns - 200 * S, host="h4", job="train-7", connection="9f2c11aa", cause="path-dead",
        evidence="no acknowledgement for 240 ms while 3 others went on", action="failover",
        old_path="h4/rail1:4001 > h5/rail1:29500", new_path="h4/rail0:4003 > h5/rail0:29500",
        detect_ns=240 * MS, act_ns=3 * MS, result="done",
    )  # fmt: skip
    again = tuple(
        msgspec.structs.replace(
            event, ts_ns=now_ns - (190 - n) * S, cause="return", evidence=f"path-dead, {n} s ago",
            action=("request", "join-failed", "request", "create")[n % 4], old_path="", detect_ns=0,
            new_path=f"h4/rail1:{40_000 + n // 2} > h5/rail1:29500", act_ns=n * MS, result="",
        )
        for n in range(RETURNS)
    )  # fmt: skip
    last = msgspec.structs.replace(event, ts_ns=now_ns - 90 * S, host="h5", job="eval-1")
    return FailoverLog(events=(event, *again, last))


def _connections() -> FleetConnections:
    return FleetConnections(hosts=(HostPaths(host="h4", age_ns=S, report=_paths("act")),))


def _traffic(now_ns: int) -> Traffic:
    flow = PlacedFlow(
        flow="h4/rail0:4000>h5/rail0:29500", job="train-7", src="h4/rail0", dst="h5/rail0",
        sport=4000,
        dport=29500, path="leaf0-1 spine1 leaf0-1", tx_bps=180_000_000, rx_bps=2_000_000, paths=4,
        movable=True, moving=False, owd_p50_ns=15_000, owd_p99_ns=60_000, owd_at_ns=now_ns,
    )  # fmt: skip
    links = (("leaf0-0->spine1", 188e6), ("leaf0-1->spine0", 61e6), ("spine1->leaf1-0", 120e6))
    return Traffic(
        mode="observe", deciding=True, why="", now_ns=now_ns, flows=(flow,), pacing="off",
        links=tuple(
            LinkLoadView(
                link=name, bps=int(bps), capacity_bps=200_000_000, flows=3,
                queue_ns=1_400_000 if bps > 150e6 else None,
            )
            for name, bps in links
        ),
    )  # fmt: skip


def _moves(now_ns: int) -> MoveList:
    move = MoveView(
        move_id="m1", ts_ns=now_ns - 50 * S, flow="h4/rail0:4000>h5/rail0:29500", job="train-7",
        src="h4/rail0", dst="h5/rail0", old="leaf0-1 spine1 leaf0-1", new="leaf0-1 spine0 leaf0-1",
        cause="contention", evidence="spine1 carries 188 of 200 Mb/s, spine0 61",
        result="would move",
        took_ns=0,
    )  # fmt: skip
    return MoveList(moves=(move,))


def _changes(now_ns: int) -> Changes:
    change = Change(
        number=41, at_ns=now_ns - 600 * S, who="ops (alice)", origin="local", what="placement",
        before="off", after="observe", comment="before the long run",
    )  # fmt: skip
    return Changes(changes=(change,))
