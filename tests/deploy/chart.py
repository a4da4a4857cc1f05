"""The Helm chart as tests see it: rendered by Helm's own library, with three sets of values."""

from __future__ import annotations

from typing import Any

import pytest
from tests.deploy.daemons import DEPLOY

helm = pytest.importorskip(
    "helm_python",
    reason="needs the extra [charts] (make dev; x86_64 only): the Helm chart is NOT tested",
)
schemas = pytest.importorskip(
    "kubernetes_validate",
    reason="needs the extra [charts] (make dev): the Helm chart is NOT tested",
)
yaml = pytest.importorskip("yaml", reason="needs PyYAML (make dev): the Helm chart is NOT tested")

CHART = DEPLOY / "helm/syntony"
VERSIONS = ("1.30", "1.33", "1.37")
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
MINIMAL: dict[str, Any] = {
    "certificate": PEM, "agent": {"nics": [{"name": "eth2", "rail": 0}]}, "controller": {},
}  # fmt: skip
FULL: dict[str, Any] = {
    "certificate": PEM,
    "address": "syntony.example",
    "listen": "[::]",
    "image": {"pullSecrets": [{"name": "registry"}]},
    "agent": {
        "nics": [{"name": "eth2", "rail": 0, "stamping": "kernel"}, {"name": "eth3", "rail": 1}],
        "failover": True,
        "scrapers": ["prometheus"],
        "devices": {"vendor.example/ptp": 1},
        "reactorDevices": {"rdma/hca": 1},
        "nodeSelector": {"gpu": "yes"},
        "extraConfig": "read_gpus = false",
        "extraTables": "[discipline]\nnic_clocks = false",
    },
    "controller": {
        "replicas": 2,
        "state": "postgresql://syntony@db.example:5432/syntony?passfile=/etc/syntony-db/pgpass",
        "store": 'clickhouse://syntony:p"q@ch.example:8123/syntony',
        "databaseSecret": "database",
        "filesSecret": "files",
        "scrapers": ["prometheus"],
        "extraConfig": "ecmp_paths = 8",
        "extraTables": '[[anchors]]\nnode = "gpu001"',
        "tolerations": [{"operator": "Exists"}],
    },
    "audit": {"spec": '[roles.compute]\nhosts = ["gpu*"]\n', "taint": "NoSchedule"},
    "networkPolicy": {
        "agents": ["192.0.2.0/24"],
        "people": [{"namespaceSelector": {}}],
        "scrapers": [{"namespaceSelector": {}}],
        "egress": [{"ports": [{"protocol": "TCP", "port": 5432}]}],
    },
    "console": {"service": {"type": "LoadBalancer", "port": 443}},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "secret": "scraper"},
}
ELSEWHERE: dict[str, Any] = {
    "certificate": PEM,
    "agent": {
        "nics": [{"name": "eth2", "rail": 0}],
        "controllers": ["syntony.example:8443"],
        "enrolAt": "syntony.example:8444",
    },
    "controller": {"replicas": 0},
    "audit": {"enabled": False},
}
CASES = {"minimal": MINIMAL, "full": FULL, "elsewhere": ELSEWHERE}


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema(values)
        files = chart.render(values, name="syntony", namespace="fleet")
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def one(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)
    return found


def pod_of(each: dict[str, Any]) -> dict[str, Any]:
    """The template of an object's pods; empty if it has none."""
    spec = each.get("spec", {})
    found: dict[str, Any] = spec.get("jobTemplate", {}).get("spec", spec).get("template", {})
    return found


def containers(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every container by ``WORKLOAD/NAME``."""
    found = {}
    for each in objects:
        pod = pod_of(each).get("spec", {})
        for container in [*pod.get("initContainers", []), *pod.get("containers", [])]:
            found[f"{each['metadata']['name']}/{container['name']}"] = container
    return found
