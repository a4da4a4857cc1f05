"""The store's rows of a job's processes: until when they are complete, which processes an earlier
run left behind, when the job ended, and the rows of a bundle's table `processes`. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from syntony.model import S
from syntony.workload.gpu_rows import Row, known

AWAITED_NS = 20 * S
"""If all reports of a host are late, its rows are waited for this long: without them its ranks
would seem to hang."""
STORED_NS = 1 * S
"""Maximum time between the storing of its rows of one instant."""


def reported_until_ns(processes: list[Row], now_ns: int) -> int:
    """Until when all hosts with running processes of the job have reported. A late host is waited
    for `AWAITED_NS`, and as long as no other host has reported, or has reported since then that its
    processes have ended."""
    newest: defaultdict[str, int] = defaultdict(int)
    gone_ns = 0
    for each in _newest(processes):
        last_ns = each["ts_ns"] + each["window_ns"]
        if each["ended"]:
            gone_ns = max(gone_ns, last_ns)
        else:
            newest[each["host"]] = max(newest[each["host"]], last_ns)
    first_ns, last_ns = (of(newest.values(), default=now_ns) for of in (min, max))
    if gone_ns > last_ns:
        last_ns = now_ns
    return max(first_ns - STORED_NS, min(now_ns - AWAITED_NS, last_ns - STORED_NS))


def _newest(processes: list[Row]) -> Collection[Row]:
    """The newest row of each process."""
    newest: dict[tuple[str, int], Row] = {}
    for each in processes:
        key = each["host"], each["pid"]
        if key not in newest or each["ts_ns"] >= newest[key]["ts_ns"]:
            newest[key] = each
    return newest.values()


class Replaced:
    """Processes that have ended and whose ranks have another since, which runs, had operations, or
    began after they had ended: of an earlier run of the job. Nobody waits for them any more."""

    def __init__(self, processes: list[Row], operations: Iterable[Row]) -> None:
        running = [each for each in _newest(processes) if not each["ended"]]
        self._current = {(each["host"], each["pid"]) for each in running}
        self._since_ns: defaultdict[int, int] = defaultdict(int)
        for each in running:
            self._since_ns[each["rank"]] = max(self._since_ns[each["rank"]], each["began_ns"])
        first_ns: dict[int, dict[tuple[str, int], int]] = defaultdict(dict)
        for each in operations:
            times = first_ns[each["rank"]]
            key = each["host"], each["pid"]
            times[key] = min(times.get(key, each["ts_ns"]), each["ts_ns"])
        ended_ns = {(each["host"], each["pid"]): each["ts_ns"] for each in _newest(processes)
                    if each["ended"]}  # fmt: skip
        for rank, times in first_ns.items():
            if rank in self._since_ns:
                continue
            last = max(times, key=lambda process: times[process])
            over_ns = ended_ns.get(last)
            later = [
                each["began_ns"] for each in processes
                if each["rank"] == rank and over_ns and each["began_ns"] > over_ns
            ]  # fmt: skip
            self._current |= set() if later else {last}
            self._since_ns[rank] = max(later, default=times[last])

    def has(self, row: Row) -> bool:
        """Whether an operation is of such a process."""
        mine = (row["host"], row["pid"]) in self._current
        return not mine and self._since_ns.get(row["rank"], 0) > row["ts_ns"]


class JobEnd(NamedTuple):
    """When the last process of a job ended."""

    begin_ns: int
    """Begin of the window in which it did."""
    at_ns: int
    """The instant; the same as `begin_ns` if it is not known."""


def job_end(processes: list[Row]) -> JobEnd | None:
    """When a job ended; None: a process runs, or none is known."""
    newest = _newest(processes)
    if not newest or not all(each["ended"] for each in newest):
        return None
    begin_ns = max(int(each["ts_ns"]) for each in newest)
    return JobEnd(begin_ns, max(begin_ns, *(_ended_ns(each) or 0 for each in newest)))


def _ended_ns(process: Row) -> int | None:
    """When a process ended; None: unknown."""
    lived_ns = known(process["lived_ns"])
    return None if lived_ns is None else int(process["ts_ns"] + lived_ns)


def process_rows(
    processes: list[Row], operations: Iterable[Row], replaced: Replaced
) -> Iterator[Row]:
    """Rows of the table `processes`: readings of each rank's processes that called operations, and
    of later ones once all of these have ended; of a rank of which none called any, of all its
    processes. A data loader has its rank's environment, too."""
    callers: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
    for each in operations:
        if not replaced.has(each):
            callers[each["rank"]].add((each["host"], each["pid"]))
    ended = {(each["host"], each["pid"]): each["ts_ns"] for each in processes if each["ended"]}
    over_ns = {rank: max(ended[process] for process in some)
               for rank, some in callers.items() if some <= ended.keys()}  # fmt: skip
    for each in processes:
        rank, process = each["rank"], (each["host"], each["pid"])
        later = rank in over_ns and each["began_ns"] > over_ns[rank]
        if rank >= 0 and (not callers[rank] or process in callers[rank] or later):
            yield {
                "at_ns": each["ts_ns"],
                "window_ns": each["window_ns"],
                "host": each["host"],
                "rank": rank,
                "pid": each["pid"],
                "state": each["state"] or None,
                "ended": bool(each["ended"]),
                "lived_ns": known(each["lived_ns"]),
                "cpu_ns": each["cpu_ns"],
                "runq_ns": each["runq_ns"],
                "exit_status": known(each["exit_status"]),
                "handles_term": None
                if (term := known(each["handles_term"])) is None
                else bool(term),
                "frame": each["frame"] or None,
                "oom_killed": None if (oom := known(each["oom_killed"])) is None else bool(oom),
            }
