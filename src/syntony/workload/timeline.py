"""A bundle as a trace in Chrome's Trace Event Format, which ui.perfetto.dev opens.

One process for each host with a thread for each rank (collectives and steps as slices), one for the
flows (delays as counters) and one for verdicts (instants). Instants are µs since the recording
began, as floats: ns are kept. Source: the document "Trace Event Format" of the Chromium project.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from syntony.workload.bundle import NULL
from syntony.workload.facts import Facts

if TYPE_CHECKING:
    from syntony.workload.bundle import Bundle
    from syntony.workload.verdict import Verdict

FLOWS_PID, VERDICTS_PID, FIRST_HOST_PID = 1, 2, 10
TIDS = 64
"""Threads of a rank: its steps, then lanes of collectives; slices of a thread may not overlap."""
MAX_FLOWS = 200
"""Flows with a counter: those with the highest delays; a trace with thousands cannot be read."""
ARGUMENTS = ("seq", "bytes", "nranks", "step", "gpu_wait_ns", "credit_wait_ns", "net_wait_ns",
             "recv_wait_ns", "flush_wait_ns", "consume_wait_ns")  # fmt: skip

Event = dict[str, Any]


class Trace(msgspec.Struct, frozen=True, rename="camel"):
    """The JSON object format of a trace."""

    trace_events: list[Event]
    other_data: dict[str, Any]
    display_time_unit: str = "ns"


def trace(bundle: Bundle, verdicts: Iterable[Verdict]) -> Trace:
    """All ranks of a bundle on its timeline, with what was found."""
    facts = Facts(bundle)
    origin = facts.begin_ns
    pids = {host: FIRST_HOST_PID + number for number, host in enumerate(_hosts(bundle))}
    events = [_name("process_name", pid, f"host {host}") for host, pid in pids.items()]
    events += _collectives(bundle, pids, origin, facts.end_ns)
    events += _steps(bundle, pids, facts, origin)
    flows, left_out = _flows(facts, origin)
    events += flows
    events += _verdicts(verdicts, origin)
    about = {"begin_ns": str(origin), "timeline": bundle.manifest.timeline,
             "job": bundle.manifest.job, "flows_left_out": left_out}  # fmt: skip
    events.sort(key=lambda event: (event["ph"] != "M", event.get("ts", 0)))
    return Trace(events, about)


def _hosts(bundle: Bundle) -> list[str]:
    names = {str(name) for table in ("collectives", "steps")
             for name in bundle.table(table).codes("host").values}  # fmt: skip
    return [*sorted(names), "not recorded"]


def _name(what: str, pid: int, name: str, tid: int = 0) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _us(instant_ns: int, origin_ns: int) -> float:
    return (instant_ns - origin_ns) / 1000


def _collectives(bundle: Bundle, pids: dict[str, int], origin: int, end_ns: int) -> Iterator[Event]:
    table = bundle.table("collectives")
    hosts, comms, ops = table.codes("host"), table.codes("comm"), table.codes("op")
    enqueue, done, ranks = table.ints("enqueue_ns"), table.ints("done_ns"), table.ints("rank")
    known = {name: table.numbers(name) for name in ARGUMENTS if name in table and name != "seq"}
    lanes: dict[int, list[int]] = {}
    for row in np.argsort(enqueue, kind="stable"):
        ended = done[row] != NULL and done[row] >= enqueue[row]
        last = int(done[row]) if ended else max(end_ns, int(enqueue[row]))
        arguments = {"comm": str(comms.at(row)), "seq": int(table.ints("seq")[row])}
        arguments |= {name: float(values[row]) for name, values in known.items()
                      if np.isfinite(values[row])}  # fmt: skip
        if not ended:
            arguments["ended"] = "not while it was recorded" if "done_ns" in table else "unknown"
        if not ended and "done_ns" not in table:
            last = int(enqueue[row])
        rank, pid = int(ranks[row]), pids[str(hosts.at(row))]
        busy = lanes.setdefault(rank, [])
        lane = next((each for each, until in enumerate(busy) if until <= enqueue[row]), len(busy))
        if lane == len(busy):
            busy.append(0)
            name = f"rank {rank}" if not lane else f"rank {rank}, {lane + 1}"
            yield _name("thread_name", pid, name, rank * TIDS + min(lane + 1, TIDS - 1))
        busy[lane] = last
        yield {
            "ph": "X", "cat": "collective", "name": str(ops.at(row)), "pid": pid,
            "tid": rank * TIDS + min(lane + 1, TIDS - 1), "ts": _us(int(enqueue[row]), origin),
            "dur": (last - int(enqueue[row])) / 1000, "args": arguments,
        }  # fmt: skip


def _steps(bundle: Bundle, pids: dict[str, int], facts: Facts, origin: int) -> Iterator[Event]:
    table = bundle.table("steps")
    hosts, ranks = table.codes("host"), table.ints("rank")
    begin, end = table.ints("begin_ns"), table.ints("end_ns")
    where = facts.ranks.host if facts.ranks is not None else {}
    named: set[int] = set()
    for row in range(table.rows):
        rank = int(ranks[row])
        host = str(hosts.at(row) or where.get(rank) or "not recorded")
        pid = pids.get(host, pids["not recorded"])
        if rank not in named:
            named.add(rank)
            yield _name("thread_name", pid, f"rank {rank}: steps", rank * TIDS)
        arguments = {name: float(table.numbers(name)[row]) for name in (
            "work", "data_ns", "compute_ns", "comm_ns", "checkpoint_ns")
            if np.isfinite(table.numbers(name)[row])}  # fmt: skip
        yield {
            "ph": "X", "cat": "step", "name": f"step {table.ints('step')[row]}", "pid": pid,
            "tid": rank * TIDS, "ts": _us(int(begin[row]), origin),
            "dur": max(0, int(end[row]) - int(begin[row])) / 1000, "args": arguments,
        }  # fmt: skip


def _flows(facts: Facts, origin: int) -> tuple[list[Event], int]:
    """Delay counters, and how many flows have none because there are too many."""
    flows = facts.flows
    if flows is None:
        return [], 0
    events = [_name("process_name", FLOWS_PID, "flows: in-band delay")]
    known = np.isfinite(flows.raw_delay)
    top = np.where(known, flows.raw_delay, -np.inf).max(axis=1)
    recorded = [int(each) for each in np.argsort(-top, kind="stable") if np.isfinite(top[each])]
    for flow in recorded[:MAX_FLOWS]:
        name = f"{flows.names[flow]} {flows.src[flow]} to {flows.dst[flow]}"
        for window in np.flatnonzero(known[flow]):
            delay_us = float(flows.raw_delay[flow, window]) / 1000
            ts = _us(flows.grid.instant(int(window)), origin)
            events.append(_counter(name, ts, delay_us))
    return events, max(0, len(recorded) - MAX_FLOWS)


def _counter(name: str, ts: float, delay_us: float) -> Event:
    return {"ph": "C", "cat": "flow", "name": name, "pid": FLOWS_PID, "tid": 0, "ts": ts,
            "args": {"delay_us": delay_us}}  # fmt: skip


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
