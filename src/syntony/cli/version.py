"""`syntony version`."""

from __future__ import annotations

import platform

import click
import msgspec

from syntony import __version__


@click.command(name="version")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
