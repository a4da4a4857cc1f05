"""`syntony config`: checks configuration files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from syntony.cli.lazy import HelpGroup
from syntony.config import load_config, read_toml
from syntony.errors import ConfigError, SyntonyError
from syntony.model.names import did_you_mean

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

    kind = _kind(path, keys)
    config = load_config(path, kind)
    try:
        _check_values(config)
    except SyntonyError as error:
        raise ConfigError(f"{path}: {error}") from error
    notes = check_files(path, config)
    click.echo(f"{path}: a valid {kind.__name__.removesuffix('Config').lower()} file")
    for note in notes:
        click.echo(f"note: {note}", err=True)


def _kind(path: str, keys: set[str]) -> type[AgentConfig | ControllerConfig]:
    """The daemon whose configuration has most of these keys. Raises `ConfigError`: none has any."""
    from syntony.agent.config import AgentConfig

    agents = set(AgentConfig.__struct_fields__)
    if keys and keys <= agents:
        return AgentConfig  # without all that a controller imports
    from syntony.controller.config import ControllerConfig

    controllers = set(ControllerConfig.__struct_fields__)
    if keys & (agents | controllers):
        of_agent = len(keys & agents) >= len(keys & controllers)
        return AgentConfig if of_agent else ControllerConfig
    names = agents.union(controllers, *(of_kind for of_kind, *_ in _operators_files()))
    near = next(filter(None, (did_you_mean(key, names) for key in sorted(keys))), "")
    raise ConfigError(
        f"{path}: no known key of a configuration, rules, objectives or a topology{near}"
    )


def _operators_files() -> Iterator[tuple[set[str], Callable[[str], object], str]]:
    """Keys that only one kind of file has, how to read it, and what it holds."""
    from syntony.io.operator_files import load_objectives, load_rules, load_topology
    from syntony.sla.terms import Terms

    yield set(Terms.__struct_fields__), load_objectives, "objectives"
    yield {"rule"}, load_rules, "rules"
    yield {"device", "cable"}, load_topology, "devices and cables"


def _check_values(config: AgentConfig | ControllerConfig) -> None:
    """Check what a daemon checks when it starts, without connecting."""
    from syntony.agent.config import AgentConfig
    from syntony.metrics.settings import check_address

    if config.metrics.listen:
        check_address(config.metrics.listen, tls=config.metrics.tls)
    if isinstance(config, AgentConfig):
        return
    from syntony.controller.config import check_gateway
    from syntony.controller.hello_check import prefixes
    from syntony.state.postgresql import check_url
    from syntony.store import check_url as check_store
    from syntony.traffic.classes import Classes

    check_gateway(config)
    prefixes(config.nic_prefixes)
    check_store(config.store)
    Classes(config.placement.classes)
    if config.state:
        check_url(config.state)
