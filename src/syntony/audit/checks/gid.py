"""4.3 Back-end: the GID that NCCL takes on each port, and whether replies come back by it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from syntony.audit.check import Compare, Key, Section
from syntony.audit.checks.environment import inherited
from syntony.audit.facts import FactError, Facts, needed, text
from syntony.audit.gids import Gid, Preference, gid_table, nccl_choice, preference
from syntony.audit.parse.text import json_of
from syntony.audit.rdma import (
    CLASS,
    IPInterface,
    RdmaCheck,
    RdmaPort,
    addresses_of,
    interfaces_of,
    number_of,
)
from syntony.audit.result import ComparedValue, Result, Suspect
from syntony.links.ports import PortState
from syntony.model.names import natural

_GIDS = (f"{CLASS}/*/ports/*/gids/*", f"{CLASS}/*/ports/*/gid_attrs/types/*",
         f"{CLASS}/*/ports/*/gid_attrs/ndevs/*")  # fmt: skip
_ENVIRONMENT = ("/etc/environment", "/etc/nccl.conf", "/root/.nccl.conf", "/etc/profile.d/*",
                "/etc/environment.d/*", "/etc/security/pam_env.conf.d/*")  # fmt: skip


def roce(ports: tuple[RdmaPort, ...]) -> list[RdmaPort]:
    """The ports that have a choice of GIDs."""
    return [port for port in ports if port.layer == "Ethernet"]


def wanted_family(host: Facts) -> Preference:
    """NCCL's own preference, but of the address family that the host's environment asks for."""
    return Preference(family=preference(inherited(host)[0]).family)


def _describe(gid: Gid | None) -> str:
    if gid is None:
        return "an unset entry"
    address = gid.ipv4 or gid.address
    version = f"RoCE v{gid.version}" if gid.version else "type unknown"
    return f"index {gid.place}: {address} ({version})"


class GidTable(RdmaCheck):
    """On every RoCE port there is an entry that NCCL can use.

    Expected results: the entry that NCCL would choose by itself (IPv4, RoCE v2, not link-local), or
    the one that the host's environment selects, exists on every active RoCE port. Skipped over
    InfiniBand.
    """

    id = "be.gid.table"
    section = Section.GID
    reads = (*_GIDS, *_ENVIRONMENT)
    meaning = "NCCL finds no routable address on this NIC, or only RoCE v1"
    remedy = "give the NIC's interface an IPv4 address; enable RoCE v2"
    suspect = Suspect.CONFIG

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        if not roce(ports):
            yield self.skip(host, "no RoCE port here")
        want = wanted_family(host)
        for port in roce(ports):
            if port.state is not PortState.ACTIVE:
                yield self.skip(host, "the port is not active", port.name)
                continue
            try:
                chosen = nccl_choice(gid_table(host, port), want)
            except FactError as error:
                yield self.unknown(host, str(error), port.name)
                continue
            if chosen is not None and chosen.version is None:
                yield self.unknown(host, "the entries' types cannot be read", port.name)
                continue
            good = chosen is not None and chosen.usable and chosen.version == 2
            good = good and (want.family == 6 or bool(chosen and chosen.ipv4))
            yield self.verdict(good, host, _describe(chosen), "IPv4, RoCE v2, not link-local",
                               f"{port.path}/gids", at=port.name)  # fmt: skip


class GidSame(RdmaCheck):
    """The index that NCCL would choose is one and the same everywhere.

    Expected results: one index on all RoCE ports of the host, equal to the expected one. If not,
    leave NCCL_IB_GID_INDEX unset: no single value is right.
    """

    id = "be.gid.same"
    section = Section.GID
    reads = (*_GIDS, *_ENVIRONMENT)
    meaning = "no value of NCCL_IB_GID_INDEX fits all ports; after a flap an index can move"
    remedy = (
        "leave NCCL_IB_GID_INDEX unset and set NCCL_IB_ADDR_RANGE; or add addresses in one order"
    )
    suspect = Suspect.CONFIG
    keys = (Key("be.gid.index", "GID index that NCCL would choose"),)

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        found: dict[str, int] = {}
        want = wanted_family(host)
        for port in roce(ports):
            try:
                chosen = nccl_choice(gid_table(host, port), want)
            except FactError as error:
                yield self.unknown(host, str(error), port.name)
                continue
            if chosen is not None and port.state is PortState.ACTIVE:
                found[port.name] = chosen.place
        if not roce(ports):
            yield self.skip(host, "no RoCE port here")
        elif found:
            usual, _ = Counter(found.values()).most_common(1)[0]
            odd = [f"{name} {index}" for name, index in found.items() if index != usual]
            yield self.verdict(not odd, host, " ".join(odd) or f"{usual} on all", f"{usual} on all",
                               "NCCL's choice on every RoCE port")  # fmt: skip
            for name, index in found.items():
                yield self.reading(host, "be.gid.index", index, name, evidence="NCCL's choice")


class GidConfigured(RdmaCheck):
    """The host's NCCL settings lead to RoCE v2.

    Expected results: with NCCL_IB_GID_INDEX (or its family, range and version) as the host's files
    set them, every RoCE port gets a RoCE v2 entry that is set and not link-local. Skipped where
    nothing is set.
    """

    id = "be.gid.v2"
    section = Section.GID
    reads = (*_GIDS, *_ENVIRONMENT)
    meaning = "RoCE v1, or no address at all: traffic is not routed, or many times slower"
    remedy = "remove NCCL_IB_GID_INDEX, or set the index that be.gid.same reports"
    suspect = Suspect.CONFIG

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        wanted = roce(ports)
        settings, denied = inherited(host)
        want = preference(settings)
        if not wanted:
            yield self.skip(host, "no RoCE port here")
        elif denied:
            yield self.unknown(host, denied[0])
        elif want == Preference():
            yield self.skip(host, "nothing is set: NCCL chooses by itself (see be.gid.table)")
        else:
            for port in wanted:
                yield self._one(host, port, want)

    def _one(self, host: Facts, port: RdmaPort, want: Preference) -> Result:
        try:
            chosen = nccl_choice(gid_table(host, port), want)
        except FactError as error:
            return self.unknown(host, str(error), port.name)
        good = chosen is not None and chosen.usable and chosen.version == 2
        set_ = ", ".join(f"{name} {value}" for name, value in want._asdict().items()
                         if value not in (None, ""))  # fmt: skip
        return self.verdict(good, host, _describe(chosen), "RoCE v2, not link-local",
                            f"the host's environment: {set_}", at=port.name)  # fmt: skip


class GidAddresses(RdmaCheck):
    """Each NIC answers by itself: its own subnet, or a rule that sends replies back by it.

    Expected results: the addresses of the host's active RoCE ports (or of what is built on them:
    VLANs) lie in different subnets; where several share one, each has a rule (`ip rule from
    ADDRESS`) of its own. No other host has one of them, and the subnets follow the order of the
    NICs as on the other hosts.
    """

    id = "be.gid.ip"
    section = Section.GID
    reads = (*_GIDS, "$ ip -j address show", "$ ip -j rule show", "/sys/class/net/*/*")
    meaning = "replies leave by another NIC: asymmetric paths, drops by rp_filter"
    remedy = "give each rail its subnet, or add a table and a rule for each NIC's address"
    suspect = Suspect.CONFIG
    keys = (
        Key("be.address", "address of a back-end interface", Compare.UNIQUE),
        Key("be.rail-order", "ranks of the NICs' subnets, in the order of the NICs"),
    )

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        active = [port for port in roce(ports) if port.state is PortState.ACTIVE]
        nets = {port.netdev: port.device for port in active if port.netdev}
        if not nets:
            yield self.skip(host, "no RoCE interface here")
            return
        own = {name: found for name in sorted(nets, key=lambda net: natural(nets[net]))
               if (found := addresses_of(host, interfaces_of(host, name)))}  # fmt: skip
        for name, addresses in own.items():
            for address in addresses:
                yield self.reading(host, "be.address", str(address.ip), name,
                                   evidence="ip address")  # fmt: skip
        if len(nets) < 2:
            yield self.skip(host, "fewer than two RoCE interfaces here")
            return
        for name in sorted(nets.keys() - own.keys()):
            yield self.verdict(False, host, f"{name} has no address", "an address",
                               "ip address", at=name)  # fmt: skip
        first = {name: addresses[0] for name, addresses in own.items()}
        yield from self._apart(host, first)
        if first:
            yield self._order(host, first)

    def _apart(self, host: Facts, own: dict[str, IPInterface]) -> Iterator[Result]:
        ruled = self._rules(host)
        subnets = Counter(each.network for each in own.values())
        for name, address in sorted(own.items()):
            alone = subnets[address.network] == 1
            rule = str(address.ip) in ruled
            got = "own subnet" if alone else "own rule" if rule else "shared subnet, no rule"
            yield self.verdict(alone or rule, host, f"{address}: {got}", "own subnet or own rule",
                               "ip address, ip rule", at=name)  # fmt: skip

    def _order(self, host: Facts, own: dict[str, IPInterface]) -> ComparedValue:
        """Subnets differ from pod to pod; the order in which NICs have them does not."""
        ranked = sorted({(each.version, each.network) for each in own.values()})
        places = [str(1 + ranked.index((each.version, each.network))) for each in own.values()]
        reported = ", ".join(f"{name} {address}" for name, address in own.items())
        return self.reading(host, "be.rail-order", " ".join(places), evidence=reported)

    @staticmethod
    def _rules(host: Facts) -> set[str]:
        reported = json_of(needed(host, "ip", "-j", "rule", "show"), "`ip -j rule`")
        rows = reported if isinstance(reported, list) else ()
        return {str(each.get("src")) for each in rows if isinstance(each, dict)}


class GidInfiniBand(RdmaCheck):
    """InfiniBand ports belong to one subnet, under one manager, with LIDs of their own.

    Expected results: the subnet prefix equal to the expected one, no LID twice in the host, the
    subnet manager's LID equal to the expected one. Skipped over Ethernet.
    """

    id = "be.gid.ib"
    section = Section.GID
    reads = (f"{CLASS}/*/ports/*/gids/0", f"{CLASS}/*/ports/*/{{lid,sm_lid}}", "$ ibstat")
    meaning = "two subnet managers, or a port in another subnet: hosts do not see each other"
    remedy = "find the second subnet manager (sminfo, sm_lid); correct its prefix"
    suspect = Suspect.FABRIC
    keys = (
        Key("be.gid.prefix", "subnet prefix of a port", variant="NIC"),
        Key("be.gid.sm-lid", "LID of the subnet manager, as a port reports it", variant="NIC"),
    )

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        wanted = [port for port in ports if port.layer == "InfiniBand"]
        if not wanted:
            yield self.skip(host, "no InfiniBand port here")
            return
        active = [port for port in wanted if port.state is PortState.ACTIVE]
        lids = Counter(port.lid for port in active if number_of(port.lid) is not None)
        for port in active:
            if port.lid and port.lid not in lids:
                yield self.unknown(host, f"{port.path}/lid: {port.lid[:40]!r}", port.name)
        twice = sorted(lid for lid, count in lids.items() if count > 1)
        if lids:
            yield self.verdict(not twice, host, " ".join(twice) or "all different", "all different",
                               f"{CLASS}/*/ports/*/lid", at="lid")  # fmt: skip
        for port in active:
            # Planes and rails may be subnets of their own: a NIC is compared with its namesakes.
            if number_of(port.sm_lid) is not None:
                yield self.reading(host, "be.gid.sm-lid", port.sm_lid, port.name,
                                   variant=port.name, evidence=f"{port.path}/sm_lid")  # fmt: skip
            prefix = text(host, f"{port.path}/gids/0")[:19]
            if re.fullmatch(r"[0-9a-f]{4}(:[0-9a-f]{4}){3}", prefix):
                yield self.reading(host, "be.gid.prefix", prefix, port.name, variant=port.name,
                                   evidence=f"{port.path}/gids/0")  # fmt: skip
        if not active:
            yield self.unknown(host, "no InfiniBand port is active")
