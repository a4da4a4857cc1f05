"""What `deploy/` ships is what the daemons it is for accept, and names only what exists."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.daemons import DEPLOY, need

from syntony.agent.config import AgentConfig
from syntony.config import load_config
from syntony.controller.config import ControllerConfig
from syntony.metrics.table import EVERY, PREFIX

RULES = DEPLOY / "prometheus/syntony.rules.yml"
DASHBOARDS = sorted((DEPLOY / "grafana/dashboards").glob("*.json"))
_NAME = re.compile(rf"\b{PREFIX}([a-z0-9_]+)")
_MATCHER = re.compile(rf"{PREFIX}([a-z0-9_]+)\{{([^}}]*)\}}")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")
_PARTS = ("_bucket", "_sum", "_count")


def check(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_accepts_our_configuration() -> None:
    need("promtool")
    check("promtool", "check", "config", "--syntax-only", str(DEPLOY / "prometheus/prometheus.yml"))
    check("promtool", "check", "rules", str(RULES))


def test_prometheus_accepts_the_jobs_for_a_cluster(tmp_path: Path) -> None:
    """But for finding pods, which Debian's Prometheus is built without."""
    need("promtool")
    yaml = pytest.importorskip(
        "yaml", reason="needs PyYAML (make dev): Prometheus' jobs for a cluster are NOT checked"
    )
    given = yaml.safe_load((DEPLOY / "kubernetes/prometheus-scrape.yml").read_text())
    for job in given["scrape_configs"]:
        (found,) = job.pop("kubernetes_sd_configs")
        assert found["role"] == "pod"
        assert f'job="{job["job_name"]}"' in RULES.read_text()
    file = tmp_path / "prometheus.yml"
    file.write_text(json.dumps(given))
    check("promtool", "check", "config", "--syntax-only", str(file))


def test_rules_fire_when_they_should_and_not_else(tmp_path: Path) -> None:
    need("promtool")
    cases = (Path(__file__).parent / "rules.test.yml").read_text()
    file = tmp_path / "rules.test.yml"
    file.write_text(cases.replace("RULES", str(RULES)))
    check("promtool", "test", "rules", str(file))


def test_alertmanager_accepts_our_configuration() -> None:
    need("amtool")
    check("amtool", "check-config", str(DEPLOY / "alertmanager/alertmanager.yml"))


def family(name: str) -> str:
    """The table's name of a series: a histogram has three kinds of them."""
    for part in _PARTS:
        base = name.removesuffix(part)
        if base != name and base in EVERY and EVERY[base].kind == "histogram":
            return base
    return name


def expressions(board: Any) -> Iterator[str]:
    """Every query of a dashboard: panels, and variables."""
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def check_expression(expression: str) -> None:
    for name in _NAME.findall(expression):
        assert family(name) in EVERY, f"{PREFIX}{name} is no metric: {expression}"
    for name, matchers in _MATCHER.findall(expression):
        labels = set(re.findall(r"([a-z_]+)\s*(?:=|!=|=~|!~)", matchers))
        assert labels <= {*EVERY[family(name)].labels, "instance", "job"}, expression
    known = {label for metric in EVERY.values() for label in metric.labels} | {"le", "instance"}
    for labels in _GROUPING.findall(expression):
        assert {label.strip() for label in labels.split(",")} <= known, expression


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_show_metrics_that_exist(path: Path) -> None:
    board = json.loads(path.read_text(encoding="utf-8"))
    found = list(expressions(board))
    assert len(found) >= 10
    for expression in found:
        check_expression(expression)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    assert board["uid"] == path.stem


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_prometheus_understands_every_query(path: Path, tmp_path: Path) -> None:
    """As rules: promtool parses those without a server."""
    need("promtool")
    board = json.loads(path.read_text(encoding="utf-8"))
    queries = [each for each in expressions(board) if not each.startswith("label_values")]
    rules = [
        {"record": f"q:{number}", "expr": query.replace("$__rate_interval", "1m")}
        for number, query in enumerate(queries)
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "q", "rules": rules}]}))
    check("promtool", "check", "rules", str(file))


def test_rules_name_metrics_that_exist() -> None:
    lines = RULES.read_text(encoding="utf-8").splitlines()
    expressions = [line for line in lines if PREFIX in line]
    assert len(expressions) >= 14
    for line in expressions:
        check_expression(line)


def test_our_own_configuration_is_valid() -> None:
    assert load_config(DEPLOY / "config/agent.toml", AgentConfig).metrics.listen
    assert load_config(DEPLOY / "config/controller.toml", ControllerConfig).metrics.listen
