"""The flows of a job, worst first, with the delay and loss of its packets and of probes. Pure."""

from __future__ import annotations

import msgspec
import numpy as np

from syntony.workload.bundle import Bundle, Floats
from syntony.workload.flows import Flows
from syntony.workload.grid import median
from syntony.workload.probe_streams import ProbeStreams

NOT_SAMPLED = "not sampled at its sender, or too little was sent"


class FlowLine(msgspec.Struct, frozen=True, kw_only=True):
    """One flow over the whole recording; None: not recorded."""

    flow: str
    src: str
    dst: str
    rate_bps: float | None
    """Median while it sent."""
    in_band_ns: float | None
    """Median delay of the job's own packets; for TCP half of the round trip."""
    worst_in_band_ns: float | None
    """… of its worst window."""
    out_of_band_ns: float | None
    """Median delay of probes between the same NICs at the same time. Half of the round trip if the
    flow's delay is half of its round trip."""
    one_way_ns: float | None
    """Median one-way delay of its own segments from NIC to NIC, in its direction alone."""
    worst_one_way_ns: float | None
    """… of its worst window."""
    one_way_bound_ns: float | None
    """Error bound of these from both clocks."""
    one_way_why: str
    """Why there is no value."""
    probed_one_way_ns: float | None
    """Median one-way delay of probes in its direction at the same time."""
    retransmits: float | None
    hops: tuple[str, ...]


def flow_lines(bundle: Bundle) -> tuple[FlowLine, ...]:
    """All recorded flows, those with the longest delay first, of either kind."""
    table = bundle.tables.get("flows")
    if table is None:
        return ()
    flows = Flows(table)
    probes = ProbeStreams(bundle.tables["probes"]) if "probes" in bundle.tables else None
    trips, one_way = flows.column("rtt_p50_ns"), flows.column("one_way_p50_ns")
    delay = np.where(np.isfinite(trips), trips / 2, flows.raw_delay)
    bound, why = flows.column("one_way_bound_ns", "max"), table.codes("one_way_why")
    reasons = {
        int(place): str(why.at(row)) for row, place in enumerate(flows.of_row) if why.at(row)
    }
    both = {"tcp"} & {str(each) for each in table.codes("proto").values}
    lines = []
    for place, name in enumerate(flows.names):
        src, dst = flows.src[place], flows.dst[place]
        ways = [(src, dst), (dst, src)] if both else [(src, dst)]
        lines.append(
            FlowLine(
                flow=name,
                src=src,
                dst=dst,
                rate_bps=_known(median(flows.rate[place])),
                in_band_ns=_known(median(delay[place])),
                worst_in_band_ns=_worst(delay[place]),
                out_of_band_ns=_probed(probes, ways, flows),
                one_way_ns=_known(median(one_way[place])),
                worst_one_way_ns=_worst(one_way[place]),
                one_way_bound_ns=_worst(bound[place]),
                one_way_why=""
                if np.isfinite(one_way[place]).any()
                else reasons.get(place, NOT_SAMPLED),
                probed_one_way_ns=_probed(probes, [(src, dst)], flows),
                retransmits=_known(np.nansum(flows.retransmits[place]))
                if np.isfinite(flows.retransmits[place]).any()
                else None,
                hops=tuple(flows.hops[place]),
            )
        )
    return tuple(sorted(lines, key=lambda each: (-_longest(each), each.flow)))


def _longest(line: FlowLine) -> float:
    return max(line.in_band_ns or 0.0, line.one_way_ns or 0.0)


def _probed(probes: ProbeStreams | None, ways: list[tuple[str, str]], flows: Flows) -> float | None:
    if probes is None:
        return None
    grid = flows.grid
    levels = [
        probes.level(probes.streams.get(way, []), grid.begin_ns, grid.instant(grid.windows))
        for way in ways
    ]
    known = [each for each in levels if each is not None]
    return float(np.mean(known)) if len(known) == len(ways) else None


def _worst(delays: Floats) -> float | None:
    return float(np.nanmax(delays)) if np.isfinite(delays).any() else None


def _known(value: float | Floats) -> float | None:
    return float(value) if np.isfinite(value) else None
