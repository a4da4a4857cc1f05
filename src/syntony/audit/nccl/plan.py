"""Plans the runs: 1, 2, 4 and 8 queue pairs, hosts in job order and fabric order. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from syntony.errors import UsageError

QPS = (1, 2, 4, 8)
SIZES = ("-b", "1G", "-e", "16G", "-f", "2")
"""Where busbw is flat: below 1 GiB latency decides."""
DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,TUNING,GRAPH"}
LAUNCHERS = ("mpirun", "srun", "none")


class Case(msgspec.Struct, frozen=True, order=True):
    qps: int
    ordered: bool
    """By the hierarchy: neighbours in the ring share a leaf where they can."""

    @property
    def check(self) -> str:
        """``nccl.4qp-hier``."""
        return f"nccl.{self.qps}qp" + ("-hier" if self.ordered else "")


def cases() -> tuple[Case, ...]:
    """All eight, flat ones first."""
    return tuple(Case(qps, ordered) for ordered in (False, True) for qps in QPS)


class NcclJob(msgspec.Struct, frozen=True, kw_only=True):
    """How a collective is started."""

    binary: str
    """``all_reduce_perf``."""
    launcher: str
    """One of `LAUNCHERS`."""
    gpus: int
    """Ranks of each host, one GPU each."""
    sizes: tuple[str, ...] = SIZES
    iterations: int = 20
    environment: Mapping[str, str] = {}
    more: tuple[str, ...] = ()
    """Further arguments of nccl-tests."""


def flat_order(hosts: Sequence[str], groups: Mapping[str, str]) -> tuple[str, ...]:
    """As given or, where that is the hierarchy's order, dealt out over the groups one by one.

    Args:
        hosts: as a job would get them.
        groups: host to its leaf or pod; one that is missing is a group of its own.
    """
    given = tuple(hosts)
    if given != ordered(hosts, groups) or len(set(groups.values())) < 2:
        return given
    dealt: dict[str, list[str]] = {}
    for host in given:
        dealt.setdefault(groups.get(host, host), []).append(host)
    rounds = itertools.zip_longest(*dealt.values())
    return tuple(host for each in rounds for host in each if host is not None)


def ordered(hosts: Sequence[str], groups: Mapping[str, str]) -> tuple[str, ...]:
    """Hosts of one group in a row."""
    return tuple(sorted(hosts, key=lambda host: groups.get(host, host)))


def environment(case: Case, job: NcclJob) -> dict[str, str]:
    """Environment variables of the ranks.

    Data is not split over the queue pairs (each message goes by one of them): with a split, the
    slowest would decide and one queue pair could not be reported from eight.
    """
    return {
        **DEBUG,
        "NCCL_IB_QPS_PER_CONNECTION": str(case.qps),
        "NCCL_IB_SPLIT_DATA_ON_QPS": "0",
        **job.environment,
    }


def command(
    case: Case, job: NcclJob, hosts: Sequence[str], report: str, hostfile: str = ""
) -> tuple[str, ...]:  # fmt: skip
    """The command line of one run.

    Args:
        hosts: in the order of their ranks.
        report: where rank 0 writes its JSON.
        hostfile: for srun, a file with a host for every rank (`hostfile_text`).

    Raises:
        UsageError: an unknown launcher, or several hosts without one.
    """
    reported = environment(case, job)
    test = (
        job.binary, *job.sizes, "-g", "1", "-n", str(job.iterations), "-c", "1", *job.more,
        "-J", report,
    )  # fmt: skip
    ranks = len(hosts) * job.gpus
    if job.launcher == "mpirun":
        listed = ",".join(f"{host}:{job.gpus}" for host in hosts)
        exported = [word for name, value in reported.items() for word in ("-x", f"{name}={value}")]
        return (
            "mpirun", "--host", listed, "-np", str(ranks), "--map-by", "slot", "--bind-to", "none",
            *exported, *test,
        )  # fmt: skip
    if job.launcher == "srun":
        words = ("srun", "--nodes", str(len(hosts)), "--ntasks", str(ranks))
        return (*words, "--distribution=arbitrary", f"--nodelist={hostfile}", *test)
    if job.launcher != "none":
        raise UsageError(f"unknown launcher {job.launcher!r}; use {', '.join(LAUNCHERS)}")
    if len(hosts) > 1:
        raise UsageError("several hosts need --launcher mpirun or srun")
    return (*test[: test.index("-g") + 1], str(job.gpus), *test[test.index("-g") + 2 :])


def hostfile_text(hosts: Sequence[str], gpus: int) -> str:
    """One line per rank, as srun's arbitrary distribution reads it."""
    return "".join(f"{host}\n" * gpus for host in hosts)
