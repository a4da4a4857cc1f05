"""`syntony sim`: the fabric simulator."""

from __future__ import annotations

import click

from syntony.cli.lazy import LazyGroup

_ELSEWHERE = {
    "run": (
        "sim_run:run",
        "Compute completion times and rates of --traffic under --policy, and the optimum.",
    ),
    "traffic": (
        "sim_run:traffic",
        "Print --traffic as a connection matrix, to edit or for a packet-level simulator.",
    ),
}


@click.group(
    cls=LazyGroup,
    lazy=_ELSEWHERE,
    epilog="Example: syntony sim run --traffic alltoall-256 --policy syntony --json",
)
def command() -> None:
    """Simulate a fabric: what traffic gets under which policy."""
