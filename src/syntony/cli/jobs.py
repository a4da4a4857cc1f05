"""`syntony jobs`: recent jobs, and details of one."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

import click
import msgspec

from syntony.cli import jobs_protected
from syntony.cli._recording import fetch, window_ns_option
from syntony.cli.diagnose import clean
from syntony.cli.fleet import FleetTarget, ask, fleet_options
from syntony.cli.lazy import HelpGroup
from syntony.cli.output import console, messages, print_json, shown_ns
from syntony.errors import InputError, RemoteError, UsageError
from syntony.model import MS, S, format_ns, parse_duration_ns
from syntony.model.names import did_you_mean, some
from syntony.view import lazy_rich
from syntony.view.tables import plain_table
from syntony.wire.jobs import Jobs, JobsQuery, JobView

if TYPE_CHECKING:
    from syntony.workload.bundle import Bundle
    from syntony.workload.top import JobLine

ENDED_NS = 10 * S
"""A job without reports for this long is over, or its hosts are gone."""
MIN_EVERY_NS = 500 * MS
"""Interval of `top`: each refresh reads all running jobs."""
_MOST = 8


@click.group(cls=HelpGroup)
def command() -> None:
    """Running and recent jobs: ranks, hosts, flows.

    The processes of a job are those that `syntony run` started, or whose environment has
    SYNTONY_JOB.
    """


@command.command(name="list")
@window_ns_option("1h")
@fleet_options
def list_jobs(target: FleetTarget, window_ns: int, as_json: bool) -> None:
    """List jobs that recently had a process, newest first.

    \b
    Example:
      syntony jobs list --window 1d
    """
    answer = _ask(target, window_ns)
    if as_json:
        print_json(answer.jobs)
        return
    if not answer.jobs:
        messages.print("no job ran; start one with `syntony run -- COMMAND`")
        return
    table = plain_table("job", "state", ">ranks", ">processes", "hosts", "age", "programs")
    for each in answer.jobs:
        table.add_row(
            each.job,
            _state(each, answer.now_ns),
            str(each.ranks or ""),
            str(each.processes),
            some(each.hosts, _MOST),
            format_ns(max(0, answer.now_ns - each.began_ns)),
            lazy_rich.Text(some(map(clean, each.programs), _MOST)),
        )
    console.print(table)


command.add_command(jobs_protected.drain)


@command.command()
@click.argument("job")
@window_ns_option()
@jobs_protected.with_protection
@fleet_options
def show(
    target: FleetTarget,
    job: str,
    window_ns: int,
    as_json: bool,
    protection: dict[str, object] | None,
) -> None:
    """Show one job: processes, how ranks ended, GPUs, communicators, steps, flows.

    If JOB is this user's, on this host and under `syntony run --spares`: also which process holds
    which rank, its spares, how often ranks were replaced, and whether it is protected.

    \b
    Example:
      syntony jobs show train-7
    """
    from syntony.workload.facts import BundleFacts

    jobs = {each.job: each for each in _ask(target, window_ns).jobs}
    if job not in jobs:
        hint = did_you_mean(job, jobs)
        raise RemoteError(f"no process of job {job!r} was seen in that time{hint}")
    view = jobs[job]
    bundle = fetch(target, job, window_ns).bundle()
    comms, gpus, ends = _comms(bundle), _gpus(bundle), BundleFacts(bundle).rank_ends()
    counts = {name: table.rows for name, table in bundle.tables.items()}
    steps = bundle.table("steps")
    lengths = steps.ints("end_ns") - steps.ints("begin_ns")
    step_ns = int(sorted(lengths)[len(lengths) // 2]) if steps.rows else None
    if as_json:
        document = msgspec.to_builtins(view)
        document |= {"gpus": gpus, "communicators": comms, "step_ns": step_ns, "rows": counts}
        document["ended"] = [each._asdict() for each in ends]
        print_json(document | {"protection": protection})
        return
    console.print(f"job        {view.job}", markup=False)
    console.print(f"ranks      {view.ranks or 'not known'}, processes {view.processes}")
    console.print(f"hosts      {', '.join(view.hosts)}", markup=False)
    for each in ends[:_MOST]:
        console.print(f"ended      {clean(each.text)}", markup=False)
    if len(ends) > _MOST:
        console.print(f"           and {len(ends) - _MOST:,} more, later")
    for host, devices in gpus.items():
        console.print(f"gpus       {host}: {some(devices, _MOST)}", markup=False)
    for comm, ranks in comms.items():
        console.print(f"comm       {clean(comm)}: ranks {some(ranks, _MOST)}", markup=False)
    console.print(f"step       {format_ns(step_ns) if step_ns else 'not known'}")
    console.print(f"recorded   {', '.join(f'{name} {rows:,}' for name, rows in counts.items())}")


@command.command()
@window_ns_option("30s")
@click.option(
    "--every", "--interval", "every", default="5s", metavar="TIME", help="Time between two updates."
)
@click.option("--limit", type=click.IntRange(1, 100), default=20,
              help="Number of running jobs to show, newest first.")  # fmt: skip
@fleet_options
def top(target: FleetTarget, window_ns: int, every: str, limit: int, as_json: bool) -> None:
    """Show running jobs live, worst first: step, slowest rank, worst flow, verdict.

    Until interrupted; once with --json, or if the output is not a terminal.

    \b
    Example:
      syntony jobs top --every 2s
    """
    every_ns = parse_duration_ns(every)
    if every_ns < MIN_EVERY_NS:
        raise UsageError(f"--every {every}: give {format_ns(MIN_EVERY_NS)} or more")
    if as_json:
        print_json(_lines(target, window_ns, limit))
        return
    if not console.is_terminal:
        console.print(_top_table(_lines(target, window_ns, limit)))
        return
    from rich.live import Live

    with Live(console=console.rich, auto_refresh=False, screen=True) as screen:
        while True:
            began_ns = time.monotonic_ns()
            screen.update(_top_table(_lines(target, window_ns, limit)), refresh=True)
            time.sleep(max(0, began_ns + every_ns - time.monotonic_ns()) / S)


def _lines(target: FleetTarget, window_ns: int, limit: int) -> list[JobLine]:
    from syntony.workload import diagnose
    from syntony.workload.top import job_line, unknown, worst_first

    answer = _ask(target, window_ns)
    running = [each.job for each in answer.jobs if _state(each, answer.now_ns) == "running"]
    found = []
    for job in running[:limit]:
        try:
            bundle = fetch(target, job, window_ns, quiet=True).bundle()
        except (InputError, RemoteError) as error:
            found.append(unknown(job, str(error)))
        else:
            found.append(job_line(job, bundle, diagnose(bundle)))
    return worst_first(found)


def _top_table(lines: list[JobLine]) -> lazy_rich.Table:
    table = plain_table(
        "job", ">ranks", ">step", "slowest rank", "worst flow", "median flow", "verdict"
    )
    for each in lines:
        late = (
            "" if each.slowest_rank is None else f"{each.slowest_rank}: +{shown_ns(each.late_ns)}"
        )
        flow = f"{each.worst_flow} {shown_ns(each.worst_ns)}" if each.worst_flow else ""
        verdict = f"{each.verdict} {each.subject}" if each.verdict else each.error
        more = f" and {each.others} more" if each.others else ""
        table.add_row(
            lazy_rich.Text(clean(each.job)), "" if each.ranks is None else str(each.ranks),
            shown_ns(each.step_ns), late, lazy_rich.Text(clean(flow)), shown_ns(each.usual_ns),
            lazy_rich.Text(clean(verdict) + more),
        )  # fmt: skip
    return table


def _ask(target: FleetTarget, window_ns: int) -> Jobs:
    return ask(target, JobsQuery(window_ns=window_ns), until=lambda it: bool(it.jobs))


def _state(view: JobView, now_ns: int) -> str:
    if view.running <= 0:
        return "ended"
    return "running" if now_ns - view.seen_ns < ENDED_NS else "silent"


def _gpus(bundle: Bundle) -> dict[str, list[str]]:
    """Host to the GPUs on which the job computed."""
    from syntony.workload.device_tables import GpuTable

    found: defaultdict[str, set[str]] = defaultdict(set)
    for gpu, host in GpuTable(bundle.table("hosts")).host.items():
        found[host].add(gpu)
    return {host: sorted(gpus) for host, gpus in sorted(found.items())}


def _comms(bundle: Bundle) -> dict[str, list[str]]:
    """Communicator to its ranks that reported."""
    table = bundle.table("collectives")
    names, ranks = table.codes("comm"), table.ints("rank")
    found: defaultdict[str, set[int]] = defaultdict(set)
    for code, rank in {*zip(names.codes.tolist(), ranks.tolist(), strict=True)}:
        found[str(names.values[code])].add(rank)
    return {comm: [str(rank) for rank in sorted(members)] for comm, members in found.items()}
