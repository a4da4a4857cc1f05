"""`syntony audit run` and `learn`: collect reports from the hosts and judge them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from syntony.audit import reported
from syntony.audit.judge import Golden
from syntony.audit.learn import learn as make_spec
from syntony.audit.report.documents import junit, markdown, page
from syntony.audit.report.summary import ExitStyle, exit_code
from syntony.audit.result import HostReport, Result, Status
from syntony.audit.runfile import Head
from syntony.cli.audit_parts import (
    ChosenChecks,
    PartOptions,
    choose_checks,
    fleet_reports,
    part_options,
)
from syntony.cli.audit_sources import Sources, collect, now_ns, source_options
from syntony.cli.audit_view import one_line, show
from syntony.cli.output import console, messages
from syntony.errors import InputError, UsageError
from syntony.io.audit.runs import RunWriter, StoredRun, forget_old, state_dir
from syntony.io.files import write_output

if TYPE_CHECKING:
    from syntony.audit.spec import Spec

_NPD_WIDTH = 80
"""node-problem-detector cuts a plugin's message there (max_output_length)."""
_FORMS = ("json", "junit", "html", "md")


def form_options(command: Callable[..., None]) -> Callable[..., None]:
    """``--json``, ``--junit``, ``--html``, ``--md`` (one at most) as `form`, and ``--all``."""
    helps = {"json": "JSON.", "junit": "JUnit's XML.", "html": "one self-contained page.",
             "md": "Markdown for a ticket."}  # fmt: skip
    for form in reversed(_FORMS):
        command = click.option(f"--{form}", "form", flag_value=form, help=f"Print {helps[form]}")(
            command
        )
    return click.option("--all", "everything", is_flag=True, help="Show what passes too.")(command)


@click.command()
@source_options
@part_options
@form_options
@click.option(
    "--golden",
    metavar="HOST|RUN",
    help="Compare with this host: one of the audited hosts, or a saved run of one host.",
)
@click.option("--save", type=click.Path(path_type=Path), help="Where to keep the run.")
@click.option(
    "--resume",
    is_flag=True,
    help="Continue the run in --save's file: audit only the hosts missing there.",
)
@click.option(
    "--exit-style",
    type=click.Choice([style.value for style in ExitStyle]),
    default=ExitStyle.NAGIOS.value,
    help="Program for which the exit code is meant.",
)
@click.option(
    "--report", is_flag=True, hidden=True, help="Print the host's report without verdicts."
)
@click.pass_context
def run(
    context: click.Context, *, sources: Sources, parts: PartOptions, form: str | None,
    everything: bool, golden: str | None, save: Path | None, resume: bool, exit_style: str,
    report: bool,
) -> None:  # fmt: skip
    """Run all checks; show what is wrong, what it means and what to do.

    Runs on this host, on recorded trees (--root), over SSH (--hosts), or through agents (--lab,
    --controller): all sections in parallel, each host and each part with a deadline. A section
    that cannot run here is skipped with the reason. NCCL runs with --nccl only. Values are
    compared with --spec, else with --golden, else with the majority of the audited hosts.

    Exit status (--exit-style nagios): 0 all pass, 1 a warning, 2 a failure, 3 something is unknown.
    npd: 0 ok, 1 not ok, 2 unknown. slurm: 1 for a failure, 3 for an unknown, else 0.

    \b
    Examples:
      syntony lab up --detach && syntony audit run --lab
      syntony audit run --hosts 'gpu[001-128]' --nics 'eth[1-8]' --skip nccl --save run.jsonl
    """
    if resume and save is None:
        raise UsageError("--resume continues a run's file; name it with --save")
    if report:
        for each in collect(sources):
            click.echo(msgspec.json.encode(each))
        return
    todo = choose_checks(sources, parts)
    head = Head(taken_ns=now_ns(), checks=sources.checks, spec=sources.spec_data,
                golden=golden or "")  # fmt: skip
    seen: set[Status] = set()
    collected = _collected(todo, parts, head, save, resume=resume)
    results = collect_statuses(verdicts(collected, sources.spec), seen)
    style = ExitStyle(exit_style)
    if form is None and style is not ExitStyle.NAGIOS:
        click.echo(one_line(results, width=_NPD_WIDTH if style is ExitStyle.NPD else 200))
    else:
        print_results(results, form, everything=everything)
    context.exit(exit_code(seen, style))


class Collected(NamedTuple):
    """Reports that can be read several times, and the golden host."""

    reports: Iterable[HostReport]
    hosts: tuple[str, ...]
    golden: str


def _collected(
    todo: ChosenChecks, parts: PartOptions, head: Head, save: Path | None, *, resume: bool
) -> Collected:
    """Write all reports to disk as they arrive: a fleet's may exceed memory."""
    kept = save or state_dir() / f"run-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.jsonl"
    try:
        with RunWriter(kept, head, resume=resume) as writer:
            for report in fleet_reports(todo, parts, writer.done, writer.parts):
                writer.add(report)
    except OSError as error:
        if save is not None:
            raise InputError("not-writable", f"{kept}: {error.strerror}") from error
        messages.print(f"the run is not kept: {kept}: {error.strerror}", style="yellow")
        found = list(fleet_reports(todo, parts, frozenset(), {}))
        hosts = tuple(report.host for report in found if not report.part)
        return Collected(found, hosts, head.golden)
    if save is None:
        forget_old(kept.parent)
    run = StoredRun(kept)
    return Collected(run, run.hosts, head.golden)


def verdicts(collected: Collected, spec: Spec) -> Iterator[Result]:
    """Verdicts on all reports, compared with the golden host if there is one."""
    return reported.verdicts(collected.reports, spec, _golden(collected))


def collect_statuses(results: Iterable[Result], seen: set[Status]) -> Iterator[Result]:
    """Yield the results unchanged, and add their statuses to `seen`."""
    for result in results:
        seen.add(result.status)
        yield result


def _golden(collected: Collected) -> Golden | None:
    name = collected.golden
    if not name:
        return None
    if name in collected.hosts:
        (report,) = (each for each in collected.reports if each.host == name)
        if report.unreachable:
            raise UsageError(f"the golden host {name} does not answer: {report.unreachable}")
        return Golden(report)
    path = Path(name)
    if not path.is_file():
        hosts = ", ".join(collected.hosts[:6])
        raise UsageError(f"--golden {name}: neither a run's file nor one of the hosts ({hosts})")
    found = list(StoredRun(path))
    if len(found) != 1:
        raise UsageError(f"{name} holds {len(found)} hosts; a golden run holds one")
    return Golden(found[0])


def print_results(results: Iterable[Result], form: str | None, *, everything: bool) -> None:
    """Print results as a document or on the terminal; JSON and the terminal read them once."""
    if form == "json":
        _print_json(results)
    elif form == "junit":
        click.echo(junit(list(results)), nl=False)
    elif form == "html":
        click.echo(page(list(results), "Fleet audit"), nl=False)
    elif form == "md":
        click.echo(markdown(list(results)), nl=False)
    else:
        show(results, everything=everything)


def _print_json(results: Iterable[Result]) -> None:
    """One list, written as it comes."""
    out = console.file
    separator = "[\n  "
    for result in results:
        text = msgspec.json.format(msgspec.json.encode(result), indent=2).decode()
        text = text.replace("\n", "\n  ")
        out.write(f"{separator}{text}")
        separator = ",\n  "
    out.write("\n]\n" if separator.startswith(",") else "[]\n")


@click.command()
@source_options
@click.option("--out", type=click.Path(path_type=Path), help="File to write. [default: stdout]")
def learn(*, sources: Sources, out: Path | None) -> None:
    """Write the expected values of a fleet that is known to be good, as sorted TOML.

    The file expects what most hosts of a role have in common; values without a majority are
    written as comments. Roles and limits come from --spec; without it, all hosts have one role.

    \b
    Example:
      syntony audit learn --lab --out lab.toml && syntony audit run --lab --spec lab.toml
    """
    reports = list(collect(sources))
    silent = [report.host for report in reports if report.unreachable]
    if len(silent) == len(reports):
        raise UsageError(f"nothing to learn from: {', '.join(silent) or 'no host'} did not answer")
    if silent:
        messages.print(f"left out, no answer: {', '.join(silent)}", style="yellow")
    text = make_spec((report for report in reports if not report.unreachable), sources.spec)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        write_output(out, text.encode())
    except OSError as error:
        raise InputError("not-writable", f"{out}: {error.strerror}") from error
