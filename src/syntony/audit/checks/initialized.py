"""4.1 Back-end: initialized connections. Device, driver and link are there; no subnet yet."""

from __future__ import annotations

import re
from collections.abc import Iterator

from syntony.audit.check import Compare, HostCheck, Key, Section
from syntony.audit.facts import AbsentError, Facts, needed
from syntony.audit.host_log import READS, kernel_log
from syntony.audit.parse.kernel_log import lines_of
from syntony.audit.presence import PRESENT
from syntony.audit.rdma import (
    CLASS,
    RdmaCheck,
    RdmaPort,
    RdmaPortCheck,
    compute_ports,
    is_spare,
    siblings,
)
from syntony.audit.result import ComparedValue, Result, Suspect
from syntony.links.counters import Kind
from syntony.links.kernel_log import classify
from syntony.links.ports import REMEDIES, PortState


class PortCount(HostCheck):
    """Every back-end port is there.

    Expected results: the number of RDMA ports of the back-end equal to the expected value (eight
    of an HGX host, 16 with dual-port cards); their names too.
    """

    id = "be.init.present"
    section = Section.INITIALIZED
    reads = (f"{CLASS}/*", "/proc/net/route", "$ ibstat")
    meaning = "a NIC is missing: its rail is served by others, or not at all"
    remedy = "look for it on the bus (lspci); reseat the card; reload the driver"
    suspect = Suspect.NIC
    keys = (
        Key("be.ports", "back-end ports of the host"),
        Key("be.port-names", "names of the back-end ports"),
    )

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        try:
            names = sorted(port.name for port in compute_ports(host))
        except AbsentError:
            names = []
        yield self.reading(host, "be.ports", len(names), evidence=CLASS)
        yield self.reading(host, "be.port-names", " ".join(names) or "none", evidence=CLASS)


SPARE = "an unused port of a card whose other port is active"
_TRAINED = frozenset({PortState.ACTIVE, PortState.NO_SUBNET_MANAGER})
_SUSPECTS = {
    PortState.NO_PEER: Suspect.CABLE,
    PortState.TRAINING: Suspect.CABLE,
    PortState.RECOVERING: Suspect.CABLE,
    PortState.DISABLED: Suspect.CONFIG,
    PortState.ABSENT: Suspect.NIC,
}


class LinkTrained(RdmaPortCheck):
    """The physical link of every back-end port is up.

    Expected results: physical state LinkUp; Polling means no light, Disabled an administrator. A
    port that is up but not configured passes here and fails be.act.state. An unused port of a card
    whose other port is active is skipped, unless most hosts have it up.
    """

    id = "be.init.phys"
    section = Section.INITIALIZED
    reads = (f"{CLASS}/*/ports/*/state", f"{CLASS}/*/ports/*/phys_state", "$ ibstat",
             "$ ip -j address show", "/sys/class/net/*/*")  # fmt: skip
    meaning = "no link: cable, optics, or the far port"
    remedy = REMEDIES[PortState.NO_PEER]
    suspect = Suspect.CABLE
    keys = (Key("be.link", "a port of a dual-port card has a link", Compare.PRESENT,
                variant="port"),)  # fmt: skip

    def look_at(self, host: Facts, port: RdmaPort) -> Iterator[Result | ComparedValue]:
        if is_spare(host, port):
            yield self.skip(host, SPARE, port.name)
            return
        if port.state in _TRAINED and siblings(host, port):
            yield self.reading(host, "be.link", PRESENT, port.name, variant=port.name,
                               evidence=port.path)  # fmt: skip
        yield self.verdict(
            port.state in _TRAINED, host, port.state_text, "5: LinkUp",
            f"{port.path}: {port.state}", at=port.name,
            remedy=REMEDIES[port.state] if port.state not in _TRAINED else "",
            suspect=_SUSPECTS.get(port.state, Suspect.CABLE),
        )  # fmt: skip


_NODES = "/sys/class/infiniband_verbs"
_MAD = "/sys/class/infiniband_mad"


class Driver(RdmaCheck):
    """The driver offers every device to programs, and its firmware lives.

    Expected results: a verbs node for each device (and a MAD node for each InfiniBand port); no
    message of failed firmware, command time-outs or failed health in the kernel's log since boot.
    """

    id = "be.init.driver"
    section = Section.INITIALIZED
    reads = (f"{_NODES}/*/ibdev", f"{_MAD}/*", *READS)
    meaning = "programs cannot open the NIC, or its firmware is dead"
    remedy = "modprobe ib_uverbs ib_umad; a card whose firmware failed needs a cold boot"
    suspect = Suspect.NIC

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        yield from self._nodes(host, ports)
        yield from self._umad(host, ports)
        yield from self.part(host, self._firmware(host), "firmware")

    def _firmware(self, host: Facts) -> Iterator[Result]:
        lines = lines_of(kernel_log(host))
        found = [each for line in lines if (each := classify(line)) is not None
                 and each.kind is Kind.HOST and "firmware" in each.meaning]  # fmt: skip
        for each in found[:8]:
            yield self.verdict(False, host, each.meaning, "none", each.text[:160],
                               at=each.device or "firmware", meaning=each.meaning,
                               remedy=each.remedy)  # fmt: skip
        if not found:
            yield self.verdict(True, host, "none reported", "none", "kernel log", at="firmware")

    def _nodes(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result]:
        try:
            names = [name for name in host.names(_NODES) if name.startswith("uverbs")]
        except AbsentError:
            yield self.unknown(host, f"no {_NODES}: is ib_uverbs loaded?", "uverbs")
            return
        offered = {host.read(f"{_NODES}/{name}/ibdev") for name in names}
        for device in sorted({port.device for port in ports}):
            here = device in offered
            yield self.verdict(here, host, "offered" if here else "no verbs node", "a verbs node",
                               _NODES, at=device)  # fmt: skip

    def _umad(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result]:
        wanted = {(port.device, port.number) for port in ports if port.layer == "InfiniBand"}
        if not wanted:
            return
        try:
            names = [name for name in host.names(_MAD) if re.fullmatch(r"umad\d{1,4}", name)]
        except AbsentError:
            yield self.unknown(host, f"no {_MAD}: is ib_umad loaded?", "umad")
            return
        offered = {(host.read(f"{_MAD}/{name}/ibdev"), host.read(f"{_MAD}/{name}/port"))
                   for name in names}  # fmt: skip
        missing = sorted(":".join(pair) for pair in wanted - offered)
        yield self.verdict(not missing, host, " ".join(missing) or "all offered", "all offered",
                           _MAD, at="umad")  # fmt: skip


class PortAuthentication(RdmaCheck):
    """Ports that must authenticate (802.1X) have done so.

    Expected results: wpa_cli says AUTHENTICATED for every RoCE port that has a supplicant; skipped
    where none runs.
    """

    id = "be.init.auth"
    section = Section.INITIALIZED
    reads = ("$ wpa_cli -i NETDEV status", "/var/run/wpa_supplicant/*")
    meaning = "the switch keeps the port closed: no packet passes"
    remedy = "restart the supplicant (systemctl restart wpa_supplicant-wired@NETDEV)"
    suspect = Suspect.CONFIG

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        try:
            controlled = host.names("/var/run/wpa_supplicant")
        except AbsentError:
            yield self.skip(host, "no 802.1X supplicant runs here")
            return
        for port in ports:
            if port.netdev not in controlled:
                continue
            text = needed(host, "wpa_cli", "-i", port.netdev, "status")
            match = re.search(r"^Supplicant PAE state=(\S+)", text, re.MULTILINE)
            if match is None:
                yield self.unknown(host, "wpa_cli reports no PAE state", port.name)
            else:
                yield self.verdict(match[1] == "AUTHENTICATED", host, match[1], "AUTHENTICATED",
                                   "wpa_cli status", at=port.name)  # fmt: skip
