"""`syntony traffic`: which path each flow should take."""

from __future__ import annotations

import click

from syntony.cli.traffic_place import place


@click.group(epilog="Example: syntony traffic place --topology T.toml --flows F.parquet --json")
def command() -> None:
    """Which path each flow should take."""


command.add_command(place)
