"""`syntony why`: explains why a job is slow, in three sentences, then the evidence."""

from __future__ import annotations

import click

from syntony.cli._recording import fetch, window_ns_option
from syntony.cli.diagnose import clean, exit_status, print_gaps, show_verdict
from syntony.cli.fleet import FleetTarget, fleet_options
from syntony.cli.output import console, print_json
from syntony.view import lazy_rich

MOST_ENDS = 8
"""Ends of ranks that are shown where nothing is wrong, the first ones."""


@click.command()
@click.argument("job")
@window_ns_option()
@fleet_options
@click.pass_context
def command(
    context: click.Context, target: FleetTarget, job: str, window_ns: int, as_json: bool
) -> None:
    """Diagnose why JOB is slow, from its recent recording.

    The answer in three sentences, then the evidence, as `syntony diagnose` prints it. With --json:
    the verdicts, as `syntony diagnose --json`. Ends of ranks that no verdict explains are
    listed; `syntony jobs show --json` lists all.

    Exit status: 0 nothing wrong in the recording; 1 a verdict; 2 a wrong command; 3 no verdict, but
    something that could show one was not recorded, or the job waits and it is undetermined whether
    it hangs (then there is a record of it), or the fleet does not answer.

    \b
    Example:
      syntony why train-7
      syntony why train-7 --window 10m --json
    """
    from syntony.workload import diagnose
    from syntony.workload.facts import BundleFacts
    from syntony.workload.sentences import sentences

    found = fetch(target, job, window_ns)
    bundle = found.bundle()
    result = diagnose(bundle)
    if as_json:
        print_gaps(result.gaps)
        print_json((*result.verdicts, *result.waits))
        context.exit(exit_status(result))
    length_ns = found.manifest["end_ns"] - found.manifest["begin_ns"]
    for sentence in sentences(job, result, length_ns):
        console.print(lazy_rich.escape(clean(sentence)), soft_wrap=True)
    if not result.verdicts and not result.ended:
        ends = BundleFacts(bundle).rank_ends()
        for end in ends[:MOST_ENDS]:
            console.print(f"Ended: {lazy_rich.escape(clean(end.text))}.", soft_wrap=True)
        if len(ends) > MOST_ENDS:
            console.print(f"Ended: {len(ends) - MOST_ENDS:,} more, later.")
    shown = (*result.verdicts, *result.waits)
    if shown:
        console.print()
    for verdict in shown:
        show_verdict(verdict)
    print_gaps(result.gaps)
    context.exit(exit_status(result))
