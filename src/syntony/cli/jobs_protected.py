"""`syntony jobs` for jobs under `syntony run --spares`: queries their coordinator."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from syntony.cli.output import console, json_option, messages, print_json
from syntony.errors import RemoteError, UsageError

_MOST = 5


def with_protection(command: Callable[..., Any]) -> Callable[..., Any]:
    """Show first how a job of this host is protected; without a fleet, that is all that is shown.

    The command gets `protection` (None: it is not protected), to be put into its JSON.
    """

    @wraps(command)
    def wrapper(*args: Any, job: str, as_json: bool, **kwargs: Any) -> None:
        from syntony.torch import control

        try:
            protection = control.ask(job, {"do": "show"})
        except control.ControlError:
            protection = None
        if protection is not None and not as_json:
            _show(job, protection)
        try:
            command(*args, job=job, as_json=as_json, protection=protection, **kwargs)
        except (UsageError, RemoteError) as error:
            if protection is None:
                raise
            if as_json:
                print_json({"job": job, "protection": protection})
            messages.print(f"[dim]nothing else is known of it: {error}[/]")

    return wrapper


def _show(job: str, found: dict[str, Any]) -> None:
    console.print(f"job        {job}", markup=False)
    state = "yes" if found["protected"] else f"no: {found['reason'] or 'the job ends'}"
    console.print(f"protected  {state}", markup=False)
    if found["program"]:
        loops = ", ".join(found["program"]["loops"])
        console.print(f"program    {found['program']['file']}, loops {loops}", markup=False)
    console.print(f"generation {found['generation']}, {found['replaced']} ranks replaced")
    for each in found["ranks"]:
        console.print(
            f"rank {each['rank']:<5} pid {each['pid']} on {_where(each)}, {each['state']}, "
            f"step {each['step']}",
            markup=False,
        )
    for rank in found["lost"]:
        console.print(f"rank {rank:<5} lost, waits for a spare")
    for each in found["spares"]:
        console.print(f"spare      pid {each['pid']}, {'ready' if each['ready'] else 'starting'}")
    for event in found["events"][-_MOST:]:
        words = {key: value for key, value in event.items() if key in _SHOWN}
        console.print(f"event      {event['event']} {words}", markup=False)


def _where(rank: dict[str, Any]) -> str:
    return f"{rank['host']} ({rank['address']})" if rank["address"] else str(rank["host"])


_SHOWN = ("rank", "reason", "boundary", "generation", "equal")


@click.command()
@click.argument("job")
@click.argument("rank", type=click.IntRange(0), required=False)
@click.option("--host", metavar="HOST", help="All ranks and spares of a host: its name or address.")
@click.option(
    "--or-checkpoint",
    is_flag=True,
    help="With --host: where other hosts have too few spares, end the job with its state kept.",
)
@json_option
def drain(job: str, rank: int | None, host: str | None, or_checkpoint: bool, as_json: bool) -> None:
    """Replace a healthy rank, or all ranks of a host, by warm spares.

    For a job of this user on this host, under `syntony run --spares`. Refused while too few spares
    are ready; with --or-checkpoint the job then saves its state and ends, and can be resumed, also
    with fewer ranks (`syntony run --resume DIR --min-ranks N`).

    \b
    Example:
      syntony jobs drain train-7 3
      syntony jobs drain train-7 --host h12
      syntony jobs drain train-7 --host h12 --or-checkpoint
    """
    from syntony.torch import control

    if (rank is None) == (host is None):
        raise UsageError("name a rank or a --host, for example: syntony jobs drain train-7 3")
    if or_checkpoint and host is None:
        raise UsageError("--or-checkpoint goes with --host")
    request = {"do": "drain", "rank": rank}
    if host is not None:
        request = {"do": "drain", "host": host, "keep": or_checkpoint}
    try:
        answer = control.ask(job, request)
    except control.ControlError as error:
        raise RemoteError(str(error)) from error
    if as_json:
        print_json(answer)
    else:
        what = f"rank {rank} is being replaced" if host is None else f"host {host} is being drained"
        messages.print(f"{what}; see: syntony jobs show {job}", markup=False)
