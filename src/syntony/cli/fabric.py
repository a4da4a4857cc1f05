"""`syntony fabric`: the fabric's parts, the paths through it, and which part is to blame."""

from __future__ import annotations

import click

from syntony.cli.fabric_locate import locate


@click.group()
def command() -> None:
    """The fabric's parts, the paths through it, and which part is to blame.

    \b
    Example:
      syntony fabric locate --paths paths.parquet --obs obs.parquet
    """


command.add_command(locate)
