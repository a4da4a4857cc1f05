"""`syntony lab`: a whole fleet on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from syntony.cli.lazy import LazyGroup
from syntony.cli.output import json_option
from syntony.errors import RemoteError, UsageError
from syntony.lab import state
from syntony.model import S, parse_duration_ns

if TYPE_CHECKING:
    from syntony.lab.client import Lab

CONTROLLER_S = 30.0
"""How long to wait for the controller of a lab that has just started."""
_F = TypeVar("_F", bound=Callable[..., Any])


def _which(function: _F) -> _F:
    text = "Which lab; may be left out while only one runs."
    return click.option("--name", "--lab", "name", metavar="NAME", help=text)(function)


def open_lab(name: str | None) -> Lab:
    """The running lab, or the one named; imported late to keep `--help` fast."""
    from syntony.lab import client

    return client.open_lab(name)


_ELSEWHERE = {
    "drill": (
        "drill:command",
        "Real jobs under failure and contention, with and without Syntony.",
    ),
    "verbs": (
        "verbs:command",
        "A lab of virtual machines with Soft-RoCE: real verbs without RDMA hardware.",
    ),
}


@click.group(name="lab", cls=LazyGroup, lazy=_ELSEWHERE)
def command() -> None:
    """A whole fleet on this machine: hosts, leaves and spines in network namespaces.

    No root needed where user namespaces are allowed (see: syntony doctor).

    Example: syntony lab up --detach && syntony lab fault blackhole h3/rail0 --for 5s
    """


@command.command()
@click.option(
    "--name", "--lab", "name", default=state.DEFAULT_NAME, metavar="NAME", help="Name of the lab."
)
@click.option("--hosts", default=8, help="Hosts, 2 to 64.")
@click.option("--rails", default=2, help="NICs of each host, 1 to 8.")
@click.option("--leaves", default=2, help="Leaves of each rail, 1 to 16.")
@click.option("--spines", default=2, help="Spines, shared by the rails, 1 to 16.")
@click.option("--rate", default="200mbit", help="Rate of every fabric link.")
@click.option("--burst", default=32_768, help="Shaper's bucket, bytes.")
@click.option("--latency", default="20ms", help="Longest queueing delay in a shaper.")
@click.option("--convergence", default="1s", help="Time from a failure to new routes.")
@click.option("--seed", default=1, help="Seed of ECMP hashes, clocks and probe plan.")
@click.option(
    "--family",
    type=click.Choice(["ipv4", "ipv6"]),
    default="ipv4",
    help="Addresses that are probed.",
)
@click.option(
    "--clock-swing",
    metavar="PPB:PERIOD",
    help="Let every clock's rate swing, for example 200ppb:600s.",
)
@click.option(
    "--clock-steps",
    multiple=True,
    metavar="HOST:AFTER:STEP",
    help="Step a host's clock, for example h3:30s:1ms; repeatable.",
)
@click.option(
    "--utc",
    multiple=True,
    metavar="HOST",
    help="Host whose clock is UTC and an anchor of fleet time; repeatable.",
)
@click.option("--mesh-peers", type=click.IntRange(1, 64), help="Peers of each NIC.")
@click.option("--probe-interval", metavar="T", help="Time between two probe pairs on one path.")
@click.option(
    "--placement",
    type=click.Choice(["off", "observe", "act"]),
    default="observe",
    help="Whether jobs' flows are moved off congested paths.",
)
@click.option(
    "--rules", type=click.Path(exists=True, dir_okay=False), help="Incident rules, TOML file."
)
@click.option(
    "--sla", type=click.Path(exists=True, dir_okay=False), help="Latency objectives, TOML file."
)
@click.option("--state", metavar="URL", help="PostgreSQL for control state, over a Unix socket.")
@click.option(
    "--store",
    metavar="URL",
    help="ClickHouse for telemetry, as the lab's node ctl reaches it. [default: embedded]",
)
@click.option(
    "--controllers",
    type=click.IntRange(1, 5),
    default=1,
    help="Controllers: one leads, the others are standbys. Several need --state.",
)
@click.option(
    "--gateways",
    type=click.IntRange(0, 5),
    default=0,
    help="Gateways to which agents attach in place of the controllers; all share a store.",
)
@click.option(
    "--console-port",
    default=0,
    show_default=False,
    metavar="PORT",
    help="Port of console and API on 127.0.0.1. [default: any free one]",
)
@click.option(
    "--no-agents", is_flag=True, help="Start the fabric only, without controller and agents."
)
@click.option("--detach", is_flag=True, help="Leave the lab running; `syntony lab down` ends it.")
@json_option
def up(name: str, detach: bool, as_json: bool, **options: Any) -> None:
    """Bring a lab up; without --detach it lasts until Ctrl-C.

    Example: syntony lab up --hosts 8 --detach
    """
    from syntony.cli._labfile import lab_file
    from syntony.cli._labup import bring_up

    bring_up(lab_file(name, options), detach=detach, as_json=as_json)


@command.command()
@_which
@json_option
def status(name: str | None, as_json: bool) -> None:
    """Show a lab: links, faults, daemons.

    Example: syntony lab status --json
    """
    lab = open_lab(name)
    found = lab.status()
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    from syntony.cli import _labview

    _labview.show_status(found)
    if lab.file().console is not None:
        try:
            click.echo(f"console: {lab.console_url()}")
        except RemoteError as error:
            young = found.age_ns < CONTROLLER_S * S
            click.echo(f"console: {'the controller is starting' if young else error}")


def _awaited(lab: Lab) -> str:
    """The console's URL, once the controller answers. Raises `RemoteError`: it does not, or does
    not stay up."""
    end_s, said = time.monotonic() + CONTROLLER_S, False
    while True:
        try:
            return lab.console_url()
        except RemoteError as error:
            if crash := "; ".join(lab.crash_reports("controller")):
                raise RemoteError(f"{error}; {crash}") from error
            if time.monotonic() > end_s:
                raise
        if not said:
            click.echo("waiting for the controller", err=True)
            said = True
        time.sleep(0.2)


@command.command()
@_which
@json_option
def console(name: str | None, as_json: bool) -> None:
    """Print the URL of a lab's console, valid for one login within ten minutes.

    Waits up to 30 s for the controller of a lab that has just started.

    Example: xdg-open "$(syntony lab console)"
    """
    url = _awaited(open_lab(name))
    click.echo(msgspec.json.encode({"url": url}) if as_json else url)


@command.command(name="list")
@json_option
def list_(as_json: bool) -> None:
    """List running labs.

    Example: syntony lab list
    """
    names = state.running()
    click.echo(msgspec.json.encode(names) if as_json else "\n".join(names) or "none", nl=True)


@command.command(
    name="exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@_which
@click.argument("node", metavar="HOST")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD…")
def exec_(name: str | None, node: str, argv: tuple[str, ...]) -> None:
    """Run a command inside a host, leaf or spine, and exit with its exit code.

    Example: syntony lab exec h3 -- ip address
    """
    words = argv[1:] if argv[:1] == ("--",) else argv
    if not words:
        raise UsageError("exec needs a command, for example: syntony lab exec h3 -- ip address")
    if words is argv and words[0].startswith("-"):
        raise UsageError(f"{words[0]}: options go before the host, the command after --")
    full = open_lab(name).enter_argv(node, words)
    os.execv(full[0], full)  # noqa: S606 - no shell: this process becomes the command


@command.command(context_settings={"ignore_unknown_options": False})
@_which
@click.argument("kind", required=False)
@click.argument("target", required=False)
@click.option(
    "--for", "duration", metavar="T", help="End the fault after T. [default: when cleared]"
)
@click.option("--list", "listing", is_flag=True, help="List active faults.")
@click.option("--clear", metavar="ID|all", help="End one fault, or all.")
@click.option("--side", metavar="END", help="link-down, flap: host, leaf or spine end.")
@click.option("--direction", metavar="WAY", help="blackhole, loss, delay: both, to or from.")
@click.option("--percent", metavar="P", help="loss: share of packets.")
@click.option("--add", metavar="T", help="delay: added delay.")
@click.option("--to", metavar="RATE", help="rate, flow-rate: the new rate.")
@click.option("--sport", metavar="PORT", help="flow-rate: source port of the TCP connection.")
@click.option("--dport", metavar="PORT", help="flow-rate: destination port of the TCP connection.")
@click.option("--period", metavar="T", help="flap: length of one down-and-up cycle [2s].")
@click.option("--count", metavar="N", help="flap: number of cycles [until cleared].")
@click.option("--duty", metavar="F", help="flap: share of the period spent down [0.5].")
@click.option("--procs", metavar="N", help="cpu-hog: number of busy loops [1].")
@click.option("--bytes", metavar="N", help="mtu: MTU of the NIC [1400].")
@click.option("--by", metavar="T", help="clock-step: 10ms forwards, -300us backwards.")
@click.option("--ppm", metavar="N", help="clock-drift: 100 runs faster, -50 slower.")
@json_option
def fault(name: str | None, as_json: bool, **given: Any) -> None:
    """Inject a fault: KIND TARGET, for a time or until cleared.

    \b
    Link (h3/rail0, leaf0-1/spine0): link-down, flap, blackhole, loss, delay, rate.
    NIC (h3/rail0): mtu, flow-rate.
    Switch (leaf0-1, spine0): switch-down.
    Host (h3): agent-kill, agent-stop, reactor-kill, reactor-stop, telemetry-kill, telemetry-stop,
    cpu-hog, clock-step, clock-drift, rail-swap, cert-revoke, cert-rotate.
    Gateway (gateway1): gateway-kill, gateway-pause.
    No target: controller-kill, controller-pause, key-rotate.

    Example: syntony lab fault loss h3/rail0 --percent 5 --direction from --for 10s
    """
    kind, target, duration = (given.pop(key) for key in ("kind", "target", "duration"))
    listing, clear = given.pop("listing"), given.pop("clear")
    lab = open_lab(name)
    if listing or clear:
        if kind or any(given.values()) or duration or (listing and clear):
            raise UsageError("--list and --clear cannot be combined with other options")
        _list_or_clear(lab, clear, as_json)
        return
    if not kind:
        raise UsageError("name a fault: syntony lab fault KIND TARGET (see --help)")
    for_ns = parse_duration_ns(duration) if duration else 0
    if duration and for_ns <= 0:
        raise UsageError(f"--for {duration}: give more than 0")
    options = {key: value for key, value in given.items() if value is not None}
    started = lab.inject(kind, target or "", options, for_ns)
    if as_json:
        click.echo(msgspec.json.encode(started))
    else:
        from syntony.cli._labview import fault_line

        click.echo(fault_line(started))


def _list_or_clear(lab: Lab, clear: str | None, as_json: bool) -> None:
    if clear is None:
        faults = lab.status().faults
        if as_json:
            click.echo(msgspec.json.encode(faults))
        else:
            from syntony.cli._labview import fault_line

            click.echo("\n".join(map(fault_line, faults)) or "no fault is in force")
        return
    if clear != "all" and (not clear.isdecimal() or int(clear) == 0):
        raise UsageError(f"--clear {clear!r}: give a fault's number, or all")
    over = lab.clear(0 if clear == "all" else int(clear))
    if as_json:
        click.echo(msgspec.json.encode(over))
    else:
        click.echo(f"ended: {', '.join(map(str, over)) or 'none was in force'}")


@command.command()
@_which
@click.argument("src")
@click.argument("dst")
@click.option(
    "--sport", "sports", multiple=True, type=int, required=True, help="Source port; repeatable."
)
@click.option("--dport", type=int, required=True, help="Destination port.")
@click.option("--proto", type=click.Choice(["udp", "tcp"]), default="udp", help="Protocol.")
@click.option(
    "--family", type=click.Choice(["ipv4", "ipv6"]), default="ipv4", help="Addresses of the NICs."
)
@json_option
def path(name: str | None, src: str, dst: str, as_json: bool, **flow: Any) -> None:
    """Ask the switches which spine a flow takes.

    Over IPv6 it sends packets of the flow; ``?`` is a spine that does not answer them.

    Example: syntony lab path h0/rail0 h7/rail0 --sport 40000 --dport 8620
    """
    family = 6 if flow["family"] == "ipv6" else 4
    found = open_lab(name).paths(
        src, dst, flow["sports"], flow["dport"], proto=flow["proto"], family=family
    )
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    for way in found:
        click.echo(f"{way.sport}: {' → '.join(way.hops)}")


@command.command()
@_which
@json_option
def truth(name: str | None, as_json: bool) -> None:
    """Show every host's true clock and, once clocks have converged, its estimate.

    Example: syntony lab truth --json
    """
    found = open_lab(name).truth()
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        from syntony.cli._labview import show_truth

        show_truth(found)


@command.command()
@_which
def scrape(name: str | None) -> None:
    """Print a Prometheus configuration that scrapes every daemon of a lab, from inside it.

    \b
    Example (then ask http://127.0.0.1:9090 from inside, too):
      syntony lab scrape > /tmp/lab.yml
      syntony lab exec ctl -- prometheus --config.file=/tmp/lab.yml --storage.tsdb.path=/tmp/lab-db
    """
    from syntony.lab.plan import make_plan
    from syntony.lab.scrape import scrape_config

    lab = open_lab(name)
    file = lab.file()
    if not file.agents:
        raise UsageError(f"lab {lab.name} was started with --no-agents and measures nothing")
    click.echo(
        scrape_config(
            lab.directory, make_plan(file.spec), controllers=file.controllers + file.gateways
        ),
        nl=False,
    )


@command.command()
@_which
@click.option("--yes", is_flag=True, help="Do not ask, even if another terminal started the lab.")
def down(name: str | None, yes: bool) -> None:
    """End a lab and remove all of it.

    Without a name it ends the only lab, if this terminal started it; otherwise it asks, or refuses
    if there is no terminal.

    Example: syntony lab down
    """
    try:
        lab = open_lab(name)
    except state.NoLabError as error:
        raise UsageError(f"{error.lack}: there is nothing to end") from None
    if name is None and not yes and lab.file().session != state.terminal_session():
        _confirm_down(lab.name)
    from syntony.cli.output import messages

    with messages.status(f"ending lab {lab.name}"):  # on a busy machine up to half a minute
        lab.down()
    click.echo(f"lab {lab.name} is down", err=True)


def _confirm_down(name: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(
            f"lab {name!r} was not started from this terminal; to end it anyway: "
            f"syntony lab down --name {name} (or --yes)"
        )
    click.confirm(f"lab {name} was not started from this terminal; end it?", abort=True, err=True)
