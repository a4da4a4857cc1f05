"""1.3 PCIe: registers that root may read (lspci), and how GPUs and NICs are placed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from syntony.audit.check import HostCheck, Key, Section
from syntony.audit.facts import AbsentError, FactError, Facts, UnreadableError, needed, text
from syntony.audit.gpus import has_nvidia
from syntony.audit.parse.lspci import LspciDevice, parse_lspci
from syntony.audit.parse.nvidia import GpuTopology, parse_topology
from syntony.audit.pci import CLASS_NET, DeviceKind, address_of, devices, path_to_root
from syntony.audit.rdma import RdmaCheck, RdmaPort, compute_ports, rdma_devices
from syntony.audit.result import ComparedValue, Result, Status, Suspect

_LSPCI = ("lspci", "-vvv")
_FAST_NIC = re.compile(
    r"(?:Ethernet|Infiniband|Network) controller.*"
    r"(?:Mellanox|ConnectX|BCM57[456]|Pensando|E810|EFA)",
    re.IGNORECASE,
)
_BRIDGE = re.compile(r"PCI bridge")


def lspci(host: Facts) -> tuple[LspciDevice, ...]:
    """Every device with its registers. Raises `UnreadableError`: no lspci, or not root: the
    registers are not shown."""
    found = parse_lspci(needed(host, *_LSPCI))
    if all(device.denied or device.max_payload is None for device in found):
        raise UnreadableError("`lspci -vvv` shows no registers: run the audit as root for these")
    return found


class ReadRequests(HostCheck):
    """NICs ask for large PCIe reads.

    Expected results: MaxReadReq 4096 (or what the spec says) and MaxPayload at least 256 on every
    fast NIC; both equal to the expected values. Skipped for virtual functions, whose registers are
    reserved and read as 128 (SR-IOV 1.1, 3.5.4). Needs root.
    """

    id = "pcie.mrrs"
    section = Section.PCIE
    reads = ("$ lspci -vvv",)
    meaning = "small PCIe reads cost up to 30 % of a NIC's bandwidth"
    remedy = "set the firmware's PCIe settings, or setpci CAP_EXP+8.w on the NIC"
    suspect = Suspect.CONFIG
    keys = (Key("pcie.mps", "MaxPayload/MaxReadReq of fast NICs", variant="model"),)

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        read_request: int = 4096
        payload: int = 256

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        nics = [device for device in lspci(host) if _FAST_NIC.search(device.name)]
        if not nics:
            yield self.skip(host, "no fast NIC here")
        for nic in nics:
            if "Virtual Function" in nic.name:
                yield self.skip(host, "a virtual function's own registers say nothing", nic.address)
                continue
            if nic.max_read_request is None or nic.max_payload is None:
                yield self.unknown(host, "lspci does not tell MaxReadReq", nic.address)
                continue
            wanted = self.limits
            yield self.verdict(
                nic.max_read_request >= wanted.read_request and nic.max_payload >= wanted.payload,
                host, f"MaxReadReq {nic.max_read_request}, MaxPayload {nic.max_payload}",
                f"MaxReadReq ≥ {wanted.read_request}, MaxPayload ≥ {wanted.payload}", "lspci -vvv",
                at=nic.address, bad=Status.WARN,
            )  # fmt: skip
            model = nic.name.partition(": ")[2][:60]
            both = f"{nic.max_payload}/{nic.max_read_request}"
            yield self.reading(host, "pcie.mps", both, nic.address, variant=model,
                               evidence="lspci -vvv")  # fmt: skip


_VIRTUAL = re.compile(r"\bhypervisor\b")
_REDIRECTS = ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")


class PcieAccessControl(HostCheck):
    """Bridges let GPU and NIC talk directly.

    Expected results: ACSCtl of every PCI bridge without SrcValid, ReqRedir, CmpltRedir and
    UpstreamFwd on bare metal; skipped in a virtual machine, where the host decides. Needs root.
    """

    id = "pcie.acs"
    section = Section.PCIE
    reads = ("$ lspci -vvv", "/proc/cpuinfo")
    meaning = "GPU-direct traffic is sent up to the root complex, or refused (IB error 4)"
    remedy = "setpci -s BRIDGE ECAP_ACS+6.w=0000, at every boot; or switch ACS off in the firmware"
    suspect = Suspect.CONFIG

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        if is_guest(host):
            yield self.skip(host, "a virtual machine: its host decides")
            return
        bridges = [device for device in lspci(host) if _BRIDGE.search(device.name)]
        reported = [bridge for bridge in bridges if bridge.acs is not None]
        if not reported and any(bridge.denied for bridge in bridges):
            raise UnreadableError("`lspci -vvv` does not show ACS: run the audit as root")
        bad = [bridge for bridge in reported if set(_REDIRECTS) & (bridge.acs or frozenset())]
        for bridge in bad:
            on = " ".join(f"{flag}+" for flag in _REDIRECTS if flag in (bridge.acs or ()))
            yield self.verdict(False, host, on, "SrcValid- ReqRedir- CmpltRedir- UpstreamFwd-",
                               "lspci -vvv: ACSCtl", at=bridge.address)  # fmt: skip
        if not reported:
            yield self.skip(host, "no bridge here has access control")
        elif not bad:
            yield self.verdict(True, host, f"off on {len(reported)} bridges", "off",
                               "lspci -vvv: ACSCtl")  # fmt: skip


def is_guest(host: Facts) -> bool:
    """Whether the host is a virtual machine, as x86 processors say it; Arm's do not."""
    flags = re.search(r"^flags\s*:.*$", text(host, "/proc/cpuinfo"), re.MULTILINE)
    return flags is not None and _VIRTUAL.search(flags[0]) is not None


_NEAR = ("PIX", "PXB")
_ORDER = ("PIX", "PXB", "PHB", "NODE", "SYS")


class Affinity(HostCheck):
    """Every GPU has its NIC under the same PCIe switch, as on the other hosts.

    Expected results: with as many back-end NICs as GPUs, each GPU has one as near as the other
    GPUs have (`nvidia-smi topo -m`, else by the devices' paths in sysfs): at PIX or PXB where the
    host has PCIe switches, at its processor where it has none (Grace, virtual machines); the map
    of GPU to nearest NIC equal to the expected one.
    """

    id = "pcie.affinity"
    section = Section.PCIE
    reads = ("$ nvidia-smi topo -m", "/sys/bus/pci/devices/*", "/sys/class/infiniband/*/device",
             "/proc/cpuinfo", "$ ibstat")  # fmt: skip
    meaning = "a GPU's traffic crosses the processor: the card sits in another slot than elsewhere"
    remedy = "compare slots with a host that passes; move the card"
    suspect = Suspect.HOST
    keys = (Key("pcie.affinity", "nearest NICs of a GPU", variant="GPU"),)

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        near = self._of_backend(host, self._by_tool(host) or self._by_bus(host))
        gpus = sorted({gpu for gpu, _ in near}, key=lambda name: (len(name), name))
        nics = {nic for _, nic in near}
        if not gpus or not nics:
            yield self.skip(host, "GPUs or RDMA NICs are missing here")
            return
        best = {gpu: min((near[gpu, nic] for nic in nics if (gpu, nic) in near), key=_rank,
                         default="?") for gpu in gpus}  # fmt: skip
        if len(nics) >= len(gpus):
            yield from self._as_near(host, best, near)
        for gpu in gpus:
            yield self.reading(host, "pcie.affinity", _nearest(gpu, best[gpu], near), gpu,
                               variant=gpu, evidence="topology of the bus")  # fmt: skip

    def _as_near(
        self, host: Facts, best: dict[str, str], near: dict[tuple[str, str], str]
    ) -> Iterator[Result]:
        """Compare each GPU with the best placed one: all GPUs of a board should be placed alike."""
        wanted = min(best.values(), key=_rank)
        if wanted not in _NEAR and is_guest(host):
            yield self.skip(host, "a virtual machine that shows no PCIe switch")
            return
        for gpu, rank in best.items():
            good = rank in _NEAR if wanted in _NEAR else rank == wanted
            expected = "PIX or PXB" if wanted in _NEAR else f"{wanted}, as the other GPUs"
            yield self.verdict(good, host, _nearest(gpu, rank, near), expected,
                               self.reads[0][2:], at=gpu)  # fmt: skip

    @staticmethod
    def _of_backend(host: Facts, near: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
        """Without NICs of the front end; all NICs where the front end's are unknown."""
        try:
            backend = {port.device for port in compute_ports(host)}
        except FactError:
            return near
        return {pair: rank for pair, rank in near.items() if pair[1] in backend}

    @staticmethod
    def _by_tool(host: Facts) -> dict[tuple[str, str], str]:
        if not has_nvidia(host):
            return {}
        try:
            found: GpuTopology = parse_topology(host.run("nvidia-smi", "topo", "-m"))
        except FactError:
            return {}
        return found.near

    @staticmethod
    def _by_bus(host: Facts) -> dict[tuple[str, str], str]:
        gpus = [device.address for device in devices(host) if device.kind == DeviceKind.GPU]
        nics = {device.name: device.address for device in rdma_devices(host) if device.address}
        ways = {address: path_to_root(host, address) for address in [*gpus, *nics.values()]}
        return {
            (f"GPU{number}", nic): nearness(ways[gpu], ways[address])
            for number, gpu in enumerate(gpus)
            for nic, address in nics.items()
        }


def nearness(one: tuple[str, ...], other: tuple[str, ...]) -> str:
    """``PIX`` (one switch), ``PXB`` (several), ``PHB`` (one root port's bus) or ``SYS``.

    Args:
        one: a device and the bridges above it, the root port last (`path_to_root`).
        other: another's.
    """
    shared = set(one[1:]) & set(other[1:])
    if not shared:
        return "PHB" if one[-1].rsplit(":", 1)[0] == other[-1].rsplit(":", 1)[0] else "SYS"
    hops = sum(1 for each in one[1:] if each not in shared)
    hops += sum(1 for each in other[1:] if each not in shared)
    # Both below one switch: each passes its own downstream port, then the shared upstream port.
    return "PIX" if hops <= 2 else "PXB"


def _nearest(gpu: str, best: str, near: dict[tuple[str, str], str]) -> str:
    """``PIX: mlx5_0``"""
    names = (nic for (each, nic), rank in sorted(near.items()) if each == gpu and rank == best)
    return f"{best}: {' '.join(names)}"


def _rank(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


class Numbering(HostCheck):
    """Names of RDMA devices, their slots and their interfaces belong together as elsewhere.

    Expected results: for each RDMA device, the PCI address and the interface equal to the expected
    ones: mlx5_3 is the same card on every host.
    """

    id = "pcie.numbering"
    section = Section.PCIE
    reads = ("/sys/class/infiniband/*/device", "/sys/class/net/*/device")
    meaning = "devices are numbered differently: NCCL_IB_HCA picks another rail than elsewhere"
    remedy = "name them by udev rules (PCI path), or reboot after the NIC has settled"
    suspect = Suspect.CONFIG
    keys = (
        Key("pcie.numbering", "PCI address and interfaces of an RDMA device", variant="device"),
    )

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        found = rdma_devices(host)
        if not found:
            yield self.skip(host, "no RDMA NIC here")
            return
        behind: dict[str, list[str]] = {}
        try:
            for name in host.names(CLASS_NET):
                behind.setdefault(address_of(host, f"{CLASS_NET}/{name}/device"), []).append(name)
        except AbsentError:
            behind = {}
        for device in found:
            if not device.address:
                yield self.unknown(host, f"{device.path}/device is no link to a PCI device",
                                   device.name)  # fmt: skip
                continue
            nets = " ".join(sorted(behind.get(device.address, ()))) or "no interface"
            yield self.reading(host, "pcie.numbering", f"{device.address} {nets}", device.name,
                               variant=device.name, evidence=device.path)  # fmt: skip


_SETTING = re.compile(r"^[\s*]*PCI_WR_ORDERING\s+(\S+)", re.MULTILINE)


class RelaxedOrdering(RdmaCheck):
    """NICs use PCIe relaxed ordering as the fleet does.

    Expected results: PCI_WR_ORDERING of every Mellanox NIC equal to the expected value; skipped
    where mlxconfig is not installed.
    """

    id = "pcie.ro"
    section = Section.PCIE
    reads = ("$ mlxconfig -d ADDRESS query PCI_WR_ORDERING",)
    meaning = "writes are ordered strictly: much bandwidth is lost, above all in virtual machines"
    remedy = "mlxconfig -d DEVICE set PCI_WR_ORDERING=1, then a cold reboot"
    suspect = Suspect.CONFIG
    keys = (Key("pcie.ro", "PCI_WR_ORDERING", variant="board_id"),)

    def look(self, host: Facts, ports: tuple[RdmaPort, ...]) -> Iterator[Result | ComparedValue]:
        names = {port.device for port in ports}
        found = [device for device in rdma_devices(host) if device.name in names]
        for device in found:
            if not device.name.startswith("mlx"):
                continue
            try:
                text = host.run("mlxconfig", "-d", device.address or device.name, "query",
                                "PCI_WR_ORDERING")  # fmt: skip
            except AbsentError:
                yield self.skip(host, "mlxconfig is not installed (NVIDIA MFT)")
                return
            match = _SETTING.search(text)
            if match is None:
                yield self.unknown(host, "mlxconfig does not tell PCI_WR_ORDERING", device.name)
            else:
                yield self.reading(host, "pcie.ro", match[1], device.name, variant=device.board,
                                   evidence="mlxconfig query")  # fmt: skip
