"""`syntony config`: checks configuration files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from syntony.cli.lazy import HelpGroup
from syntony.config import load_config, read_toml

if TYPE_CHECKING:
    from syntony.agent.config import AgentConfig
    from syntony.controller.config import ControllerConfig


@click.group(cls=HelpGroup)
def command() -> None:
    """Configuration files.

    \b
    Example:
      syntony config check /etc/syntony/agent.toml
    """


@command.command()
@click.argument("path", type=click.Path())
def check(path: str) -> None:
    """Check a configuration file of an agent or a controller, and the files that it names: TLS,
    rules, objectives, topology, secrets. Or check a file of rules, objectives or a topology.

    Files that enrolment writes may be missing.

    \b
    Example:
      syntony config check /etc/syntony/controller.toml
    """
    keys = set(read_toml(path))
    for of_kind, load, what in _operators_files():
        if keys & of_kind:
            load(path)
            click.echo(f"{path}: a valid file of {what}")
            return
    from syntony.cli.config_files import check_files
    from syntony.metrics.settings import check_address

    # Only a controller has `listen`; only an agent has `host`.
    config: AgentConfig | ControllerConfig
    if "listen" in keys or "host" not in keys:
        from syntony.controller.config import ControllerConfig

        config = load_config(path, ControllerConfig)
        _check_controller(config)
        kind = "controller"
    else:
        from syntony.agent.config import AgentConfig

        config, kind = load_config(path, AgentConfig), "agent"
    if config.metrics.listen:
        check_address(config.metrics.listen, tls=config.metrics.tls)
    notes = check_files(path, config)
    click.echo(f"{path}: a valid {kind} file")
    for note in notes:
        click.echo(f"note: {note}", err=True)


def _operators_files() -> Iterator[tuple[set[str], Callable[[str], object], str]]:
    """Keys that only one kind of file has, how to read it, and what it holds."""
    from syntony.io.operator_files import load_objectives, load_rules, load_topology
    from syntony.sla.terms import Terms

    yield set(Terms.__struct_fields__), load_objectives, "objectives"
    yield {"rule"}, load_rules, "rules"
    yield {"device", "cable"}, load_topology, "devices and cables"


def _check_controller(config: ControllerConfig) -> None:
    """Check what a controller checks when it starts, without connecting."""
    from syntony.controller.gateway_server import check_gateway
    from syntony.controller.hello_check import prefixes
    from syntony.state.postgresql import check_url
    from syntony.store import check_url as check_store

    check_gateway(config)
    prefixes(config.nic_prefixes)
    check_store(config.store)
    if config.state:
        check_url(config.state)
