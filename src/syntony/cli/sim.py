"""`syntony sim`: the fabric simulator."""

from __future__ import annotations

import click

from syntony.cli.sim_run import run
from syntony.cli.sim_traffic import traffic


@click.group(epilog="Example: syntony sim run --traffic alltoall-256 --policy syntony --json")
def command() -> None:
    """Ask the fabric simulator: what would this traffic get, under which policy."""


command.add_command(run)
command.add_command(traffic)
