"""`syntony agent`: a host's two daemons, and a check of what this host supports."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from syntony.cli.fleet import FleetTarget, ask, fleet_options
from syntony.cli.lazy import HelpGroup
from syntony.cli.name_checks import unknown_host
from syntony.cli.output import console, json_option, log_level_option, messages, print_json
from syntony.errors import UsageError
from syntony.model import format_ns
from syntony.view.tables import plain_table
from syntony.wire.messages import AgentStatus, FleetQuery
from syntony.wire.parts import PartState

if TYPE_CHECKING:
    from syntony.agent.config import AgentConfig


def _options(command: Callable[..., None]) -> Callable[..., None]:
    path = click.option(
        "--config",
        "config_path",
        type=click.Path(),
        default="/etc/syntony/agent.toml",
        help="TOML file: host name, NICs, controller.",
    )
    return path(log_level_option(command))


@click.group(cls=HelpGroup, invoke_without_command=True)
@_options
@click.pass_context
def command(context: click.Context, config_path: str, log_level: str) -> None:
    """Run this host's telemetry process until SIGTERM or Ctrl-C. Probes and failover run in a
    separate process, the reactor.

    \b
    Example (a lab does this for every host):
      syntony agent reactor --config /etc/syntony/agent.toml &
      syntony agent --config /etc/syntony/agent.toml
    """
    if context.invoked_subcommand is not None:
        return
    from syntony.agent.daemon import run_agent

    _run(config_path, log_level, run_agent)


@command.command()
@_options
def reactor(config_path: str, log_level: str) -> None:
    """Run this host's reactor until SIGTERM or Ctrl-C: it probes, answers probes and moves jobs off
    dead paths. It works without the telemetry process.

    \b
    Example:
      syntony agent reactor --config /etc/syntony/agent.toml
    """
    from syntony.agent.reactor.process import run_reactor

    _run(config_path, log_level, run_reactor)


def _run(
    config_path: str, log_level: str, run: Callable[[AgentConfig, threading.Event], None]
) -> None:
    from syntony.agent.config import AgentConfig
    from syntony.config import load_config
    from syntony.io.log_limit import bugs_logged, log_to_stderr
    from syntony.io.process import serve_promptly

    log_to_stderr(log_level.upper(), "%(asctime)s %(levelname)s %(message)s")
    config = load_config(config_path, AgentConfig)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    # For every thread: a real-time thread that needs Python's lock waits for its holder.
    serve_promptly()
    with bugs_logged():
        run(config, stop)


@command.command()
@click.argument("nics", nargs=-1)
@json_option
@click.pass_context
def check(context: click.Context, nics: tuple[str, ...], as_json: bool) -> None:
    """Show what this host supports: time stamps, capabilities, MPTCP, RDMA.

    Exit status: 0 everything, 1 something is missing, 3 something could not be checked.

    \b
    Example:
      syntony agent check eth0 eth1
    """
    from syntony.io.capabilities import survey
    from syntony.io.interfaces import addresses

    for nic in nics:
        addresses(nic)
    found = survey(nics)
    if as_json:
        click.echo(json.dumps([capability._asdict() for capability in found], indent=2))
    else:
        for capability in found:
            mark = {True: "ok", False: "missing", None: "unknown"}[capability.ok]
            click.echo(f"{mark:8} {capability.name:28} {capability.detail}")
            if capability.ok is not True and capability.remedy:
                click.echo(f"{'':8} {'':28} → {capability.remedy}")
    states = {capability.ok for capability in found}
    context.exit(1 if False in states else 3 if None in states else 0)


@command.command()
@click.argument("host", default="")
@fleet_options
@click.pass_context
def parts(context: click.Context, target: FleetTarget, host: str, as_json: bool) -> None:
    """Show which parts of the fleet's agents run, and why others do not.

    Without HOST only parts that do not run are listed. Exit status: 0 all run, 1 one does not, 3 a
    host has not reported.

    \b
    Example:
      syntony agent parts h3
    """
    fleet = ask(
        target,
        FleetQuery(),
        until=lambda it: bool(it.agents) and all(agent.parts for agent in it.agents),
    )
    agents = [agent for agent in fleet.agents if host in {"", agent.host}]
    if not agents:
        if host:
            raise unknown_host(host, {agent.host for agent in fleet.agents})
        raise UsageError("no agent has attached to the controller")
    down = any(part.state is not PartState.RUNNING for agent in agents for part in agent.parts)
    unknown = any(not (agent.parts and agent.connected) for agent in agents)
    if as_json:
        print_json({agent.host: agent.parts for agent in agents})
    else:
        _print_parts(agents, everything=bool(host))
    context.exit(1 if down else 3 if unknown else 0)


def _print_parts(agents: Sequence[AgentStatus], *, everything: bool) -> None:
    table = plain_table("host", "part", "state", "for", "reason")
    for agent in agents:
        if not (agent.parts and agent.connected):
            table.add_row(agent.host, "", "unknown", "", "no report from agent")
        for part in agent.parts:
            if everything or part.state is not PartState.RUNNING:
                age = format_ns(part.age_ns)
                table.add_row(agent.host, part.name, part.state, age, part.reason)
    if table.row_count:
        console.print(table)
    else:
        messages.print(f"every part of {len(agents)} agents runs")
