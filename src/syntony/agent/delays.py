"""The newest one-way delays of this host's probes to peers that jobs use. Pure."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from syntony.mesh.stats import Columns
from syntony.wire.traffic import ProbeDelay

MAX_DELAYS = 4_096
"""Maximum number in one report: 200 peers with twenty source ports."""


def recent_delays(
    rows: Columns, host: str, peers: Collection[str], at_ns: int
) -> tuple[ProbeDelay, ...]:
    """Delays of our own probes' requests.

    Args:
        rows: output of `PathSeconds.recent`.
        peers: NICs (``host/nic``) to include.
        at_ns: end of the second that the rows summarise, fleet time.
    """
    chosen = np.flatnonzero(np.asarray(rows["count"]) > 0).tolist()
    sports, least = np.asarray(rows["sport"]), np.asarray(rows["owd_min_ns"])
    p50, p99 = np.asarray(rows["owd_p50_ns"]), np.asarray(rows["owd_p99_ns"])
    found = [
        ProbeDelay(
            nic=rows["src"][row].partition("/")[2],
            dst=rows["dst"][row],
            sport=int(sports[row]),
            at_ns=at_ns,
            least_ns=int(least[row]),
            p50_ns=int(p50[row]),
            p99_ns=int(p99[row]),
        )
        for row in chosen
        if rows["prober"][row] == rows["src"][row]
        and rows["src"][row].startswith(f"{host}/")
        and rows["dst"][row] in peers
    ]
    return tuple(found[:MAX_DELAYS])
