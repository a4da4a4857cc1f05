"""`syntony incidents`: what is wrong, one line per cause."""

from __future__ import annotations

from collections import Counter

import click

from syntony.cli import incident_view
from syntony.cli.fleet import FleetTarget, ask, fleet_options
from syntony.cli.lazy import HelpGroup
from syntony.cli.output import civil_time, console, messages, print_json
from syntony.errors import UsageError
from syntony.io.user_name import user_name
from syntony.model import format_ns, parse_duration_ns
from syntony.view import lazy_rich
from syntony.view.tables import plain_table
from syntony.wire.incidents import (
    IncidentAction,
    IncidentsQuery,
    IncidentsReply,
    RulesQuery,
    SilenceAction,
)

_CODES = {"critical": 2, "warning": 1, "info": 0}


@click.group(cls=HelpGroup)
def command() -> None:
    """Incidents: what is wrong in the fleet, one incident for each cause.

    \b
    Example:
      syntony lab fault flap h0/rail0 --for 30s; syntony incidents list
    """


@command.command("list")
@fleet_options
@click.option("--all", "resolved", is_flag=True, help="Also show resolved ones.")
@click.option(
    "--since",
    "--window",
    "since",
    default="",
    show_default=False,
    metavar="TIME",
    help="All incidents of the past TIME, from the store.",
)
@click.pass_context
def list_(
    context: click.Context, target: FleetTarget, resolved: bool, since: str, as_json: bool
) -> None:
    """List incidents, newest first; incidents that another one explains are counted with it.

    Exit status: 0 none is open, 1 the worst is a warning, 2 the worst is critical.

    \b
    Example:
      syntony incidents list --since 7d
    """
    query = IncidentsQuery(resolved=resolved, since_ns=parse_duration_ns(since) if since else 0)
    reply = ask(target, query)
    if as_json:
        print_json({"incidents": reply.incidents, "silences": reply.silences})
    else:
        _print_list(reply, "no incidents" if resolved or since else "no incident is open")
    live = [each for each in reply.incidents if each["state"] == "open" and not each["silenced"]]
    context.exit(max((_CODES[each["severity"]] for each in live), default=0))


@command.command()
@fleet_options
@click.argument("number", type=int)
def show(target: FleetTarget, number: int, as_json: bool) -> None:
    """Show an incident on one screen: evidence, what it explains, what to do. --json shows all.

    \b
    Example:
      syntony incidents show 1
    """
    reply = ask(target, IncidentsQuery(number=number))
    if as_json:
        print_json({"incident": reply.incidents[0], "explains": reply.incidents[1:]})
        return
    incident, *children = reply.incidents
    console.print(
        lazy_rich.Text(incident["summary"], style=incident_view.STYLES[incident["severity"]])
    )
    for name, text in incident_view.lines(incident, children):
        console.print(lazy_rich.Text.assemble((f"{name:<12}", "dim"), text), soft_wrap=True)


@command.command()
@fleet_options
@click.argument("number", type=int)
@click.option("--comment", default="", show_default=False, help="Comment for other operators.")
@click.option("--by", default=None, help="Name to record. [default: the user's name]")
def ack(target: FleetTarget, number: int, comment: str, by: str | None, as_json: bool) -> None:
    """Acknowledge an incident: it sends no further pages.

    \b
    Example:
      syntony incidents ack 1 --comment "cable ordered"
    """
    _act(
        target,
        IncidentAction(number=number, what="ack", by=by or user_name(), comment=comment),
        as_json,
    )


@command.command()
@fleet_options
@click.argument("number", type=int)
@click.option("--by", default=None, help="Name to record. [default: the user's name]")
def resolve(target: FleetTarget, number: int, by: str | None, as_json: bool) -> None:
    """Resolve an incident by hand. It reopens if the fault persists.

    \b
    Example:
      syntony incidents resolve 1
    """
    _act(target, IncidentAction(number=number, what="resolve", by=by or user_name()), as_json)


@command.command()
@fleet_options
@click.argument("subject", required=False, default="")
@click.option(
    "--rule", default="", show_default=False, help="Only incidents of this rule; a pattern."
)
@click.option(
    "--for",
    "lasts",
    default="",
    show_default=False,
    metavar="TIME",
    help="Length of the silence, for example 2h.",
)
@click.option("--in", "begins", default="0s", metavar="TIME", help="Time until the silence begins.")
@click.option("--comment", default="", show_default=False, help="Why, for other operators.")
@click.option("--by", default=None, help="Name to record. [default: the user's name]")
@click.option("--end", default=0, show_default=False, metavar="NUMBER", help="End a silence.")
@click.option("--list", "as_list", is_flag=True, help="List current and coming silences.")
def silence(
    target: FleetTarget,
    subject: str,
    *,
    rule: str,
    lasts: str,
    begins: str,
    comment: str,
    by: str | None,
    end: int,
    as_list: bool,
    as_json: bool,
) -> None:
    """Send no pages for a subject (a host includes its parts) during a maintenance window.

    Incidents still open and are listed; those still open at the end of the silence page then.

    \b
    Example:
      syntony incidents silence h3 --for 2h --comment "new cable"
      syntony incidents silence 'leaf0-*' --in 8h --for 1h
    """
    if not (as_list or end or lasts):
        raise UsageError("how long? for example: syntony incidents silence h3 --for 2h")
    if lasts and not (subject or rule):
        raise UsageError("of what? name a subject or --rule; '*' is everything")
    if as_list:
        reply = ask(target, IncidentsQuery())
    else:
        action = SilenceAction(
            rule=rule,
            subject=subject,
            in_ns=parse_duration_ns(begins),
            for_ns=parse_duration_ns(lasts) if lasts else 0,
            by=by or user_name(),
            comment=comment,
            end=end,
        )
        reply = ask(target, action)
    if reply.warning:
        messages.print(f"warning: {reply.warning}", style="yellow", markup=False)
    if as_json:
        print_json({"silences": reply.silences, "warning": reply.warning})
        return
    table = plain_table("silence", "rule", "subject", "from (UTC)", "lasts", "by", "comment")
    for each in reply.silences:
        first_ns, span = each["first_ns"], format_ns(each["last_ns"] - each["first_ns"])
        row = (each["number"], each["rule"], each["subject"], civil_time(first_ns), span,
               each["who"], each["comment"])  # fmt: skip
        table.add_row(*map(str, row))
    console.print(table if reply.silences else "no silences")


@command.command()
@fleet_options
def rules(target: FleetTarget, as_json: bool) -> None:
    """List the active rules.

    \b
    Example:
      syntony incidents rules
    """
    reply = ask(target, RulesQuery())
    if as_json:
        print_json(reply.rules)
        return
    table = plain_table("rule", "severity", "opens when", "explained by", "remedy")
    for rule in reply.rules:
        bound = f"> {rule['above']:g}" if rule["above"] is not None else f"< {rule['below']:g}"
        table.add_row(
            rule["name"],
            lazy_rich.Text(rule["severity"], style=incident_view.STYLES[rule["severity"]]),
            f"{rule['metric']} {bound}",
            ", ".join(rule["explained_by"]) or "–",
            rule["remedy"],
        )
    console.print(table)


def _act(target: FleetTarget, action: IncidentAction, as_json: bool) -> None:
    reply = ask(target, action)
    incident = reply.incidents[0]
    if as_json:
        print_json(incident)
        return
    console.print(f"incident {incident['number']} is {incident['state']}: {incident['summary']}")


def _print_list(reply: IncidentsReply, nothing: str) -> None:
    cause_of = {each["number"]: each["cause"] for each in reply.incidents}
    explains = Counter[int]()
    for number in cause_of:
        at = number
        while at := cause_of.get(at, 0):
            explains[at] += 1
    table = plain_table("incident", "severity", "state", "since", "what", "explains")
    for each in reply.incidents:
        if each["cause"] in {other["number"] for other in reply.incidents}:
            continue
        state = "silenced" if each["silenced"] and each["state"] == "open" else each["state"]
        if each["resolved_ns"]:
            state += f" after {format_ns(incident_view.lasted_ns(each))}"
        table.add_row(
            str(each["number"]),
            lazy_rich.Text(each["severity"], style=incident_view.STYLES[each["severity"]]),
            state,
            each.get("began", each["opened"])[:19].replace("T", " "),
            each["summary"],
            str(explains[each["number"]] or ""),
        )
    console.print(table if table.row_count else nothing)
    if reply.waiting:
        console.print(f"{reply.waiting} messages to receivers are waiting", style="yellow")
