"""`syntony diff`: what changed between two recorded runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syntony.cli._recording import last_of, window_ns_option
from syntony.cli.diagnose import clean, open_bundle, print_gaps
from syntony.cli.fleet import FleetTarget, fleet_options_if_needed
from syntony.cli.output import console, print_json
from syntony.errors import UsageError
from syntony.view import lazy_rich

if TYPE_CHECKING:
    from syntony.workload.bundle import Bundle

SAME, CHANGED, UNLIKE = 0, 1, 3
MOST = 15
"""Maximum number of changes printed; `--json` has all."""


@click.command()
@click.argument("before")
@click.argument("after")
@window_ns_option("10m")
@fleet_options_if_needed
@click.pass_context
def command(  # noqa: PLR0917 - click calls it by name
    context: click.Context,
    target: Callable[[], FleetTarget],
    before: str,
    after: str,
    window_ns: int,
    as_json: bool,
) -> None:
    """Compare two runs of a job, like with like: BEFORE and AFTER are bundles, or names of jobs.

    Compares operations of the same kind, size and ranks, flows between the same NICs, links and
    hosts of the same name, and lists differences of set-up. Of a job that the fleet knows, the last
    --window is compared.

    Exit status: 0 no change; 1 a change; 2 no bundle or job, or a broken one; 3 the runs cannot be
    compared, or the fleet does not answer.

    \b
    Example:
      syntony diff ./monday ./tuesday
      syntony diff slurm-4711 slurm-4712 --window 30m
    """
    from syntony.workload.compare import compare, size

    one, other = (_run(name, target, window_ns) for name in (before, after))
    print_gaps(one.gaps, of=f"{before}: ")
    print_gaps(other.gaps, of=f"{after}: ")
    result = compare(one, other)
    if as_json:
        print_json(result)
    else:
        for sentence in result.sentences:
            console.print(lazy_rich.escape(clean(sentence)), soft_wrap=True)
        for each in result.changes[:MOST]:
            mark = "[red]worse [/]" if each.worse else "[green]better[/]"
            text = (f"{each.measure} of {each.subject}: {size(each)}"
                    f" ({each.values[1]} and {each.values[0]} values)")  # fmt: skip
            console.print(f"  {mark} {lazy_rich.escape(clean(text))}", soft_wrap=True)
        if len(result.changes) > MOST:
            console.print(f"  … and {len(result.changes) - MOST} more (--json)")
    changed = result.changes or result.appeared or result.gone
    context.exit(UNLIKE if not result.comparable else CHANGED if changed else SAME)


def _run(name: str, target: Callable[[], FleetTarget], window_ns: int) -> Bundle:
    """Read a directory if there is one of that name, else the last part of a job."""
    if Path(name).is_dir():
        return open_bundle(Path(name))
    if "/" in name:
        raise UsageError(f"{name}: {'not a' if Path(name).exists() else 'no such'} directory")
    try:
        fleet = target()
    except UsageError as error:
        raise UsageError(
            f"{name}: no such directory, and no fleet to ask for a job: {error}"
        ) from error
    return last_of(fleet, name, window_ns).bundle()
