"""`syntony config`: checks configuration files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from syntony.cli.lazy import HelpGroup
from syntony.config import load_config, read_toml

if TYPE_CHECKING:
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
    """Check a configuration file of an agent, a controller or latency objectives.

    \b
    Example:
      syntony config check /etc/syntony/controller.toml
    """
    from syntony.metrics.settings import check_address
    from syntony.sla.terms import Terms, check_terms

    keys = set(read_toml(path))
    if keys & set(Terms.__struct_fields__):
        check_terms(load_config(path, Terms), path)
        click.echo(f"{path}: a valid file of objectives")
        return
    # Only a controller has `listen`; only an agent has `host`.
    if "listen" in keys or "host" not in keys:
        from syntony.controller.config import ControllerConfig

        config = load_config(path, ControllerConfig)
        _check_controller(config)
        kind, metrics = "controller", config.metrics
    else:
        from syntony.agent.config import AgentConfig

        kind, metrics = "agent", load_config(path, AgentConfig).metrics
    if metrics.listen:
        check_address(metrics.listen, tls=metrics.tls)
    click.echo(f"{path}: a valid {kind} file")


def _check_controller(config: ControllerConfig) -> None:
    """Check what a controller checks when it starts, without connecting."""
    from syntony.controller.hello_check import prefixes
    from syntony.state.postgresql import check_url
    from syntony.store import check_url as check_store

    prefixes(config.nic_prefixes)
    check_store(config.store)
    if config.state:
        check_url(config.state)
