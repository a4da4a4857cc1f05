"""`syntony audit network`: tests connectivity on every path, path MTU and latency."""

from __future__ import annotations

from collections.abc import Sequence

import click

from syntony.audit.report.summary import exit_code
from syntony.audit.spec import EMPTY
from syntony.cli.audit_fleet import (
    NetworkOptions,
    network_options,
    network_verdicts,
    of_lab,
    over_ssh,
)
from syntony.cli.audit_hosts import host_names, ssh_hosts_option
from syntony.cli.audit_run import form_options, print_results
from syntony.cli.audit_sources import StepDisplay, ssh_options
from syntony.cli.fleet import certificate_options, fleet_target
from syntony.errors import UsageError


@click.command()
@click.option("--lab", help="The hosts of a running lab.")
@ssh_hosts_option
@ssh_options
@click.option("--controller", metavar="HOST:PORT", help="Controller that supplies one-way delays.")
@certificate_options
@network_options
@form_options
@click.pass_context
def network(
    context: click.Context, *, lab: str | None, hosts: str, ssh: Sequence[str],
    controller: str | None, ca: str | None, cert: str | None, key: str | None,
    network: NetworkOptions, form: str | None, everything: bool,
) -> None:  # fmt: skip
    """Test connectivity on 16 source ports per pair, path MTU, hops, rails, routes, latency.

    A small program runs on every host during the test and accepts no other peers. With more than
    64 hosts, pairs are sampled in about log₂ N rounds in which every host has one partner; suspects
    are tested again with known good partners. One-way delays come from a controller: the lab's, or
    --controller. Exit status: 0 pass, 1 warnings, 2 a failure, 3 unknown.

    \b
    Examples:
      syntony lab up --detach && syntony audit network --lab lab
      syntony audit network --hosts @hosts.txt --nics 'eth[1-8]' --topology plan.json --json
    """
    if bool(lab) == bool(hosts):
        raise UsageError("give one of --lab, --hosts")
    if lab and controller:
        raise UsageError("a lab has a controller of its own: leave --controller out")
    delays = fleet_target(None, controller, (ca, cert, key)) if controller else None
    reached = of_lab(lab, network) if lab else over_ssh(host_names(hosts), ssh, network, delays)
    with StepDisplay("network") as step:
        results, _ = network_verdicts(reached, network, EMPTY, step)
    print_results(results, form, everything=everything)
    context.exit(exit_code(result.status for result in results))
