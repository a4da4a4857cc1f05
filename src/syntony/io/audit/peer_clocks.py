"""This host's clock compared with its peers', from what its agent knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syntony.errors import RemoteError, UsageError
from syntony.io.fleet_clock import FleetClock
from syntony.io.peers_file import read_peers


def peer_clocks(directory: Path) -> dict[str, Any]:
    """What `syntony audit clocks --json` prints. Raises `MissingError`: no agent runs here."""
    clock = FleetClock(directory)
    peers = read_peers(directory)
    rows: list[dict[str, Any]] = []
    for node in sorted({line.node for line in peers.timelines} - {peers.host}):
        try:
            offset = clock.offset(peers.host, node)
        except (RemoteError, UsageError) as error:
            rows.append({"peer": node, "why": str(error)})
            continue
        rows.append({"peer": node, "offset_ns": offset.offset_ns, "bound_ns": offset.bound_ns})
    return {"host": peers.host, "synthetic": peers.synthetic_clock is not None, "peers": rows}
