"""4.2 Back-end: active connections. Configured, at full rate, in the right partition."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from syntony.audit.check import Compare, Key, Section
from syntony.audit.checks.initialized import SPARE
from syntony.audit.facts import AbsentError, Facts, text
from syntony.audit.majority import own_vote
from syntony.audit.parse.text import whole
from syntony.audit.pci import CLASS_NET
from syntony.audit.presence import PRESENT
from syntony.audit.rdma import (
    CLASS,
    RdmaCheck,
    RdmaPort,
    RdmaPortCheck,
    compute_ports,
    is_spare,
    number_of,
    rdma_devices,
)
from syntony.audit.result import ComparedValue, Result, Status, Suspect
from syntony.links.ports import REMEDIES, PortState


class PortActive(RdmaPortCheck):
    """Every back-end port carries traffic.

    Expected results: state ACTIVE; over Ethernet the interface is up; over InfiniBand a subnet
    manager has been there (sm_lid and lid are not 0), and the IPoIB interface is up where it is set
    up, or where most of this host's or of the other hosts' are. An unused port of a card whose
    other port is active is skipped.
    """

    id = "be.act.state"
    section = Section.ACTIVE
    reads = (f"{CLASS}/*/ports/*/{{state,phys_state,lid,sm_lid}}",
             "/sys/class/net/*/{operstate,flags}", "/sys/class/net/*/*", "$ ibstat",
             "$ ip -j address show")  # fmt: skip
    meaning = "the port is not in the network: subnet manager, partition or address"
    remedy = REMEDIES[PortState.NO_SUBNET_MANAGER]
    suspect = Suspect.PORT
    keys = (Key("be.ipoib", "the IPoIB interface is up", Compare.PRESENT, variant="port"),)

    def look_at(self, host: Facts, port: RdmaPort) -> Iterator[Result | ComparedValue]:
        if is_spare(host, port):
            yield self.skip(host, SPARE, port.name)
            return
        active = port.state is PortState.ACTIVE
        yield self.verdict(
            active, host, port.state_text, "4: ACTIVE", f"{port.path}: {port.state}",
            at=port.name, remedy="" if active else REMEDIES[port.state],
            suspect=Suspect.CABLE if port.state is PortState.NO_PEER else Suspect.PORT,
        )  # fmt: skip
        if active and port.layer == "InfiniBand":
            yield from self._managed(host, port)
        if active and port.netdev:
            yield from self.part(host, self._interface(host, port), port.name)

    def _managed(self, host: Facts, port: RdmaPort) -> Iterator[Result]:
        for name, value in (("lid", port.lid), ("sm_lid", port.sm_lid)):
            number = number_of(value)
            if number is not None:
                yield self.verdict(number != 0, host, f"{name} {value}", f"{name} ≠ 0",
                                   f"{port.path}/{name}", at=port.name,
                                   suspect=Suspect.FABRIC)  # fmt: skip

    def _interface(self, host: Facts, port: RdmaPort) -> Iterator[Result | ComparedValue]:
        path = f"{CLASS_NET}/{port.netdev}/operstate"
        state = host.read(path)
        if port.layer == "Ethernet":
            yield self.verdict(state == "up", host, f"{port.netdev} {state}", "up", path,
                               at=port.name)  # fmt: skip
        elif state == "up":
            yield self.reading(host, "be.ipoib", PRESENT, port.name, variant=port.name,
                               evidence=path)  # fmt: skip
        elif _is_set_up(host, port.netdev) or _most_are_up(host):
            yield self.verdict(
                False, host, f"{port.netdev} {state} while its port is ACTIVE", "up", path,
                at=port.name, suspect=Suspect.CONFIG,
                meaning="IPoIB does not work here: bootstrap and storage over it fail",
                remedy=f"ip link set {port.netdev} up; if that fails, check the partition key",
            )  # fmt: skip


_IFF_UP = 1  # linux/if.h


def _is_set_up(host: Facts, netdev: str) -> bool:
    """Whether an administrator has switched the interface on."""
    return bool((number_of(text(host, f"{CLASS_NET}/{netdev}/flags")) or 0) & _IFF_UP)


def _most_are_up(host: Facts) -> bool:
    """Whether most interfaces on the host's active InfiniBand ports are up."""
    names = [
        port.netdev
        for port in compute_ports(host)
        if port.netdev and port.layer == "InfiniBand" and port.state is PortState.ACTIVE
    ]
    up = [name for name in names if text(host, f"{CLASS_NET}/{name}/operstate") == "up"]
    return 2 * len(up) > len(names)


class PortRate(RdmaCheck):
    """Every back-end port runs at its card's full rate.

    Expected results: four lanes or more where the rate names lanes; the rate equal to the expected
    one among cards of one kind.
    """

    id = "be.act.rate"
    section = Section.ACTIVE
    reads = (f"{CLASS}/*/ports/*/rate", f"{CLASS}/*/board_id", "$ ibstat")
    meaning = "the link has lost lanes or trained at an older speed: the rail is that much slower"
    remedy = "clean and reseat both ends; swap the cable; then look at the far port's setting"
    suspect = Suspect.CABLE
    keys = (Key("be.act.rate", "rate of a back-end port", variant="board_id, else link layer"),)

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        boards = {device.name: device.board for device in rdma_devices(host)}
        for port in ports:
            if port.state in {PortState.NO_PEER, PortState.DISABLED}:
                yield self.skip(host, "a port without a link has no rate", port.name)
                continue
            if port.rate is None or not port.rate_text:
                yield self.unknown(host, f"{port.path}/rate: {port.rate_text!r}", port.name)
                continue
            lanes = port.rate.lanes
            if lanes is not None and port.layer == "InfiniBand":
                yield self.verdict(lanes >= _LANES, host, port.rate_text, f"{_LANES}X",
                                   f"{port.path}/rate", at=port.name)  # fmt: skip
            yield self.reading(
                host, "be.act.rate", port.rate_text, port.name,
                variant=boards.get(port.device) or port.layer, evidence=f"{port.path}/rate",
            )  # fmt: skip


_LANES = 4
"""Lanes of every NIC for collectives since QDR; a port with fewer has lost some."""
_JUMBO = 4200
"""A RoCE packet of 4,096 bytes with its headers; RDMA takes the largest power of two that fits."""


class PortMtu(RdmaCheck):
    """Back-end ports use the largest MTU.

    Expected results: over Ethernet, an interface MTU of at least 4,200 (so that RDMA uses 4,096
    bytes); the MTU equal to the expected one.
    """

    id = "be.act.mtu"
    section = Section.ACTIVE
    reads = ("/sys/class/net/*/mtu", "/sys/class/net/*/*", "$ ip -j address show")
    meaning = "small packets cost bandwidth; of two ends that differ, large ones are lost"
    remedy = "ip link set NETDEV mtu 9000 (or the fleet's), in the network's configuration"
    suspect = Suspect.CONFIG
    keys = (Key("be.act.mtu", "MTU of a back-end interface", variant="link layer"),)

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        reported = 0
        for port in ports:
            if not port.netdev or is_spare(host, port):
                continue
            path = f"{CLASS_NET}/{port.netdev}/mtu"
            mtu = whole(text(host, path))
            reported += 1
            if mtu is None:
                yield self.unknown(host, f"{path} reports no number", port.name)
                continue
            if port.layer == "Ethernet":
                yield self.verdict(mtu >= _JUMBO, host, mtu, f"≥ {_JUMBO}", path, at=port.name)
            yield self.reading(host, "be.act.mtu", mtu, port.name, variant=port.layer,
                               evidence=path)  # fmt: skip
        if not reported:
            yield self.skip(host, "no interface on any back-end port; `ibv_devinfo` shows the MTU")


_FULL = 0x8000


class PartitionKeys(RdmaCheck):
    """InfiniBand ports are full members of the fleet's partition.

    Expected results: a key with the full-member bit on every port; the set of keys equal to the
    expected one. Skipped over Ethernet.
    """

    id = "be.act.pkey"
    section = Section.ACTIVE
    reads = (f"{CLASS}/*/ports/*/pkeys/*",)
    meaning = "limited members cannot talk to each other; ports of different partitions not at all"
    remedy = "correct the subnet manager's partition configuration"
    suspect = Suspect.CONFIG
    keys = (Key("be.act.pkey", "partition keys of a port"),)

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        wanted = [port for port in ports if port.layer == "InfiniBand"]
        if not wanted:
            yield self.skip(host, "no InfiniBand port here")
        for port in wanted:
            try:
                names = host.names(f"{port.path}/pkeys")
            except AbsentError as error:
                yield self.unknown(host, str(error), port.name)
                continue
            raw = (number_of(text(host, f"{port.path}/pkeys/{name}")) for name in names)
            keys = sorted({key for key in raw if key})
            said = " ".join(f"0x{key:04x}" for key in keys) or "none"
            full = any(key & _FULL for key in keys)
            yield self.verdict(full, host, said, "a full member (0x8000 set)",
                               f"{port.path}/pkeys", at=port.name)  # fmt: skip
            yield self.reading(host, "be.act.pkey", said, port.name, evidence=f"{port.path}/pkeys")


class Homogeneous(RdmaCheck):
    """All ports of one kind of card are active together.

    Expected results: on each card with several ports, as many active as on most cards of the kind
    in this host.
    """

    id = "be.act.homog"
    section = Section.ACTIVE
    reads = (f"{CLASS}/*/ports/*/state", f"{CLASS}/*/board_id")
    meaning = "one port of a card is dark while its siblings work"
    remedy = REMEDIES[PortState.NO_PEER]
    suspect = Suspect.PORT

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        boards = {device.name: device.board for device in rdma_devices(host)}
        active: dict[str, int] = {}
        for port in ports:
            active[port.device] = active.get(port.device, 0) + (port.state is PortState.ACTIVE)
        kinds: dict[str, list[str]] = {}
        for device in active:
            kinds.setdefault(boards.get(device, ""), []).append(device)
        for board, devices in sorted(kinds.items()):
            if len(devices) == 1:
                yield self.skip(host, "the only card of its kind", board or "cards")
                continue
            usual = own_vote(active[device] for device in devices)
            if usual is None:
                reported = ", ".join(f"{device} {active[device]}" for device in devices)
                yield self.skip(host, f"undecided: active ports of {reported}", board or "cards")
                continue
            below = [device for device in devices if active[device] < usual]
            yield self.verdict(not below, host, " ".join(below) or f"{len(devices)} cards alike",
                               f"{usual} active on each", f"{CLASS}/*/ports/*/state",
                               at=board or "cards")  # fmt: skip


class PortFlaps(RdmaCheck):
    """Back-end links do not go down and up.

    Expected results: fewer than `per_day` losses of carrier a day since boot, by the kernel's
    carrier_down_count, else InfiniBand's link_downed (which stops at 255 or 65,535).
    """

    id = "be.act.flap"
    section = Section.ACTIVE
    reads = ("/sys/class/net/*/carrier_down_count", f"{CLASS}/*/ports/*/counters/link_downed",
             "/proc/uptime")  # fmt: skip
    meaning = "optics or a cable at the edge: collectives stall whenever it happens"
    remedy = "clean and reseat; swap the cable; see `syntony links history`"
    suspect = Suspect.CABLE

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        per_day: float = 5.0
        """Azure's limit; a healthy port has none in months."""

    limits: Input

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        from syntony.audit.checks.memory import uptime_s

        days = max(1.0, uptime_s(host) / 86_400)
        snapshots = {port.rdma: port for port in host.ports() if port.rdma}
        for port in ports:
            counters = snapshots[port.name].counters if port.name in snapshots else {}
            key = next((key for key in _LOSSES if key in counters), None)
            if key is None or counters[key] is None:
                yield self.unknown(host, f"no count of carrier losses of {port.name}", port.name)
                continue
            count = counters[key] or 0
            stopped = key == _LOSSES[1] and count in _CEILINGS
            got = f"{'≥ ' if stopped else ''}{count} in {days:.0f} days"
            rate = count / days
            bad = Status.FAIL if stopped or rate >= self.limits.per_day else Status.WARN
            yield self.verdict(count == 0, host, got, f"0 (fails at {self.limits.per_day:g} a day)",
                               key, at=port.name, bad=bad)  # fmt: skip


_LOSSES = ("net:carrier_down_count", "ib/counters:link_downed")
_CEILINGS = frozenset({255, 65_535})
