"""`syntony demo`: the whole story on one machine."""

from __future__ import annotations

import time

import click
import msgspec

from syntony.cli.output import console, messages, print_json
from syntony.errors import UsageError


@click.command()
@click.option("--act", default="all", show_default=True, help="One act of the story, by name.")
@click.option("--hosts", default=8, show_default=True, help="Size of the fleet.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.pass_context
def command(context: click.Context, act: str, hosts: int, as_json: bool) -> None:
    """Bring up a fleet, measure it, break it, and check every claim against the truth.

    Exit status: 0 if everything claimed held, 2 if anything did not.

    \b
    Acts: one-clock, every-path, before-the-race, named-cause, nobody-noticed,
    nobody-waits.
    Example:
      syntony demo --act one-clock
    """
    from syntony.demo.acts import ACTS
    from syntony.demo.screen import LiveScreen, Screen, summary
    from syntony.demo.story import tell

    if act != "all" and act not in ACTS:
        raise UsageError(f"no act {act!r}; the story has: all, {', '.join(ACTS)}")
    chosen = ACTS if act == "all" else {act: ACTS[act]}
    began_s = time.monotonic()
    live = console.is_terminal and not as_json
    screen = LiveScreen(console) if live else Screen(messages)
    claims = tell(chosen, screen, hosts=hosts)
    seconds = time.monotonic() - began_s
    held = all(claim.held for claim in claims)
    if as_json:
        print_json(
            {"held": held, "seconds": round(seconds, 1), "claims": msgspec.to_builtins(claims)}
        )
    else:
        console.print(summary(claims, seconds))
    context.exit(0 if held else 2)
