"""Placement of a table's flows on a topology's fabric. Pure: columns in, rows out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from syntony.errors import InputError
from syntony.model.names import did_you_mean
from syntony.sim.fluid.net import Net
from syntony.traffic.demand import CandidatePath, Flow, Priority
from syntony.traffic.fair import max_min
from syntony.traffic.place import place

GBPS = 1e9
REQUIRED = ("src", "dst")
OPTIONAL = ("flow_id", "job", "priority", "weight", "demand_gbps", "size", "path", "after")
MAX_FLOWS = 1_000_000


@dataclass(frozen=True, slots=True)
class OfflineFlow:
    src: int
    dst: int
    flow: Flow
    after: str


class Placed(NamedTuple):
    """Placement of one flow."""

    flow: Flow
    path: CandidatePath
    wave: int
    """0 for flows that wait for none; flows of different waves never run at once."""
    rate_gbps: float
    """Max-min rate among its wave."""
    moved: bool


def place_table(columns: Mapping[str, Sequence[Any]], net: Net) -> list[Placed]:
    """Paths for all flows, wave by wave.

    Args:
        columns: see `REQUIRED` and `OPTIONAL`; all of one length.

    Raises:
        InputError: a host that is not there, a flow to itself or twice, a size of nothing, flows
            that wait for each other, or two NICs without a living path between them.
    """
    rows = _rows(columns, net)
    waves = _waves(rows)
    found: list[Placed] = []
    for number in range(max(waves) + 1):
        mine = [row for row, wave in zip(rows, waves, strict=True) if wave == number]
        found += _place_wave(mine, net, number)
    order = {row.flow.flow_id: place_of for place_of, row in enumerate(rows)}
    return sorted(found, key=lambda each: order[each.flow.flow_id])


def _rows(columns: Mapping[str, Sequence[Any]], net: Net) -> list[OfflineFlow]:
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise InputError("missing-columns", f"FLOWS has no column {', '.join(missing)}")
    count = len(columns["src"])
    if not count:
        raise InputError("empty", "FLOWS holds no flows")
    if count > MAX_FLOWS:
        raise InputError("too-large", f"FLOWS holds more than {MAX_FLOWS} flows")
    numbers = {net.nic_name(nic): nic for nic in range(net.nics)}
    rows, seen = [], set()
    for place_of in range(count):
        reported = {name: values[place_of] for name, values in columns.items()}
        row = _row({k: v for k, v in reported.items() if v is not None}, place_of, numbers)
        if row.flow.flow_id in seen:
            raise InputError("duplicate-flow", f"two flows are called {row.flow.flow_id}")
        seen.add(row.flow.flow_id)
        rows.append(row)
    return rows


def _row(reported: Mapping[str, Any], place_of: int, numbers: Mapping[str, int]) -> OfflineFlow:
    name = str(reported.get("flow_id", place_of))
    src, dst = (_nic(reported, end, name, numbers) for end in REQUIRED)
    if src == dst:
        raise InputError("to-itself", f"flow {name} goes from {reported['src']} to itself")
    if "size" in reported:
        _positive(reported["size"], name, "size")
    demand = reported.get("demand_gbps")
    word = str(reported.get("priority", Priority.STANDARD.name)).upper()
    if word not in Priority.__members__:
        known = ", ".join(each.name.lower() for each in Priority)
        raise InputError("bad-priority", f"flow {name}: {word.lower()[:40]!r} is none of {known}")
    flow = Flow(
        flow_id=name,
        job=str(reported.get("job", "")),
        paths=(),
        path_id=str(reported.get("path", "")),
        priority=Priority[word],
        weight=_positive(reported.get("weight", 1.0), name, "weight"),
        demand_bps=None if demand is None else round(GBPS * _positive(demand, name, "demand")),
    )
    return OfflineFlow(src, dst, flow, str(reported.get("after", "")))


def _nic(reported: Mapping[str, Any], end: str, name: str, numbers: Mapping[str, int]) -> int:
    nic = str(reported.get(end, ""))
    if nic not in numbers:
        hint = did_you_mean(nic, numbers)
        raise InputError("unknown-host", f"flow {name}: {end} {nic[:80]!r} is no NIC{hint}")
    return numbers[nic]


def _positive(value: Any, name: str, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 < number < float("inf"):
        raise InputError(f"bad-{what}", f"flow {name}: {what} is {str(value)[:40]}, not above zero")
    return number


def _waves(rows: Sequence[OfflineFlow]) -> list[int]:
    """Number of flows that each waits for, one after the other."""
    before = {row.flow.flow_id: row.after for row in rows}
    depth: dict[str, int] = {}
    for row in rows:
        chain: dict[str, None] = {}
        here = row.flow.flow_id
        while here and here not in depth:
            if here not in before:
                raise InputError("unknown-flow", f"a flow waits for {here[:80]!r}, which is none")
            if here in chain:
                raise InputError("trigger-cycle", f"flow {here} waits for itself")
            chain[here] = None
            here = before[here]
        base = depth[here] + 1 if here else 0
        for place_of, name in enumerate(reversed(chain)):
            depth[name] = base + place_of
    return [depth[row.flow.flow_id] for row in rows]


def _place_wave(rows: Sequence[OfflineFlow], net: Net, wave: int) -> list[Placed]:
    src = np.array([row.src for row in rows])
    dst = np.array([row.dst for row in rows])
    candidates = net.candidates(src, dst)
    names: dict[int, str] = {}
    flows = []
    for number, row in enumerate(rows):
        ways = candidates.ways[candidates.first[number] : candidates.first[number + 1]]
        flows.append(replace(row.flow, paths=_paths(ways.tolist(), net, names)))
    numbers = {name: link for link, name in names.items()}
    capacities = {name: round(GBPS * net.capacity[link]) for name, link in numbers.items()}
    chosen = place(flows, capacities)
    paths = [_named(flow.paths, chosen[flow.flow_id]) for flow in flows]
    rates = _rates(flows, paths, numbers, net)
    return [
        Placed(flow, path, wave, rate, path.path_id != flow.path_id)
        for flow, path, rate in zip(flows, paths, rates, strict=True)
    ]


def _paths(
    ways: Sequence[Sequence[int]], net: Net, names: dict[int, str]
) -> tuple[CandidatePath, ...]:
    """Called by the switches they cross; by their cables where two cross the same."""
    paths = []
    for way in ways:
        for link in way:
            if link >= 0 and link not in names:
                names[link] = net.link_name(link)
        links = tuple(names[link] for link in way if link >= 0)
        paths.append(CandidatePath("/".join(link.partition("->")[2] for link in links[:-1]), links))
    if len({path.path_id for path in paths}) < len(paths):
        paths = [CandidatePath(" ".join(path.links), path.links) for path in paths]
    return tuple(paths)


def _named(paths: Sequence[CandidatePath], path_id: str) -> CandidatePath:
    return next(path for path in paths if path.path_id == path_id)


def _rates(
    flows: Sequence[Flow], paths: Sequence[CandidatePath], numbers: Mapping[str, int], net: Net
) -> list[float]:
    width = max(len(path.links) for path in paths)
    table = np.full((len(paths), width), -1, dtype=np.int32)
    for row, path in enumerate(paths):
        table[row, : len(path.links)] = [numbers[link] for link in path.links]
    weight = np.array([flow.weight for flow in flows])
    demand = [np.inf if f.demand_bps is None else f.demand_bps / GBPS for f in flows]
    found: list[float] = max_min(table, net.capacity, weight, np.array(demand)).tolist()
    return found
