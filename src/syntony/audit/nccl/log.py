"""Parses NCCL's own log (``NCCL_DEBUG=INFO``) for the transports really used. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import msgspec

_LINE = re.compile(r"(?P<host>[\w.-]+):\d+:\d+ \[\d+\] NCCL (?P<level>INFO|WARN) (?P<text>.*)")
_WARN = re.compile(r"(?P<host>[\w.-]+):\d+:\d+ \[\d+\] .*NCCL WARN (?P<text>.*)")
_NETWORK = re.compile(r"Using network (?P<name>.+?)\s*$")
_NIC = re.compile(r"\[\d+\](?P<nic>[\w.-]+:\d+)/(?P<kind>[\w-]+)")
_CHANNEL = re.compile(
    r"(?:Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\]|CollNet \d+/\d+ : \d+)"
    r"(?: \[(?:send|receive)\])? via (?P<via>\S+)"
)
_VERSION = re.compile(r"NCCL version (?P<version>\d+\.\d+\.\d+)")
_SET = re.compile(r"(?P<name>NCCL_\w+) set by environment to (?P<value>\S+?)\.?\s*$")
_MAX_WARNINGS = 20


class NcclLog(msgspec.Struct, frozen=True):
    """The log of all ranks of one run."""

    networks: tuple[str, ...]
    """``IB``, ``Socket``, a plugin's name: every one that some rank uses."""
    nics: dict[str, tuple[str, ...]]
    """Host to the NICs that NCCL found there: ``mlx5_0:1``."""
    layers: tuple[str, ...]
    """``IB``, ``RoCE``, ``RoCE`` of those NICs."""
    channels: dict[str, int]
    """Transport to the number of channels: ``NET/IB/GDRDMA``, ``P2P/CUMEM``."""
    settings: dict[str, str]
    """What was set by environment and really read."""
    versions: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def reported(self) -> bool:
        return bool(self.networks or self.channels or self.versions)

    @property
    def between_hosts(self) -> int:
        """Channels that leave their host."""
        return sum(count for via, count in self.channels.items() if via.startswith("NET/"))

    @property
    def in_network(self) -> int:
        """Channels that switches reduce (CollNet: SHARP)."""
        return sum(count for via, count in self.channels.items() if via.startswith("COLLNET/"))

    @property
    def direct(self) -> int:
        """Channels where the NIC reads and writes GPU memory itself (GPUDirect RDMA)."""
        return sum(count for via, count in self.channels.items() if "GDRDMA" in via)


def parse_log(text: str) -> NcclLog:
    """Every line of NCCL's that is known; all others are passed over."""
    networks: dict[str, None] = {}
    nics: dict[str, dict[str, None]] = defaultdict(dict)
    layers: dict[str, None] = {}
    channels: Counter[str] = Counter()
    settings: dict[str, str] = {}
    versions: dict[str, None] = {}
    warnings: dict[str, None] = {}
    for line in text.splitlines():
        if match := _VERSION.search(line):
            versions[match["version"]] = None
        if match := _WARN.search(line):
            warnings[f"{match['host']}: {match['text'].strip()[:200]}"] = None
        match = _LINE.search(line)
        if match is None:
            continue
        host, said = match["host"], match["text"]
        if found := _NETWORK.search(said):
            networks[found["name"]] = None
        elif said.lstrip().startswith("NET/") and ": Using " in said:
            for nic, kind in _NIC.findall(said):
                nics[host][nic] = None
                layers[kind] = None
        elif found := _CHANNEL.search(said):
            channels[re.sub(r"/\d+", "", found["via"])] += 1
        elif found := _SET.search(said):
            settings[found["name"]] = found["value"]
    return NcclLog(
        networks=tuple(networks),
        nics={host: tuple(sorted(found)) for host, found in nics.items()},
        layers=tuple(sorted(layers)),
        channels=dict(channels),
        settings=settings,
        versions=tuple(versions),
        warnings=tuple(warnings)[:_MAX_WARNINGS],
    )
