"""Every shipped alert: fires in its case and in no other, for the part at fault alone, and neither
before its time nor again once the fault is over. Two hosts; h1 is always well."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from tests.deploy.daemons import DEPLOY, need
from tests.deploy.test_shipped_files import check

RULES = DEPLOY / "prometheus/syntony.rules.yml"
STEP_S = 15
BEGAN_S, LONGER_S, QUIET_S = 300, 60, 300
"""When a fault begins, how much longer it lasts than until its alert, and how long nothing fires
afterwards."""
GONE = "stale _"
"""A value: nothing is scraped."""


class Gauge(NamedTuple):
    """A series: its value while all is well, and during the fault."""

    well: float | str
    bad: float | str

    def values(self, well: int, bad: int, after: int) -> str:
        """For so many samples before, during and after the fault."""
        return f"{self.well}x{well - 1} {self.bad}x{bad - 1} {self.well}x{after - 1}"


class Counter(NamedTuple):
    """The same of a counter: its increase per sample."""

    well: float
    bad: float

    def values(self, well: int, bad: int, after: int) -> str:
        steps = ((well, self.well), (bad, self.bad), (after, self.well))
        parts, value = [], 0.0
        for count, step in steps:
            parts.append(f"{value:g}+{step:g}x{count - 1}")
            value += count * step
        return " ".join(parts)


class Jump(NamedTuple):
    """The same of a counter that grows at once when the fault begins, and then no more."""

    by: int

    def values(self, well: int, bad: int, after: int) -> str:
        return f"0x{well - 1} {self.by}x{bad + after - 1}"


class Restarted(NamedTuple):
    """The same of a counter whose process is gone during the fault."""

    step: int

    def values(self, well: int, bad: int, after: int) -> str:
        return f"0+{self.step}x{well - 1} _x{bad} 0+{self.step}x{after - 1}"


Series = Gauge | Counter | Jump | Restarted


class Case(NamedTuple):
    """A fault.

    Args:
        series: what it changes.
        after_s: from then until the alert fires.
        labels: of the alert.
        also: other alerts that fire, for the same fault or for one that the alert needs.
        over_s: from the end of the fault until nothing fires any more.
    """

    series: dict[str, Series]
    after_s: int
    labels: dict[str, str]
    also: frozenset[str] = frozenset()
    over_s: int = 60


def _healthy() -> dict[str, Series]:
    found: dict[str, Series] = {
        'up{job="syntony-controller",instance="c:9863"}': Gauge(1, 1),
        'syntony_loop_runs_total{loop="judge"}': Counter(7, 7),
        'syntony_loop_failures_total{loop="judge"}': Counter(0, 0),
        "syntony_controller_epoch": Gauge(3, 3),
        "syntony_controller_later_epoch": Gauge(3, 3),
        'syntony_gateway_connected{gateway="gw0"}': Gauge(1, 1),
        'syntony_gateway_connected{gateway="gw1"}': Gauge(1, 1),
        "syntony_store_up": Gauge(1, 1),
        "syntony_messages_waiting": Gauge(0, 0),
        "syntony_messages_refused_total": Counter(0, 0),
        "syntony_messages_shed_total": Counter(0, 0),
        'syntony_process_resident_memory_bytes{host="",role="controller"}': Gauge(6e8, 6e8),
        'syntony_placement_mode{mode="act"}': Gauge(1, 1),
        "syntony_placement_deciding": Gauge(1, 1),
        'syntony_placement_moves_total{result="undone"}': Counter(0, 0),
        'syntony_placement_moves_total{result="helped"}': Counter(5, 5),
        'syntony_link_up{host="h0",nic="mgmt0",role="management"}': Gauge(0, 0),
    }
    for host in ("h0", "h1"):
        nic = f'host="{host}",nic="rail0"'
        found |= {
            f'up{{job="syntony-agent",instance="{host}:9862"}}': Gauge(1, 1),
            f'syntony_uplink_connected{{host="{host}"}}': Gauge(1, 1),
            f'syntony_agent_part_up{{host="{host}",part="spool"}}': Gauge(1, 1),
            f'syntony_certificate_expiry_seconds{{host="{host}",role="agent"}}': Gauge(8e4, 8e4),
            f'syntony_paths_degraded_connections{{host="{host}"}}': Gauge(0, 0),
            f'syntony_spool_bytes{{host="{host}"}}': Gauge(10, 10),
            f'syntony_spool_limit_bytes{{host="{host}"}}': Gauge(100, 100),
            f'syntony_dropped_total{{host="{host}",where="spool"}}': Counter(0, 0),
            f'syntony_process_cpu_seconds_total{{host="{host}",role="agent"}}': Counter(0.5, 0.5),
            f'syntony_process_resident_memory_bytes{{host="{host}",role="agent"}}': Gauge(9e7, 9e7),
            f'syntony_clock_state{{host="{host}",state="SYNCHRONIZED"}}': Gauge(1, 1),
            f'syntony_clock_bound_seconds{{host="{host}"}}': Gauge(2e-5, 2e-5),
            f"syntony_link_flaps_total{{{nic}}}": Counter(0, 0),
            f'syntony_link_up{{{nic},role="compute"}}': Gauge(1, 1),
            f'syntony_probe_sent_total{{{nic},direction="out"}}': Counter(1000, 1000),
            f'syntony_probe_lost_total{{{nic},direction="out"}}': Counter(0, 0),
            f'syntony_probe_unresolved_total{{{nic},direction="out"}}': Counter(0, 0),
        }
    return found


def _of(host: str, severity: str = "warning", **labels: str) -> dict[str, str]:
    return {"host": host, "component": host, "severity": severity} | labels


def _port(severity: str, **labels: str) -> dict[str, str]:
    return _of("h0", severity, nic="rail0", **labels) | {"component": "h0/rail0"}


UP = 'up{job="syntony-controller",instance="c:9863"}'
HUNG: dict[str, Series] = {'syntony_loop_runs_total{loop="judge"}': Counter(7, 0)}
"""The controller answers, but evaluates no rules: ports and clocks are left to Prometheus."""
GONE_CONTROLLER: dict[str, Series] = {
    UP: Gauge(1, 0),
    "syntony_controller_epoch": Gauge(3, GONE),
    "syntony_controller_later_epoch": Gauge(3, GONE),
    'syntony_loop_runs_total{loop="judge"}': Restarted(7),
    'syntony_uplink_connected{host="h0"}': Gauge(1, 0),
    'syntony_uplink_connected{host="h1"}': Gauge(1, 0),
}
CONTROLLER = {"job": "syntony-controller", "instance": "c:9863", "severity": "critical"}
CASES = {
    "SyntonyControllerDown": Case(GONE_CONTROLLER, 60, CONTROLLER),
    "SyntonyControllerMissing": Case(
        {UP: Gauge(1, GONE)}, 300, {"job": "syntony-controller", "severity": "warning"}
    ),
    "SyntonyAgentDown": Case(
        {'up{job="syntony-agent",instance="h0:9862"}': Gauge(1, 0)}, 120,
        {"job": "syntony-agent", "instance": "h0:9862", "component": "h0", "severity": "warning"},
    ),
    "SyntonyUplinkDown": Case(
        {'syntony_uplink_connected{host="h0"}': Gauge(1, 0)}, 120, _of("h0")
    ),
    "SyntonyAgentPartDown": Case(
        HUNG | {'syntony_agent_part_up{host="h0",part="spool"}': Gauge(1, 0)}, 120,
        _of("h0", part="spool"),
    ),
    "SyntonyCertificateExpires": Case(
        {'syntony_certificate_expiry_seconds{host="h0",role="agent"}': Gauge(8e4, 2e4)}, 300,
        _of("h0", role="agent"),
    ),
    "SyntonyControllerSuperseded": Case(
        {"syntony_controller_later_epoch": Gauge(3, 4)}, 60, {"severity": "critical"}
    ),
    "SyntonyGatewayAbsent": Case(
        HUNG | {'syntony_gateway_connected{gateway="gw0"}': Gauge(1, 0)}, 120,
        {"gateway": "gw0", "component": "gw0", "severity": "warning"},
    ),
    "SyntonyConnectionsDegraded": Case(
        {'syntony_paths_degraded_connections{host="h0"}': Gauge(0, 2)}, 15, _of("h0")
    ),
    "SyntonySpoolFilling": Case(
        {'syntony_spool_bytes{host="h0"}': Gauge(10, 90)}, 300, _of("h0")
    ),
    "SyntonyRowsDropped": Case(
        {'syntony_dropped_total{host="h0",where="spool"}': Counter(0, 7)}, 15,
        _of("h0", where="spool"), over_s=600,
    ),
    "SyntonyStoreRefusesRows": Case(
        {"syntony_store_up": Gauge(1, 0)}, 60, {"severity": "critical"}
    ),
    "SyntonyRulesNotEvaluated": Case(HUNG, 300, {"loop": "judge", "severity": "critical"}),
    "SyntonyLoopFails": Case(
        {'syntony_loop_failures_total{loop="judge"}': Counter(0, 1)}, 60,
        {"loop": "judge", "severity": "warning"}, over_s=600,
    ),
    "SyntonyMessagesWaiting": Case(
        {"syntony_messages_waiting": Gauge(0, 2)}, 300, {"severity": "critical"}
    ),
    "SyntonyMessagesDropped": Case(
        {"syntony_messages_shed_total": Counter(0, 1)}, 15, {"severity": "warning"}, over_s=3600
    ),
    "SyntonyAgentBusy": Case(
        {'syntony_process_cpu_seconds_total{host="h0",role="agent"}': Counter(0.5, 7.5)}, 735,
        _of("h0", role="agent"), over_s=300,
    ),
    # The resident memory of a controller that is well is more than an agent's may be.
    "SyntonyMemory": Case(
        {'syntony_process_resident_memory_bytes{host="h0",role="agent"}': Gauge(9e7, 1.3e8)}, 600,
        _of("h0", role="agent"),
    ),
    "SyntonyPlacementNotDeciding": Case(
        {"syntony_placement_deciding": Gauge(1, 0)}, 300, {"mode": "act", "severity": "warning"}
    ),
    "SyntonyMovesDoNotHelp": Case(
        {'syntony_placement_moves_total{result="undone"}': Counter(0, 1)}, 315,
        {"result": "undone", "severity": "warning"}, over_s=600,
    ),
    "SyntonyClockNotSynchronized": Case(
        HUNG | {'syntony_clock_state{host="h0",state="SYNCHRONIZED"}': Gauge(1, 0)}, 120,
        _of("h0", state="SYNCHRONIZED"),
    ),
    "SyntonyClockBoundWide": Case(
        {'syntony_clock_bound_seconds{host="h0"}': Gauge(2e-5, 2e-4)}, 120, _of("h0")
    ),
    "SyntonyLinkFlapping": Case(
        HUNG | {'syntony_link_flaps_total{host="h0",nic="rail0"}': Jump(9)}, 60,
        _port("critical"), frozenset({"SyntonyLinkFlaps"}),
    ),
    "SyntonyLinkFlaps": Case(
        HUNG | {'syntony_link_flaps_total{host="h0",nic="rail0"}': Jump(8)}, 60,
        _port("warning"),
    ),
    "SyntonyLinkDown": Case(
        HUNG | {'syntony_link_up{host="h0",nic="rail0",role="compute"}': Gauge(1, 0)}, 90,
        _port("critical", role="compute"),
    ),
    "SyntonyNicCutOff": Case(
        HUNG | {
            'syntony_probe_unresolved_total{host="h0",nic="rail0",direction="out"}':
                Counter(0, 1000),
            # Its peer loses what it sends there.
            'syntony_probe_unresolved_total{host="h1",nic="rail0",direction="out"}':
                Counter(0, 300),
        },
        120, _port("critical", direction="out"),
    ),
}  # fmt: skip


def _test(name: str, case: Case) -> dict[str, object]:
    """For promtool."""
    series = _healthy() | case.series
    ended_s = BEGAN_S + case.after_s + LONGER_S
    last_s = ended_s + case.over_s + QUIET_S
    counts = [length_s // STEP_S for length_s in (BEGAN_S, ended_s - BEGAN_S, last_s - ended_s)]
    shown = ", ".join(f'{key}="{value}"' for key, value in sorted(case.labels.items()))
    firing = f'ALERTS{{alertname="{name}",alertstate="firing"}}'
    names = {name, *case.also}
    expected = [{"labels": f'{{alertname="{each}"}}', "value": 1} for each in sorted(names)]

    def fired(length_s: int) -> str:
        return f'group by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}[{length_s}s]))'

    fires = [{"labels": f'ALERTS{{alertname="{name}", alertstate="firing", {shown}}}', "value": 1}]
    checks: list[tuple[str, int, list[dict[str, object]]]] = [
        (fired(BEGAN_S), BEGAN_S - STEP_S, []),
        (firing, BEGAN_S + case.after_s - STEP_S, []),
        (firing, BEGAN_S + case.after_s + STEP_S, fires),
        (fired(last_s), last_s, expected),
        (fired(QUIET_S), last_s, []),
    ]
    return {
        "name": name,
        "interval": f"{STEP_S}s",
        "input_series": [
            {"series": each, "values": values.values(*counts)} for each, values in series.items()
        ],
        "promql_expr_test": [
            {"expr": expr, "eval_time": f"{at_s}s", "exp_samples": samples}
            for expr, at_s, samples in checks
        ],
    }


def test_every_alert_fires_in_its_case_alone_and_not_after_it(tmp_path: Path) -> None:
    need("promtool")
    assert set(re.findall(r"- alert: (\w+)", RULES.read_text())) == set(CASES)
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [_test(*case) for case in CASES.items()],
    }
    file = tmp_path / "alerts.json"
    file.write_text(json.dumps(document))
    check("promtool", "test", "rules", str(file))
