"""`syntony audit`: is the fleet right before the week-long job starts?"""

from __future__ import annotations

import click

from syntony.cli.audit_bandwidth import bandwidth
from syntony.cli.audit_checks import checks
from syntony.cli.audit_fabric import fabric
from syntony.cli.audit_nccl import nccl
from syntony.cli.audit_network import network
from syntony.cli.audit_pairs import pairs
from syntony.cli.audit_run import learn, run
from syntony.cli.audit_show import diff, show_run
from syntony.cli.audit_tools import clocks, gemm, reach, record, triad


@click.group()
def command() -> None:
    """Is the fleet right before the job starts: configuration, nodes, networks, NCCL.

    \b
    Example:
      syntony audit run --local
    """


for _each in (
    run, fabric, network, pairs, bandwidth, nccl, checks, learn, diff, show_run, record,
    reach, triad, gemm, clocks,
):  # fmt: skip
    command.add_command(_each)
