"""`syntony failover`: the log of failover actions, and the fleet's stop switch."""

from __future__ import annotations

import click

from syntony.cli.fleet import FleetTarget, ask, fleet_options, window_option
from syntony.cli.lazy import HelpGroup
from syntony.cli.name_checks import check_hosts, warn_if_job_unknown
from syntony.cli.output import civil_time_ms, console, messages, print_json, why_option
from syntony.io.user_name import user_name
from syntony.model import S, format_ns, parse_duration_ns
from syntony.view import lazy_rich
from syntony.view.tables import plain_table
from syntony.wire.failover import (
    FailoverLogQuery,
    FailoverStatus,
    FailoverStatusQuery,
    SwitchCommand,
)

_OF_NEW = ("request", "create", "join-failed")
"""Actions that concern the new path."""


@click.group(cls=HelpGroup)
def command() -> None:
    """Failover of jobs' connections between NICs and paths.

    \b
    Example:
      syntony lab fault blackhole h0/rail0 --for 5s && syntony failover log
    """


@command.command()
@fleet_options
@window_option("1h")
@click.option("--job", default="", show_default=False, help="Only this job.")
@click.option("--host", default="", show_default=False, help="Only actions of this host's agent.")
def log(target: FleetTarget, window: str, job: str, host: str, as_json: bool) -> None:
    """List failover actions: cause, evidence, reaction time; newest last.

    \b
    Example:
      syntony failover log --window 10m --job train-7
    """
    query = FailoverLogQuery(window_ns=parse_duration_ns(window), job=job, host=host)
    events = ask(target, query).events
    if not events:
        check_hosts(target, host)
        warn_if_job_unknown(target, job)
    if as_json:
        print_json(events)
        return
    if not events:
        messages.print(f"nothing was done to any path in the last {window}")
        return
    table = plain_table(
        "when (UTC)", "host", "job", "action", "cause", "detect", "act", "path", "evidence"
    )
    for event in events:
        path = event.new_path if event.action in _OF_NEW else event.old_path
        table.add_row(
            civil_time_ms(event.ts_ns),
            event.host,
            event.job,
            lazy_rich.Text(event.action, style="bold red" if event.result else ""),
            event.cause,
            format_ns(event.detect_ns),
            format_ns(event.act_ns),
            path,
            event.result or event.evidence,
        )
    console.print(table)


@command.command()
@fleet_options
@click.pass_context
def status(context: click.Context, target: FleetTarget, as_json: bool) -> None:
    """Show the stop switch, and what every agent is allowed to do.

    Exit status: 0 acting or observing as configured, 1 stopped, or not available on a host.

    \b
    Example:
      syntony failover status
    """
    answer = ask(target, FailoverStatusQuery(), until=lambda it: bool(it.hosts))
    _show(answer, as_json=as_json)
    poor = any(
        each.report.stopped or each.report.mode.startswith("unavailable") for each in answer.hosts
    )
    stopped = answer.switch is not None and answer.switch.stopped
    context.exit(int(poor or stopped))


def _show(answer: FailoverStatus, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    switch = answer.switch
    if switch is None:
        console.print("stop switch: never thrown")
    else:
        position = (
            lazy_rich.Text("STOPPED", style="bold red")
            if switch.stopped
            else lazy_rich.Text("running")
        )
        console.print(
            lazy_rich.Text("stop switch: ") + position + lazy_rich.Text(f" (by {switch.by})")
        )
    table = plain_table("host", "mode", "obeys", "connections", "degraded", "reported")
    for each in answer.hosts:
        table.add_row(
            each.host,
            each.report.mode,
            "stopped" if each.report.stopped else "running",
            str(each.report.left_out + len(each.report.connections)),
            lazy_rich.Text(
                str(each.report.degraded), style="bold red" if each.report.degraded else ""
            ),
            f"{each.age_ns / S:.0f} s ago",
        )
    console.print(table)


def _switch(target: FleetTarget, *, stopped: bool, why: str, as_json: bool) -> None:
    command = SwitchCommand(stopped=stopped, by=user_name(), why=why)
    answer = ask(target, command)
    if as_json:
        print_json(answer)
        return
    messages.print(
        "stopped: no agent touches any path until started again; agents that cannot be reached"
        " now will obey when they come back"
        if stopped
        else "started: agents act as their configuration says"
    )


@command.command()
@fleet_options
@why_option
def stop(target: FleetTarget, why: str, as_json: bool) -> None:
    """Stop all failover in the fleet, also after restarts; connections stay as they are.

    \b
    Example:
      syntony failover stop --comment "maintenance of pod 3"
    """
    _switch(target, stopped=True, why=why, as_json=as_json)


@command.command()
@fleet_options
@why_option
def start(target: FleetTarget, why: str, as_json: bool) -> None:
    """Let agents act again.

    \b
    Example:
      syntony failover start --comment "pod 3 is back"
    """
    _switch(target, stopped=False, why=why, as_json=as_json)
