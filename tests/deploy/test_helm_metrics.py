"""Metrics of the Helm chart's pods: who may scrape them, and with which certificate."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.chart import ELSEWHERE, FULL, MINIMAL, containers, one, pod_of, rendered
from tests.deploy.daemons import DEPLOY

from syntony.agent.config import AgentConfig
from syntony.config import load_config


def agent_container(values: dict[str, Any]) -> dict[str, Any]:
    return containers(rendered(values))["syntony-agent/agent"]


def agent_file(values: dict[str, Any]) -> str:
    text: str = one(rendered(values), "ConfigMap", "syntony-agent")["data"]["agent.toml"]
    return text.replace("@NODE@", "gpu001")


def test_metrics_of_nodes_are_for_named_scrapers_only(tmp_path: Path) -> None:
    """On loopback by default; over mutual TLS, and probed without a certificate, for scrapers."""
    file = tmp_path / "agent.toml"
    file.write_text(agent_file(MINIMAL))
    quiet = load_config(file, AgentConfig).metrics
    assert (quiet.listen, quiet.tls) == ("127.0.0.1:9862", False)
    assert "ports" not in agent_container(MINIMAL)
    file.write_text(agent_file(FULL))
    served = load_config(file, AgentConfig).metrics
    assert (served.listen, served.tls, served.clients) == ("[::]:9862", True, ("prometheus",))
    container = agent_container(FULL)
    assert container["ports"] == [{"name": "metrics", "containerPort": 9862}]
    for values, kind in ((MINIMAL, "httpGet"), (FULL, "tcpSocket")):
        for probe in ("startupProbe", "livenessProbe"):
            asked = agent_container(values)[probe][kind]
            assert (asked["host"], asked["port"]) == ("127.0.0.1", 9862)


def test_a_pod_monitor_for_each_that_has_scrapers() -> None:
    """Fields of monitoring.coreos.com/v1, whose schema Kubernetes does not have."""
    assert not [each for each in rendered(MINIMAL) if each["kind"] == "PodMonitor"]
    full = rendered(FULL)
    rules = (DEPLOY / "prometheus/syntony.rules.yml").read_text()
    for component in ("controller", "agent"):
        monitor = one(full, "PodMonitor", f"syntony-{component}")
        assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        assert set(monitor["spec"]) == {"selector", "podMetricsEndpoints"}
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert set(endpoint) == {"port", "scheme", "interval", "relabelings", "tlsConfig"}
        assert (endpoint["port"], endpoint["scheme"]) == ("metrics", "https")
        (label,) = endpoint["relabelings"]
        assert label["targetLabel"] == "job"
        assert f'job="{label["replacement"]}"' in rules
        tls = endpoint["tlsConfig"]
        authority = tls["ca"]["configMap"]
        assert authority["key"] in one(full, "ConfigMap", authority["name"])["data"]
        assert tls["cert"]["secret"] == {"name": "scraper", "key": "tls.crt"}
        assert tls["keySecret"] == {"name": "scraper", "key": "tls.key"}
        named = tls.get("serverName", "")
        prepared = one(full, "Secret", "syntony-controller")["stringData"]["prepare.sh"]
        assert (f'--address "{named}"' in prepared) == (component == "controller")
    only = {**MINIMAL, "controller": {"scrapers": ["prometheus"]}, "podMonitor": {"enabled": True}}
    names = [each["metadata"]["name"] for each in rendered(only) if each["kind"] == "PodMonitor"]
    assert names == ["syntony-controller"]


@pytest.mark.parametrize("where", [FULL, ELSEWHERE])
def test_a_job_renews_the_scrapers_certificate(where: dict[str, Any]) -> None:
    """It asks the controllers that agents ask, which let it in."""
    assert not [each for each in rendered(MINIMAL) if each["kind"] == "CronJob"]
    monitor = {"enabled": True, "secret": "scraper"}
    values = {**where, "podMonitor": monitor}
    values["agent"] = {**where["agent"], "scrapers": ["prometheus"]}
    objects = rendered(values)
    job = one(objects, "CronJob", "syntony-renewal")
    text = one(objects, "ConfigMap", "syntony-agent")["data"]["agent.toml"]
    command = containers(objects)["syntony-renewal/renewal"]["command"]
    assert command[:4] == ["syntony", "kubernetes", "renew", "scraper"]
    controllers = tomllib.loads(text)["controller"]
    assert command[4:] == [f"--controller={each}" for each in controllers]
    if where is FULL:
        policy = one(objects, "NetworkPolicy", "syntony-controller")["spec"]
        selector = policy["ingress"][0]["from"][-1]["podSelector"]["matchLabels"]
        assert selector.items() <= pod_of(job)["metadata"]["labels"].items()
    off = {**values, "podMonitor": {**monitor, "renew": False}}
    assert not [each for each in rendered(off) if "renewal" in each["metadata"]["name"]]


def test_policies_restrict_who_scrapes_controllers() -> None:
    for values, peers in ((MINIMAL, None), (FULL, FULL["networkPolicy"]["scrapers"])):
        asked = {**values, "controller": {**values["controller"], "scrapers": ["prometheus"]}}
        policy = one(rendered(asked), "NetworkPolicy", "syntony-controller")["spec"]
        (rule,) = (
            r for r in policy["ingress"] if r["ports"] == [{"protocol": "TCP", "port": 9863}]
        )
        assert rule.get("from") == peers
