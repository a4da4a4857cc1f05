"""Which workers are lost, from their reports and their silence. Pure."""

from __future__ import annotations

from collections.abc import Collection

from syntony.torch.orders import MS, S, Worker

SILENT_NS = 15 * S
"""A worker is lost when both its keeper and itself were silent for this long: each reports once a
second, and a host that is only short of processor time reports sooner."""
TOGETHER_NS = 500 * MS
"""Ranks that stop within this time have a common cause."""


def of_ranks(ranked: list[Worker], stopped_ns: int, now_ns: int) -> dict[int, str]:
    """Ranks that are lost, with the reason.

    Args:
        ranked: all workers that hold a rank.
        stopped_ns: a worker that is stopped for this long is lost.
        now_ns: of the coordinator, which has been receiving all the time.
    """
    lost = {
        each.rank: "stopped"
        for each in ranked
        if each.rank is not None
        and each.stopped_ns is not None
        and now_ns - each.stopped_ns >= stopped_ns
        and not _paused_with(each, ranked)
    }
    silent = [each for each in ranked if is_silent(each, now_ns)]
    if 2 * len(silent) < len(ranked) or _are_one_host(silent, ranked):
        lost |= {each.rank: "silent" for each in silent if each.rank is not None}
    return lost


def of_spares(workers: Collection[Worker], stopped_ns: int, now_ns: int) -> list[str]:
    """Names of spares that are lost: silent, or stopped for this long while no rank is.

    Args:
        workers: all of the job.
        stopped_ns: as in `of_ranks`.
        now_ns: as in `of_ranks`.
    """
    paused = any(each.rank is not None and each.stopped_ns is not None for each in workers)

    def is_stopped(each: Worker) -> bool:
        return each.stopped_ns is not None and now_ns - each.stopped_ns >= stopped_ns

    return [
        each.name
        for each in workers
        if each.rank is None and (is_silent(each, now_ns) or (is_stopped(each) and not paused))
    ]


def is_silent(worker: Worker, now_ns: int) -> bool:
    """Whether it was silent for `SILENT_NS`."""
    return now_ns - worker.last_received_ns > SILENT_NS


def _paused_with(worker: Worker, ranked: list[Worker]) -> bool:
    """Whether all, or several that are half of all, were stopped together: an operator has paused
    the job."""
    at_ns = worker.stopped_ns or 0
    others = [each.stopped_ns for each in ranked if each.stopped_ns is not None]
    together = sum(abs(each - at_ns) <= TOGETHER_NS for each in others)
    return together == len(ranked) or (together > 1 and 2 * together >= len(ranked))


def _are_one_host(silent: list[Worker], ranked: list[Worker]) -> bool:
    """Whether these are all workers of one host, while others report: that host is gone."""
    hosts = {each.host for each in silent}
    rest = [each for each in ranked if each not in silent]
    return len(hosts) == 1 and bool(rest) and not any(each.host in hosts for each in rest)
