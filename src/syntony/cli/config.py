"""`syntony config`: checks configuration files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
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
    """Check a configuration file of an agent, a controller, latency objectives or incident rules.

    Of a controller also the files that it names, where they are on this machine.

    \b
    Example:
      syntony config check /etc/syntony/controller.toml
    """
    from syntony.metrics.settings import check_address
    from syntony.sla.terms import Terms

    keys = set(read_toml(path))
    if keys & set(Terms.__struct_fields__):
        from syntony.controller.sla import load_terms

        load_terms(path)
        click.echo(f"{path}: a valid file of objectives")
        return
    if "rule" in keys:
        from syntony.controller.incidents import load_rules

        load_rules(path)
        click.echo(f"{path}: a valid file of incident rules")
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
    from syntony.controller.incidents import load_rules
    from syntony.controller.locating import load_topology
    from syntony.controller.sla import load_terms
    from syntony.state.postgresql import check_url
    from syntony.store import check_url as check_store

    prefixes(config.nic_prefixes)
    check_store(config.store)
    if config.state:
        check_url(config.state)
    _check_named(config.alerts.rules, load_rules)
    _check_named(config.sla, load_terms)
    _check_named(config.topology, load_topology)


def _check_named(path: str, load: Callable[[str], object]) -> None:
    """Check a file that a configuration names; empty: none."""
    if not path:
        return
    if Path(path).exists():
        load(path)
    else:
        click.echo(f"not checked: {path} is not on this machine", err=True)
