"""1.1 Software: drivers and firmware of GPUs, NICs and optics."""

from __future__ import annotations

import re
from collections.abc import Iterator

from syntony.audit.check import HostCheck, Key, Section
from syntony.audit.facts import AbsentError, FactError, Facts, UnreadableError
from syntony.audit.gpus import AMD_STATIC, NvidiaCheck, amd_smi, has_amd, has_nvidia, nvidia_smi
from syntony.audit.pci import DeviceKind, devices
from syntony.audit.rdma import rdma_devices
from syntony.audit.result import ComparedValue, Result, Suspect

_NVRM = re.compile(r"NVRM version:.*?\s(\d+(?:\.\d+){1,3})\b")
_FM_VERSION = re.compile(r"(?:version is|Version)\s*:?\s*(\d+(?:\.\d+)+)", re.IGNORECASE)


class GpuDriver(HostCheck):
    """GPU driver, CUDA and firmware are those of the fleet.

    Expected results: driver, CUDA or ROCm, VBIOS, GSP and InfoROM versions each equal to the
    expected value; unknown where a GPU is on the bus and its driver cannot be asked.
    """

    id = "sw.driver"
    section = Section.SOFTWARE
    reads = ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version", "$ nvidia-smi -q -x",
             "$ amd-smi static --json")  # fmt: skip
    meaning = "mixed drivers or firmware in one job: hangs and slow ranks that move with the host"
    remedy = "install the fleet's driver and firmware"
    suspect = Suspect.CONFIG
    keys = (
        Key("sw.driver", "version of the GPU driver"),
        Key("sw.cuda", "CUDA version the driver serves"),
        Key("sw.vbios", "VBIOS version", variant="GPU model"),
        Key("sw.gsp", "GSP firmware version", variant="GPU model"),
        Key("sw.inforom", "InfoROM image version", variant="GPU model"),
    )

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        nvidia, amd = has_nvidia(host), has_amd(host)
        if not nvidia and not amd:
            yield self.skip(host, "no GPU of NVIDIA or AMD here")
        if nvidia:
            yield from self._nvidia(host)
        if amd:
            yield from self._amd(host)

    def _nvidia(self, host: Facts) -> Iterator[Result | ComparedValue]:
        try:
            smi = nvidia_smi(host)
        except FactError as error:
            yield self.unknown(host, str(error), "nvidia-smi")
            yield self.reading(
                host, "sw.driver", loaded_nvidia(host), evidence="/proc/driver/nvidia/version"
            )
            return
        if smi.driver:
            yield self.reading(host, "sw.driver", smi.driver, evidence="nvidia-smi")
        if smi.cuda:
            yield self.reading(host, "sw.cuda", smi.cuda, evidence="nvidia-smi")
        for gpu in smi.gpus:
            model = gpu.text("product_name") or "GPU"
            for key, path in (
                ("sw.vbios", "vbios_version"),
                ("sw.gsp", "gsp_firmware_version"),
                ("sw.inforom", "inforom_version/img_version"),
            ):
                value = gpu.text(path)
                if value is not None:
                    yield self.reading(host, key, value, gpu.bus, variant=model, evidence=path)

    def _amd(self, host: Facts) -> Iterator[Result | ComparedValue]:
        try:
            version = host.read("/sys/module/amdgpu/version")
        except AbsentError:
            # The kernel's own driver has none: its version is the kernel's.
            version = f"in-tree of {host.read('/proc/sys/kernel/osrelease')}"
        yield self.reading(host, "sw.driver", version, evidence="/sys/module/amdgpu/version")
        try:
            gpus = amd_smi(host, *AMD_STATIC)
        except FactError as error:
            yield self.unknown(host, str(error), "amd-smi")
            return
        for number, gpu in enumerate(gpus):
            vbios = gpu.get("vbios", {})
            reported = vbios.get("version") if isinstance(vbios, dict) else None
            if isinstance(reported, str):
                yield self.reading(
                    host, "sw.vbios", reported, f"gpu{number}",
                    variant=str(vbios.get("part_number", "GPU")), evidence="amd-smi static",
                )  # fmt: skip


def loaded_nvidia(host: Facts) -> str:
    """The version of the driver in the kernel. Raises `FactError`."""
    text = host.read("/proc/driver/nvidia/version")
    match = _NVRM.search(text)
    if match is None:
        raise UnreadableError("/proc/driver/nvidia/version reports no version")
    return match[1]


class FabricManager(NvidiaCheck):
    """NVSwitch hosts run the fabric manager of the driver's version, and it has done its work.

    Expected results: nvidia-fabricmanager active, its version the driver's, every GPU's fabric
    state Completed with status Success; skipped on hosts without NVSwitch.
    """

    id = "sw.fabricmanager"
    section = Section.SOFTWARE
    reads = ("$ systemctl is-active nvidia-fabricmanager", "$ nv-fabricmanager --version",
             "$ nvidia-smi -q -x")  # fmt: skip
    meaning = "NVSwitch is not set up: no CUDA job starts, or NVLink is off"
    remedy = "install the fabric manager of the driver's version; systemctl restart it"

    def look(self, host: Facts) -> Iterator[Result | ComparedValue]:
        smi = nvidia_smi(host)
        states = [
            (gpu.bus, state, gpu.text("fabric/status"))
            for gpu in smi.gpus
            if (state := gpu.text("fabric/state")) is not None
        ]
        if not states and not self._has_switch(host):
            yield self.skip(host, "no NVSwitch here")
            return
        for bus, state, status in states:
            good = state == "Completed" and status in {"Success", None}
            yield self.verdict(
                good, host, f"{state}, {status}", "Completed, Success", "nvidia-smi: fabric", at=bus
            )
        if self._has_switch(host):
            service = service_state(host, "nvidia-fabricmanager")
            yield self.verdict(service == "active", host, service, "active", self.reads[0][2:])
            yield from self.part(host, self._version(host, smi.driver), "version")

    @staticmethod
    def _has_switch(host: Facts) -> bool:
        try:
            return any(device.kind == DeviceKind.NVSWITCH for device in devices(host))
        except FactError:
            return False

    def _version(self, host: Facts, driver: str) -> Iterator[Result]:
        match = _FM_VERSION.search(host.run("nv-fabricmanager", "--version"))
        got = match[1] if match else "no version"
        yield self.verdict(
            got == driver, host, got, driver, "nv-fabricmanager --version", at="version"
        )


_STATES = frozenset({"active", "reloading", "inactive", "failed", "activating", "deactivating",
                     "maintenance", "unknown"})  # fmt: skip


def service_state(host: Facts, service: str) -> str:
    """``active``, ``inactive``, ``failed``…

    Raises:
        AbsentError: no systemd here.
        UnreadableError: it does not answer.
    """
    try:
        state = host.run("systemctl", "is-active", service).strip()
    except AbsentError as error:
        raise AbsentError("no systemd here") from error
    except UnreadableError as error:
        # It exits with 3 or 4 for all but active, and prints the state.
        if "booted with systemd" in str(error):
            raise AbsentError("no systemd here") from error
        state = str(error).rpartition(": ")[2]
        if state in _STATES:
            return state
        raise
    if state not in _STATES:
        raise UnreadableError(f"`systemctl is-active {service}` printed no state")
    return state


class Ofed(HostCheck):
    """The RDMA stack is that of the fleet.

    Expected results: `ofed_info -s`, or the version of mlx5_core, or "inbox" for the kernel's own
    driver: equal to the expected value; skipped without a Mellanox NIC.
    """

    id = "sw.ofed"
    section = Section.SOFTWARE
    reads = ("$ ofed_info -s", "/sys/module/mlx5_core/version")
    meaning = "a mixed RDMA stack: features and defaults differ between hosts"
    remedy = "install the fleet's OFED or DOCA package"
    suspect = Suspect.CONFIG
    keys = (Key("sw.ofed", "version of the RDMA stack"),)

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        if not any(device.name.startswith("mlx") for device in rdma_devices(host)):
            yield self.skip(host, "no Mellanox NIC here")
            return
        yield self.reading(host, "sw.ofed", self._version(host), evidence=", ".join(self.reads))

    @staticmethod
    def _version(host: Facts) -> str:
        try:
            reported = host.run("ofed_info", "-s").strip().rstrip(":")
            if reported and reported.isprintable():
                return reported
        except AbsentError:
            pass
        try:
            return f"mlx5_core {host.read('/sys/module/mlx5_core/version')}"
        except AbsentError:
            return "inbox"


class NicFirmware(HostCheck):
    """NICs of one kind run one firmware.

    Expected results: fw_ver equal to the expected value among boards of the same board_id.
    """

    id = "sw.nic-fw"
    section = Section.SOFTWARE
    reads = ("/sys/class/infiniband/*/fw_ver", "/sys/class/infiniband/*/board_id")
    meaning = "firmware drift: link training, congestion control and counters behave differently"
    remedy = "mlxfwmanager -u (or the vendor's tool), then a cold reboot"
    suspect = Suspect.NIC
    keys = (Key("sw.nic-fw", "firmware of RDMA NICs", variant="board_id"),)

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        found = rdma_devices(host)
        if not found:
            yield self.skip(host, "no RDMA NIC here")
        for device in found:
            if not re.search(r"\d", device.firmware):
                yield self.unknown(host, f"{device.path}/fw_ver cannot be read", device.name)
                continue
            yield self.reading(
                host, "sw.nic-fw", device.firmware, device.name,
                variant=device.board, evidence=f"{device.path}/fw_ver",
            )  # fmt: skip


_MODULE_FIRMWARE = re.compile(r"^\s*FW Version\s*:\s*(\S+)", re.MULTILINE)
_MODULE_PART = re.compile(r"^\s*(?:Vendor Part Number|Vendor PN)\s*:\s*(\S.*?)\s*$", re.MULTILINE)


class TransceiverFirmware(HostCheck):
    """Optical modules of one kind run one firmware.

    Expected results: the module's FW Version equal to the expected value among those of one part
    number; skipped without Mellanox NICs or MFT, or for a cable without firmware.
    """

    id = "sw.transceiver-fw"
    section = Section.SOFTWARE
    reads = ("$ mlxlink -d DEVICE -m",)
    meaning = "optics of mixed firmware: links that train badly or flap"
    remedy = "flint -d DEVICE --linkx burn with the fleet's image"
    suspect = Suspect.CABLE
    keys = (Key("sw.transceiver-fw", "firmware of optical modules", variant="part number"),)

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        found = [device.name for device in rdma_devices(host) if device.name.startswith("mlx")]
        for name in found:
            try:
                text = host.run("mlxlink", "-d", name, "-m")
            except AbsentError:
                yield self.skip(host, "mlxlink is not installed (NVIDIA MFT)")
                return
            except UnreadableError as error:
                yield self.unknown(host, str(error), name)
                continue
            version, part = _MODULE_FIRMWARE.search(text), _MODULE_PART.search(text)
            if version is None or version[1].upper() == "N/A":
                yield self.skip(host, "the module reports no firmware", name)
                continue
            yield self.reading(
                host, "sw.transceiver-fw", version[1], name,
                variant=part[1] if part else "", evidence=f"mlxlink -d {name} -m",
            )  # fmt: skip
        if not found:
            yield self.skip(host, "no Mellanox NIC here")
