"""`syntony traffic queue-pairs`: traffic and delays of jobs' RDMA queue pairs."""

from __future__ import annotations

import click

from syntony.cli.fleet import FleetTarget, ask, fleet_options
from syntony.cli.name_checks import check_hosts, warn_if_job_unknown
from syntony.cli.output import console, messages, print_json
from syntony.model import format_ns
from syntony.view import lazy_rich
from syntony.view.tables import plain_table
from syntony.wire.queue_pairs import OneWay, QueuePairs, QueuePairsQuery, QueuePairView

_SHARED_RECEIVES = 4
"""Of ``enum syn_qp_flag``."""


@click.command(name="queue-pairs")
@fleet_options
@click.option("--job", default="", show_default=False, help="Only this job.")
@click.option("--host", default="", show_default=False, help="Only rows from this host.")
def queue_pairs(target: FleetTarget, job: str, host: str, as_json: bool) -> None:
    """List jobs' RDMA queue pairs: messages, bytes, credits, one-way delays, round trips.

    Of processes that run under `syntony run --verbs` or use Syntony's NCCL plug-in.

    \b
    Example:
      syntony traffic queue-pairs --job train-7
    """
    answer = ask(target, QueuePairsQuery(job=job, host=host), until=lambda it: bool(it.queue_pairs))
    if not answer.queue_pairs:
        check_hosts(target, host)
        warn_if_job_unknown(target, job)
    if as_json:
        print_json(answer)
        return
    if answer.queue_pairs:
        _show(answer)
    else:
        messages.print("no queue pair of a job; start jobs with `syntony run --verbs`")
    for name, count in answer.left_out.items():
        messages.print(f"{name}: {count} more queue pairs are not shown")
    for name, count in answer.malformed.items():
        messages.print(f"{name}: {count} records of processes could not be used")
    for name, reasons in answer.refused.items():
        for reason, count in reasons.items():
            messages.print(f"{name}: {count} processes may not connect: {reason}")
    if answer.mismatches:
        messages.print(f"{answer.mismatches} queue pairs do not match their peers: not measured")


def _show(answer: QueuePairs) -> None:
    table = plain_table(
        "host", "job", "process", "queue pair", "peer", ">sent", ">writes", ">posted", ">received",
        ">credits", ">one-way", ">max", ">round trip",
    )  # fmt: skip
    for each in answer.queue_pairs:
        figures = each.figures
        table.add_row(
            each.host,
            figures.job,
            lazy_rich.Text(f"{figures.program}[{figures.pid}]"),
            f"{figures.device} {figures.number}",
            _peer(each),
            str(figures.sent),
            str(figures.unannounced),
            f"{figures.bytes_posted / 1e6:.1f} MB",
            str(figures.received),
            _credits(each),
            _delay(each),
            format_ns(each.delay.max_ns) if each.delay else "",
            _median(each.round_trip),
        )
    console.print(table)
    console.print(
        "[dim]one-way: from before the post until the receive completion was polled, median of the "
        "newest second's sample; round trip: until the send completion was polled[/]"
    )
    for each in answer.queue_pairs:
        if each.why:
            messages.print(f"{each.host} {each.figures.device} {each.figures.number}: {each.why}")


def _peer(view: QueuePairView) -> str:
    figures = view.figures
    place = view.peer_host or figures.remote or "unknown"
    return f"{place} {figures.peer_number}" if figures.peer_number else place


def _credits(view: QueuePairView) -> str:
    figures = view.figures
    if figures.flags & _SHARED_RECEIVES:
        return "shared"
    return str(max(0, figures.receives_posted - figures.received))


def _delay(view: QueuePairView) -> lazy_rich.Text:
    if view.figures.errors:
        return lazy_rich.Text(f"failed ({view.figures.first_error})", style="bold red")
    return lazy_rich.Text(_median(view.delay))


def _median(of: OneWay | None) -> str:
    return format_ns(of.p50_ns) if of is not None else ""
