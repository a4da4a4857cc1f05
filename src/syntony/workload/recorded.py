"""Converts the store's rows of a job to the tables of a bundle. Pure.

Rows come as columns by table of `syntony.wire.tables`: those of the job's processes, collectives,
steps and flows, and those of its NICs' probes and ports and its hosts' clocks.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from syntony.model import S, format_ns
from syntony.model.names import host_of
from syntony.wire.tables import (
    CLOCK,
    COLLECTIVE,
    GPU,
    JOB_DELAY,
    JOB_FLOW,
    JOB_PROCESS,
    LINK_EVENT,
    LINK_PORT,
    PROBE,
    QUEUE_PAIR,
    STEP,
)
from syntony.wire.traffic import REDRAWN
from syntony.workload.gpu_rows import SLOT, Row, gpu_rows, gpus_of_ranks, known, only_values
from syntony.workload.process_rows import (
    AWAITED_NS,
    STORED_NS,
    Replaced,
    job_end,
    process_rows,
    reported_until_ns,
)
from syntony.workload.queue_pair_flows import queue_pair_flows
from syntony.workload.round_trips import Second, one_way, with_probes
from syntony.workload.schema import FORMAT, NOT_KNOWN, TABLES, VERSION
from syntony.workload.stages import is_from_any

SETTLE_NS = 4 * S
"""Events this shortly before now may not have arrived from all hosts."""
IDLE_SHARE = 0.01
"""Share of the busiest flow's mean rate: a flow with less carries the job's control traffic, not
its data."""
FEW = 0.5
"""Share of the time that a job ran: if its flows were recorded for less, that is said, even if they
only began late or their newest rows are missing."""
DETOUR = " (detour)"
"""Suffix of the name of a flow whose packets have other ports than its sockets."""
DIVIDED_SECONDS = 10
"""Not every second has a measurement of both directions of a flow; one up to this old is used
instead."""
PORT_NS = 1 * S
PORT_LASTS_NS = 70 * S
"""Agents report a port once a minute, and whenever its state changes."""
SLOT_NS = 10 * S
"""Interval of rows of a slot that has not changed: rules need several windows."""
Rows = Mapping[str, Mapping[str, Sequence[Any]]]
"""Table → column → values."""


class RecordedBundle(NamedTuple):
    """A bundle that is not checked yet."""

    manifest: dict[str, Any]
    tables: dict[str, dict[str, list[Any]]]
    """Table → column → values, None for null; only tables with rows."""
    notes: tuple[str, ...]
    """What was left out, and why."""


def recorded(job: str, rows: Rows, first_ns: int, last_ns: int, now_ns: int) -> RecordedBundle:
    """The recording of one job.

    Args:
        job: its name.
        rows: of the store.
        first_ns: begin of the window, fleet time.
        last_ns: its end.
        now_ns: current fleet time.
    """
    notes: list[str] = []
    processes = list(_each(rows, JOB_PROCESS.name))
    operations = _open_or_recent(rows.get(COLLECTIVE.name, {}), first_ns)
    rows = {**rows, COLLECTIVE.name: operations}
    ends = _ends(processes, last_ns, now_ns)
    if any(operations.values()) and ends.silent_ns > AWAITED_NS + STORED_NS:
        silent = format_ns(ends.silent_ns)
        notes.append(f"no host has reported its processes for {silent}: ranks are judged to then")
    begin_ns = max(first_ns, min((each["began_ns"] for each in processes), default=first_ns))
    ran_s = max(0, ends.rows_ns - begin_ns) // S if processes else 0
    clocks = _Clocks(_each(rows, CLOCK.name))
    ranks = _ranks(processes)
    replaced = Replaced(processes, _each(rows, COLLECTIVE.name))
    gpus = list(_each(rows, GPU.name))
    made = {
        "collectives": list(_collectives(rows, replaced, clocks, gpus, notes)),
        "flows": list(_flows(rows, ranks, clocks, ran_s, notes)),
        "probes": [_probe(each) for each in _each(rows, PROBE.name)],
        "links": list(_links(rows)),
        "hosts": [*_hosts(processes, clocks), *gpu_rows(gpus, notes)],
        "processes": list(process_rows(processes, _each(rows, COLLECTIVE.name), replaced)),
        "steps": [_step(each) for each in _each(rows, STEP.name) if each["rank"] >= 0],
    }
    tables = {
        name: columns
        for name, found in made.items()
        if (columns := _columns(name, _before(found, ends.of_table.get(name, ends.rows_ns))))
    }
    manifest = {
        "format": FORMAT, "version": VERSION, "job": job, "timeline": "fleet",
        "begin_ns": min(begin_ns, ends.rows_ns), "end_ns": ends.judged_ns,
    }  # fmt: skip
    return RecordedBundle(manifest, tables, tuple(notes))


class _Ends(NamedTuple):
    """Until when a job is recorded, fleet time."""

    rows_ns: int
    """Rows of tables that are not in `of_table`."""
    of_table: Mapping[str, int]
    judged_ns: int
    """End of the recording."""
    silent_ns: int
    """Time since all hosts had reported their processes."""


def _ends(processes: list[Row], last_ns: int, now_ns: int) -> _Ends:
    settled_ns = min(last_ns, now_ns - SETTLE_NS)
    reported_ns = reported_until_ns(processes, now_ns)
    rows_ns, silent_ns = min(settled_ns, reported_ns), now_ns - reported_ns
    end = job_end(processes)
    if end is None:
        # Flows of a second are stored together, once all hosts have reported them: nothing is
        # waited for.
        return _Ends(rows_ns, {"flows": last_ns}, rows_ns, silent_ns)
    # What its last processes did before they ended says why they did.
    of_table = {
        "flows": min(last_ns, end.begin_ns),
        "collectives": settled_ns,
        "processes": settled_ns,
    }
    return _Ends(min(rows_ns, end.begin_ns), of_table, min(rows_ns, end.at_ns), silent_ns)


def _each(rows: Rows, table: str) -> Iterator[Row]:
    columns = rows.get(table, {})
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _instant(row: Row) -> int:
    found = (row[name] for name in ("at_ns", "enqueue_ns", "begin_ns") if name in row)
    return int(next(found))


def _before(found: list[Row], end_ns: int) -> list[Row]:
    return [each for each in found if _instant(each) < end_ns]


def _columns(table: str, found: list[Row]) -> dict[str, list[Any]]:
    """Only columns with at least one value."""
    names = [column.name for column in TABLES[table]]
    columns = {name: [row.get(name) for row in found] for name in names}
    return {
        name: values
        for name, values in columns.items()
        if any(value is not None for value in values)
    }


def _ranks(processes: list[Row]) -> dict[str, int]:
    """Host → rank, for hosts with one rank only: flows do not name their rank."""
    return only_values((each["host"], each["rank"]) for each in processes if each["rank"] >= 0)


def _open_or_recent(
    operations: Mapping[str, Sequence[Any]], first_ns: int
) -> Mapping[str, Sequence[Any]]:
    """No operations if they are all older than the window and none is open: a job that does
    something else now is not judged by them."""
    if max(operations.get("ts_ns", ()), default=first_ns) >= first_ns:
        return operations
    keys = zip(operations["comm"], operations["rank"], operations["seq"], strict=True)
    newest: defaultdict[str, dict[int, int]] = defaultdict(dict)
    ends: dict[tuple[str, int, int], int] = {}
    for (comm, rank, seq), done_ns in zip(keys, operations["done_ns"], strict=True):
        newest[comm][rank] = max(newest[comm].get(rank, seq), seq)
        ends[comm, rank, seq] = max(ends.get((comm, rank, seq), 0), done_ns)
    still = any(
        len({*last.values()}) > 1 or not all(ends[comm, rank, seq] for rank, seq in last.items())
        for comm, last in newest.items()
    )
    return operations if still else dict.fromkeys(operations, ())


class _Clocks:
    """Quality of hosts' clocks."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._of: defaultdict[str, list[tuple[int, str, float | None]]] = defaultdict(list)
        for each in rows:
            self._of[each["node"]].append((each["ts_ns"], each["state"], each["sigma_ns"]))
        for solutions in self._of.values():
            solutions.sort(key=lambda one: one[0])

    def at(self, host: str, at_ns: int) -> tuple[str | None, float | None]:
        """State and 1-sigma, ns, of the newest solution up to then, else of the first."""
        found = self._between(host, at_ns, at_ns)
        return found[0][1:] if found else (None, None)

    def worst(self, host: str, at_ns: int, end_ns: int) -> tuple[str | None, float | None]:
        """Likewise, of the worst of those between the two instants."""
        found = self._between(host, at_ns, end_ns)
        doubt = [each for each in found if each[1] in NOT_KNOWN]
        return (doubt or found)[0][1:] if found else (None, None)

    def _between(self, host: str, at_ns: int, end_ns: int) -> list[tuple[int, str, float | None]]:
        known = self._of.get(host, [])
        first, last = (
            bisect.bisect_right(known, each, key=lambda one: one[0]) for each in (at_ns, end_ns)
        )
        return known[max(0, first - 1) : max(last, 1)]


def _collectives(
    rows: Rows, replaced: Replaced, clocks: _Clocks, gpus: list[Row], notes: list[str]
) -> Iterator[Row]:
    """Of rows of one operation that which knows its end."""
    gpu_of = gpus_of_ranks(gpus)
    newest: dict[tuple[Any, ...], Row] = {}
    nameless = earlier = 0
    for each in _each(rows, COLLECTIVE.name):
        if each["rank"] < 0:
            nameless += 1
            continue
        if replaced.has(each):
            earlier += 1
            continue
        key = each["comm"], each["seq"], each["rank"], each["pid"]
        known = newest.get(key)
        if known is not None:
            each["dropped"] += known["dropped"]
            each["done_ns"] = max(each["done_ns"], known["done_ns"])
        newest[key] = each
    if nameless:
        notes.append(f"{nameless} collectives of processes that do not say their rank are left out")
    if earlier:
        notes.append(f"{earlier} collectives of earlier processes of their ranks are left out")
    for each in newest.values():
        if is_from_any(each["comm"]) and each["done_ns"]:
            continue  # it is in the communicator of the rank that sent
        yield {
            "comm": each["comm"],
            "seq": each["seq"],
            "op": each["op"],
            "rank": each["rank"],
            "host": each["host"],
            "enqueue_ns": each["ts_ns"],
            "done_ns": each["done_ns"] or None,
            "bytes": float(each["bytes"]),
            "nranks": each["ranks"],
            "gpu": gpu_of.get(each["rank"]),
            "clk_err_ns": clocks.at(each["host"], each["ts_ns"])[1],
            "dropped": each["dropped"],
        }


def _flows(
    rows: Rows, ranks: Mapping[str, int], clocks: _Clocks, ran_s: int, notes: list[str]
) -> Iterator[Row]:
    """One for each direction that carries data. `ran_s`: how long the job ran in the window; 0: not
    known."""
    pairs = queue_pair_flows(
        _each(rows, QUEUE_PAIR.name), _each(rows, LINK_PORT.name),
        lambda host, at_ns: clocks.at(host, at_ns)[1],
    )  # fmt: skip
    rates = {name: [each["rate_bps"] for each in some if "rate_bps" in each]
             for name, some in pairs.items()}  # fmt: skip
    means = {name: statistics.fmean(known) for name, known in rates.items() if known}
    busiest = max(means.values(), default=0.0)
    yield from _tcp_flows(rows, ranks, busiest, ran_s, notes)
    for name, some in pairs.items():
        if name not in means or means[name] > IDLE_SHARE * busiest:
            for each in some:
                near, far = (host_of(each[end]) for end in ("src", "dst"))
                yield each | {"rank": ranks.get(near), "peer_rank": ranks.get(far)}


def _tcp_flows(
    rows: Rows, ranks: Mapping[str, int], busiest_pair: float, ran_s: int, notes: list[str]
) -> Iterator[Row]:
    """A connection on a detour has packets with other ports: that is another flow, of whose links
    only the first and the last are known. `busiest_pair` is the rate of the busiest queue pair,
    bit/s."""
    by_flow: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    foreign: set[tuple[Any, ...]] = set()
    for each in _each(rows, JOB_FLOW.name):
        detour = DETOUR if each["connection"].startswith(REDRAWN) else ""
        key = each["src"], each["sport"], each["dst"], each["dport"], detour
        if "/" in each["dst"]:
            by_flow[key].append(each)
        else:
            foreign.add(key[:4])
    if foreign:
        notes.append(f"{len(foreign)} flows go to addresses of no NIC of the fleet: left out")
    means = {key: statistics.fmean(row["tx_bps"] for row in some) for key, some in by_flow.items()}
    busiest = max([busiest_pair, *means.values()])
    delays = {
        (each["src"], each["sport"], each["dst"], each["dport"], each["ts_ns"]): each
        for each in _each(rows, JOB_DELAY.name)
    }
    notes += _missing({each["ts_ns"] // S for some in by_flow.values() for each in some}, ran_s)
    probes = _probed(rows, {(key[0], key[2]) for key in by_flow})
    for key, some in by_flow.items():
        if means[key] <= IDLE_SHARE * busiest:
            continue
        src, sport, dst, dport, detour = key
        hops = next((each["hops"].split() for each in reversed(some) if each["hops"]), None)
        near, far = (host_of(nic) for nic in (src, dst))
        lately: deque[Second] = deque(maxlen=DIVIDED_SECONDS)
        for each in sorted(some, key=lambda row: row["ts_ns"]):
            sends = each["tx_bps"] > IDLE_SHARE * busiest
            passed = delays.get((*key[:4], each["ts_ns"]), _UNMEASURED)
            back = delays.get((dst, dport, src, sport, each["ts_ns"]), _UNMEASURED)
            there_ns = _measured(passed)
            second = Second(
                each["ts_ns"], each["rtt_ns"] or 0, there_ns, _measured(back),
                max(passed["clk_err_ns"] or 0.0, back["clk_err_ns"] or 0.0),
            )  # fmt: skip
            when = each["ts_ns"] // S, known(each["dscp"])
            probed, returned = probes.get((src, dst, *when)), probes.get((dst, src, *when))
            if probed is not None and returned is not None:
                error_ns = max(probed[1], returned[1])
                second = with_probes(second, probed[0], returned[0], error_ns)
            if each["rtt_ns"]:
                lately.appendleft(second)
            from_ns = each["ts_ns"] - DIVIDED_SECONDS * S
            part_ns, error_ns = one_way([one for one in lately if one.at_ns > from_ns] or [second])
            yield {
                "flow": f"{src}:{sport}>{dst}:{dport}{detour}",
                "at_ns": each["ts_ns"],
                "window_ns": S,
                "src": src,
                "dst": dst,
                "bytes": each["tx_bps"] / 8,
                "rate_bps": each["tx_bps"] if sends else None,
                "owd_p50_ns": part_ns if sends and each["rtt_ns"] else None,
                "rtt_p50_ns": each["rtt_ns"] if sends and each["rtt_ns"] else None,
                "one_way_p50_ns": there_ns,
                "one_way_count": None if there_ns is None else passed["count"],
                "one_way_bound_ns": None if there_ns is None else passed["bound_ns"],
                "one_way_why": passed["why"] or None,
                "hops": hops,
                "rank": ranks.get(near),
                "peer_rank": ranks.get(far),
                "rail": src.partition("/")[2],
                "proto": "tcp",
                "dscp": known(each["dscp"]),
                "retransmits": each["retransmits"],
                "credit_blocked_ns": known(each["window_limited_ns"]),
                # Both timestamps of a round trip come from one clock, those of a segment from two.
                "clk_err_ns": error_ns / math.sqrt(2),
            }


def _missing(seconds: set[int], ran_s: int) -> list[str]:
    """A note if there are seconds without a flow between these, or many around them."""
    if not seconds:
        return []
    spanned = max(seconds) - min(seconds) + 1
    if len(seconds) < FEW * ran_s:
        spanned = max(spanned, ran_s)
    missing = spanned - len(seconds)
    why = "hosts reported too late, or the job had no connection"
    return [f"no TCP flow was recorded in {missing} of {spanned} s: {why}"] if missing else []


def _probed(
    rows: Rows, pairs: Collection[tuple[str, str]]
) -> dict[tuple[str, str, int, float | None], tuple[float, float]]:
    """Median delay of probes and the 1-sigma of their clocks, in ns, by source, destination, second
    and class."""
    found: defaultdict[tuple[str, str, int, float | None], list[tuple[float, float]]]
    found = defaultdict(list)
    for each in _each(rows, PROBE.name):
        if each["count"] and (each["src"], each["dst"]) in pairs:
            key = each["src"], each["dst"], each["ts_ns"] // S, float(each["dscp"])
            found[key].append((each["owd_p50_ns"], each["clk_err_ns"] or 0.0))
    return {
        key: (statistics.median(delay for delay, _ in some), max(error for _, error in some))
        for key, some in found.items()
    }


_UNMEASURED: Row = {"count": 0, "why": "", "clk_err_ns": 0.0}


def _measured(passed: Row) -> int | None:
    return passed["owd_p50_ns"] if passed["count"] else None


def _probe(each: Row) -> Row:
    measured = bool(each["count"])
    return {
        "at_ns": each["ts_ns"],
        "src": each["src"],
        "dst": each["dst"],
        "sent": each["sent"],
        "lost": each["lost"],
        "owd_p50_ns": each["owd_p50_ns"] if measured else None,
        "owd_p99_ns": each["owd_p99_ns"] if measured else None,
        "dscp": each["dscp"],
        "clk_err_ns": each["clk_err_ns"] if measured else None,
        "hops": each.get("hops", "").split() or None,
    }


def _links(rows: Rows) -> Iterator[Row]:
    """Ports as reported, and their losses of carrier."""
    for each in _each(rows, LINK_PORT.name):
        yield {
            "at_ns": each["ts_ns"],
            "window_ns": PORT_NS,
            "link": each["nic"],
            "up": each["state"] == "active",
            "downs": 0,
            "speed_bps": each["gbps"] * 1e9 if each["gbps"] else None,
        }
    yield from _slots(rows)
    for each in _each(rows, LINK_EVENT.name):
        if each["losses"]:
            yield {
                "at_ns": each["ts_ns"],
                "window_ns": PORT_NS,
                "link": each["nic"],
                "downs": each["losses"],
            }


def _slots(rows: Rows) -> Iterator[Row]:
    """NICs' PCIe slots: a slot is as last reported until the next report."""
    looks: defaultdict[str, list[Row]] = defaultdict(list)
    for each in _each(rows, LINK_PORT.name):
        looks[each["nic"]].append({name: known(each[name]) for name in SLOT} | {
            "at_ns": each["ts_ns"], "window_ns": PORT_NS, "link": each["nic"]})  # fmt: skip
    for some in looks.values():
        some.sort(key=_instant)
        for look, after in itertools.zip_longest(some, some[1:]):
            if all(look[name] is None for name in SLOT):
                continue
            last_ns = look["at_ns"] + PORT_LASTS_NS
            last_ns = last_ns if after is None else min(last_ns, after["at_ns"])
            for at_ns in range(look["at_ns"], last_ns, SLOT_NS):
                yield look | {"at_ns": at_ns}


def _hosts(processes: list[Row], clocks: _Clocks) -> Iterator[Row]:
    waits: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for each in processes:
        waits[each["host"], each["ts_ns"]].append(each)
    for (host, at_ns), some in sorted(waits.items()):
        state, sigma_ns = clocks.worst(host, at_ns, at_ns + some[0]["window_ns"])
        yield {
            "at_ns": at_ns,
            "window_ns": some[0]["window_ns"],
            "host": host,
            "runq_ns": sum(each["runq_ns"] for each in some),
            "cpu_ns": sum(each["cpu_ns"] for each in some),
            # The same in all rows of a job, except for processes that have ended.
            "irq_ns": max(
                (spent for each in some if (spent := known(each["irq_ns"])) is not None),
                default=None,
            ),
            "clk_state": state,
            "clk_err_ns": sigma_ns,
        }


def _step(each: Row) -> Row:
    return {
        "step": each["step"],
        "rank": each["rank"],
        "begin_ns": each["ts_ns"],
        "end_ns": each["end_ns"],
        "host": each["host"],
        "data_ns": each["data_ns"],
    }
