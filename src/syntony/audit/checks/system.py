"""1.1 Software: image, boot line, modules, processors' governor."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from syntony.audit.check import HostCheck, Key, Section
from syntony.audit.facts import AbsentError, Facts, UnreadableError
from syntony.audit.gpus import has_nvidia
from syntony.audit.result import ComparedValue, Result, Status, Suspect


class OsImage(HostCheck):
    """Distribution and kernel are those of the fleet.

    Expected results: both equal to the expected values; unknown where a file cannot be read.
    """

    id = "sw.os"
    section = Section.SOFTWARE
    reads = ("/etc/os-release", "/proc/sys/kernel/osrelease")
    meaning = "image drift: this host does not run what the fleet runs"
    remedy = "re-image the host, or change the spec"
    suspect = Suspect.CONFIG
    keys = (
        Key("sw.os", "PRETTY_NAME of /etc/os-release"),
        Key("sw.kernel", "kernel release"),
    )

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        yield from self.part(host, self._read(host, "sw.os", "/etc/os-release"))
        yield from self.part(host, self._read(host, "sw.kernel", "/proc/sys/kernel/osrelease"))

    def _read(self, host: Facts, key: str, path: str) -> Iterator[ComparedValue]:
        text = host.read(path)
        value = pretty_name(text) if key == "sw.os" else one_line(text, path)
        yield self.reading(host, key, value, evidence=path)


def pretty_name(text: str) -> str:
    """The distribution's name in os-release(5). Raises `UnreadableError`: it is not there."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "PRETTY_NAME" and value.strip(" \"'"):
            return value.strip(" \"'")
    raise UnreadableError("/etc/os-release has no PRETTY_NAME")


def one_line(text: str, path: str) -> str:
    """The only line of a file. Raises `UnreadableError`."""
    if not text or "\n" in text or not text.isprintable():
        raise UnreadableError(f"{path} holds no single line of text")
    return text


_PER_BOOT = re.compile(
    r"^(?:BOOT_IMAGE|root|resume|cryptdevice|ip|hostname|console|initrd|rd\.\w+|"
    r"systemd\.machine_id|BOOTIF)="
)


class KernelCommandLine(HostCheck):
    """The kernel was started with what GPU-direct traffic needs.

    Expected results: no IOMMU that translates (iommu=pt or off) and no pci=noats; the words that
    are not of one boot only (root=, BOOT_IMAGE=…) equal to the expected ones.
    """

    id = "sw.kernel-cmdline"
    section = Section.SOFTWARE
    reads = ("/proc/cmdline",)
    meaning = "GPU-direct RDMA is broken or slow under a translating IOMMU or without ATS"
    remedy = "set GRUB_CMDLINE_LINUX (iommu=pt), update-grub, reboot"
    suspect = Suspect.CONFIG
    keys = (Key("sw.kernel-cmdline", "sorted words of /proc/cmdline that outlive a boot"),)

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        line = one_line(host.read("/proc/cmdline"), "/proc/cmdline")
        said = line.split()
        translating = {"intel_iommu=on", "amd_iommu=on", "iommu=force", "iommu=nopt"} & set(said)
        lenient = {"iommu=pt", "iommu=off", "intel_iommu=off", "amd_iommu=off"} & set(said)
        bad = sorted(word for word in said if word.startswith("pci=") and "noats" in word)
        bad += sorted(translating) if not lenient else []
        yield self.verdict(
            not bad, host, " ".join(bad) or "nothing harmful", "iommu=pt or off, no pci=noats",
            "/proc/cmdline",
        )  # fmt: skip
        lasting = " ".join(sorted(word for word in said if not _PER_BOOT.match(word)))
        yield self.reading(host, "sw.kernel-cmdline", lasting, evidence="/proc/cmdline")


_RDMA = ("ib_core", "ib_uverbs")
_DMABUF_KERNEL = (5, 12)


class KernelModules(HostCheck):
    """The modules that RDMA and GPU-direct need are loaded.

    Expected results: with an RDMA NIC, ib_core and ib_uverbs (and ib_umad for InfiniBand); with an
    NVIDIA GPU too, nvidia_peermem or a kernel of 5.12 or later for dma-buf; the set of these equal
    to the expected one. Modules built into the kernel count.
    """

    id = "sw.modules"
    section = Section.SOFTWARE
    reads = ("/proc/modules", "/proc/sys/kernel/osrelease", "/sys/module/{ib_*,nvidia*,mlx5*}")
    meaning = "GPU-direct RDMA is off: collectives bounce through host memory at a third the speed"
    remedy = "modprobe what is missing; add it to /etc/modules-load.d"
    suspect = Suspect.CONFIG
    keys = (Key("sw.modules", "sorted modules of RDMA and GPUs that are loaded"),)

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        loaded = self._loaded(host)
        known = sorted(name for name in loaded if _WATCHED.fullmatch(name))
        yield self.reading(host, "sw.modules", " ".join(known), evidence="/proc/modules")
        ports = [port for port in host.ports() if port.rdma]
        if not ports:
            yield self.skip(host, "no RDMA NIC here")
            return
        wanted = set(_RDMA)
        if any(port.link_layer == "InfiniBand" for port in ports):
            wanted.add("ib_umad")
        missing = sorted(name for name in wanted - loaded if not host.exists(f"/sys/module/{name}"))
        yield self.verdict(
            not missing, host, f"missing: {' '.join(missing)}" if missing else "all loaded",
            " ".join(sorted(wanted)), "/proc/modules",
        )  # fmt: skip
        if has_nvidia(host):
            yield self._gpu_direct(host, loaded)

    def _gpu_direct(self, host: Facts, loaded: frozenset[str]) -> Result:
        peermem = {"nvidia_peermem", "nv_peer_mem"} & loaded
        release = host.read("/proc/sys/kernel/osrelease")
        numbers = re.match(r"(\d{1,4})\.(\d{1,4})", release)
        recent = numbers is not None and (int(numbers[1]), int(numbers[2])) >= _DMABUF_KERNEL
        got = " ".join(sorted(peermem)) or (f"dma-buf of kernel {release}" if recent else "neither")
        return self.verdict(
            bool(peermem) or recent, host, got,
            "nvidia_peermem, or dma-buf (kernel 5.12, open driver)", "/proc/modules",
            at="gpu-direct",
        )  # fmt: skip

    @staticmethod
    def _loaded(host: Facts) -> frozenset[str]:
        text = host.read("/proc/modules")
        rows = [line.split() for line in text.splitlines() if line.strip()]
        if any(len(row) < 3 or not row[1].isdigit() for row in rows):
            raise UnreadableError("/proc/modules is not in the kernel's format")
        return frozenset(row[0] for row in rows)


_WATCHED = re.compile(
    r"nvidia\w*|nv_peer_mem|amdgpu|gdrdrv|ib_\w+|rdma_\w+|iw_cm|mlx5_\w+|bnxt_\w+|ionic\w*|"
    r"irdma|efa|xpmem|knem|nvme\w*|lustre|nfs\w*"
)


class Governor(HostCheck):
    """Processors run at the speed that latency needs.

    Expected results: `performance` as the governor of every processor that has one; skipped where
    none is to be chosen (virtual machines, firmware in charge).
    """

    id = "sw.governor"
    section = Section.SOFTWARE
    reads = (
        "/sys/devices/system/cpu/cpu*",
        "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    )
    meaning = "processors clock down between messages: latency and small collectives suffer"
    remedy = "cpupower frequency-set -g performance; make it last (tuned, a unit)"
    suspect = Suspect.CONFIG

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        allowed: tuple[str, ...] = ("performance",)

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        base = "/sys/devices/system/cpu"
        seen: Counter[str] = Counter()
        for name in host.names(base):
            if re.fullmatch(r"cpu\d{1,6}", name):
                try:
                    seen[host.read(f"{base}/{name}/cpufreq/scaling_governor")] += 1
                except AbsentError:
                    continue
        if not seen:
            yield self.skip(host, "no governor is to be chosen here")
            return
        bad = set(seen) - set(self.limits.allowed)
        got = ", ".join(f"{count} × {name or '?'}" for name, count in sorted(seen.items()))
        yield self.verdict(not bad, host, got, " or ".join(self.limits.allowed),
                           ", ".join(self.reads), bad=Status.WARN)  # fmt: skip
