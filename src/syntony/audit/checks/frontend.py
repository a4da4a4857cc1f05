"""3 Front-end network: the interface of the default route, names, and the ways to other hosts."""

from __future__ import annotations

import ipaddress
import re
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from syntony.audit.check import Compare, HostCheck, Key, Section
from syntony.audit.facts import AbsentError, Facts, UnreadableError, text
from syntony.audit.parse.proc_routes import default_routes_4, default_routes_6
from syntony.audit.parse.text import json_of, whole
from syntony.audit.pci import CLASS_NET
from syntony.audit.presence import PRESENT
from syntony.audit.result import ComparedValue, Result, Status, Suspect
from syntony.links.ports import REMEDIES, PortState
from syntony.links.roles import LinkRole
from syntony.links.snapshot import PortSnapshot
from syntony.model import format_ns


class DefaultGateway(NamedTuple):
    family: str
    """``IPv4`` or ``IPv6``."""
    interface: str


def default_routes(host: Facts) -> tuple[DefaultGateway, ...]:
    """Every default route, IPv4 before IPv6. Raises `FactError` where no table is reported."""
    four = default_routes_4(host.read("/proc/net/route"))
    six = default_routes_6(text(host, "/proc/net/ipv6_route"))
    found = [DefaultGateway("IPv4", name) for name in four]
    return (*found, *(DefaultGateway("IPv6", name) for name in six))


def default_interfaces(host: Facts) -> tuple[str, ...]:
    """Interfaces of default routes. Raises `FactError` where no table is reported."""
    return tuple(dict.fromkeys(route.interface for route in default_routes(host)))


class DefaultRoute(HostCheck):
    """The host has a way out, as the others have.

    Expected results: a default route, by IPv4, IPv6 or both as on the other hosts; one on a closed
    network has none, and then nothing else of the front end is examined.
    """

    id = "fe.route"
    section = Section.FRONTEND
    reads = ("/proc/net/route", "/proc/net/ipv6_route")
    meaning = "nothing outside the host's own subnets can be reached: storage, registry, scheduler"
    remedy = "look at the network's configuration (DHCP, netplan, NetworkManager) of this host"
    suspect = Suspect.CONFIG
    keys = (Key("fe.route", "default route", Compare.PRESENT, variant="family"),)

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        found = default_routes(host)
        for family in dict.fromkeys(route.family for route in found):
            names = " ".join(route.interface for route in found if route.family == family)
            yield self.reading(host, "fe.route", PRESENT, variant=family, evidence=names)
        if not found:
            yield self.skip(host, "no default route")


class FrontendCheck(HostCheck):
    """A check of the front end's interfaces, which hosts without a default route skip."""

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        names = default_interfaces(host)
        if names:
            yield from self.look(host, names)
        else:
            yield self.skip(host, "no default route")

    @abstractmethod
    def look(self, host: Facts, names: tuple[str, ...]) -> Iterator[Result | ComparedValue]:
        """Like `HostCheck.test`, for the interfaces of default routes."""


class Interface(FrontendCheck):
    """The front-end interface is up, at full speed, with both legs of its bond.

    Expected results: carrier, full duplex; MTU and speed equal to the expected values; of a bond,
    every leg up and, under LACP, in one aggregator. Skipped without a default route.
    """

    id = "fe.iface"
    section = Section.FRONTEND
    reads = ("/proc/net/route", "/proc/net/ipv6_route", "/sys/class/net/*/{operstate,speed,mtu}",
             "/proc/net/bonding/*")  # fmt: skip
    meaning = "one leg down or half the speed: data loading and checkpoints crawl"
    remedy = "look at the cable and at the switch port of the leg named"
    suspect = Suspect.CABLE
    keys = (
        Key("fe.mtu", "MTU of the front-end interface"),
        Key("fe.speed", "Mb/s of the front-end interface", unit="Mb/s"),
    )

    def look(self, host: Facts, names: tuple[str, ...]) -> Iterator[Result | ComparedValue]:
        for name in names:
            base = f"{CLASS_NET}/{name}"
            state = host.read(f"{base}/operstate")
            # Tunnels and the like have no carrier of their own and say so.
            yield self.verdict(state in {"up", "unknown"}, host, state, "up", f"{base}/operstate",
                               at=name)  # fmt: skip
            for key, file in (("fe.mtu", "mtu"), ("fe.speed", "speed")):
                value = whole(text(host, f"{base}/{file}"))
                if value is not None:  # a virtual interface has no speed
                    yield self.reading(host, key, value, name, evidence=f"{base}/{file}")
            yield from self._duplex(host, name)
            yield from self._bond(host, name)

    def _duplex(self, host: Facts, name: str) -> Iterator[Result]:
        duplex = text(host, f"{CLASS_NET}/{name}/duplex")
        if duplex not in {"", "unknown"}:
            yield self.verdict(duplex == "full", host, duplex, "full", f"{CLASS_NET}/{name}/duplex",
                               at=name)  # fmt: skip

    def _bond(self, host: Facts, name: str) -> Iterator[Result]:
        path = f"/proc/net/bonding/{name}"
        try:
            legs = parse_bond(host.read(path))
        except AbsentError:
            return
        if not legs:
            yield self.unknown(host, f"{path} reports no leg", name)
            return
        down = [leg for leg, state, _ in legs if state != "up"]
        yield self.verdict(not down, host, f"down: {' '.join(down)}" if down else "all up",
                           f"{len(legs)} legs up", path, at=name)  # fmt: skip
        groups = {group for _, _, group in legs if group}
        yield self.verdict(len(groups) <= 1, host, f"{len(groups)} aggregators", "one aggregator",
                           path, at=name, suspect="switch")  # fmt: skip


def parse_bond(text: str) -> list[tuple[str, str, str]]:
    """(leg, MII status, aggregator) of every leg in a file of /proc/net/bonding."""
    found = []
    for block in re.split(r"^Slave Interface:", text, flags=re.MULTILINE)[1:]:
        name = block.partition("\n")[0].strip()
        status = re.search(r"^MII Status: (\S+)", block, re.MULTILINE)
        group = re.search(r"^Aggregator ID: (\S+)", block, re.MULTILINE)
        found.append((name, status[1] if status else "?", group[1] if group else ""))
    return found


_ERRORS = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_missed_errors", "rx_fifo_errors",
           "tx_carrier_errors", "collisions")  # fmt: skip
_LOOK_NS = 3_000_000_000


class Errors(FrontendCheck):
    """The front-end interface counts no errors.

    Expected results: no error counted between two looks 3 s apart, and fewer than one in a million
    packets since boot; of a recorded tree with one look, only the latter.
    """

    id = "fe.errors"
    section = Section.FRONTEND
    reads = ("/sys/class/net/*/statistics/*", "/sys/class/net/*/carrier_changes")
    meaning = "a bad cable, port or driver loses packets"
    remedy = "swap the cable; then the port"
    suspect = Suspect.CABLE

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        per_packet: float = 1e-6

    limits: Input

    def look(self, host: Facts, names: tuple[str, ...]) -> Iterator[Result | ComparedValue]:
        for name in names:
            first = self._counts(host, name)
            packets = first.pop("rx_packets", 0) + first.pop("tx_packets", 0)
            if not first:
                yield self.unknown(host, f"{CLASS_NET}/{name}/statistics cannot be read", name)
                continue
            bad = {key: value for key, value in first.items()
                   if value > self.limits.per_packet * max(packets, 1)}  # fmt: skip
            got = ", ".join(f"{value} {key}" for key, value in bad.items()) or "few or none"
            yield self.verdict(
                not bad, host, got, f"≤ {self.limits.per_packet:g} of packets",
                f"{packets} packets since boot", at=name, bad=Status.WARN,
            )  # fmt: skip
            yield from self._growing(host, name, first)

    def _growing(self, host: Facts, name: str, first: dict[str, int]) -> Iterator[Result]:
        later = host.later(_LOOK_NS)
        if later is None:
            return
        now = self._counts(later, name)
        grown = {key: now[key] - first[key] for key in first if now.get(key, 0) > first[key]}
        got = ", ".join(f"{value} {key}" for key, value in grown.items()) or "none"
        yield self.verdict(not grown, host, got, "none", f"two looks {format_ns(_LOOK_NS)} apart",
                           at=name)  # fmt: skip

    @staticmethod
    def _counts(host: Facts, name: str) -> dict[str, int]:
        read = {key: whole(text(host, f"{CLASS_NET}/{name}/statistics/{key}"))
                for key in (*_ERRORS, "rx_packets", "tx_packets")}  # fmt: skip
        return {key: value for key, value in read.items() if value is not None}


class Address(FrontendCheck):
    """The host has its address, its name leads there, and no other host has it.

    Expected results: the default interface has a global address that is not tentative or found to
    be a duplicate, and that no other host has; the host's name resolves, and not only to a loopback
    address; name servers are configured, equal to the expected ones; the gateway is no failed
    neighbour.
    """

    id = "fe.addr"
    section = Section.FRONTEND
    reads = ("$ ip -j address show", "$ ip -j neigh show", "$ getent ahosts HOST",
             "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", "/proc/net/route",
             "/proc/net/ipv6_route")  # fmt: skip
    meaning = "jobs cannot find the host, or find another"
    remedy = "correct the address, /etc/hosts or DNS"
    suspect = Suspect.CONFIG
    keys = (
        Key("fe.address", "address of a front-end interface", Compare.UNIQUE),
        Key("fe.dns", "sorted addresses of the name servers"),
    )

    def look(self, host: Facts, names: tuple[str, ...]) -> Iterator[Result | ComparedValue]:
        own = records(json_of(host.run("ip", "-j", "address", "show"), "`ip -j address`"))
        for name in names:
            yield from self._own(host, name, own)
        for look in (self._name, self._servers, self._gateways):
            yield from self.part(host, look(host), look.__name__.strip("_"))

    def _own(
        self, host: Facts, name: str, links: list[dict[str, Any]]
    ) -> Iterator[Result | ComparedValue]:
        addresses = [
            each
            for link in links
            if link.get("ifname") == name
            for each in records(link.get("addr_info"))
            if each.get("scope") == "global"
        ]
        bad = [str(each.get("local")) for each in addresses
               if each.get("dadfailed") or each.get("tentative")]  # fmt: skip
        got = " ".join(str(each.get("local")) for each in addresses) or "none"
        good = bool(addresses) and not bad
        yield self.verdict(good, host, got, "a global address, no duplicate", "ip address", at=name)
        for each in addresses:
            yield self.reading(host, "fe.address", str(each.get("local")), name,
                               evidence="ip address")  # fmt: skip

    def _name(self, host: Facts) -> Iterator[Result]:
        try:
            answer = host.run("getent", "ahosts", host.host)
        except AbsentError as error:
            raise UnreadableError(str(error)) from error
        except UnreadableError:
            yield self.verdict(False, host, "does not resolve", "an address", "getent ahosts",
                               at="name", bad=Status.WARN)  # fmt: skip
            return
        found = {line.split()[0] for line in answer.splitlines() if line.split()}
        outside = {each for each in found if not _is_loopback(each)}
        yield self.verdict(bool(outside), host, " ".join(sorted(found)), "not only a loopback",
                           "getent ahosts", at="name", bad=Status.WARN)  # fmt: skip

    def _servers(self, host: Facts) -> Iterator[Result | ComparedValue]:
        path, servers = "/etc/resolv.conf", _name_servers(host, "/etc/resolv.conf")
        if servers == [_STUB]:
            # systemd-resolved answers for servers that it lists elsewhere.
            path, servers = _BEHIND_STUB, _name_servers(host, _BEHIND_STUB)
        yield self.verdict(bool(servers), host, " ".join(servers) or "none", "a name server",
                           path, at="servers", bad=Status.WARN)  # fmt: skip
        if servers:
            yield self.reading(host, "fe.dns", " ".join(sorted(servers)), "servers",
                               evidence=path)  # fmt: skip

    def _gateways(self, host: Facts) -> Iterator[Result]:
        rows = [line.split() for line in host.read("/proc/net/route").splitlines()[1:]]
        gateways = {_dotted(row[2]) for row in rows
                    if len(row) > 7 and row[1] == row[7] == "00000000"}  # fmt: skip
        neighbours = records(json_of(host.run("ip", "-j", "neigh", "show"), "`ip -j neigh`"))
        failed = [
            str(each.get("dst"))
            for each in neighbours
            if each.get("dst") in gateways and "FAILED" in (each.get("state") or ())
        ]
        yield self.verdict(not failed, host, " ".join(failed) or "none failed", "none failed",
                           "ip neigh", at="gateway")  # fmt: skip


_STUB, _BEHIND_STUB = "127.0.0.53", "/run/systemd/resolve/resolv.conf"


def _name_servers(host: Facts, path: str) -> list[str]:
    return re.findall(r"^\s*nameserver\s+(\S+)", host.read(path), re.MULTILINE)


def records(found: Any) -> list[dict[str, Any]]:
    """The objects of a JSON list."""
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _is_loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def _dotted(text: str) -> str:
    """``0100007F`` of /proc/net/route, in the host's byte order (little-endian everywhere here)."""
    if not re.fullmatch(r"[0-9A-Fa-f]{8}", text):
        return ""
    return str(ipaddress.IPv4Address(bytes.fromhex(text)[::-1]))


class FrontendPorts(HostCheck):
    """Other front-end ports with a cable are up.

    Expected results: every physical front-end port that is not administratively down has a carrier;
    a warning, since spare ports are common.
    """

    id = "fe.ports"
    section = Section.FRONTEND
    reads = ("/sys/class/net/*/{carrier,flags}",)
    meaning = "a cable is out or broken, or the far port is off"
    remedy = REMEDIES[PortState.NO_PEER]
    suspect = Suspect.CABLE

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        found: list[PortSnapshot] = [
            port for port in host.ports() if port.role is LinkRole.FRONTEND
        ]
        if not found:
            host.names(CLASS_NET)  # unknown if it cannot be read
            yield self.skip(host, "no physical front-end port here")
        for port in found:
            if port.state is PortState.DISABLED:
                yield self.skip(host, "set down by an administrator", port.name)
            elif port.state is PortState.UNKNOWN:
                yield self.unknown(host, f"the state of {port.name} cannot be read", port.name)
            else:
                yield self.verdict(port.state is PortState.ACTIVE, host, port.state, "active",
                                   f"{CLASS_NET}/{port.name}", at=port.name, bad=Status.WARN,
                                   remedy=REMEDIES[port.state])  # fmt: skip
