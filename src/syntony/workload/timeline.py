"""Exports a bundle as a trace in Chrome's Trace Event Format, which ui.perfetto.dev opens.

One process for each host with a thread for each rank (collectives and steps as slices) and instants
at which ranks ended, one for the flows (delays as counters) and one for verdicts (instants).
Instants are µs since the recording began, as floats, which keep ns. Source: the document "Trace
Event Format" of the Chromium project.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple

import msgspec
import numpy as np

from syntony.workload.bundle import NULL, Bundle
from syntony.workload.facts import BundleFacts
from syntony.workload.verdict import Verdict

FLOWS_PID, VERDICTS_PID, FIRST_HOST_PID = 1, 2, 10
MAX_FLOWS = 200
"""Maximum flows with a counter: those with the highest delays; a trace with thousands is
unreadable."""
PARTS_OF_STEPS = ("work", "data_ns", "compute_ns", "comm_ns", "checkpoint_ns")
ARGUMENTS = ("bytes", "nranks", "step", "gpu_wait_ns", "credit_wait_ns", "net_wait_ns",
             "recv_wait_ns", "flush_wait_ns", "consume_wait_ns")  # fmt: skip

Event = dict[str, Any]


class TimelineTrace(NamedTuple):
    """A trace: its description, and its events, which are generated as they are read."""

    about: dict[str, Any]
    events: Iterator[Event]


def trace(bundle: Bundle, verdicts: Iterable[Verdict]) -> TimelineTrace:
    """All ranks of a bundle on its timeline, with the findings."""
    facts = BundleFacts(bundle)
    flows = _recorded(facts)
    about = {"begin_ns": str(facts.begin_ns), "timeline": bundle.manifest.timeline,
             "job": bundle.manifest.job,
             "flows_left_out": max(0, len(flows) - MAX_FLOWS)}  # fmt: skip
    return TimelineTrace(about, _events(facts, flows[:MAX_FLOWS], verdicts))


def _events(facts: BundleFacts, flows: list[int], verdicts: Iterable[Verdict]) -> Iterator[Event]:
    bundle, origin = facts.bundle, facts.begin_ns
    pids = {host: FIRST_HOST_PID + number for number, host in enumerate(_hosts(bundle))}
    for host, pid in pids.items():
        yield _name("process_name", pid, f"host {host}")
    tids = count(1)
    yield from _steps(facts, pids, tids)
    yield from _collectives(bundle, pids, tids, origin, facts.end_ns)
    yield from _counters(facts, flows, origin)
    yield from _ends(facts, pids)
    yield from _verdicts(verdicts, origin)


def encoded(made: TimelineTrace) -> Iterator[bytes]:
    """The JSON object format, in pieces: a trace of thousands of ranks is never in memory at
    once."""
    encode = msgspec.json.Encoder().encode
    yield b'{"displayTimeUnit":"ns","otherData":' + encode(made.about) + b',"traceEvents":[\n'
    comma = b""
    for event in made.events:
        yield comma + encode(event)
        comma = b",\n"
    yield b"\n]}\n"


def compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same by gzip, in pieces; the same input gives the same bytes."""
    packer = zlib.compressobj(wbits=31)  # 31: with gzip's header, and no time in it
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


def _hosts(bundle: Bundle) -> list[str]:
    names = {str(name) for table in ("collectives", "steps", "processes")
             for name in bundle.table(table).codes("host").values}  # fmt: skip
    return [*sorted(names), "not recorded"]


def _name(what: str, pid: int, name: str, tid: int = 0) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _us(instant_ns: int, origin_ns: int) -> float:
    return (instant_ns - origin_ns) / 1000


def _collectives(bundle: Bundle, pids: dict[str, int], tids: Iterator[int], origin: int,
                 end_ns: int) -> Iterator[Event]:  # fmt: skip
    """Slices of a thread must not overlap: overlapping operations are on further threads of the
    rank."""
    table = bundle.table("collectives")
    hosts, comms, ops = table.codes("host"), table.codes("comm"), table.codes("op")
    enqueue, done, ranks = table.ints("enqueue_ns"), table.ints("done_ns"), table.ints("rank")
    seqs = table.ints("seq")
    known = {name: table.numbers(name) for name in ARGUMENTS if name in table}
    ended = (done != NULL) & (done >= enqueue)
    open_until = np.maximum(enqueue, end_ns) if "done_ns" in table else enqueue
    until = np.where(ended, done, open_until)
    how = "not while it was recorded" if "done_ns" in table else "unknown"
    lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    """By host and rank: when each thread is free, and its number."""
    for row in np.lexsort((enqueue, ranks)):
        begin, rank, pid = int(enqueue[row]), int(ranks[row]), pids[str(hosts.at(row))]
        busy = lanes.setdefault((pid, rank), [])
        lane = next((each for each, (free, _) in enumerate(busy) if free <= begin), len(busy))
        if lane == len(busy):
            busy.append((0, next(tids)))
            name = f"rank {rank}, {lane + 1}" if lane else f"rank {rank}"
            yield _name("thread_name", pid, name, busy[lane][1])
        tid = busy[lane][1]
        busy[lane] = int(until[row]), tid
        arguments: dict[str, Any] = {"comm": str(comms.at(row)), "seq": int(seqs[row])}
        arguments |= {name: float(values[row]) for name, values in known.items()
                      if np.isfinite(values[row])}  # fmt: skip
        if not ended[row]:
            arguments["ended"] = how
        yield {
            "ph": "X", "cat": "collective", "name": str(ops.at(row)), "pid": pid, "tid": tid,
            "ts": _us(begin, origin), "dur": (int(until[row]) - begin) / 1000, "args": arguments,
        }  # fmt: skip


def _steps(facts: BundleFacts, pids: dict[str, int], tids: Iterator[int]) -> Iterator[Event]:
    table = facts.bundle.table("steps")
    hosts, ranks, steps = table.codes("host"), table.ints("rank"), table.ints("step")
    begin, end = table.ints("begin_ns"), table.ints("end_ns").copy()
    order = np.lexsort((begin, ranks))
    one, two = order[:-1], order[1:]
    # Fleet time is read about once a second: a step may seem to end some ns after the next begins.
    end[one] = np.where(ranks[one] == ranks[two], np.minimum(end[one], begin[two]), end[one])
    known = {name: table.numbers(name) for name in PARTS_OF_STEPS if name in table}
    where = facts.ranks.host if facts.ranks is not None else {}
    threads: dict[int, tuple[int, int]] = {}
    for row in order:
        rank = int(ranks[row])
        if rank not in threads:
            host = str(hosts.at(row) or where.get(rank))
            threads[rank] = pids.get(host, pids["not recorded"]), next(tids)
            yield _name("thread_name", threads[rank][0], f"rank {rank}: steps", threads[rank][1])
        pid, tid = threads[rank]
        yield {
            "ph": "X", "cat": "step", "name": f"step {steps[row]}", "pid": pid,
            "tid": tid, "ts": _us(int(begin[row]), facts.begin_ns),
            "dur": max(0, int(end[row]) - int(begin[row])) / 1000,
            "args": {name: float(values[row]) for name, values in known.items()
                     if np.isfinite(values[row])},
        }  # fmt: skip


def _recorded(facts: BundleFacts) -> list[int]:
    """Flows whose delays are known, those with the highest first."""
    flows = facts.flows
    if flows is None:
        return []
    top = np.where(np.isfinite(flows.raw_delay), flows.raw_delay, -np.inf).max(axis=1)
    return [int(each) for each in np.argsort(-top, kind="stable") if np.isfinite(top[each])]


def _counters(facts: BundleFacts, chosen: list[int], origin: int) -> Iterator[Event]:
    flows = facts.flows
    if flows is None or not chosen:
        return
    yield _name("process_name", FLOWS_PID, "flows: in-band delay")
    for flow in chosen:
        name = f"{flows.names[flow]} {flows.src[flow]} to {flows.dst[flow]}"
        delay = flows.raw_delay[flow]
        for window in np.flatnonzero(np.isfinite(delay)):
            yield {
                "ph": "C", "cat": "flow", "name": name, "pid": FLOWS_PID, "tid": 0,
                "ts": _us(flows.grid.instant(int(window)), origin),
                "args": {"delay_us": float(delay[window]) / 1000},
            }  # fmt: skip


def _ends(facts: BundleFacts, pids: dict[str, int]) -> Iterator[Event]:
    for end in facts.rank_ends():
        yield {
            "ph": "i", "s": "p", "cat": "end", "tid": 0, "name": end.text,
            "pid": pids.get(end.host, pids["not recorded"]),
            "ts": max(0.0, _us(end.at_ns, facts.begin_ns)),
            "args": {"rank": end.rank, "exit_status": end.exit_status,
                     "oom_killed": end.oom_killed, "exact": end.exact},
        }  # fmt: skip


def _verdicts(verdicts: Iterable[Verdict], origin: int) -> Iterator[Event]:
    yield _name("process_name", VERDICTS_PID, "verdicts")
    for verdict in verdicts:
        yield {
            "ph": "i", "s": "g", "cat": "verdict", "pid": VERDICTS_PID, "tid": 0,
            "name": f"{verdict.fault}: {' or '.join(verdict.subjects)}",
            "ts": max(0.0, _us(verdict.onset_ns, origin)),
            "args": {"confidence": verdict.confidence, "action": verdict.action,
                     "evidence": "; ".join(each.text for each in verdict.evidence)},
        }  # fmt: skip
