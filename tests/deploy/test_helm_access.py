"""What the pods of the Helm chart may do: capabilities, roles, tokens, secrets, networks."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.cli.test_kubernetes import CONDITION_ONLY, LEADER, RENEWAL, WITH_TAINT
from tests.deploy.api_server import Rule
from tests.deploy.chart import CASES, ELSEWHERE, FULL, MINIMAL, containers, one, pod_of, rendered
from tests.deploy.daemons import DEPLOY

UNITS = DEPLOY / "systemd"


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


def test_a_standby_reaches_the_api_server_whatever_else_it_may_not() -> None:
    """Its label says which controller leads: without it no Service would find one."""
    rules = one(rendered(FULL), "NetworkPolicy", "syntony-controller")["spec"]["egress"]
    ports = {port["port"] for rule in rules for port in rule["ports"] if "to" not in rule}
    assert ports == {53, 443, 6443, 5432}
