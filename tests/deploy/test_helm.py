"""The Helm chart: linted and rendered by Helm's own library, its objects checked against the
schemas of Kubernetes, its scripts and configuration files by what they are for. No cluster."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_kubernetes import CONDITION_ONLY, LEADER, RENEWAL, WITH_TAINT
from tests.deploy.api_server import Rule
from tests.deploy.daemons import DEPLOY

from syntony.agent.config import AgentConfig
from syntony.config import load_config
from syntony.controller.config import ControllerConfig
from syntony.controller.pki import create_authority

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
UNITS = DEPLOY / "systemd"
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


def test_a_standby_reaches_the_api_server_whatever_else_it_may_not() -> None:
    """Its label says which controller leads: without it no Service would find one."""
    rules = one(rendered(FULL), "NetworkPolicy", "syntony-controller")["spec"]["egress"]
    ports = {port["port"] for rule in rules for port in rule["ports"] if "to" not in rule}
    assert ports == {53, 443, 6443, 5432}


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


def unit_capabilities(*files: str) -> set[str]:
    text = "".join((UNITS / file).read_text() for file in files)
    lines = re.findall(r"^AmbientCapabilities=(.*)$", text, re.MULTILINE)
    return {name.removeprefix("CAP_") for line in lines for name in line.split()}


@pytest.mark.parametrize("case", CASES)
def test_capabilities_are_those_of_the_units(case: str) -> None:
    failover = CASES[case]["agent"].get("failover", False)
    reactor = ["syntony-reactor.service"]
    reactor += ["syntony-reactor.service.d/failover.conf"] if failover else []
    wanted = {
        "syntony-agent/agent": unit_capabilities("syntony-agent.service"),
        "syntony-agent/reactor": unit_capabilities(*reactor),
    }
    assert len(wanted["syntony-agent/agent"]) == 2
    for name, container in containers(rendered(CASES[case])).items():
        context = container["securityContext"]
        assert context["capabilities"]["drop"] == ["ALL"], name
        assert set(context["capabilities"].get("add", [])) == wanted.get(name, set()), name
        assert context["allowPrivilegeEscalation"] is False, name
        assert context["readOnlyRootFilesystem"] is True, name
        assert "privileged" not in context, name


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


def rules(role: dict[str, Any]) -> tuple[Rule, ...]:
    assert all(each["apiGroups"] == [""] for each in role["rules"])
    return tuple(
        Rule(resource, tuple(each["verbs"]), tuple(each.get("resourceNames", ())))
        for each in role["rules"]
        for resource in each["resources"]
    )


def test_roles_are_what_the_commands_are_tested_under() -> None:
    assert rules(one(rendered(MINIMAL), "ClusterRole", "fleet-syntony-audit")) == CONDITION_ONLY
    full = rendered(FULL)
    assert rules(one(full, "ClusterRole", "fleet-syntony-audit")) == WITH_TAINT
    assert rules(one(full, "Role", "syntony-controller")) == LEADER
    assert rules(one(full, "Role", "syntony-renewal")) == RENEWAL
    assert not [each for each in rendered(MINIMAL) if each["kind"] in {"Role", "RoleBinding"}]
    assert not [each for each in rendered(ELSEWHERE) if "Role" in each["kind"]]


@pytest.mark.parametrize(
    ("user", "node", "changed", "allowed"),
    [
        ("system:serviceaccount:fleet:syntony-audit", "gpu001", "gpu001", True),
        ("system:serviceaccount:fleet:syntony-audit", "gpu001", "gpu002", False),
        ("system:serviceaccount:fleet:syntony-audit", "gpu001", "gpu0011", False),
        # A token that is bound to no pod knows no node.
        ("system:serviceaccount:fleet:syntony-audit", None, "gpu001", False),
        ("system:serviceaccount:elsewhere:syntony-audit", "gpu001", "gpu002", True),
        ("system:node:gpu001", None, "gpu002", True),
    ],
)
def test_an_audit_may_change_its_own_node_only(
    user: str, node: str | None, changed: str, allowed: bool
) -> None:
    """The expressions of the admission policy, evaluated by CEL's own runtime."""
    cel = pytest.importorskip(
        "cel_expr_python.cel",
        reason="needs the extra [charts] (make dev; x86_64 only): the admission policy is NOT "
        "tested",
    )
    spec = one(rendered(MINIMAL), "ValidatingAdmissionPolicy", "fleet-syntony-audit")["spec"]
    known = cel.NewEnv(variables={"request": cel.Type.DYN, "object": cel.Type.DYN})
    extra = {"authentication.kubernetes.io/node-name": [node]} if node else {}
    data = {
        "request": {"userInfo": {"username": user, "extra": extra}},
        "object": {"metadata": {"name": changed}},
    }

    def holds(expression: str) -> bool:
        found = known.compile(expression).eval(data=data).value()
        assert isinstance(found, bool), found
        return found

    applies = all(holds(each["expression"]) for each in spec["matchConditions"])
    assert (
        not applies or all(holds(each["expression"]) for each in spec["validations"])
    ) == allowed


def test_only_who_speaks_to_the_api_server_has_a_token() -> None:
    tokens = {}
    for each in rendered(FULL):
        if pod := pod_of(each).get("spec"):
            tokens[each["metadata"]["name"]] = pod.get("automountServiceAccountToken", True)
    assert tokens == {
        "syntony-agent": False, "syntony-audit": True, "syntony-controller": True,
        "syntony-renewal": True,
    }  # fmt: skip
    single = one(rendered(MINIMAL), "StatefulSet", "syntony-controller")
    assert single["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_only_controllers_mount_the_key_of_the_authority() -> None:
    for each in rendered(FULL):
        pod = pod_of(each).get("spec", {})
        secrets = {v["secret"]["secretName"] for v in pod.get("volumes", []) if "secret" in v}
        assert ("syntony-ca" in secrets) == (each["kind"] == "StatefulSet")


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


def script(values: dict[str, Any], kind: str, name: str, file: str, place: Path) -> Path:
    """A script of the chart and its configuration, their paths below `place`."""
    found = one(rendered(values), kind, name)
    data: dict[str, str] = found.get("data") or found["stringData"]
    for path in (
        "config",
        "etc/syntony",
        "var/lib/syntony-ca",
        "var/lib/syntony",
        "authority",
        "tokens",
    ):
        (place / path).mkdir(parents=True, exist_ok=True)
    for key, text in data.items():
        moved = re.sub(
            r"(?<![\w.@])/(config|etc/syntony|var/lib|authority|tokens)\b", rf"{place}/\1", text
        )
        (place / "config" / key).write_text(moved if key.endswith(".sh") else text)
    return place / "config" / file


@pytest.mark.parametrize("case", ["minimal", "full"])
def test_a_controller_prepares_itself(case: str, tmp_path: Path) -> None:
    """Configuration that the controller accepts, and a certificate of its own under all names."""
    prepare = script(CASES[case], "Secret", "syntony-controller", "prepare.sh", tmp_path)
    create_authority(tmp_path / "authority")
    done = subprocess.run(
        ["sh", prepare], capture_output=True, text=True, check=False,
        env={
            **os.environ, "POD_NAME": "syntony-controller-1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    config = load_config(tmp_path / "etc/syntony/controller.toml", ControllerConfig)
    assert config.standby == (case == "full")
    assert config.tls_cert == "/var/lib/syntony-ca/tls/syntony-controller-1.crt"
    tls = tmp_path / "var/lib/syntony-ca/tls"
    own = tls / "syntony-controller-1.crt"
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", own],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    hosts = re.findall(r"DNS:([^,\s]+)", shown)
    assert "syntony-controller-1.syntony-controller.fleet.svc" in hosts
    assert "syntony-console.fleet.svc" in hosts
    assert ("syntony.example" in hosts) == (case == "full")
    assert (tls / "syntony-controller-1.key").stat().st_mode & 0o077 == 0
    agents = one(rendered(CASES[case]), "ConfigMap", "syntony-agent")["data"]["agent.toml"]
    dialled = tomllib.loads(agents)["controller"]
    for address in dialled:
        assert address.replace("controller-0.", "controller-1.").removesuffix(":8443") in hosts


@pytest.mark.parametrize("case", CASES)
def test_an_agent_joins_once_for_each_token(case: str, tmp_path: Path) -> None:
    """With the real `config check`; `enrol join` only writes down that it was asked."""
    join = script(CASES[case], "ConfigMap", "syntony-agent", "join.sh", tmp_path)
    stand_in = tmp_path / "bin/syntony"
    stand_in.parent.mkdir()
    real = shutil.which("syntony") or str(Path(".venv/bin/syntony").resolve())
    stand_in.write_text(
        f'#!/bin/sh\n[ "$1" = enrol ] || exec {real} "$@"\n'
        f'echo "$* $(cat)" >>{tmp_path}/asked\nexit $(cat {tmp_path}/answer)\n'
    )
    stand_in.chmod(0o755)
    answer, asked = tmp_path / "answer", tmp_path / "asked"
    answer.write_text("0")
    asked.touch()
    token = tmp_path / "tokens/gpu001"
    path = f"{stand_in.parent}:{os.environ['PATH']}"

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", join], capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": path, "NODE_NAME": "gpu001"},
        )  # fmt: skip

    without = run()
    assert without.returncode == 1
    assert "syntony enrol token agent gpu001" in without.stderr
    token.write_text("one")
    answer.write_text("3")
    assert run().returncode == 3  # the controller did not answer: tried again
    answer.write_text("0")
    assert run().returncode == 0
    assert run().returncode == 0
    token.write_text("two")
    assert run().returncode == 0
    lines = asked.read_text().splitlines()
    assert [line.split()[-1] for line in lines] == ["one", "one", "two"]
    at = "syntony.example:8444" if case == "elsewhere" else "syntony-enrol.fleet.svc:8444"
    assert all(line.startswith(f"enrol join gpu001 --at {at} ") for line in lines)
    token.unlink()
    (tmp_path / "var/lib/syntony/tls").mkdir()
    (tmp_path / "var/lib/syntony/tls/gpu001.crt").write_text("x")
    assert run().returncode == 0
    config = load_config(tmp_path / "etc/syntony/agent.toml", AgentConfig)
    assert config.host == "gpu001"
    assert config.nics[0].name == "eth2"
    assert config.tls.key == "/var/lib/syntony/tls/gpu001.key"


def test_versions_agree() -> None:
    version = importlib.metadata.version("syntony")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    values = (CHART / "values.yaml").read_text()
    assert len(re.findall(rf"syntony-\w+:{re.escape(version)}$", values, re.MULTILINE)) == 2


def test_the_chart_can_be_packaged(tmp_path: Path) -> None:
    assert Path(helm.package(CHART, destination=tmp_path)).name.startswith("syntony-")
