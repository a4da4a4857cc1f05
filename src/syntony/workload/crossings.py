"""What crosses links: flows, or streams of probes in the windows of the flows.

A job's flows meet its own bursts wherever they send. Probes also sample the queue of a link while
the job is silent, so that what other jobs add to it shows without the scatter of its own. Each kind
is compared with itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from syntony.workload.bundle import Floats
from syntony.workload.flows import Flows, low_delay
from syntony.workload.probe_streams import ProbeStreams, class_of, differ
from syntony.workload.schema import CLASS_COLUMNS


class Crossings:
    """Delays of what crosses links, all of one kind."""

    def __init__(
        self,
        delay: Floats,
        reference: Floats,
        clock_err_ns: Floats,
        hops: Sequence[tuple[str, ...]],
    ) -> None:
        self.delay = delay
        """Median of each window in ns, (rows, windows)."""
        self.reference = reference
        """Delay without queueing, (rows,)."""
        self.clock_err_ns = clock_err_ns
        """1-sigma of the difference of both ends' clocks, (rows,)."""
        self.across: dict[str, set[int]] = defaultdict(set)
        """Rows that cross each link."""
        for row, path in enumerate(hops):
            for link in path:
                self.across[link].add(row)

    def __len__(self) -> int:
        return len(self.delay)


def crossings(flows: Flows, probes: ProbeStreams | None) -> list[Crossings]:
    """Those of flows, and of probes if there are any with a known path."""
    found = [Crossings(flows.delay, flows.reference, flows.clock_err_ns, flows.hops)]
    streams = [] if probes is None else _comparable(flows, probes)
    if probes is not None and streams:
        delay = _in_windows(flows, probes, streams)
        hops = [probes.hops[each] for each in streams]
        found.append(Crossings(delay, low_delay(delay), probes.clock_err_ns[streams], hops))
    return found


def _comparable(flows: Flows, probes: ProbeStreams) -> list[int]:
    """Streams with a known path, in a traffic class of the flows: other classes have other
    queues."""
    columns = np.stack([flows.table.numbers(name)[flows.first_row] for name in CLASS_COLUMNS])
    _, one_of_each = np.unique(np.nan_to_num(columns, nan=-1), axis=1, return_index=True)
    kinds = [class_of(flows.table, int(flows.first_row[each])) for each in one_of_each]
    alike = {kind for kind in set(probes.kind) if any(not differ(kind, each) for each in kinds)}
    return [row for row, kind in enumerate(probes.kind) if probes.hops[row] and kind in alike]


def _in_windows(flows: Flows, probes: ProbeStreams, streams: list[int]) -> Floats:
    """Mean delay of streams in each window of the flows."""
    grid = probes.grid
    middle_ns = grid.begin_ns + np.arange(grid.windows) * grid.width_ns + grid.width_ns // 2
    window = (middle_ns - flows.grid.begin_ns) // flows.grid.width_ns
    inside = np.flatnonzero((window >= 0) & (window < flows.grid.windows))
    delay = probes.delay[streams][:, inside]
    known = np.isfinite(delay)
    total = np.zeros((len(streams), flows.grid.windows))
    count = np.zeros_like(total)
    for place, column in enumerate(window[inside]):
        total[:, column] += np.where(known[:, place], delay[:, place], 0.0)
        count[:, column] += known[:, place]
    with np.errstate(invalid="ignore"):
        mean: Floats = total / count
    return mean
