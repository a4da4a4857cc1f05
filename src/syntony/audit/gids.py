"""The GID table of an RDMA port, and the entry that NCCL would take.

The choice follows `ncclUpdateGidIndex` of NCCL 2.21 and later (src/transport/net_ib.cc): candidates
from 1 upwards replace the choice, which starts at 0, if only they are of the wanted address family
and range, or if only they are of the wanted RoCE version.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from syntony.audit.facts import FactError, Facts, text
from syntony.audit.rdma import RdmaPort

_UNSET = ipaddress.IPv6Address(0)
_VERSIONS = {"RoCE v1": 1, "IB/RoCE v1": 1, "RoCE v2": 2}


class Gid(NamedTuple):
    """One entry that is set."""

    place: int
    """Its index."""
    address: ipaddress.IPv6Address
    version: int | None
    """1 or 2 of RoCE; None where not reported, as over InfiniBand."""
    netdev: str

    @property
    def ipv4(self) -> ipaddress.IPv4Address | None:
        return self.address.ipv4_mapped

    @property
    def usable(self) -> bool:
        """Neither unset nor link-local."""
        return self.address != _UNSET and not self.address.is_link_local


class Preference(NamedTuple):
    """NCCL's GID settings from its environment; the defaults are NCCL's."""

    place: int | None = None
    """NCCL_IB_GID_INDEX"""
    family: int = 4
    """NCCL_IB_ADDR_FAMILY: 4 or 6."""
    range: str = ""
    """NCCL_IB_ADDR_RANGE: a prefix."""
    version: int = 2
    """NCCL_IB_ROCE_VERSION_NUM"""


def gid_table(host: Facts, port: RdmaPort) -> tuple[Gid, ...]:
    """The entries that are set; an empty slot's type cannot be read, which is normal. Raises
    `FactError`: there is no table."""
    found = []
    for name in host.names(f"{port.path}/gids"):
        if not re.fullmatch(r"\d{1,4}", name):
            continue
        address = _address(host, f"{port.path}/gids/{name}")
        if address is None or address == _UNSET:
            continue
        kind = text(host, f"{port.path}/gid_attrs/types/{name}")
        netdev = text(host, f"{port.path}/gid_attrs/ndevs/{name}")
        found.append(Gid(int(name), address, _VERSIONS.get(kind), netdev))
    return tuple(sorted(found))


def nccl_choice(table: tuple[Gid, ...], want: Preference | None = None) -> Gid | None:
    """The entry NCCL would use on a RoCE port; None where it would be an unset one."""
    want = want or Preference()
    entries = {gid.place: gid for gid in table}
    if want.place is not None:
        return entries.get(want.place)
    chosen: Gid | None = entries.get(0)
    for index in range(1, max(entries, default=0) + 1):
        candidate = entries.get(index)
        if candidate is not None and _better(candidate, chosen, want):
            chosen = candidate
    return chosen


def _better(candidate: Gid, chosen: Gid | None, want: Preference) -> bool:
    fits = _family(candidate) == want.family and _in_range(candidate, want)
    # An unset entry is ``::``: of family 6, and of no version.
    family = 6 if chosen is None else _family(chosen)
    if _family(candidate) != family and fits:
        return True
    if not fits or not candidate.usable:
        return False
    version = None if chosen is None else chosen.version
    other = version != candidate.version or chosen is None or not chosen.usable
    return other and candidate.version == want.version


def _family(gid: Gid) -> int:
    return 6 if gid.ipv4 is None else 4


def _in_range(gid: Gid, want: Preference) -> bool:
    if not want.range:
        return True
    try:
        network = ipaddress.ip_network(want.range, strict=False)
    except ValueError:
        return True  # NCCL also ignores an invalid range
    address = gid.ipv4 if want.family == 4 else gid.address
    return address is not None and address.version == network.version and address in network


def _address(host: Facts, path: str) -> ipaddress.IPv6Address | None:
    try:
        return ipaddress.IPv6Address(host.read(path))
    except (FactError, ValueError):
        return None


def preference(environment: dict[str, str]) -> Preference:
    """NCCL's GID settings in a job's environment."""
    index = environment.get("NCCL_IB_GID_INDEX", "")
    version = environment.get("NCCL_IB_ROCE_VERSION_NUM", "")
    return Preference(
        place=int(index) if re.fullmatch(r"\d{1,4}", index) else None,
        family=6 if environment.get("NCCL_IB_ADDR_FAMILY") == "AF_INET6" else 4,
        range=environment.get("NCCL_IB_ADDR_RANGE", ""),
        version=int(version) if re.fullmatch(r"\d", version) else 2,
    )
