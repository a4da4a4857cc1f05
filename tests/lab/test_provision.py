"""What the daemons are given reads back as what was meant."""

from __future__ import annotations

import sys
import tomllib
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.agent.config import AgentConfig, NicConfig
from syntony.config import load_config, to_toml
from syntony.controller.config import ControllerConfig, check_gateway
from syntony.lab.clocks import ClockOptions, draw_clocks
from syntony.lab.messages import LabFile
from syntony.lab.plan import FabricSpec, make_plan
from syntony.lab.provision import provision
from syntony.lab.scrape import scrape_config
from syntony.model import SyntheticClockSpec
from syntony.model.tls_files import TlsFiles
from syntony.wire.roles import Role

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PLAIN = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=20)
)
_KEYS = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
_DATA = st.dictionaries(
    _KEYS, _PLAIN | st.lists(_PLAIN, max_size=3) | st.dictionaries(_KEYS, _PLAIN, max_size=3)
)


@given(_DATA)
def test_toml_round_trips(data: dict[str, object]) -> None:
    assert tomllib.loads(to_toml(data)) == data


def test_none_is_left_out() -> None:
    assert tomllib.loads(to_toml({"a": None, "b": {"c": None, "d": 1}})) == {"b": {"d": 1}}


def test_an_agent_reads_back_its_configuration(tmp_path: Path) -> None:
    config = AgentConfig(
        host="h0",
        controller="172.30.0.1:1",
        tls=TlsFiles(ca="/a", cert="/b", key="/c"),
        nics=(NicConfig(name="rail0", rail=0), NicConfig(name="rail1", rail=1)),
        spool_dir="/spool",
        synthetic_clock=SyntheticClockSpec(base_ns=10**18, drift_ppb=-1.5, steps=((1, 2), (3, 4))),
    )
    path = tmp_path / "agent.toml"
    path.write_text(to_toml(msgspec.to_builtins(config)), encoding="utf-8")
    assert load_config(path, AgentConfig) == config


class _Authority:
    """Stands in for the certificate authority: remembers what it was asked to issue."""

    def __init__(self) -> None:
        self.issued: dict[str, Sequence[str]] = {}
        self.roles: dict[str, Role] = {}

    def issue(
        self,
        name: str,
        role: Role,
        *,
        addresses: Sequence[str],
        lifetime_ns: int,
        directory: Path,
    ) -> TlsFiles:
        assert lifetime_ns > 0
        self.issued[name] = addresses
        self.roles[name] = role
        files = (directory / each for each in ("ca.pem", f"{name}.pem", f"{name}.key"))
        return TlsFiles(**dict(zip(("ca", "cert", "key"), map(str, files), strict=True)))


@pytest.fixture
def authority(monkeypatch: pytest.MonkeyPatch) -> _Authority:
    """In the place of the real one."""
    made, stand_in = _Authority(), ModuleType("syntony.controller.pki")
    monkeypatch.setattr(stand_in, "create_authority", lambda _directory: made, raising=False)
    monkeypatch.setitem(sys.modules, "syntony.controller.pki", stand_in)
    return made


def lab_file(spec: FabricSpec, **options: Any) -> LabFile:
    clocks = draw_clocks(make_plan(spec).hosts, 1, 0, ClockOptions())
    return LabFile(name="x", spec=spec, clocks=clocks, **options)


def test_standbys_share_nothing_but_control_state_and_agents_know_them_all(
    tmp_path: Path, authority: _Authority
) -> None:
    spec = FabricSpec(hosts=2)
    plan = make_plan(spec)
    url = "postgresql:///fleet?host=/run/postgresql"
    file = lab_file(spec, options={"state": url}, controllers=3)
    daemons = provision(tmp_path, file, plan)
    names = ["controller", "controller2", "controller3"]
    assert [daemon.name for daemon in daemons][:3] == names
    configs = [load_config(tmp_path / f"{name}.toml", ControllerConfig) for name in names]
    for apart in ("listen", "local_socket", "store", "state_dir", "tls_cert"):
        assert len({getattr(config, apart) for config in configs}) == 3, apart
    listening = {c.listen for c in configs} | {c.enrolment.listen for c in configs}
    listening |= {c.metrics.listen for c in configs}
    assert len(listening) == 9
    for config in configs:
        assert config.standby
        assert config.state == url
    agent = load_config(tmp_path / "agent-h1.toml", AgentConfig)
    assert agent.controllers == tuple(config.listen for config in configs)
    scraped = scrape_config(tmp_path, plan, controllers=3)
    assert all(config.metrics.listen in scraped for config in configs)


def test_agents_know_gateways_only_and_all_that_store_share_a_store(
    tmp_path: Path, authority: _Authority
) -> None:
    spec = FabricSpec(hosts=2)
    plan = make_plan(spec)
    file = lab_file(spec, controllers=2, gateways=2)
    daemons = provision(tmp_path, file, plan)
    controllers, gateways = ["controller", "controller2"], ["gateway1", "gateway2"]
    assert [daemon.name for daemon in daemons][:5] == ["store", *controllers, *gateways]
    leading, relaying = (
        [load_config(tmp_path / f"{name}.toml", ControllerConfig) for name in names]
        for names in (controllers, gateways)
    )
    for config in relaying:
        check_gateway(config)
        assert config.leaders == tuple(each.listen for each in leading)
    every = [*leading, *relaying]
    assert len({config.store for config in every}) == 1
    listening = {c.listen for c in every} | {c.metrics.listen for c in every}
    assert len(listening) == 8
    agent = load_config(tmp_path / "agent-h1.toml", AgentConfig)
    assert agent.controllers == tuple(config.listen for config in relaying)
    assert {authority.roles[name] for name in gateways} == {Role.GATEWAY}


@pytest.mark.usefixtures("authority")
def test_agents_get_what_a_lab_wants_of_them(tmp_path: Path) -> None:
    options = {"sample_segments": False, "traffic": {"watch": False}}
    file = lab_file(FabricSpec(hosts=2), agent_options=options)
    provision(tmp_path, file, make_plan(file.spec))
    config = load_config(tmp_path / "agent-h0.toml", AgentConfig)
    assert (config.sample_segments, config.traffic.watch) == (False, False)
    assert config.traffic.pace == ("*",), "the rest is as ever"


def test_a_store_that_is_given_is_that_of_all(tmp_path: Path, authority: _Authority) -> None:
    spec = FabricSpec(hosts=2)
    plan = make_plan(spec)
    url = "clickhouse://127.0.0.1:9000,127.0.0.1:9001/fleet?cluster=all"
    file = lab_file(spec, options={"store": url}, controllers=2, gateways=1)
    daemons = provision(tmp_path, file, plan)
    assert "store" not in {daemon.name for daemon in daemons}
    for name in ("controller", "controller2", "gateway1"):
        assert load_config(tmp_path / f"{name}.toml", ControllerConfig).store == url


def test_every_daemon_gets_a_readable_configuration_and_its_own_certificate(
    tmp_path: Path, authority: _Authority
) -> None:
    spec = FabricSpec(hosts=3, spines=3)
    plan = make_plan(spec)
    file = lab_file(spec, family="ipv6", options={"mesh_peers": 4}, anchors=("h1",))
    daemons = provision(tmp_path, file, plan)
    halves = [f"{half}-{host}" for host in plan.hosts for half in ("reactor", "agent")]
    assert [daemon.name for daemon in daemons] == ["controller", *halves]
    agents = dict.fromkeys(plan.hosts, Role.AGENT)
    assert authority.roles == {
        "controller": Role.CONTROLLER, "prometheus": Role.SCRAPER, **agents
    }  # fmt: skip
    controller = load_config(tmp_path / "controller.toml", ControllerConfig)
    assert (controller.ecmp_paths, controller.mesh_peers) == (3, 4)
    assert not controller.standby
    assert [anchor.node for anchor in controller.anchors] == ["h1"]
    assert controller.listen.partition(":")[0] in authority.issued["controller"]
    for host in plan.hosts:
        agent = load_config(tmp_path / f"agent-{host}.toml", AgentConfig)
        assert agent.host == host
        assert agent.controllers == (controller.listen,)
        assert agent.family == "ipv6"
        assert agent.synthetic_clock == file.clocks[host]
        assert [nic.name for nic in agent.nics] == ["rail0", "rail1"]
