"""`syntony audit bandwidth`: tests the bandwidth of pairs of hosts and names the slow host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import click

from syntony.audit.report.summary import exit_code
from syntony.cli.audit_hosts import (
    every_pair_option,
    host_names,
    plan_option,
    seed_option,
    ssh_hosts_option,
)
from syntony.cli.audit_run import form_options, print_results
from syntony.cli.audit_sources import ssh_options
from syntony.cli.output import messages, print_json
from syntony.errors import UsageError

if TYPE_CHECKING:
    from syntony.audit.hunt import Pair
    from syntony.audit.result import Result
    from syntony.audit.speed_hunt import Speed, SpeedHunt
    from syntony.io.audit.collective import RankStarter

MAX_AT_ONCE = 512
_TCP, _QUEUE_PAIRS = "fe.bw", "be.conn.qp"
_TCP_SHARE, _RDMA_SHARE = 0.90, 0.96
"""Required share of the line rate: TCP loses some to headers and a busy processor; OCI's floors for
RDMA."""


class _Plan(NamedTuple):
    """What to measure for a pair, and the required result."""

    things: tuple[str, ...]
    share: float
    measure: Callable[[Pair], Mapping[str, Speed]]


@click.command()
@ssh_hosts_option
@click.option("--lab", help="The hosts of a running lab.")
@click.option(
    "--rdma",
    default="",
    show_default=False,
    metavar="NICS",
    help="RDMA devices to use in place of TCP, for example mlx5_[0-7].",
)
@click.option("--gdr", is_flag=True, help="With --rdma: also from the memory of GPUs.")
@click.option(
    "--gid", type=click.IntRange(0, 255), help="With --rdma: GID index. [default: perftest's]"
)
@click.option("--nic", default="mgmt0", help="With --lab: the network to test.")
@click.option(
    "--at-least",
    type=float,
    help="Lowest rate that passes, Gb/s. [default: by line rate or the other pairs]",
)
@click.option(
    "--seconds", type=click.IntRange(1, 600), default=5, help="Length of a test, seconds."
)
@click.option("--streams", type=click.IntRange(1, 64), default=8, help="TCP streams of each pair.")
@every_pair_option
@seed_option
@plan_option
@ssh_options
@form_options
@click.pass_context
def bandwidth(
    context: click.Context, *, hosts: str, lab: str | None, rdma: str, gdr: bool, gid: int | None,
    nic: str, at_least: float | None, seconds: int, streams: int, every_pair: bool, seed: int,
    plan: bool, ssh: tuple[str, ...], form: str | None, everything: bool,
) -> None:  # fmt: skip
    """Test bandwidth between hosts: TCP (fe.bw), or RDMA on every NIC (be.conn.qp, .bw, .gdr).

    All hosts are loaded at once, each with one partner, so run this before the job. Suspects are
    tested again with known good partners. A small program runs at both ends during a test; RDMA
    needs perftest's ib_write_bw there. Exit status: 0 all pass, 2 a host or pair fails, 3 no
    result.

    \b
    Examples:
      syntony audit bandwidth --hosts 'gpu[001-128]'
      syntony audit bandwidth --hosts 'gpu[001-128]' --rdma 'mlx5_[0-7]' --gdr
      syntony lab up --detach && syntony audit bandwidth --lab lab --at-least 0.1
    """
    from syntony.audit.speed_hunt import SpeedHunt
    from syntony.io.audit.pair_tests import PairTestOptions, PairTests
    from syntony.lab.client import open_lab

    if bool(lab) == bool(hosts):
        raise UsageError("give one of --lab, --hosts")
    if lab and rdma:
        raise UsageError("a lab has no RDMA; --rdma needs --hosts")
    if not rdma and (gdr or gid is not None):
        raise UsageError("--gdr and --gid need --rdma with the NICs")
    names = open_lab(lab).status().hosts if lab else host_names(hosts)
    if len(names) < 2:
        raise UsageError("pairs need two hosts or more")
    tests = PairTests(_where(lab, nic, ssh), seconds)
    if rdma:
        requested = PairTestOptions(host_names(rdma), -1 if gid is None else gid, gdr)
        things = tuple(
            f"{check} {device}" for check in _checks(gdr) for device in requested.devices
        )
        todo = _Plan(things, _RDMA_SHARE, lambda pair: tests.rdma(pair, requested))
    else:
        todo = _Plan((_TCP,), _TCP_SHARE, lambda pair: {_TCP: tests.tcp(pair, streams)})
    hunt = SpeedHunt(
        names, todo.things, share=todo.share, at_least=at_least, every_pair=every_pair, seed=seed
    )
    if plan:
        print_json([list(map(list, matching)) for matching in hunt.plan])
        return
    _measure(hunt, todo, len(names))
    results = [each for thing in todo.things for each in _verdicts(hunt, thing, len(names))]
    print_results(results, form, everything=everything)
    context.exit(exit_code(result.status for result in results))


def _checks(gdr: bool) -> tuple[str, ...]:
    from syntony.io.audit.pair_tests import BANDWIDTH, GPU_DIRECT

    return (_QUEUE_PAIRS, BANDWIDTH, *((GPU_DIRECT,) if gdr else ()))


def _where(lab: str | None, nic: str, ssh: tuple[str, ...]) -> RankStarter:
    from syntony.io.audit.pair_tests import WORKER
    from syntony.io.audit.ranks import SshRanks

    if not lab:
        return SshRanks("python3", script=WORKER, ssh=ssh)
    from syntony.lab.client import open_lab
    from syntony.lab.ranks import LabRanks

    return LabRanks(open_lab(lab), sys.executable, nic, WORKER)


def _measure(hunt: SpeedHunt, todo: _Plan, hosts: int) -> None:
    with ThreadPoolExecutor(max_workers=min(MAX_AT_ONCE, hosts)) as pool:
        while found := hunt.next_round():
            messages.print(f"round {hunt.rounds + 1} of at most {hunt.planned}: {len(found)} pairs")
            speeds = pool.map(todo.measure, found)
            hunt.report({
                pair: {thing: each[thing] for thing in things}
                for (pair, things), each in zip(found.items(), speeds, strict=True)
            })  # fmt: skip


def _verdicts(hunt: SpeedHunt, thing: str, hosts: int) -> tuple[Result, ...]:
    from syntony.audit.pair_verdicts import HuntProgress, verdicts
    from syntony.audit.registry import every_check

    check, _, device = thing.partition(" ")
    kind = next(each for each in every_check() if each.id == check)
    figures = sorted(hunt.figures(thing))
    said = "all pass"
    if figures and check != _QUEUE_PAIRS:
        said = f"{figures[0]:.4g} to {figures[-1]:.4g} Gb/s"
    tested = HuntProgress(
        hosts, hunt.rounds, hunt.tested(thing), hunt.untested(thing), device, said
    )
    return verdicts(hunt.named(thing), hunt.said[thing], tested, kind())
