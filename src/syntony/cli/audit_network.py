"""`syntony audit network`: who reaches whom, on every path, at full size, how fast."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syntony.audit.report.summary import exit_code
from syntony.cli.audit_run import form_options, print_results
from syntony.cli.output import messages
from syntony.errors import RemoteError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from syntony.audit.reach_judge import Direction
    from syntony.fabric.graph import Topology
    from syntony.lab.client import Lab

MIN_PORTS = 16
WINDOW_NS = 30_000_000_000


@click.command()
@click.option("--lab", help="The hosts of a running lab.")
@click.option("--hosts", default="", help="gpu[001-128] or @FILE: over ssh, with python3 there.")
@click.option(
    "--nics", default="", help="Names of their back-end NICs, with * and ?; several by commas."
)
@click.option(
    "--ports",
    type=click.IntRange(1, 512),
    default=MIN_PORTS,
    show_default=True,
    help="Source ports of every pair.",
)
@click.option(
    "--topology", type=click.Path(path_type=Path), help="Names of switches, and planned hops."
)
@form_options
@click.pass_context
def network(
    context: click.Context, *, lab: str | None, hosts: str, nics: str, ports: int,
    topology: Path | None, form: str | None, everything: bool,
) -> None:  # fmt: skip
    """Connectivity on 16 source ports of every pair, path MTU, hops and rails, latency.

    A small program runs on every host while this lasts, and answers nobody else. One-way delays
    come from the lab's controller where agents run. Exit status: 0 right, 1 warnings, 2 something
    is wrong, 3 it could not be told.

    \b
    Examples:
      syntony lab up --detach && syntony audit network --lab lab
      syntony audit network --hosts @hosts.txt --nics 'eth[1-8]' --topology plan.json --json
    """
    from syntony.audit.reach_judge import judge
    from syntony.cli.audit_nccl import host_names
    from syntony.io.audit.survey import boot_argv, ssh_argv, survey

    if bool(lab) == bool(hosts):
        raise UsageError("give one of --lab, --hosts")
    delays: Mapping[tuple[str, str], Direction] = {}
    if lab:
        from syntony.lab.client import open_lab

        running = open_lab(lab)
        argv = boot_argv(sys.executable)
        seen = survey(
            running.status().hosts, lambda host: running.enter_argv(host, argv),
            _patterns(nics or "rail*"), ports=ports,
        )  # fmt: skip
        plan, delays = _lab_topology(running), _delays(running)
    else:
        if not nics:
            raise UsageError("--hosts needs --nics: which interfaces are the back-end's?")
        seen = survey(host_names(hosts), ssh_argv, _patterns(nics), ports=ports)
        plan = None
    if topology is not None:
        from syntony.cli.fabric import read_topology

        plan = read_topology(topology)
    results = judge(seen, plan, delays)
    print_results(list(results), form, everything=everything)
    context.exit(exit_code(result.status for result in results))


def _patterns(text: str) -> Sequence[str]:
    return [word for word in text.replace(",", " ").split() if word]


def _lab_topology(lab: Lab) -> Topology:
    from syntony.lab.plan import make_plan
    from syntony.lab.topology import topology

    return topology(make_plan(lab.file().spec))


def _delays(lab: Lab) -> Mapping[tuple[str, str], Direction]:
    """By the fleet's clocks, where a controller runs."""
    from syntony.audit.reach_judge import Direction
    from syntony.controller.client import ask_for
    from syntony.wire.messages import Matrix, MatrixQuery

    if not lab.controller_socket.exists():
        return {}
    try:
        query = MatrixQuery(window_ns=WINDOW_NS)
        cells = ask_for(f"unix:{lab.controller_socket}", query, Matrix).cells
    except RemoteError as error:
        messages.print(f"syntony: one-way delays are left out: {error}", markup=False)
        return {}
    return {
        (cell.src, cell.dst): Direction(
            float(cell.owd_p50_ns), float(cell.owd_min_ns or 0), float(cell.clk_err_ns or 0)
        )
        for cell in cells
        if cell.owd_p50_ns is not None
    }
