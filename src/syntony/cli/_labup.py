"""Brings a lab up, for all commands that do."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import click
import msgspec

from syntony.cli import _labview
from syntony.lab.client import Lab
from syntony.lab.world import World

if TYPE_CHECKING:
    from syntony.lab.messages import LabFile


PATHS_LATER = (
    "agents learn the paths in twenty seconds; an earlier fault is first named by its leaf"
)


def bring_up(
    file: LabFile,
    *,
    detach: bool,
    as_json: bool,
    booted: Callable[[Lab], None] | None = None,
) -> None:
    """Bring a lab up; return when it is ready if detached, else print its events until it ends or
    Ctrl-C.

    Args:
        booted: waits for whatever takes longer than the lab itself.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    began_s = time.monotonic()
    with World(file, detach=detach) as world:
        world.wait_ready()
        lab = Lab(world.directory)
        status = lab.status()
        if booted:
            booted(lab)
        took_s = time.monotonic() - began_s
        if detach:  # before anything is printed, which fails where nobody reads any more
            world.leave_running()
        if as_json:
            click.echo(msgspec.json.encode(status))
        else:
            size = _labview.size(status)
            click.echo(f"lab {status.name} is up ({took_s:.2f} s): {size}", err=True)
            if file.agents:
                click.echo(PATHS_LATER, err=True)
        if world.console_url:
            click.echo(f"console: {world.console_url}", err=True)
        if detach:
            return
        click.echo("Ctrl-C ends it.", err=True)
        interrupt = _follow(world)
    click.echo(f"lab {status.name} has ended", err=True)
    if interrupt is not None:
        raise interrupt


def _follow(world: World) -> KeyboardInterrupt | None:
    """Print events until the lab has ended by itself, or the interrupt that shall end it."""
    try:
        for event in world.events():
            click.echo(event.text, err=True)
    except KeyboardInterrupt as interrupt:
        return interrupt
    return None


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
