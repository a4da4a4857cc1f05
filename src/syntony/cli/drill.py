"""`syntony lab drill`: runs real jobs under scheduled faults, with and without Syntony."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from syntony.cli import drill_rank_loss, drill_slow_job
from syntony.cli._drill import (
    chosen_job,
    conclude,
    lab_option,
    milliseconds,
    positive,
    python_of,
    report_options,
    say,
)
from syntony.cli.lazy import HelpGroup
from syntony.cli.output import console
from syntony.errors import UsageError
from syntony.lab.drill import scenarios
from syntony.lab.jobs import programs
from syntony.view.tables import plain_table

if TYPE_CHECKING:
    from syntony.lab.client import Lab
    from syntony.lab.drill.contention_report import ContentionReport
    from syntony.lab.drill.figures import RunFigures
    from syntony.lab.drill.incast_report import IncastReport
    from syntony.lab.drill.report import NicFlapReport

T = TypeVar("T", bound=msgspec.Struct)
OVER = click.option(
    "--over",
    type=click.Choice(["tcp", "verbs"]),
    default="tcp",
    help="verbs: RDMA between virtual machines, through the NCCL plug-in.",
)
_LIMIT_HELP = "A job that does not end by then hangs, and is killed."
_JOB_HELP = "Job to run. [default: ddp, or builtin without PyTorch]"


@click.group(cls=HelpGroup)
def command() -> None:
    """Real jobs under failure and contention, with and without Syntony.

    Example: syntony lab drill nic-flap --job builtin --fault blackhole
    """


command.add_command(drill_rank_loss.command)
command.add_command(drill_slow_job.command)


@command.command(name="nic-flap")
@lab_option
@click.option("--job", type=click.Choice(list(programs.BY_NAME)), help=_JOB_HELP)
@click.option(
    "--fault", type=click.Choice(scenarios.NAMES), default="link-down", help="Kind of failure."
)
@click.option("--outage", default="5s", metavar="TIME", help="How long each fault lasts.")
@click.option("--limit", default="60s", help=_LIMIT_HELP)
@OVER
@click.option(
    "--nccl",
    type=click.Path(path_type=Path),
    metavar="LIBRARY",
    help="NCCL's library, for the run without Syntony.  [default: the Python package's, if any]",
)
@report_options
def flap(  # noqa: PLR0917 - click calls it by name
    lab: Lab | None,
    job: str | None,
    fault: str,
    outage: str,
    limit: str,
    over: str,
    nccl: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Fail a NIC under a job: without failure, with a failure, with a failure under Syntony.

    Three runs of the same job on four hosts; every result is checked. The table shows the longest
    step, time lost in stalls, and steps per second before, during and after. Jobs named
    builtin… need nothing; the others need PyTorch. Over verbs the job is an all-reduce of
    two hosts without GPUs, through the functions that NCCL would call.

    Example: syntony lab drill nic-flap --job builtin --fault link-down --out /tmp/drill
    """
    from syntony.lab.drill import nic_flap, verbs
    from syntony.lab.drill.chart import make_chart
    from syntony.lab.drill.report import make_report
    from syntony.lab.drill.trial import NicFlapTimes

    outage_ns, limit_ns = positive("--outage", outage), positive("--limit", limit)
    if over == "verbs" and job not in {None, "builtin"}:
        raise UsageError(f"--job {job} cannot run --over verbs; the job there is builtin")
    if over != "verbs" and nccl is not None:
        raise UsageError("--nccl is for --over verbs")
    framework, kind, python = chosen_job("builtin" if over == "verbs" else job)
    times = NicFlapTimes(
        limit_ns=limit_ns, start_s=verbs.START_S if over == "verbs" else NicFlapTimes().start_s
    )
    options = nic_flap.NicFlapOptions(
        framework=framework,
        kind=kind,
        python=python,
        fault=fault,
        outage_ns=outage_ns,
        times=times,
    )
    if over == "verbs":
        options = msgspec.structs.replace(options, nccl=verbs.nccl_transport(nccl))
        if not options.nccl:
            say("no NCCL here (pip install nvidia-nccl-cu13): what the job does today is left out")
        trials = nic_flap.drill_over_verbs(options, say, lab=lab)
    else:
        trials = nic_flap.drill(options, say, lab=lab)
    report = make_report("nic-flap", fault, scenarios.meaning(fault), trials)
    chart = partial(make_chart, trials, report.runs, report.meaning)
    conclude(report, trials, out, as_json=as_json, chart=chart, show=show)


def show(report: NicFlapReport) -> None:
    """Print the table, and where the files are."""
    console.print(
        f"[bold]{report.job}[/], {report.ranks} hosts: {report.meaning}, {report.outage_s:.1f} s"
    )
    table = plain_table(
        "run", "ended", ">median", ">longest", ">stalled", ">before", ">during", ">after", ">seen",
        ">lost", ">wrong", no_wrap=True,
    )  # fmt: skip
    table.padding = (0, 1, 0, 0)
    for run in report.runs:
        table.add_row(*_cells(run))
    console.print(table)
    console.print(
        f"[dim]median and longest step; before, during, after the fault: {report.throughput_unit}; "
        "seen: from the fault to Syntony's first event; lost: ranks that lost a connection; "
        "wrong: wrong results[/]"
    )


def _cells(run: RunFigures) -> tuple[str, ...]:
    rates = (run.throughput_before, run.throughput_during, run.throughput_after)
    return (
        run.name,
        run.outcome,
        _seconds(run.step_p50_s),
        _seconds(run.longest_step_s),
        _seconds(run.stalled_s),
        *(f"{rate:.1f}" for rate in rates),
        "–" if run.detect_ms is None else f"{run.detect_ms:.0f} ms",
        str(run.resets),
        str(run.wrong),
    )


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"


@command.command()
@lab_option
@click.option(
    "--job",
    type=click.Choice(["builtin", "builtin-all-to-all", "all-reduce", "all-to-all"]),
    default="builtin",
    help="Job to run, twice.",
)
@click.option(
    "--hosts", type=click.IntRange(4, 16), help="Number of hosts.  [default: 4; over verbs 2]"
)
@click.option("--spines", type=click.IntRange(2, 8), help="Number of spines.  [default: 2]")
@click.option("--seed", default=1, help="Seed of the switches' ECMP hashes.")
@click.option("--before", help="Length of the phase without Syntony.  [8s; over verbs 20s]")
@click.option("--after", help="Length of the phase with Syntony.  [16s; over verbs 60s]")
@OVER
@report_options
def contention(  # noqa: PLR0917 - click calls it by name
    lab: Lab | None,
    job: str,
    hosts: int | None,
    spines: int | None,
    seed: int,
    before: str | None,
    after: str | None,
    over: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Run two jobs on shared links: with ECMP, then with Syntony switched on during the run.

    Each job has every second host; ECMP chooses the paths. The controller observes, then acts
    when steering is switched on. Every result of every step is checked. Two cores can run four
    hosts at 40 Mb/s. If ECMP happens to place the flows well, try another --seed.

    Over verbs both jobs run between the same two virtual machines: red uses one rail, blue both
    until it is asked to leave red's.

    Example: syntony lab drill contention --out /tmp/drill
    """
    from syntony.lab.drill import contention as drill
    from syntony.lab.drill.contention_report import make_chart, make_report

    framework, kind = programs.by_name(job)
    options = drill.VERBS_OPTIONS if over == "verbs" else drill.ContentionOptions()
    if options.verbs:
        _only_over_tcp({"--job": framework != "builtin", "--hosts": hosts, "--spines": spines})
    spec = options.spec
    options = msgspec.structs.replace(
        options,
        framework=framework,
        kind=kind,
        python=python_of(framework),
        spec=msgspec.structs.replace(
            spec, seed=seed, hosts=hosts or spec.hosts, spines=spines or spec.spines
        ),
        times=_lasting(options.times, before, after),
    )
    trial = drill.drill(options, say, lab=lab)
    report = make_report(trial)
    chart = partial(make_chart, trial, report.figures, report.fabric)
    conclude(report, trial, out, as_json=as_json, chart=chart, show=_show_contention)


@command.command()
@click.option("--pace", is_flag=True, help="Use a link that no job can avoid, and pace the flows.")
@click.option("--seed", default=1, help="Seed of the switches' ECMP hashes.")
@click.option("--before", default="8s", help="Length of the phase with ECMP alone.")
@click.option("--after", default="20s", help="Length of the phase with Syntony.")
@report_options
def qos(  # noqa: PLR0917 - click calls it by name
    pace: bool, seed: int, before: str, after: str, out: Path | None, as_json: bool
) -> None:
    """Run three jobs on a fabric that is too small for them; one has guaranteed bandwidth.

    Six hosts, two rails, two spines for three hosts on each leaf: a third of what the NICs could
    send does not fit. ECMP gives all jobs less; Syntony gives job gold what it can use, and the
    others the rest.

    With --pace three senders share one link to their receiver: gold (guaranteed) can fill 60 % of
    it, grey (standard) 30 %, brown (scavenger) all. TCP gives each about a third; Syntony gives
    gold and grey what they can use, and brown the rest.

    Example: syntony lab drill qos --out /tmp/drill
    """
    from syntony.lab.drill import contention as drill
    from syntony.lab.drill import qos as goal
    from syntony.lab.drill.contention_report import make_chart, make_report

    times = drill.ContentionTimes(
        before_ns=positive("--before", before), after_ns=positive("--after", after)
    )
    if pace:
        trial = goal.link_drill(times, say)
    else:
        trial = drill.drill(goal.make_options(seed, times), say, classes=goal.CLASSES)
    report = make_report(trial, "qos-pace" if pace else "qos")
    chart = partial(make_chart, trial, report.figures, report.fabric)
    conclude(report, trial, out, as_json=as_json, chart=chart, show=_show_qos)


@command.command()
@lab_option
@click.option(
    "--senders", type=click.IntRange(2, 12), help="Number of them.  [default: 4; over verbs 2]"
)
@click.option("--plain", is_flag=True, help="Use plain TCP over one rail.")
@click.option(
    "--step-mib",
    type=click.IntRange(1, 64),
    help="MiB that each sender sends in a step.  [1; over verbs 1/8]",
)
@click.option(
    "--congestion",
    metavar="NAME",
    default="",
    show_default=False,
    help="TCP congestion control.  [default: cubic, else reno]",
)
@click.option("--before", help="Length of the phase without pacing.  [10s; over verbs 20s]")
@click.option("--after", help="Length of the phase with pacing.  [16s; over verbs 60s]")
@OVER
@report_options
def incast(  # noqa: PLR0917 - click calls it by name
    lab: Lab | None,
    senders: int | None,
    plain: bool,
    step_mib: int | None,
    congestion: str,
    before: str | None,
    after: str | None,
    over: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Run an incast: one sender, then all, then all paced, switched on during the run.

    A built-in job gathers 1 MiB (--step-mib) from every sender in each step, over both rails of the
    receiver (--plain: over one); every result is checked. The controller sees the queue at the
    receiver's leaf and gives every flow a rate, which agents enforce. The table shows throughput,
    one-way delay, steps, stalls, packets dropped at the receiver's leaves, and retransmits. Over
    verbs the senders are virtual machines, and the NCCL plug-in paces queue pairs.

    Example: syntony lab drill incast --out /tmp/drill
    """
    from syntony.lab.drill import incast as drill
    from syntony.lab.drill.incast_report import make_chart, make_report

    options = drill.VERBS_OPTIONS if over == "verbs" else drill.IncastOptions()
    if options.verbs:
        _only_over_tcp({"--plain": plain, "--congestion": congestion})
    options = msgspec.structs.replace(
        options,
        senders=senders or options.senders,
        plain=plain,
        elements=step_mib * drill.ELEMENTS if step_mib else options.elements,
        congestion=congestion,
        times=_lasting(options.times, before, after),
    )
    ran = drill.drill(options, say, lab=lab)
    report = make_report(ran)
    conclude(
        report, ran, out, as_json=as_json, chart=partial(make_chart, ran, report), show=_show_incast
    )


def _only_over_tcp(given: dict[str, object]) -> None:
    """Raises `UsageError`: one of these options was given."""
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} is not for --over verbs")


def _lasting(times: T, before: str | None, after: str | None) -> T:
    asked = {"before": before, "after": after}
    given = {f"{k}_ns": positive(f"--{k}", text) for k, text in asked.items() if text is not None}
    return msgspec.structs.replace(times, **given)


def _show_incast(report: IncastReport) -> None:
    from syntony.lab.drill.incast_report import transport

    console.print(
        f"[bold]{report.senders} senders to one receiver[/]; {report.fabric}; {transport(report)}"
    )
    table = plain_table(
        "", ">Mb/s", ">of line", ">delay p50", ">p99", ">step p50", ">p99", ">stalled", ">drops/s",
        ">sent again/s", ">fair", no_wrap=True,
    )  # fmt: skip
    table.padding = (0, 1, 0, 0)
    for phase in (report.alone, report.before, report.after):
        table.add_row(
            phase.name,
            f"{phase.mbps:.1f}",
            f"{phase.of_line:.0%}",
            milliseconds(phase.owd_p50_ms),
            milliseconds(phase.owd_p99_ms),
            f"{phase.step_p50_ms:.0f} ms",
            f"{phase.step_p99_ms:.0f} ms",
            _seconds(phase.stalled_s),
            f"{phase.drops_per_s:.1f}",
            f"{phase.retransmits_per_s:.1f}",
            f"{phase.fairness:.3f}",
        )
    console.print(table)
    after = "never" if report.paced_after_s is None else f"after {report.paced_after_s:.1f} s"
    console.print(
        f"[dim]payload; delay of probes on the flows' links; of fewer than 100 steps or seconds "
        f"p99 is the largest[/]\n"
        f"{report.kept:.2f} × throughput; {report.paced_flows} flows held back, {after}; "
        f"wrong results {report.wrong}, connections lost {report.lost}"
    )


def _show_contention(report: ContentionReport) -> None:
    found = report.figures
    console.print(
        f"[bold]{report.jobs} × {report.job}[/], {report.ranks} ranks each; {report.fabric}"
    )
    jobs = (f">{job}" for job in found.before.mbps)
    heads = ("", *jobs, ">all", ">of optimum", ">shared links", ">delay p50", ">p99")
    table = plain_table(*heads, no_wrap=True)
    for phase in (found.before, found.after):
        table.add_row(
            phase.name,
            *(f"{mbps:.1f}" for mbps in phase.mbps.values()),
            f"{phase.total_mbps:.1f}",
            f"{phase.of_optimum:.0%}",
            f"{phase.shared_links:.1f}",
            milliseconds(phase.owd_p50_ms),
            milliseconds(phase.owd_p99_ms),
        )
    console.print(table)
    resolved = "–" if found.resolved_s is None else f"{found.resolved_s:.1f} s"
    console.print(
        f"[dim]payload, Mb/s; optimum {found.optimum_mbps:.1f}; "
        f"if each job had the fabric alone: {found.alone_mbps:.1f}[/]\n"
        f"{found.gain:.2f} × {found.before.name}; resolved after {resolved}; "
        f"{found.moves} moves of {found.flows} flows, {found.undone} undone, "
        f"{found.refused} refused; wrong results {found.wrong}, connections lost {found.lost}"
    )


def _show_qos(report: ContentionReport) -> None:
    from syntony.lab.drill.qos import guaranteed_shares

    _show_contention(report)
    guaranteed = guaranteed_shares(report.figures)
    console.print(
        f"gold, guaranteed: {guaranteed.before:.0%} of what it does alone without, "
        f"{guaranteed.after:.0%} with Syntony"
    )
