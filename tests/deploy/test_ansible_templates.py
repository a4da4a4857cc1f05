"""The configuration files that the Ansible role writes are what the daemons accept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.deploy.daemons import DEPLOY

from syntony.agent.config import AgentConfig
from syntony.config import load_config
from syntony.controller.config import ControllerConfig, EnrolmentConfig
from syntony.traffic.policy import FailoverMode, Policy

yaml = pytest.importorskip(
    "yaml", reason="needs PyYAML (make dev): templates of the Ansible role are NOT tested"
)
jinja2 = pytest.importorskip(
    "jinja2", reason="needs Jinja2 (make dev): templates of the Ansible role are NOT tested"
)
ROLE = DEPLOY / "ansible/roles/syntony"
TASKS = sorted((ROLE / "tasks").glob("*.yml"))
FACTS = {"ansible_managed": "made by Ansible", "inventory_hostname": "gpu001"}


def written(name: str, place: Path, **given: Any) -> Path:
    """A template as Ansible fills it in, with the role's defaults."""
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    template = (ROLE / f"templates/{name}.j2").read_text(encoding="utf-8")
    values = {**defaults, **FACTS, "syntony_address": "head1.example", **given}
    file = place / name
    file.write_text(jinja2.Environment(trim_blocks=True).from_string(template).render(values))
    return file


def test_the_defaults_are_valid(tmp_path: Path) -> None:
    nics = [{"name": "eth2", "rail": 0}, {"name": "eth3", "rail": 1}]
    agent = load_config(written("agent.toml", tmp_path, syntony_nics=nics), AgentConfig)
    assert [(nic.name, nic.rail) for nic in agent.nics] == [("eth2", 0), ("eth3", 1)]
    assert agent.controllers == ("head1.example:8443",)
    assert not agent.metrics.tls
    controller = load_config(written("controller.toml", tmp_path), ControllerConfig)
    assert controller.api.listen == "127.0.0.1:8445"
    assert controller.enrolment.lifetime_ns == EnrolmentConfig().lifetime_ns
    assert not controller.metrics.tls


def test_every_key_of_both_files_can_be_set(tmp_path: Path) -> None:
    """Also those that stand before the tables, and scrapers from outside."""
    agent = load_config(
        written(
            "agent.toml", tmp_path,
            syntony_nics=[{"name": "eth2", "rail": 0}],
            syntony_scrapers=["prometheus", "backup"],
            syntony_agent_extra='utc = "kernel"',
            syntony_agent_tables='[clock]\ndir = "/run/other"\n',
            syntony_traffic={
                "mode": "act", "jobs": ["train-*", "läuft & mehr"], "plain": False, "port": 9000,
            },
        ),
        AgentConfig,
    )  # fmt: skip
    assert (agent.utc, agent.clock.dir) == ("kernel", "/run/other")
    assert agent.traffic == Policy(
        mode=FailoverMode.ACT, jobs=("train-*", "läuft & mehr"), plain=False, port=9000
    )
    assert agent.metrics.clients == ("prometheus", "backup")
    controller = load_config(
        written(
            "controller.toml", tmp_path,
            syntony_store="clickhouse://clickhouse.example:8123/syntony",
            syntony_certificate_lifetime_ns=604_800_000_000_000,
            syntony_scrapers=["prometheus"],
            syntony_controller_extra='state = "postgresql://syntony@db.example/syntony"',
            syntony_controller_tables='[[anchors]]\nnode = "gpu001"\nreported = true\n',
        ),
        ControllerConfig,
    )  # fmt: skip
    assert controller.state.startswith("postgresql:")
    assert controller.anchors[0].node == "gpu001"
    assert (controller.metrics.listen, controller.metrics.tls) == ("0.0.0.0:9863", True)
    assert controller.enrolment.lifetime_ns == 604_800_000_000_000


@pytest.mark.parametrize("scrapers", [[], ["prometheus"]])
def test_hosts_that_are_scraped_get_a_servers_certificate(scrapers: list[str]) -> None:
    """Without an address it is a client's, which Prometheus refuses."""
    tasks = yaml.safe_load((ROLE / "tasks/agent.yml").read_text(encoding="utf-8"))
    (join,) = (task["block"] for task in tasks if task["name"] == "Join the fleet")
    text = join[0]["ansible.builtin.command"].replace("groups['syntony_controller'][0]", "''")
    words = jinja2.Template(text).render(**FACTS, syntony_scrapers=scrapers).split()
    assert words[:5] == ["syntony", "enrol", "token", "agent", "gpu001"]
    assert words[5:-2] == (["--address", "gpu001"] if scrapers else [])


def test_every_variable_is_checked_before_the_role_begins() -> None:
    """A default of another type would be refused; one that is not specified, not checked."""
    specs = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    options = specs["argument_specs"]["main"]["options"]
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    assert set(options) == {"syntony_role", *defaults}
    types = {"str": str, "int": int, "list": list, "dict": dict}
    for name, value in defaults.items():
        assert isinstance(value, types[options[name]["type"]]), name


def test_only_the_daemon_and_root_read_what_may_have_a_password() -> None:
    (written_by,) = (
        task["ansible.builtin.template"]
        for file in TASKS
        for task in yaml.safe_load(file.read_text(encoding="utf-8"))
        if "controller.toml.j2" in task.get("ansible.builtin.template", {}).get("src", "")
    )
    assert (written_by["group"], written_by["mode"]) == ("syntony", "0640")
