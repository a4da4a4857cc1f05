"""1.3 PCIe: what is on the bus, and how each link of the way to it is trained."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from syntony.audit.check import HostCheck, Key, Section
from syntony.audit.facts import AbsentError, FactError, Facts, UnreadableError, text
from syntony.audit.host_log import READS, kernel_log
from syntony.audit.parse.kernel_log import lines_of
from syntony.audit.parse.text import whole
from syntony.audit.pci import (
    DEVICES,
    GONE,
    DeviceKind,
    PciDevice,
    devices,
    is_virtual_function,
    way_to_root,
)
from syntony.audit.result import ComparedValue, Result, Status, Suspect

_WATCHED = (DeviceKind.GPU, DeviceKind.NIC, DeviceKind.NVSWITCH, DeviceKind.NVME)
_RESEAT = "reseat the card; if it comes back, the riser or the card"


def watched(host: Facts) -> tuple[PciDevice, ...]:
    """GPUs, NICs, NVSwitches and disks, without virtual functions. Raises `FactError`."""
    found = (device for device in devices(host) if device.kind in _WATCHED)
    return tuple(device for device in found if not is_virtual_function(host, device.address))


class Present(HostCheck):
    """Every device that the host should have is on the bus.

    Expected results: no device that answers with ones only (by its configuration space, in sysfs
    or as lspci's "rev ff"); the number of GPUs, NICs, NVSwitches and disks of each model equal to
    the expected value.
    """

    id = "pcie.present"
    section = Section.PCIE
    reads = (f"{DEVICES}/*/vendor", f"{DEVICES}/*/device", f"{DEVICES}/*/class",
             f"{DEVICES}/*/config", "$ lspci -vvv")  # fmt: skip
    meaning = "a device is missing or has fallen off the bus (a GPU: Xid 79)"
    remedy = f"power-cycle the host; {_RESEAT}"
    suspect = Suspect.HOST
    keys = (
        Key("pcie.present", "count × model of GPUs, NICs, NVSwitches and disks", variant="kind"),
    )

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        everything = devices(host)
        by_lspci = _rev_ff(host)
        gone = [device for device in everything if device.address in by_lspci
                or device.vendor == GONE or silent(host, device.address)]  # fmt: skip
        said = " ".join(f"{device.kind} {device.address}" for device in gone)
        yield self.verdict(
            not gone, host, said or f"{len(everything)} answer", "all answer",
            f"{DEVICES}/*/config, lspci: rev ff",
        )  # fmt: skip
        real = [each for each in everything if not is_virtual_function(host, each.address)]
        for kind in _WATCHED:
            models = Counter(device.model for device in real if device.kind == kind)
            said = ", ".join(f"{count} × {model}" for model, count in sorted(models.items()))
            yield self.reading(
                host, "pcie.present", said or "none", kind, variant=kind, evidence=DEVICES
            )


_ONES = b"\xff\xff\xff\xff"
_ALL_LANES = "63"
"""What six bits of ones in the link's status register read as."""
_REV_FF = re.compile(r"^((?:[0-9a-f]{4,6}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) .*\(rev ff\)",
                     re.MULTILINE)  # fmt: skip


def silent(host: Facts, address: str) -> bool:
    """Whether the device's configuration space reads as ones: it is off the bus.

    The kernel keeps vendor and class from when the device was found; these two are read afresh.
    """
    base = f"{DEVICES}/{address}"
    try:
        if host.read_bytes(f"{base}/config").startswith(_ONES):
            return True
    except FactError:
        pass
    return text(host, f"{base}/current_link_width") == _ALL_LANES


def _rev_ff(host: Facts) -> frozenset[str]:
    try:
        found = _REV_FF.findall(host.run("lspci", "-vvv"))
    except FactError:
        return frozenset()
    return frozenset(each if each.count(":") == 2 else f"0000:{each}" for each in found)


class _Link(NamedTuple):
    """One end's view of a link; None for what is not reported."""

    speed: float | None
    width: int | None
    max_speed: float | None
    max_width: int | None


class LinkTraining(HostCheck):
    """Every PCIe link between a device and the root runs as fast as both its ends can.

    Expected results: on each hop the current speed and width are the lower of what its two ends
    can do. Devices that slow down while idle (GPUs, disks) are a warning when only the speed is
    lower, a failure when lanes are missing.
    """

    id = "pcie.link"
    section = Section.PCIE
    reads = tuple(f"{DEVICES}/*/{end}_link_{what}" for end in ("current", "max")
                  for what in ("speed", "width"))  # fmt: skip
    reads = (*reads, f"{DEVICES}/*/config")
    meaning = "a slow link on the way to the device: bad contact, riser or slot"
    remedy = (
        "reseat the card or the riser at the hop named; swap slots to see what the fault follows"
    )
    suspect = Suspect.HOST

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        found = watched(host)
        if not found:
            yield self.skip(host, "no GPU, NIC or disk on the bus")
        seen: set[str] = set()
        for device in found:
            way = way_to_root(host, device.address)
            # Of a switch, upstream and downstream port are one chip: every second hop is a link.
            for lower, upper in zip(way[::2], (*way[1::2], "")[: len(way[::2])], strict=True):
                if lower not in seen:
                    seen.add(lower)
                    yield from self._hop(host, device, lower, upper)

    def _hop(self, host: Facts, device: PciDevice, lower: str, upper: str) -> Iterator[Result]:
        if lower == device.address and not host.exists(f"{DEVICES}/{lower}/current_link_width"):
            yield self.skip(host, "no PCIe link of its own (virtual, or on the chip)", lower)
            return
        if silent(host, lower):
            yield self.verdict(
                False, host, "does not answer (width x63, all ones)", "an answer",
                f"{DEVICES}/{lower}/current_link_width", at=lower,
                meaning="the device has fallen off the bus", remedy=f"power-cycle; {_RESEAT}",
                suspect=_SUSPECTS.get(device.kind, Suspect.HOST),
            )  # fmt: skip
            return
        own = link_of(host, lower)
        if own.width is None or own.speed is None or own.width == 0:
            if lower == device.address:
                yield self.unknown(host, f"{DEVICES}/{lower} reports no link", lower)
            return
        other = link_of(host, upper) if upper else own
        speed = _lower(own.max_speed, other.max_speed)
        width = _lower(own.max_width, other.max_width)
        if speed is None or width is None:
            yield self.unknown(host, f"{DEVICES}/{lower} does not tell what it could do", lower)
            return
        slow, narrow = own.speed < speed, own.width < width
        dozes = (
            device.kind in {DeviceKind.GPU, DeviceKind.NVME}
            and lower == device.address
            and not narrow
        )
        bad = Status.WARN if slow and dozes else Status.FAIL
        where = f"{lower} below {upper or '?'}, on the way to {device.kind} {device.address}"
        yield self.verdict(
            not slow and not narrow, host, f"{own.speed:g} GT/s x{own.width}",
            f"{speed:g} GT/s x{width:g}", where, at=lower, bad=bad,
            suspect=_SUSPECTS.get(device.kind if lower == device.address else "", Suspect.HOST),
        )  # fmt: skip


_SUSPECTS = {
    DeviceKind.GPU: Suspect.GPU,
    DeviceKind.NIC: Suspect.NIC,
    DeviceKind.NVME: Suspect.DISK,
}


def link_of(host: Facts, address: str) -> _Link:
    """A device's own view of the link above it."""
    base = f"{DEVICES}/{address}"
    return _Link(
        _speed(host, f"{base}/current_link_speed"),
        _width(host, f"{base}/current_link_width"),
        _speed(host, f"{base}/max_link_speed"),
        _width(host, f"{base}/max_link_width"),
    )


def _speed(host: Facts, path: str) -> float | None:
    """``16.0 GT/s PCIe`` → 16.0"""
    match = re.match(r"(\d{1,3}(?:\.\d{1,3})?)\s*GT/s", text(host, path))
    return float(match[1]) if match else None


def _width(host: Facts, path: str) -> int | None:
    value = whole(text(host, path))
    return value if value is not None and value <= 32 else None  # 255: not known


def _lower(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return min(known) if known else None


class BandwidthLimited(HostCheck):
    """No driver complains that its slot is slower than its card.

    Expected results: no "available PCIe bandwidth, limited by" in the kernel's log since boot.
    """

    id = "pcie.bw-limited"
    section = Section.PCIE
    reads = READS
    meaning = "the card sits in a slot with fewer lanes or an older generation"
    remedy = f"move the card; {_RESEAT}"
    suspect = Suspect.HOST

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        said = [line for line in lines_of(kernel_log(host)) if "available PCIe bandwidth" in line
                and "limited by" in line]  # fmt: skip
        yield self.verdict(not said, host, said[0][:160] if said else "none", "none", "kernel log")


class SlotPower(HostCheck):
    """Cards get the power they ask for.

    Expected results: no "insufficient power on the PCIe slot" in the kernel's log since boot; a
    warning, since some boards say so and are well.
    """

    id = "pcie.power"
    section = Section.PCIE
    reads = READS
    meaning = "the slot gives the card too little power: it may run slow or hang under load"
    remedy = "connect the card's own power cable; check the slot's rating"
    suspect = Suspect.HOST

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        said = [line for line in lines_of(kernel_log(host)) if "insufficient power" in line]
        got = f"{len(said)}: {said[0][:120]}" if said else "none"
        yield self.verdict(not said, host, got, "none", "kernel log", bad=Status.WARN)


_AER = ("aer_dev_fatal", "aer_dev_nonfatal", "aer_dev_correctable")


class Aer(HostCheck):
    """No PCIe link reports errors.

    Expected results: no fatal or non-fatal error of a GPU, NIC, NVSwitch or disk or of a bridge
    above it; at most `correctable` corrected ones. Skipped where the kernel does not count (AER
    belongs to the firmware).
    """

    id = "pcie.aer"
    section = Section.PCIE
    reads = tuple(f"{DEVICES}/*/{name}" for name in _AER)
    meaning = "bad signal on a PCIe link"
    remedy = _RESEAT
    suspect = Suspect.HOST

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        correctable: int = 1000

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        seen = {each for device in watched(host) for each in way_to_root(host, device.address)}
        reported = 0
        for address in sorted(seen):
            counts = {name: self._total(host, address, name) for name in _AER}
            if all(count is None for count in counts.values()):
                continue
            reported += 1
            bad = {name: count for name, count in counts.items() if count is None
                   or count > (self.limits.correctable if name == _AER[2] else 0)}  # fmt: skip
            if bad:
                yield self._bad(host, address, bad)
        if not reported:
            yield self.skip(host, "the kernel counts no PCIe errors here (AER)")
        else:
            yield self.verdict(True, host, f"{reported} devices counted", "", ", ".join(_AER))

    def _bad(self, host: Facts, address: str, bad: dict[str, int | None]) -> Result:
        unreadable = [name for name, count in bad.items() if count is None]
        if unreadable:
            return self.unknown(host, f"{', '.join(unreadable)} cannot be read", address)
        got = ", ".join(f"{name.removeprefix('aer_dev_')} {count}" for name, count in bad.items())
        hard = set(bad) - {_AER[2]}
        return self.verdict(
            False, host, got, f"0 fatal, 0 non-fatal, ≤ {self.limits.correctable} corrected",
            f"{DEVICES}/{address}/aer_dev_*", at=address,
            bad=Status.FAIL if hard else Status.WARN,
        )  # fmt: skip

    @staticmethod
    def _total(host: Facts, address: str, name: str) -> int | None:
        """The file's last line, ``TOTAL_ERR_FATAL 0``; None if there is none or it has no count."""
        counts = text(host, f"{DEVICES}/{address}/{name}")
        match = re.search(r"^TOTAL_ERR_\w+ (\d{1,18})$", counts, re.MULTILINE)
        return int(match[1]) if match else None


_GROUP_TYPES = frozenset({"identity", "DMA", "DMA-FQ", "blocked", "auto"})


class Iommu(HostCheck):
    """The IOMMU does not translate GPU-direct traffic.

    Expected results: no IOMMU groups, or groups whose default domain is identity; a warning
    otherwise, since virtual machines of some clouds need translation.
    """

    id = "pcie.iommu"
    section = Section.PCIE
    reads = ("/sys/kernel/iommu_groups/*/type", "/proc/cmdline")
    meaning = "peer-to-peer traffic goes through the root complex, or fails"
    remedy = "boot with iommu=pt"
    suspect = Suspect.CONFIG
    keys = (Key("pcie.iommu", "types of the IOMMU groups"),)

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        base = "/sys/kernel/iommu_groups"
        try:
            groups = host.names(base)
        except AbsentError as error:
            if not host.exists("/sys/kernel"):
                raise UnreadableError("no /sys/kernel") from error
            groups = ()
        types: Counter[str] = Counter()
        for group in groups:
            try:
                types[host.read(f"{base}/{group}/type")] += 1
            except AbsentError:
                types["untold"] += 1
        got = ", ".join(sorted(types)) or "off"
        translating = set(types) & {"DMA", "DMA-FQ"}
        if set(types) - _GROUP_TYPES:
            raise UnreadableError(f"{base}/*/type: missing or unknown value")
        yield self.verdict(not translating, host, got, "off or identity", base, bad=Status.WARN)
        yield self.reading(host, "pcie.iommu", got, evidence=base)


_Rate = tuple[float, int]
"""GT/s and lanes."""


class Slots(HostCheck):
    """Cards sit in slots as fast as on the other hosts.

    Expected results: for GPUs and NICs of each model, how many can run at which speed and width
    (the lower of what the card, its slot and every bridge above allow) equal to the expected value.
    A link that is slower than it could be is pcie.link's.
    """

    id = "pcie.slots"
    section = Section.PCIE
    reads = tuple(f"{DEVICES}/*/max_link_{what}" for what in ("speed", "width"))
    meaning = "a card is in a slot of fewer lanes or an older generation than elsewhere"
    remedy = "move the card named to the slot it has on a host that passes; check bifurcation"
    suspect = Suspect.HOST
    keys = (Key("pcie.slots", "count × speed and width that slots allow", variant="model"),)

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        found: defaultdict[str, dict[str, _Rate]] = defaultdict(dict)
        for device in watched(host):
            rate = allowed(host, device.address)
            if device.kind in {DeviceKind.GPU, DeviceKind.NIC} and rate is not None:
                found[device.model][device.address] = rate
        for model, rates in sorted(found.items()):
            slowest = min(rates.values(), key=_bandwidth)
            names = " ".join(address for address, rate in sorted(rates.items()) if rate == slowest)
            counts = Counter(rates.values())
            said = " + ".join(f"{count} × {speed:g} GT/s x{width}" for (speed, width), count
                              in sorted(counts.items(), reverse=True))  # fmt: skip
            yield self.reading(host, "pcie.slots", said, variant=model,
                               evidence=f"slowest: {names}")  # fmt: skip
        if not found:
            yield self.skip(host, "no GPU or NIC with a PCIe link of its own")


def allowed(host: Facts, address: str) -> _Rate | None:
    """Speed of the slowest hop on the way to the root; None if the card does not report it."""
    links = [link_of(host, each) for each in way_to_root(host, address)]
    if links[0].max_speed is None or not links[0].max_width:
        return None
    # Of a switch, upstream and downstream port are one chip: every second hop is a link.
    hops = (links[at : at + 2] for at in range(0, len(links), 2))
    rates = [
        (
            min(end.max_speed for end in reported if end.max_speed),
            min(end.max_width or 0 for end in reported),
        )
        for hop in hops
        if (reported := [end for end in hop if end.max_speed and end.max_width])
    ]
    return min(rates, key=_bandwidth)


def _bandwidth(rate: _Rate) -> float:
    return rate[0] * rate[1]
