"""The Helm chart: linted and rendered by Helm's own library, its objects checked against the
schemas of Kubernetes, its values by what they are for. No cluster."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.chart import (
    CASES,
    CHART,
    ELSEWHERE,
    FULL,
    MINIMAL,
    PEM,
    VERSIONS,
    containers,
    helm,
    one,
    rendered,
    schemas,
    yaml,
)
from tests.deploy.daemons import DEPLOY

UNITS = DEPLOY / "systemd"


@pytest.mark.parametrize("case", CASES)
def test_helm_lints_it(case: str) -> None:
    found = helm.lint(CHART, CASES[case], strict=True, namespace="fleet")
    assert not found["errors"]
    complaints = [each["error"] for each in found["messages"]]
    assert complaints in ([], ["icon is recommended"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_kubernetes_schemas_accept_all_objects(case: str, version: str) -> None:
    objects = rendered(CASES[case])
    assert objects
    for each in objects:
        if each["kind"] == "PodMonitor":  # not of Kubernetes: a test of its own
            continue
        schemas.validate(each, version, strict=True)
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_schemas_accept_the_audit_job(version: str) -> None:
    (job,) = yaml.safe_load_all((DEPLOY / "kubernetes/audit-job.yaml").read_text())
    schemas.validate(job, version, strict=True)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    images = yaml.safe_load((CHART / "values.yaml").read_text())["image"]
    assert container["image"] == images["agent"]


def test_schemas_refuse_what_is_wrong() -> None:
    """The check above would notice: a misspelt field, a text for a number."""
    audit = one(rendered(MINIMAL), "DaemonSet", "syntony-audit")
    audit["spec"]["template"]["spec"]["hostNetwrok"] = True
    with pytest.raises(schemas.ValidationError):
        schemas.validate(audit, VERSIONS[0], strict=True)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({}, "nics"),
        ({**MINIMAL, "certificate": ""}, "certificate"),
        ({**MINIMAL, "controller": {"replicas": 2}}, "state"),
        ({**MINIMAL, "controller": {"replicas": 3}}, "replicas"),
        ({**MINIMAL, "agents": {}}, "agents"),
        ({**MINIMAL, "agent": {"nics": []}}, "nics"),
        ({**MINIMAL, "audit": {"taint": "Schedule"}}, "taint"),
        ({**ELSEWHERE, "agent": MINIMAL["agent"]}, "name those elsewhere"),
        (
            {**ELSEWHERE, "agent": {k: v for k, v in ELSEWHERE["agent"].items() if k != "enrolAt"}},
            "agent.enrolAt",
        ),
        (
            {**MINIMAL, "controller": {"state": "postgresql://db/x?passfile=/etc/syntony-db/pg"}},
            "databaseSecret",
        ),
        ({**MINIMAL, "podMonitor": {"enabled": True}}, "name the scraper's certificate"),
        ({**MINIMAL, "podMonitor": {"interval": "often"}}, "interval"),
        ({**MINIMAL, "certificate": f"{PEM}-----BEGIN PRIVATE KEY-----\n"}, "certificate"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(helm.HelmError, match=complaint):
        rendered(values)


def test_values_of_the_comments_are_accepted() -> None:
    """What `values.yaml` shows after a dash can be written there."""
    shown: dict[str, str] = {}
    key = ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        if found := re.match(r"\s*(\w+):", line):
            key = found[1]
        elif found := re.match(r"\s*# - (\{.*\})$", line):
            shown[key] = found[1]
    assert set(shown) == {"nics", "people", "scrapers", "egress"}
    given = {name: [yaml.safe_load(text)] for name, text in shown.items()}
    agent = {"nics": given.pop("nics")}
    objects = rendered({**MINIMAL, "agent": agent, "networkPolicy": given})
    for each in objects:
        schemas.validate(each, VERSIONS[0], strict=True)


def test_files_that_the_configuration_names_are_mounted_where_it_is_checked() -> None:
    for values, wanted in ((MINIMAL, []), (FULL, ["files"])):
        found = containers(rendered(values))
        for name in ("prepare", "controller"):
            mounts = found[f"syntony-controller/{name}"]["volumeMounts"]
            assert [m["name"] for m in mounts if m["mountPath"] == "/etc/syntony-files"] == wanted
    pod = one(rendered(FULL), "StatefulSet", "syntony-controller")["spec"]["template"]["spec"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "files")
    assert volume["secret"]["secretName"] == "files"


def test_control_state_moves_to_postgresql() -> None:
    """The controller imports the file of its volume at its first start with `state`."""
    config = tomllib.loads(
        one(rendered(FULL), "Secret", "syntony-controller")["stringData"]["controller.toml"]
    )
    assert config["state"].startswith("postgresql://")
    assert config["state_dir"] == "/var/lib/syntony/controller"
    with_state = {**MINIMAL, "controller": {"state": "postgresql://db.example/syntony"}}
    claims = [
        one(rendered(values), "StatefulSet", "syntony-controller")["spec"]["volumeClaimTemplates"]
        for values in (MINIMAL, with_state)
    ]
    assert claims[0] == claims[1]  # which Kubernetes lets nobody change


@pytest.mark.parametrize(
    ("values", "address", "policy"),
    [(MINIMAL, "0.0.0.0", "SingleStack"), (FULL, "[::]", "PreferDualStack")],  # noqa: S104
)
def test_controllers_listen_at_the_families_of_their_services(
    values: dict[str, Any], address: str, policy: str
) -> None:
    objects = rendered(values)
    text = one(objects, "Secret", "syntony-controller")["stringData"]["controller.toml"]
    config = tomllib.loads(text)
    tables = (config, config["enrolment"], config["api"], config.get("metrics", {}))
    ports = [table["listen"].rpartition(":")[::2] for table in tables if table]
    assert [host for host, _ in ports] == [address] * len(ports)
    assert [port for _, port in ports] == ["8443", "8444", "8445", "9863"][: len(ports)]
    services = [each["spec"] for each in objects if each["kind"] == "Service"]
    assert [each["ipFamilyPolicy"] for each in services] == [policy] * 3


def test_memory_limits_are_those_of_the_units() -> None:
    found = containers(rendered(FULL))
    for name in ("agent", "reactor"):
        (limit,) = re.findall(
            r"^MemoryMax=(\d+)M$", (UNITS / f"syntony-{name}.service").read_text(), re.MULTILINE
        )
        limits = found[f"syntony-agent/{name}"]["resources"]["limits"]
        assert limits["memory"] == f"{limit}Mi"
        assert ("vendor.example/ptp" in limits) == (name == "agent")
        assert ("rdma/hca" in limits) == (name == "reactor")


@pytest.mark.parametrize("case", CASES)
def test_every_container_has_a_request_and_a_limit_of_memory(case: str) -> None:
    """A namespace with a quota refuses pods in which one container has none."""
    for name, container in containers(rendered(CASES[case])).items():
        resources = container["resources"]
        assert "memory" in resources["requests"], name
        assert "memory" in resources["limits"], name
        assert "cpu" in resources["requests"], name


@pytest.mark.parametrize("case", CASES)
def test_selectors_find_their_pods_and_ports_exist(case: str) -> None:
    objects = rendered(CASES[case])
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]
        for each in objects
        if "template" in each.get("spec", {})
    }
    for each in objects:
        spec = each.get("spec", {})
        if each["kind"] == "Service":
            selector = dict(spec["selector"])
            # Set by `syntony kubernetes leader`, where there is a standby.
            assert selector.pop("syntony/leads", "") == (
                "true" if case == "full" and "clusterIP" not in spec else ""
            )
            template = pods["syntony-controller"]
            named = {
                port["name"] for c in template["spec"]["containers"] for port in c.get("ports", [])
            }
            assert {port["targetPort"] for port in spec["ports"]} <= named
        elif each["kind"] == "PodMonitor":
            selector = dict(spec["selector"]["matchLabels"])
            template = pods[each["metadata"]["name"]]
            assert selector.pop("syntony/leads", "") == (
                "true" if template is pods["syntony-controller"] else ""
            )
        elif each["kind"] in {"PodDisruptionBudget", "NetworkPolicy"}:
            selector = (spec.get("selector") or spec["podSelector"])["matchLabels"]
            template = pods["syntony-controller"]
        elif "template" in spec:
            selector, template = spec["selector"]["matchLabels"], spec["template"]
        else:
            continue
        assert selector.items() <= template["metadata"]["labels"].items(), each["metadata"]
    for template in pods.values():
        volumes = {volume["name"] for volume in template["spec"].get("volumes", [])} | {"data"}
        for container in template["spec"]["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes


def test_a_standby_has_a_budget_and_another_host() -> None:
    assert not [each for each in rendered(MINIMAL) if each["kind"] == "PodDisruptionBudget"]
    full = rendered(FULL)
    assert one(full, "PodDisruptionBudget", "syntony-controller")["spec"]["maxUnavailable"] == 1
    pod = one(full, "StatefulSet", "syntony-controller")["spec"]["template"]["spec"]
    assert "podAntiAffinity" in pod["affinity"]
    # A standby listens nowhere: a probe of its port would stop every rollout.
    (controller,) = (each for each in pod["containers"] if each["name"] == "controller")
    assert not [key for key in controller if key.endswith("Probe")]


def test_versions_agree() -> None:
    version = importlib.metadata.version("syntony")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    values = (CHART / "values.yaml").read_text()
    assert len(re.findall(rf"syntony-\w+:{re.escape(version)}$", values, re.MULTILINE)) == 2


def test_the_chart_can_be_packaged(tmp_path: Path) -> None:
    assert Path(helm.package(CHART, destination=tmp_path)).name.startswith("syntony-")
