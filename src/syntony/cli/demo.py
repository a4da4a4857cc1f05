"""`syntony demo`: demonstrates Syntony on one machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from syntony.cli.output import console, messages, print_json
from syntony.errors import MissingError, UsageError

if TYPE_CHECKING:
    from syntony.demo.claims import ActReport

_FETCH_HELP = "Fetch PyTorch for the act nobody-noticed if it is missing [ask at a terminal]."
_TORCH_ACT = "nobody-noticed"


@click.command()
@click.option("--act", default="all", metavar="NAMES", help="Acts, separated by commas.")
@click.option("--hosts", default=8, help="Size of the fleet.")
@click.option("--fetch-torch/--no-fetch-torch", default=None, help=_FETCH_HELP)
@click.option("--hold", is_flag=True, help="Keep the fleet and its console up until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.pass_context
def command(
    context: click.Context,
    *,
    act: str,
    hosts: int,
    fetch_torch: bool | None,
    hold: bool,
    as_json: bool,
) -> None:
    """Bring up a fleet, measure it, break it, and check every claim against the truth.

    Every act reports its claims, or why it could not run here, even if other acts fail.
    Exit status: 0 if all claims held, 2 if one did not, 3 if no act could run.

    \b
    Acts: one-clock, every-path, before-the-race, named-cause, nobody-noticed,
    nobody-waits, rank-lost (not without PyTorch).
    Example:
      syntony demo --act one-clock
    """
    from syntony.demo.acts import ACTS
    from syntony.demo.runner import run_acts
    from syntony.demo.screen import LiveScreen, Screen, summary

    names = list(ACTS) if act == "all" else [name.strip() for name in act.split(",")]
    for name in names:
        if name not in ACTS:
            raise UsageError(f"no act {name!r}; known: all, {', '.join(ACTS)}")
    chosen = {name: ACTS[name] for name in ACTS if name in names}
    if _TORCH_ACT in chosen:
        _offer_torch(fetch_torch)
    began_s = time.monotonic()
    live = console.is_terminal and not as_json
    screen = LiveScreen(console.rich) if live else Screen(messages.rich)

    def show(reports: Sequence[ActReport]) -> None:
        seconds = time.monotonic() - began_s
        if as_json:
            acts, held = msgspec.to_builtins(reports), exit_status(reports) == 0
            print_json({"held": held, "seconds": round(seconds, 1), "acts": acts})
        else:
            console.print(summary(reports, seconds))

    context.exit(exit_status(run_acts(chosen, screen, hosts=hosts, report=show, hold=hold)))


def exit_status(reports: Sequence[ActReport]) -> int:
    """2: a claim failed; 3: there is no claim, for no act could run; else 0."""
    claims = [claim for report in reports for claim in report.claims]
    if not all(claim.held for claim in claims):
        return 2
    return 0 if claims else 3


def _offer_torch(fetch: bool | None) -> None:
    """Install PyTorch if the user agrees; nothing is installed without a terminal."""
    from syntony.lab.jobs.torch_build import SIZE, fetch_torch, find_torch

    if fetch is None and sys.stdin.isatty() and console.is_terminal:
        try:
            find_torch()
            return
        except MissingError:
            question = f"PyTorch is not installed: fetch its CPU build, {SIZE}?"
            fetch = click.confirm(question + " Otherwise plain sockets take its place", err=True)
    if fetch:
        try:
            fetch_torch(lambda text: click.echo(text, err=True))
        except MissingError as error:
            messages.print(f"{error}; plain sockets take its place", markup=False)
