"""`syntony jobs`: jobs that ran lately, and what is known of one."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import click
import msgspec
from rich.table import Table
from rich.text import Text

from syntony.cli._recording import fetch, window_option
from syntony.cli.diagnose import clean
from syntony.cli.fleet import FleetTarget, ask, fleet_options
from syntony.cli.output import console, messages, print_json
from syntony.errors import RemoteError
from syntony.model import S, format_ns
from syntony.wire.jobs import Jobs, JobsQuery, JobView

if TYPE_CHECKING:
    from syntony.workload.bundle import Bundle

ENDED_NS = 10 * S
"""A job of which nobody has spoken for so long is over, or its hosts are gone."""
_MOST = 8


@click.group()
def command() -> None:
    """Jobs that run, or ran lately: ranks, hosts, flows.

    A job is known by its processes: those that `syntony run` started, or whose environment has
    SYNTONY_JOB.
    """


@command.command(name="list")
@window_option("1h")
@fleet_options
def list_jobs(target: FleetTarget, window_ns: int, as_json: bool) -> None:
    """Jobs that had a process lately, newest first.

    \b
    Example:
      syntony jobs list --window 1d
    """
    answer = _ask(target, window_ns)
    if as_json:
        print_json(msgspec.to_builtins(answer.jobs))
        return
    if not answer.jobs:
        messages.print("no job ran; start one with `syntony run -- COMMAND`")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("job", "state", "ranks", "processes", "hosts", "age", "programs"):
        table.add_column(heading, justify="right" if heading in {"ranks", "processes"} else "left")
    for each in answer.jobs:
        table.add_row(
            each.job,
            _state(each, answer.now_ns),
            str(each.ranks or ""),
            str(each.processes),
            _some(each.hosts),
            format_ns(max(0, answer.now_ns - each.began_ns)),
            Text(_some([clean(program) for program in each.programs])),
        )
    console.print(table)


@command.command()
@click.argument("job")
@window_option()
@fleet_options
def show(target: FleetTarget, job: str, window_ns: int, as_json: bool) -> None:
    """What is known of one job: processes, communicators, steps, flows.

    \b
    Example:
      syntony jobs show train-7
    """
    known = [each for each in _ask(target, window_ns).jobs if each.job == job]
    if not known:
        raise RemoteError(f"no process of a job {job!r} was seen in that time")
    bundle = fetch(target, job, window_ns).bundle()
    comms = _comms(bundle)
    counts = {name: table.rows for name, table in bundle.tables.items()}
    steps = bundle.table("steps")
    lengths = steps.ints("end_ns") - steps.ints("begin_ns")
    step_ns = int(sorted(lengths)[len(lengths) // 2]) if steps.rows else None
    if as_json:
        document = msgspec.to_builtins(known[0])
        print_json(document | {"communicators": comms, "step_ns": step_ns, "rows": counts})
        return
    view = known[0]
    console.print(f"job        {view.job}", markup=False)
    console.print(f"ranks      {view.ranks or 'not known'}, {view.processes} processes")
    console.print(f"hosts      {', '.join(view.hosts)}", markup=False)
    for comm, ranks in comms.items():
        console.print(f"comm       {clean(comm)}: ranks {_some(ranks)}", markup=False)
    console.print(f"step       {format_ns(step_ns) if step_ns else 'not known'}")
    console.print(f"recorded   {', '.join(f'{name} {rows:,}' for name, rows in counts.items())}")


def _ask(target: FleetTarget, window_ns: int) -> Jobs:
    return ask(target, JobsQuery(window_ns=window_ns), until=lambda it: bool(it.jobs))


def _state(view: JobView, now_ns: int) -> str:
    if view.running <= 0:
        return "ended"
    return "running" if now_ns - view.seen_ns < ENDED_NS else "silent"


def _some(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


def _comms(bundle: Bundle) -> dict[str, list[str]]:
    """Communicator to its ranks that were heard of."""
    table = bundle.table("collectives")
    names, ranks = table.codes("comm"), table.ints("rank")
    found: defaultdict[str, set[int]] = defaultdict(set)
    for code, rank in {*zip(names.codes.tolist(), ranks.tolist(), strict=True)}:
        found[str(names.values[code])].add(rank)
    return {comm: [str(rank) for rank in sorted(members)] for comm, members in found.items()}
