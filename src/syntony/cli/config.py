"""`syntony config`: checks configuration files."""

from __future__ import annotations

import tomllib
from pathlib import Path

import click

from syntony.cli.lazy import HelpGroup
from syntony.config import load_config
from syntony.errors import ConfigError


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

    keys = _keys(path)
    if keys & set(Terms.__struct_fields__):
        check_terms(load_config(path, Terms), path)
        click.echo(f"{path}: a valid file of objectives")
        return
    # Only a controller has `listen`; only an agent has `host`.
    if "listen" in keys or "host" not in keys:
        from syntony.controller.config import ControllerConfig

        kind, metrics = "controller", load_config(path, ControllerConfig).metrics
    else:
        from syntony.agent.config import AgentConfig

        kind, metrics = "agent", load_config(path, AgentConfig).metrics
    if metrics.listen:
        check_address(metrics.listen, tls=metrics.tls)
    click.echo(f"{path}: a valid {kind} file")


def _keys(path: str) -> set[str]:
    try:
        return set(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
