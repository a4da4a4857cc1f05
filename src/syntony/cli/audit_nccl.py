"""`syntony audit nccl`: runs collectives over all hosts in eight cases, and judges them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from syntony.audit.nccl.plan import (
    LAUNCHERS,
    QPS,
    Case,
    NcclJob,
    cases,
    command,
    flat_order,
    ordered,
)
from syntony.audit.report.summary import exit_code
from syntony.cli.audit_fabric import read_cabling
from syntony.cli.audit_hosts import host_names
from syntony.cli.audit_run import form_options, print_results
from syntony.cli.audit_sources import ssh_options
from syntony.cli.output import console, messages
from syntony.errors import MissingError, UsageError

if TYPE_CHECKING:
    from syntony.audit.cabling import Cabling
    from syntony.audit.nccl.judge import NcclRun
    from syntony.audit.result import Result
    from syntony.io.audit.collective import RankStarter

_LAB_SIZES, _SIZES = (1 << 20, 1 << 22), (1 << 26, 1 << 28)
"""PyTorch's smallest and largest message: they take seconds at a lab's 200 Mb/s and on real
links."""
_GPUS = 8
"""GPUs of a host under nccl-tests, by default."""
_TORCH = "PyTorch has one connection per pair of ranks: queue pairs cannot be chosen"


class _Requested(msgspec.Struct, frozen=True, kw_only=True):
    hosts: str
    lab: str | None
    local: int
    engine: str
    binary: str
    launcher: str
    gpus: int | None
    topology: Path | None
    python: str | None
    interface: str
    qps: tuple[int, ...]
    runs: int
    iterations: int
    floor: float | None
    nics: int | None
    timeout: float
    hunt: bool
    rails: bool
    ops: bool
    sharp: bool
    dry_run: bool
    ssh: tuple[str, ...]
    form: str | None
    everything: bool


@click.command()
@click.option(
    "--hosts",
    default="",
    show_default=False,
    help="Hosts in the order of ranks: gpu[001-128], or @FILE with one on each line.",
)
@click.option("--lab", help="The hosts of a running lab, with PyTorch and gloo.")
@click.option("--local", type=click.IntRange(2, 64), default=None, help="Ranks on this host.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "nccl-tests", "torch"]),
    default="auto",
    help="auto: nccl-tests if its binary is found, else PyTorch.",
)
@click.option("--binary", default="all_reduce_perf", help="Binary of nccl-tests.")
@click.option(
    "--launcher",
    type=click.Choice(LAUNCHERS),
    default="mpirun",
    help="Program that starts nccl-tests on the hosts.",
)
@click.option(
    "--gpus",
    type=click.IntRange(1, 64),
    help="Ranks on each host. [default: 8; with PyTorch its number of GPUs; in a lab 1]",
)
@click.option(
    "--topology",
    type=click.Path(path_type=Path),
    help="Topology file or output of `ibnetdiscover`, by which hosts are ordered.",
)
@click.option("--python", help="Python interpreter with torch, on the hosts.")
@click.option(
    "--interface", default="", show_default=False, help="Network interface for PyTorch's ranks."
)
@click.option("--qps", type=int, multiple=True, help="Test only these numbers of queue pairs.")
@click.option("--runs", type=click.IntRange(1, 20), default=3, help="Runs of each case.")
@click.option("--iterations", type=click.IntRange(1), default=20, help="All-reduces of a run.")
@click.option(
    "--floor", type=float, help="Lowest bus bandwidth that passes, GB/s. [default: by node type]"
)
@click.option("--nics", type=int, help="NICs of each host. [default: as most hosts have]")
@click.option("--timeout", type=float, default=300.0, help="Time limit of a run, seconds.")
@click.option("--hunt", is_flag=True, help="If a case is slow, find the host by halving the fleet.")
@click.option("--rails", is_flag=True, help="Also test all rails at once, and a slow one alone.")
@click.option(
    "--ops", is_flag=True, help="Also test all_gather, reduce_scatter, alltoall, sendrecv."
)
@click.option(
    "--sharp", is_flag=True, help="Also test with and without reductions in switches (SHARP)."
)
@click.option("--dry-run", is_flag=True, help="Print the commands without running them.")
@ssh_options
@form_options
@click.pass_context
def nccl(context: click.Context, /, **options: object) -> None:
    """Test all-reduce with 1, 2, 4 and 8 queue pairs, in job order and fabric order of hosts.

    Runs all_reduce_perf of nccl-tests, or PyTorch if that is absent (NCCL with GPUs, gloo on
    CPUs without). Exit status: 0 pass, 1 warnings, 2 a result is low or wrong or a run failed, 3 no
    result.

    \b
    Examples:
      syntony audit nccl --hosts @hosts.txt --topology fabric.txt --json
      syntony lab up --detach && syntony audit nccl --lab lab --floor 0.01
    """
    requested = msgspec.convert(
        {**options, "hosts": options["hosts"] or "", "local": options["local"] or 0}, _Requested
    )
    if sum(map(bool, (requested.hosts, requested.lab, requested.local))) != 1:
        raise UsageError("give one of --hosts, --lab, --local")
    hosts, groups = _fleet(requested)
    wanted = [case for case in cases() if case.qps in (requested.qps or QPS)]
    if not wanted:
        raise UsageError(f"--qps takes {', '.join(map(str, QPS))}")
    orders = {False: flat_order(hosts, groups), True: ordered(hosts, groups)}
    torch = _use_torch(requested)
    if torch and (requested.rails or requested.ops or requested.sharp):
        raise UsageError("--rails, --ops and --sharp need nccl-tests; this run would use PyTorch")
    if requested.rails and len(hosts) < 2:
        raise UsageError("--rails needs two hosts or more")
    if requested.dry_run:
        _show_commands(requested, wanted, orders, torch)
        return
    from syntony.audit.nccl.judge import NcclTerms, judge

    skipped = {case: _TORCH for case in wanted if torch and case.qps != wanted[0].qps}
    if len(set(groups.values())) < 2:
        why = "one group only: the order makes no difference (give --topology)"
        skipped |= {case: why for case in wanted if case.ordered}
    start = _torch_starter(requested, hosts) if torch else _nccl_starter(requested)
    runs = _run_all([c for c in wanted if c not in skipped], orders, start, requested)
    terms = NcclTerms(
        floor=requested.floor, nics=requested.nics, skipped=skipped, subject=f"{len(hosts)} hosts"
    )  # fmt: skip
    results = list(judge(runs, terms))
    if not torch:
        results += _extras(requested, hosts)
    if requested.hunt:
        results += _hunt(runs, orders[True], start, requested.floor)
    print_results(results, requested.form, everything=requested.everything)
    context.exit(exit_code(result.status for result in results))


def _fleet(requested: _Requested) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """The hosts, and each one's group."""
    if requested.lab:
        from syntony.audit.cabling import Cabling
        from syntony.lab.client import open_lab
        from syntony.lab.plan import make_plan
        from syntony.lab.topology import topology

        plan = make_plan(open_lab(requested.lab).file().spec)
        return tuple(plan.hosts), _groups(Cabling(topology(plan)))
    if requested.local:
        return tuple(f"rank{number}" for number in range(requested.local)), {}
    hosts = host_names(requested.hosts)
    return hosts, _groups(read_cabling(requested.topology)) if requested.topology else {}


def _groups(cabling: Cabling) -> Mapping[str, str]:
    return {host: group.name for group in cabling.groups for host in group.hosts}


def _use_torch(requested: _Requested) -> bool:
    if requested.lab or requested.local:
        if requested.engine == "nccl-tests":
            raise UsageError(
                "nccl-tests on this host: --hosts NAME --launcher none; a lab has no GPUs"
            )
        return True
    if requested.engine != "auto":
        return requested.engine == "torch"
    return shutil.which(requested.binary) is None


def _show_commands(
    requested: _Requested, wanted: Sequence[Case], orders: Mapping[bool, Sequence[str]], torch: bool
) -> None:
    for case in wanted:
        if torch:
            console.print(f"{case.check}: PyTorch ranks on {' '.join(orders[case.ordered])}")
            continue
        words = command(case, _job(requested), orders[case.ordered], "REPORT.json", "HOSTFILE")
        console.print(f"{case.check}: {' '.join(words)}", soft_wrap=True, markup=False)


def _job(requested: _Requested) -> NcclJob:
    return NcclJob(
        binary=requested.binary, launcher=requested.launcher, gpus=requested.gpus or _GPUS,
        iterations=requested.iterations,
    )  # fmt: skip


def _nccl_starter(requested: _Requested) -> Callable[[Case, Sequence[str]], NcclRun]:
    from syntony.io.audit.collective import run_nccl

    job = _job(requested)
    if requested.launcher != "none" and shutil.which(requested.launcher) is None:
        raise MissingError(
            f"{requested.launcher} is not installed; use --launcher or --engine torch"
        )
    return lambda case, hosts: run_nccl(case, job, hosts, requested.timeout)


def _extras(requested: _Requested, hosts: Sequence[str]) -> Iterator[Result]:
    """The requested runs beyond the eight cases, with the most queue pairs, in the given order of
    hosts."""
    from syntony.audit.nccl import extras
    from syntony.io.audit.collective import run_nccl

    case = Case(max(requested.qps or QPS), ordered=False)
    subject = f"{len(hosts)} hosts"

    def start(job: NcclJob) -> NcclRun:
        return run_nccl(case, job, hosts, requested.timeout)

    wanted = ((requested.rails, extras.rails), (requested.ops, extras.operations),
              (requested.sharp, extras.in_network))  # fmt: skip
    for yes, judge in wanted:
        if yes:
            yield from judge(_job(requested), start, subject)


def _torch_starter(
    requested: _Requested, hosts: Sequence[str]
) -> Callable[[Case, Sequence[str]], NcclRun]:
    from syntony.io.audit.collective import run_torch

    where = _ranks(requested)
    sizes = (*(_LAB_SIZES if requested.lab else _SIZES), requested.iterations)
    per_host = requested.gpus or (_per_host(hosts, where) if requested.hosts else 1)
    return lambda case, hosts: run_torch(
        case, hosts, where, sizes, requested.timeout, per_host=per_host
    )


def _per_host(hosts: Sequence[str], where: RankStarter) -> int:
    """A rank for each GPU; one where there is none. Raises `UsageError`: hosts differ."""
    from syntony.io.audit.collective import count_gpus

    found = count_gpus(hosts, where)
    numbers = sorted(set(found.values()))
    if len(numbers) > 1:
        usual = max(numbers, key=list(found.values()).count)
        odd = next(host for host, gpus in found.items() if gpus != usual)
        raise UsageError(f"{odd} has {found[odd]} GPUs, most have {usual}: leave it out, or --gpus")
    return max(1, numbers[0])


def _ranks(requested: _Requested) -> RankStarter:
    from syntony.io.audit.ranks import LocalRanks, SshRanks

    if requested.hosts:
        return SshRanks(requested.python or "python3", requested.interface, ssh=requested.ssh)
    from syntony.lab.jobs.torch_build import find_torch

    python = requested.python or find_torch()
    if not requested.lab:
        return LocalRanks(python)
    from syntony.lab.client import open_lab
    from syntony.lab.ranks import LabRanks

    return LabRanks(open_lab(requested.lab), python, requested.interface or "rail0")


def _run_all(
    wanted: Sequence[Case], orders: Mapping[bool, Sequence[str]],
    start: Callable[[Case, Sequence[str]], NcclRun], requested: _Requested,
) -> list[NcclRun]:  # fmt: skip
    from rich.progress import track

    todo = [case for _ in range(requested.runs) for case in wanted]
    quiet = not messages.is_terminal
    shown = track(todo, "all-reduce", console=messages.rich, disable=quiet, transient=True)
    return [start(case, orders[case.ordered]) for case in shown]


def _hunt(
    runs: Sequence[NcclRun], hosts: Sequence[str], start: Callable[[Case, Sequence[str]], NcclRun],
    floor: float | None,
) -> list[Result]:  # fmt: skip
    """If the worst run was low, test halves of the fleet until one host is left."""
    from syntony.audit.hunt import GroupHunt
    from syntony.audit.nccl.diagnosis import LOW_SHARE, floor_of, least_hosts, verdicts

    worst = min(runs, key=lambda run: run.output.peak if run.output else 0.0)
    best = max((run.output.peak for run in runs if run.output), default=0.0)
    device = next((run.output.device for run in runs if run.output), "")
    known = floor_of(device, len(hosts))
    limit = floor or (known.gbytes if known else LOW_SHARE * best)
    if worst.output is not None and worst.output.peak >= limit:
        return []
    hunt = GroupHunt(hosts, least=least_hosts(len(hosts)))
    while groups := hunt.next_round():
        messages.print(f"hunt, round {hunt.rounds + 1}: {len(groups)} groups of {len(groups[0])}")
        ended = [start(worst.case, group) for group in groups]
        hunt.report([_passed(run, limit) for run in ended])
    return list(verdicts(hunt.named(), hunt.rounds))


def _passed(run: NcclRun, limit: float) -> bool | None:
    if run.output is not None:
        return run.output.peak >= limit
    return False if run.broke else None
