"""`syntony version`."""

from __future__ import annotations

import platform

import click
import msgspec

from syntony import __version__
from syntony.cli.output import json_option


@click.command(name="version")
@json_option
def command(as_json: bool) -> None:
    """Print the version.

    Example: syntony version --json
    """
    facts = {
        "syntony": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
    }
    if as_json:
        click.echo(msgspec.json.encode(facts))
        return
    click.echo(f"syntony {__version__} (Python {facts['python']}, Linux {facts['kernel']})")
