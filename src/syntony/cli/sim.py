"""`syntony sim`: the fabric simulator."""

from __future__ import annotations

import click

from syntony.cli.lazy import LazyGroup

_ELSEWHERE = {
    "run": (
        "sim_run:run",
        "Completion times and rates of --traffic under --policy, against the optimum.",
    ),
    "traffic": (
        "sim_traffic:traffic",
        "Print --traffic as a connection matrix: for a packet-level simulator, or to be edited.",
    ),
}


@click.group(
    cls=LazyGroup,
    lazy=_ELSEWHERE,
    epilog="Example: syntony sim run --traffic alltoall-256 --policy syntony --json",
)
def command() -> None:
    """Ask the fabric simulator: what would this traffic get, under which policy."""
