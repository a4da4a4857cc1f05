"""Where each check's verdict changes: the last value that passes and the first that does not.

Hosts are on paper (`tests.audit.paper`): a row writes down only what its check asks for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from tests.audit.hosts import DF, elements
from tests.audit.paper import DENIED, PaperHost, Text, verdicts, worst

PCI = "/sys/bus/pci/devices"
GPU, NIC, DISK = "0000:03:00.0", "0000:04:00.0", "0000:05:00.0"
IB = "/sys/class/infiniband/mlx5_0/ports/1"
NET = "/sys/class/net/eth0"


class Row(NamedTuple):
    """What is not a pass where these are all that the host has."""

    check: str
    files: Mapping[str, Text]
    commands: Mapping[str, Text]
    bad: set[str]
    limits: Mapping[str, Any] = {}


def smi(*fields: str, gpus: int = 1) -> dict[str, Text]:
    """`nvidia-smi -q -x`; ``a/b=text`` nests."""
    tree = elements(dict(field.split("=", 1) for field in fields))
    body = "".join(f'<gpu id="0000000{n}:{GPU[5:]}">{tree}</gpu>' for n in range(gpus))
    text = f"<nvidia_smi_log><attached_gpus>{gpus}</attached_gpus>{body}</nvidia_smi_log>"
    return {"nvidia-smi -q -x": text}


def limits_file(locked: str, files: str = "65536") -> dict[str, Text]:
    return {
        "/proc/self/limits": f"Limit                     Soft Limit           Hard Limit\n"
        f"Max locked memory         {locked}              {locked}              bytes\n"
        f"Max open files            {files}             {files}             files",
        "/proc/sys/vm/max_map_count": "65530",
    }


RDMA = {f"{IB}/state": "4: ACTIVE"}
GIB16 = 16 << 30
LIMITS = [
    Row("sw.limits", limits_file("unlimited") | RDMA, {}, set()),
    Row("sw.limits", limits_file(str(GIB16)) | RDMA, {}, set()),
    Row("sw.limits", limits_file(str(GIB16 - 1)) | RDMA, {}, {"fail locked memory"}),
    Row("sw.limits", limits_file(str(GIB16 - 1)), {}, {"warn locked memory"}),
    Row("sw.limits", limits_file("unlimited", "65535"), {}, {"warn open files"}),
    Row("sw.limits", limits_file("1") | {"/proc/sys/vm/max_map_count": "65529"}, {},
        {"warn locked memory", "warn max_map_count"}),
    Row("sw.limits", {"/proc/self/limits": "Max open files            65536      65536    files"},
        {}, {"unknown locked memory", "unknown max_map_count"}),
    Row("sw.limits", {**limits_file("9"), "/proc/12/limits": limits_file("unlimited")
                      ["/proc/self/limits"]}, {}, set(), {"process": "12"}),
]  # fmt: skip


def gpu(*fields: str) -> dict[str, Text]:
    return smi("clocks_event_reasons/clocks_event_reason_hw_slowdown=Not Active", *fields)


TEMPERATURE = "temperature/gpu_temp"
COOL = f"{TEMPERATURE}=50 C"
CLOCKS = (COOL, "max_clocks/graphics_clock=2000 MHz", "performance_state=P0")
HOT: list[tuple[tuple[str, ...], set[str], dict[str, Any]]] = [
    ((f"{TEMPERATURE}=84 C",), set(), {}), ((f"{TEMPERATURE}=85 C",), {"fail"}, {}),
    ((f"{TEMPERATURE}=69 C",), set(), {"hot_c": 70.0}),
    ((f"{TEMPERATURE}=70 C",), {"fail"}, {"hot_c": 70.0}),
    ((f"{TEMPERATURE}=90 C", f"{TEMPERATURE}_max_gpu_threshold=91 C",
      f"{TEMPERATURE}_slow_threshold=60 C"), set(), {}),
    ((f"{TEMPERATURE}=90 C", f"{TEMPERATURE}_max_gpu_threshold=N/A",
      f"{TEMPERATURE}_slow_threshold=90 C"), {"fail"}, {}),
    ((f"{TEMPERATURE}=99 C", f"{TEMPERATURE}_tlimit=1 C"), set(), {}),
    ((f"{TEMPERATURE}=20 C", f"{TEMPERATURE}_tlimit=0 C"), {"fail"}, {}),
    ((f"{TEMPERATURE}=20 C", f"{TEMPERATURE}_tlimit=-2 C",
      f"{TEMPERATURE}_max_gpu_tlimit_threshold=-3 C"), set(), {}),
    ((f"{TEMPERATURE}=20 C", f"{TEMPERATURE}_tlimit=-2 C",
      f"{TEMPERATURE}_slow_tlimit_threshold=-2 C"), {"fail"}, {}),
    ((f"{TEMPERATURE}=86 C", f"{TEMPERATURE}_tlimit=30 C"), {"fail"}, {"hot_c": 86.0}),
    ((COOL, "temperature/memory_temp=94 C"), set(), {}),
    ((COOL, "temperature/memory_temp=95 C"), {"fail"}, {}),
    ((COOL, "temperature/memory_temp=80 C", f"{TEMPERATURE}_max_mem_threshold=80 C"),
     {"fail"}, {}),
    ((COOL, "temperature/memory_temp=80 C", f"{TEMPERATURE}_max_mem_threshold=80 C"), set(),
     {"memory_hot_c": 81.0}),
    ((), {"unknown"}, {}),
    ((COOL, "persistence_mode=Disabled"), {"warn"}, {}),
    ((COOL, "processes/process_info/pid=7"), set(), {}),
    ((COOL, "processes/process_info/pid=7"), {"fail"}, {"idle": True}),
    ((COOL,), set(), {"idle": True}),
    ((*CLOCKS, "clocks/graphics_clock=1800 MHz"), set(), {}),
    ((*CLOCKS, "clocks/graphics_clock=1799 MHz"), {"warn"}, {}),
    ((*CLOCKS[:2], "performance_state=P2", "clocks/graphics_clock=300 MHz"), set(), {}),
    ((*CLOCKS, "clocks/graphics_clock=300 MHz",
      "clocks_event_reasons/clocks_event_reason_gpu_idle=Active"), set(), {}),
    ((*CLOCKS, "clocks_event_reasons/clocks_event_reason_applications_clocks_setting=Active"),
     {"warn"}, {}),
    ((*CLOCKS, "applications_clocks/graphics_clock=1500 MHz",
      "default_applications_clocks/graphics_clock=1501 MHz"), {"warn"}, {}),
    ((*CLOCKS, "applications_clocks/graphics_clock=1501 MHz",
      "default_applications_clocks/graphics_clock=1501 MHz"), set(), {}),
    ((COOL, "clocks_throttle_reasons/clocks_throttle_reason_sw_thermal_slowdown=Active"),
     {"fail"}, {}),
    ((COOL, "clocks_event_reasons/clocks_event_reasons_hw_power_brake_slowdown=Active"),
     {"fail"}, {}),
]  # fmt: skip
HEALTH = [
    Row("node.gpu-health", {}, gpu(*fields), {f"{each} {GPU}" for each in bad}, limits)
    for fields, bad, limits in HOT
]
HEALTH.append(Row("node.gpu-health", {}, smi(COOL), {f"unknown {GPU}"}))

AMD_CASES: list[tuple[dict[str, Any], str, set[str], dict[str, Any]]] = [
    ({"hotspot": 94, "edge": 84, "mem": {"value": 94}}, "", set(), {}),
    ({"hotspot": 95}, "", {"fail"}, {}), ({"edge": 85}, "", {"fail"}, {}),
    ({"mem": {"value": 95, "unit": "C"}}, "", {"fail"}, {}), ({"mem": True}, "", {"unknown"}, {}),
    ({"hotspot": "N/A"}, "", {"unknown"}, {}), ({"hotspot": 60}, "", {"fail"}, {"hot_c": 60.0}),
    ({"hotspot": 99}, "hotspot", set(), {}), ({"hotspot": 100}, "hotspot", {"fail"}, {}),
    ({"mem": 99}, "vram", set(), {}), ({"mem": 99}, "edge", {"fail"}, {}),
    ({"mem": 80}, "", {"fail"}, {"memory_hot_c": 80.0}),
]  # fmt: skip
AMD = [
    Row("node.gpu-health", {}, {
        "amd-smi metric --json": json.dumps([{"gpu": 4, "temperature": reported}]),
        "amd-smi static --json": json.dumps([{
            "gpu": 4, "limit": {f"slowdown_{limit}_temperature": {"value": 100}}}]),
    }, {f"{each} gpu4" for each in bad}, limits)
    for reported, limit, bad, limits in AMD_CASES
]  # fmt: skip

ECC = "ecc_errors/volatile"
LIFE = "ecc_errors/aggregate/sram_uncorrectable"
SPARE = "remapped_rows/row_remapper_histogram/row_remapper_histogram"
MEMORY = [
    (("ecc_mode/current_ecc=Enabled",), set(), {}),
    (("ecc_mode/current_ecc=Disabled",), {"fail"}, {}),
    ((f"{ECC}/dram_uncorrectable=0",), set(), {}), ((f"{ECC}/dram_uncorrectable=1",), {"fail"}, {}),
    ((f"{ECC}/sram_uncorrectable_secded=1",), {"fail"}, {}),
    ((f"{LIFE}_parity=2", f"{LIFE}_secded=2"), set(), {}),
    ((f"{LIFE}_parity=2", f"{LIFE}_secded=3"), {"fail"}, {}),
    ((f"{LIFE}=5",), set(), {"sram_uncorrected": 5}),
    (("remapped_rows/remapped_row_unc=512",), set(), {}),
    (("remapped_rows/remapped_row_unc=513",), {"fail"}, {}),
    (("remapped_rows/remapped_row_pending=No",), set(), {}),
    (("retired_pages/pending_blacklist=Yes",), {"fail"}, {}),
    (("ecc_errors/aggregate/sram_threshold_exceeded=0",), set(), {}),
    ((f"{SPARE}_none=1 bank(s)", "ecc_mode/current_ecc=Enabled"), {"fail"}, {}),
    ((f"{SPARE}_low=1 bank(s)", "ecc_mode/current_ecc=Enabled"), {"warn"}, {}),
    ((f"{SPARE}_low=0 bank(s)", f"{SPARE}_max=9 bank(s)", "ecc_mode/current_ecc=Enabled"), set(),
     {}),
    (("product_name=H100",), {"unknown"}, {}),
]  # fmt: skip
GPU_MEMORY = [
    Row("mem.gpu-ecc", {}, smi(*fields), {f"{each} {GPU}" for each in bad}, limits)
    for fields, bad, limits in MEMORY
]
GPU_MEMORY += [
    Row("mem.gpu-ecc", {}, {"amd-smi metric --json": json.dumps([reported]),
                            "amd-smi static --json": "[]"}, bad)
    for reported, bad in (
        ({"ecc": {"total_uncorrectable_count": 0}}, set()),
        ({"ecc": {"cache_uncorrectable_count": 1}}, {"fail gpu0"}),
        ({"ecc_blocks": {"UMC": {"uncorrectable_count": 1, "correctable_count": 9}}},
         {"fail gpu0"}),
        ({"ecc_blocks": {"UMC": {"uncorrectable_count": 0, "correctable_count": 9}}}, set()),
        ({"ecc": "N/A", "ecc_blocks": ["UMC"]}, {"unknown gpu0"}),
    )
]  # fmt: skip
PAGES = [
    Row("mem.gpu-badpages", {}, {"amd-smi bad-pages --json": json.dumps([reported]),
                                 "amd-smi static --json": "[]"}, bad)
    for reported, bad in (
        ({"gpu": 2, "retired": [{"status": "RESERVED"}]}, set()),
        ({"gpu": 2, "bad_pages": [{"status": "Unreservable"}]}, {"fail gpu2"}),
        ({"bad_pages": {"pending": [{"address": 1}]}}, {"fail gpu0"}),
        ({"bad_pages": {"pending": [], "un_res": []}}, set()),
        ({"bad_pages": {"un_res": [{"address": 1}]}}, {"fail gpu0"}),
    )
]  # fmt: skip
RECOVERY = [
    Row("node.gpu-recovery", {}, smi(*fields), bad)
    for fields, bad in (
        (("gpu_reset_status/reset_required=No", "gpu_recovery_action=None"), set()),
        (("gpu_reset_status/drain_and_reset_recommended=Yes",), {f"fail {GPU}"}),
        (("gpu_recovery_action=Reboot",), {f"fail {GPU}"}),
        (("product_name=H100",), {"skip"}),
    )
]


def nvlink(*lines: str) -> str:
    return "\n".join(["GPU 1: NVIDIA H100 (UUID: GPU-1)", *(f"\t Link {line}" for line in lines)])


UP, OFF = ("0: 26.562 GB/s", "1: 26.562 GB/s"), "1: <inactive>"
CLEAN = nvlink("0: Replay Errors: 0", "0: CRC Errors: 0")
NVLINK = [
    Row(
        "node.nvlink",
        {},
        {"nvidia-smi nvlink -s": state, "nvidia-smi nvlink -e": errors} | smi(),
        bad,
    )
    for state, errors, bad in (
        (nvlink(*UP), CLEAN, set()),
        (nvlink(UP[0], OFF), CLEAN, {"fail GPU 1"}),
        (nvlink(UP[0], "1: 25 GB/s"), CLEAN, {"fail GPU 1"}),
        (nvlink("0: 0 GB/s", "1: 0 GB/s"), CLEAN, {"fail GPU 1"}),
        (nvlink(OFF), CLEAN, {"fail GPU 1"}),
        (f"{nvlink()}\nall links are inActive\nlink is inactive", CLEAN, {"fail"}),
        (nvlink(), CLEAN, {"skip"}),
        (nvlink(*UP), nvlink("0: Replay Errors: 1"), {"warn errors"}),
        (nvlink(*UP), "nothing", {"unknown errors"}),
        (nvlink(*UP), DENIED, {"unknown errors"}),
    )
]


def log(*lines: str) -> dict[str, Text]:
    return {
        "dmesg": "\n".join(["[    0.000000] Linux version 6.1.0", *(f"[9.1] {x}" for x in lines)])
    }


XID = "NVRM: Xid (PCI:0000:03:00):"
LOGS: list[tuple[str, dict[str, Text], set[str]]] = [
    ("node.xid", log(), {"skip"}),
    ("node.xid", log(f"{XID} 31, pid=7, MMU fault"), set()),
    ("node.xid", log(f"{XID} 79, GPU has fallen off the bus"), {"fail 0000:03:00"}),
    ("node.xid", log(f"{XID} 9999, what is this"), {"warn 0000:03:00"}),
    ("node.xid", log("amdgpu 0000:03:00.0: GPU reset begin!") | {"amd-smi static --json": "[]"},
     {"fail"}),
    ("node.xid", log() | {"amd-smi static --json": "[]"}, set()),
    ("mem.mce", log(), set()),
    ("mem.mce", log("mce: [Hardware Error]: Machine check events logged"), {"fail"}),
    ("mem.mce", log("[Hardware Error]: event severity: corrected"), {"warn"}),
    ("mem.mce", log("EDAC MC0: 1 UE memory read error", "[Hardware Error]: corrected error"),
     {"fail"}),
    ("pcie.bw-limited", log("x: 63 Gb/s available PCIe bandwidth, limited by 8 GT/s"), {"fail"}),
    ("pcie.bw-limited", log("x: 252 Gb/s available PCIe bandwidth (16 GT/s x16)"), set()),
    ("pcie.power", log("x: Detected insufficient power on the PCIe slot (27W)."), {"warn"}),
    ("pcie.power", log("x: sufficient"), set()),
    ("node.kmsg-novel", log("usb 1-1: new device", "Command line: quiet panic=1",
                            "DMI not present or invalid.",
                            "Code: Unable to access opcode bytes at 0x7f5200b16283."), set()),
    ("mem.mce", {"dmesg": ""}, {"unknown"}), ("mem.mce", {"dmesg": "no such thing"}, {"unknown"}),
    ("mem.mce", {"dmesg": DENIED, "journalctl -k -b --no-pager -o short-iso":
                 "2026-11-22T10:00:00+0000 h0 kernel: well"}, set()),
]  # fmt: skip
KERNEL = [Row(name, {}, commands, bad) for name, commands, bad in LOGS]


def registers(address: str, name: str, *lines: str) -> str:
    return "\n".join([f"{address} {name}", *(f"\t{line}" for line in lines)])


CARD = "Infiniband controller: Mellanox ConnectX-7"
BRIDGE_ = "PCI bridge: Broadcom"
PAYLOAD = "MaxPayload 256 bytes, MaxReadReq 4096 bytes"
LSPCI = [
    ("pcie.mrrs", registers("04:00.0", CARD, PAYLOAD), set()),
    ("pcie.mrrs", registers("04:00.0", CARD, PAYLOAD.replace("4096", "2048")), {f"warn {NIC}"}),
    ("pcie.mrrs", registers("04:00.0", CARD, PAYLOAD.replace("256", "128")), {f"warn {NIC}"}),
    ("pcie.mrrs", registers("04:00.0", "VGA: Matrox", PAYLOAD), {"skip"}),
    ("pcie.mrrs", "\n".join([registers("04:00.0", CARD, "LnkSta: none"),
                             registers("05:00.0", BRIDGE_, PAYLOAD)]), {f"unknown {NIC}"}),
    ("pcie.mrrs", registers("04:00.0", CARD, "Capabilities: <access denied>"), {"unknown"}),
    ("pcie.acs", registers("01:00.0", BRIDGE_, PAYLOAD, "ACSCtl:\tSrcValid- ReqRedir-"), set()),
    ("pcie.acs", registers("01:00.0", BRIDGE_, PAYLOAD, "ACSCtl:\tUpstreamFwd+"),
     {"fail 0000:01:00.0"}),
    ("pcie.acs", registers("01:00.0", BRIDGE_, PAYLOAD, "ACSCtl:\tEgressCtrl+"), set()),
    ("pcie.acs", "\n".join([registers("01:00.0", BRIDGE_, "Capabilities: <access denied>"),
                            registers("02:00.0", CARD, PAYLOAD)]), {"unknown"}),
    ("pcie.acs", registers("02:00.0", CARD, PAYLOAD), {"skip"}),
    # SR-IOV 1.1, 3.5.4: these fields of a virtual function are reserved and read as 0, 128 bytes.
    ("pcie.mrrs", registers("04:00.2", "Infiniband controller: Mellanox Technologies MT28908 "
                            "Family [ConnectX-6 Virtual Function]",
                            "MaxPayload 128 bytes, MaxReadReq 128 bytes"), {"skip 0000:04:00.2"}),
]  # fmt: skip
REGISTERS = [Row(name, {}, {"lspci -vvv": text}, bad) for name, text, bad in LSPCI]
REGISTERS.append(
    Row("pcie.acs", {"/proc/cpuinfo": "flags\t\t: fpu hypervisor avx"},
        {"lspci -vvv": LSPCI[7][1]}, {"skip"})
)  # fmt: skip


def pci(address: str, kind: str, **files: str) -> dict[str, Text]:
    vendor, code = {
        "gpu": ("0x10de", "0x030200"), "nic": ("0x15b3", "0x020700"),
        "nvme": ("0x144d", "0x010802"), "vga": ("0x1002", "0x030000"),
    }[kind]  # fmt: skip
    reported = {"vendor": vendor, "device": "0x1021", "class": code} | files
    return {f"{PCI}/{address}/{name}": text for name, text in reported.items()}


def trained(now: tuple[str, str], most: tuple[str, str]) -> dict[str, str]:
    names = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
    return dict(zip(names, (*now, *most), strict=True))


FULL, HALF = ("32.0 GT/s PCIe", "16"), ("16.0 GT/s PCIe", "16")
NARROW, UNKNOWN = ("32.0 GT/s PCIe", "8"), ("Unknown", "255")
TRAINING = [
    ("nic", FULL, FULL, set()), ("nic", HALF, FULL, {"fail"}), ("nic", NARROW, FULL, {"fail"}),
    ("gpu", HALF, FULL, {"warn"}), ("gpu", NARROW, FULL, {"fail"}),
    ("nvme", HALF, FULL, {"warn"}), ("nvme", ("16.0 GT/s", "8"), FULL, {"fail"}),
    ("nic", UNKNOWN, FULL, {"unknown"}), ("nic", FULL, UNKNOWN, {"unknown"}),
    ("nic", ("32.0 GT/s", "0"), FULL, {"unknown"}), ("nic", ("32.0 GT/s", "63"), FULL, {"fail"}),
]  # fmt: skip
LINKS = [
    Row("pcie.link", pci(NIC, kind, **trained(now, most)), {}, {f"{each} {NIC}" for each in bad})
    for kind, now, most, bad in TRAINING
]
AER = "TOTAL_ERR_COR"
COUNTED = [
    ({"aer_dev_correctable": f"RxErr 1000\n{AER} 1000"}, set(), {}),
    ({"aer_dev_correctable": f"{AER} 1001"}, {"warn"}, {}),
    ({"aer_dev_correctable": f"{AER} 6"}, {"warn"}, {"correctable": 5}),
    ({"aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 1"}, {"fail"}, {}),
    ({"aer_dev_fatal": "TOTAL_ERR_FATAL 1", "aer_dev_correctable": f"{AER} 9999"}, {"fail"}, {}),
    ({"aer_dev_fatal": "nonsense"}, {"unknown"}, {}),
]
SILENT = {"aer_dev_fatal": "TOTAL_ERR_FATAL 0", "aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 0",
          "aer_dev_correctable": f"{AER} 0"}  # fmt: skip
ERRORS = [
    Row(
        "pcie.aer",
        pci(NIC, "nic", **SILENT | reported),
        {},
        {f"{each} {NIC}" for each in bad},
        limits,
    )
    for reported, bad, limits in COUNTED
]
ERRORS += [
    Row("pcie.aer", pci(NIC, "nic"), {}, {"skip"}),
    Row("pcie.aer", pci(NIC, "vga", **SILENT | COUNTED[3][0]), {}, {"skip"}),
    Row("pcie.present", pci(NIC, "nic"), {}, set()),
    Row("pcie.present", pci(NIC, "nic", vendor="0xffff"), {}, {"fail"}),
    Row("pcie.present", pci(NIC, "nic", config="\xff\xff\xff\xff\xff"), {}, {"fail"}),
    Row("pcie.present", pci(NIC, "nic", config="\xff\xff\xff\x00"), {}, set()),
    Row(
        "pcie.present",
        pci(NIC, "nic"),
        {"lspci -vvv": f"{CARD}\n04:00.0 {CARD} (rev ff)"},
        {"fail"},
    ),
    Row("pcie.present", pci(NIC, "nic"), {"lspci -vvv": f"04:00.1 {CARD} (rev ff)"}, set()),
]
GROUPS = "/sys/kernel/iommu_groups"
IOMMU = [
    Row("pcie.iommu", {f"{GROUPS}/0/type": "identity"}, {}, set()),
    Row("pcie.iommu", {f"{GROUPS}/0/type": "identity", f"{GROUPS}/7/type": "DMA"}, {}, {"warn"}),
    Row("pcie.iommu", {f"{GROUPS}/0/type": "else"}, {}, {"unknown"}),
    Row("pcie.iommu", {f"{GROUPS}/0/devices/x": ""}, {}, {"unknown"}),
    Row("pcie.iommu", {"/sys/kernel/mm/x": ""}, {}, set()),
    Row("pcie.iommu", {}, {}, {"unknown"}),
]
EDAC = "/sys/devices/system/edac/mc/mc0"


def edac(uncorrected: str, corrected: str, hours: float) -> dict[str, Text]:
    return {f"{EDAC}/ue_count": uncorrected, f"{EDAC}/ce_count": corrected,
            "/proc/uptime": f"{3600 * hours:.2f} 1.00"}  # fmt: skip


def module(size: str, place: str = "A1", speed: str = "4800 MT/s") -> str:
    return (f"Handle 0x0001, DMI type 17\nMemory Device\n\tSize: {size}\n\tLocator: {place}\n"
            f"\tConfigured Memory Speed: {speed}\n\n")  # fmt: skip


def swap(free: int) -> dict[str, Text]:
    return {"/proc/meminfo": f"MemTotal:  100 kB\nSwapTotal: 50 kB\nSwapFree: {free} kB"}


HOST_MEMORY = [
    Row("mem.edac", edac("0", "9", 10), {}, set()),
    Row("mem.edac", edac("0", "10", 10), {}, {"warn mc0"}),
    Row("mem.edac", edac("1", "0", 10), {}, {"fail mc0"}),
    Row("mem.edac", edac("0", "0", 0.1), {}, set()),
    Row("mem.edac", edac("0", "1", 0.1), {}, {"warn mc0"}),
    Row("mem.edac", edac("0", "19", 10), {}, set(), {"ce_per_hour": 2.0}),
    Row("mem.edac", edac("viele", "0", 10), {}, {"unknown mc0"}),
    Row("mem.edac", {"/proc/uptime": "9 9"}, {}, {"skip"}),
    Row("mem.edac", edac("0", "0", 10) | {"/proc/uptime": "lang"}, {}, {"unknown"}),
    Row(
        "mem.dimms",
        {},
        {"dmidecode -t 17": module("64 GB") * 2 + module("No Module Installed")},
        set(),
    ),
    Row("mem.dimms", {}, {"dmidecode -t 17": module("64 GB") * 2 + module("32 GB")}, {"fail"}),
    Row(
        "mem.dimms",
        {},
        {"dmidecode -t 17": module("64 GB") + module("64 GB", speed="4400 MT/s")},
        {"fail"},
    ),
    Row("mem.dimms", {}, {"dmidecode -t 17": module("No Module Installed")}, {"unknown"}),
    Row("mem.dimms", {}, {}, {"unknown"}),
    Row("mem.hugepages", swap(50), {}, set()),
    Row("mem.hugepages", swap(49), {}, {"warn swap"}),
    Row(
        "mem.total",
        {"/proc/meminfo": "MemTotal:  100 kB", "/sys/devices/system/node/node0/meminfo": "nothing"},
        {},
        {"unknown node0"},
    ),
    Row("mem.bw", {}, {"syntony audit triad --json": '{"0": true, "1": 3.5}'}, {"unknown 0"}),
    Row("mem.bw", {}, {"syntony audit triad --json": "{}"}, {"unknown"}),
]
RW, RO = "/dev/sda1 / ext4 rw 0 0", "/dev/sda1 / ext4 ro,relatime 0 0"
_DF_TEXT = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 100 0 50 50% /"
FREE: dict[str, Text] = {DF: _DF_TEXT}
NVME = "/sys/class/nvme/nvme0"
SMART = "nvme smart-log -o json /dev/nvme0"


def info(mount: str, superblock: str, where: str = "/") -> dict[str, Text]:
    reported = f"1 0 8:1 / {where} {mount} - ext4 /dev/sda1 {superblock}"
    return {"/proc/mounts": RO.replace(" / ", f" {where} "), "/proc/self/mountinfo": reported}


DISKS: list[tuple[dict[str, Text], dict[str, Text], set[str]]] = [
    ({"/proc/mounts": RW}, FREE, set()),
    ({"/proc/mounts": RW}, {DF: _DF_TEXT.replace("100 0 50", "100 0 5")}, set()),
    ({"/proc/mounts": RW}, {DF: _DF_TEXT.replace("100 0 50", "100 0 4")}, {"fail /"}),
    ({"/proc/mounts": RO}, {DF: _DF_TEXT.replace("100 0 50", "100 0 0")}, set()),
    ({"/proc/mounts": RW}, {DF: DENIED}, {"unknown"}),
    ({"/proc/mounts": RW}, {DF: "Filesystem\nnothing else"}, {"unknown"}),
    ({"/proc/mounts": "nothing"}, FREE, {"unknown"}),
    (info("ro,relatime", "ro"), FREE, set()),
    (info("rw,relatime", "ro"), FREE, {"fail read-only"}),
    (info("ro", "ro") | {"/etc/fstab": RW}, FREE, {"fail read-only"}),
    (info("ro", "ro") | {"/etc/fstab": RO}, FREE, set()),
    (info("ro", "ro") | {"/etc/fstab": f"# {RW}"}, FREE, set()),
    ({"/proc/mounts": RO}, FREE, set()),
    ({"/proc/mounts": RO.replace(" / ", " /usr/local ")}, FREE, set()),
    ({"/proc/mounts": RO.replace(" / ", " /data ")}, FREE, {"fail read-only"}),
    ({"/proc/mounts": RO.replace(" / ", " /usrlocal ")}, FREE, {"fail read-only"}),
    ({"/proc/mounts": RO.replace("ext4", "iso9660").replace(" / ", " /data ")}, FREE, set()),
    ({"/proc/mounts": RO.replace("relatime", "errors=remount-ro")}, FREE, {"fail read-only"}),
    ({"/proc/mounts": RW, f"{NVME}/state": "live"}, FREE, set()),
    ({"/proc/mounts": RW, f"{NVME}/state": "dead"}, FREE, {"fail nvme0"}),
    (
        {"/proc/mounts": RW, f"{NVME}/state": "live"},
        {**FREE, SMART: '{"critical_warning": 0}'},
        set(),
    ),
    (
        {"/proc/mounts": RW, f"{NVME}/state": "live"},
        {**FREE, SMART: '{"critical_warning": {"value": 4}}'},
        {"fail nvme0"},
    ),
    ({"/proc/mounts": RW, f"{NVME}/state": "live"}, {**FREE, SMART: "{}"}, {"unknown nvme0"}),
]
NODE = [Row("node.disk", files, commands, bad) for files, commands, bad in DISKS]
NAMED = {"/proc/sys/kernel/hostname": "h0.example.org"}
STAT = {f"/proc/{n}/stat": f"{n} (job) Z 1 1" for n in range(20)}
NODE += [
    Row(
        "node.disk",
        {"/proc/mounts": RW},
        {DF: _DF_TEXT.replace("100 0 50", "100 0 20")},
        {"fail /"},
        {"free": 0.21},
    ),
    Row("node.reach", NAMED | {"/proc/uptime": "300.00 1"}, {}, set()),
    Row("node.reach", NAMED | {"/proc/uptime": "299.99 1"}, {}, {"warn uptime"}),
    Row(
        "node.reach",
        {"/proc/sys/kernel/hostname": "h1", "/proc/uptime": "999 1"},
        {},
        {"warn name"},
    ),
    Row("node.dstate", STAT, {}, set()),
    Row("node.dstate", STAT | {"/proc/77/stat": "77 (a (b) c) Z 1"}, {}, {"warn zombies"}),
    Row("node.dstate", {"/proc/77/stat": "77 (nfs) D 1"}, {}, {"warn uninterruptible"}),
    Row("node.dstate", {"/proc/77/stat": "nonsense", "/proc/x/stat": "1 (x) S 1"}, {}, {"unknown"}),
]

ROWS = [*LIMITS, *HEALTH, *AMD, *GPU_MEMORY, *PAGES, *RECOVERY, *NVLINK, *KERNEL, *REGISTERS,
        *LINKS, *ERRORS, *IOMMU, *HOST_MEMORY, *NODE]  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(r, id=f"{r.check}-{k}") for k, r in enumerate(ROWS)])
def test_verdicts_change_where_the_check_says(row: Row) -> None:
    host = PaperHost(row.files, row.commands)
    assert worst(row.check, host, **row.limits) == row.bad, verdicts(row.check, host, **row.limits)
