# ruff: noqa: E501, PLR0917 - elements stand as nvidia-smi nests them
"""What a host's GPUs are and what their vendors' tools say of them while they are well."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.audit.machine import Place

IDLE = "2.5 GT/s PCIe"


class GpuKind(NamedTuple):
    """A GPU model as its tools describe it."""

    name: str
    vendor: str
    ids: str
    class_code: str = "030200"
    nvlinks: tuple[int, str] = (0, "")
    watts: int = 700
    clocks: tuple[int, int] = (1980, 2619)
    margin: bool = True
    """Its thresholds are margins to a limit (T.Limit), as of Ada and Hopper."""
    dozes: bool = False
    speed: str = "32.0 GT/s PCIe"


GPUS = {
    "h100": GpuKind("NVIDIA H100 80GB HBM3", "nvidia", "10de:2330", nvlinks=(18, "26.562")),
    "h200": GpuKind("NVIDIA H200", "nvidia", "10de:2335", nvlinks=(18, "26.562"),
                    clocks=(1980, 3201)),
    "h100-pcie": GpuKind("NVIDIA H100 PCIe", "nvidia", "10de:2331", watts=350, clocks=(1755, 1593)),
    "b200": GpuKind("NVIDIA B200", "nvidia", "10de:2901", nvlinks=(18, "53.125"), watts=1000,
                    clocks=(1965, 3996)),
    "gb200": GpuKind("NVIDIA GB200", "nvidia", "10de:2941", nvlinks=(18, "53.125"), watts=1200,
                     clocks=(2062, 3996)),
    "a100": GpuKind("NVIDIA A100-SXM4-80GB", "nvidia", "10de:20b2", nvlinks=(12, "25"), watts=400,
                    clocks=(1410, 1593), margin=False, speed="16.0 GT/s PCIe"),
    "l40s": GpuKind("NVIDIA L40S", "nvidia", "10de:26b9", watts=350, clocks=(2520, 9001),
                    dozes=True, speed="16.0 GT/s PCIe"),
    "mi300x": GpuKind("AMD Instinct MI300X", "amd", "1002:74a1", "120000", watts=750),
    "gaudi3": GpuKind("HL-325L", "habana", "1da3:1060", "120000"),
}  # fmt: skip


def gpu_tools(place: Place, gpu: GpuKind) -> None:
    """What the vendor's tools say of the GPUs."""
    count = len(place.gpus)
    if gpu.vendor == "nvidia":
        driver = place.shape.get("driver", "570.124.06")
        place.files["/proc/driver/nvidia/version"] = (
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build\n"
            "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)"
        )
        place.commands["nvidia-smi -q -x"] = smi(place, gpu, driver)
        links, rate = gpu.nvlinks
        place.commands["nvidia-smi nvlink -s"] = "".join(
            f"GPU {number}: {gpu.name} (UUID: GPU-{number:08x}-{place.number:04x})\n"
            + "".join(f"\t Link {link}: {rate} GB/s\n" for link in range(links))
            for number in range(count)
        )
        place.commands["nvidia-smi nvlink -e"] = "".join(
            f"GPU {number}: {gpu.name} (UUID: GPU-{number:08x})\n"
            + "".join(
                f"\t Link {link}: {kind} Errors: 0\n"
                for link in range(links)
                for kind in ("Replay", "Recovery", "CRC")
            )
            for number in range(count)
        )
        place.commands["nvidia-ctk --version"] = "NVIDIA Container Toolkit CLI version 1.17.4\n"
        place.commands["nvidia-smi topo -m"] = None  # drawn once NICs are known
        if place.shape.get("nvswitches"):
            place.commands["nv-fabricmanager --version"] = f"Fabric Manager version is : {driver}\n"
    elif gpu.vendor == "amd":
        place.files["/sys/module/amdgpu/version"] = "6.10.5"
        place.commands["amd-smi metric --json"] = json.dumps(
            [_amd_metric(number) for number in range(count)]
        )
        place.commands["amd-smi static --json"] = json.dumps(
            [_amd_static(number, bus) for number, bus in enumerate(place.gpus)]
        )
        place.commands["amd-smi bad-pages --json"] = json.dumps(
            [{"gpu": number, "retired": "No bad pages found.", "pending": "No bad pages found.",
              "un_res": "No bad pages found."} for number in range(count)])  # fmt: skip


def smi(place: Place, gpu: GpuKind, driver: str) -> str:
    """`nvidia-smi -q -x`, of the v12 document type."""
    shape = place.shape
    body = "".join(_smi_gpu(place, gpu, driver, number, bus, shape)
                   for number, bus in enumerate(place.gpus))  # fmt: skip
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
        f"<nvidia_smi_log>\n\t<timestamp>Tue Mar  4 10:1{place.number}:00 2025</timestamp>\n"
        f"\t<driver_version>{driver}</driver_version>\n\t<cuda_version>12.8</cuda_version>\n"
        f"\t<attached_gpus>{len(place.gpus)}</attached_gpus>\n{body}</nvidia_smi_log>\n"
    )


_MARGINS = """<gpu_temp_tlimit>{margin} C</gpu_temp_tlimit>
<gpu_temp_max_tlimit_threshold>-8 C</gpu_temp_max_tlimit_threshold>
<gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold>
<gpu_temp_max_gpu_tlimit_threshold>0 C</gpu_temp_max_gpu_tlimit_threshold>
<gpu_target_temperature>N/A</gpu_target_temperature>
<memory_temp>{memory} C</memory_temp>
<gpu_temp_max_mem_tlimit_threshold>0 C</gpu_temp_max_mem_tlimit_threshold>"""
_DEGREES = """<gpu_temp_tlimit>N/A</gpu_temp_tlimit>
<gpu_temp_max_threshold>92 C</gpu_temp_max_threshold>
<gpu_temp_slow_threshold>89 C</gpu_temp_slow_threshold>
<gpu_temp_max_gpu_threshold>85 C</gpu_temp_max_gpu_threshold>
<gpu_target_temperature>N/A</gpu_target_temperature>
<memory_temp>{memory} C</memory_temp>
<gpu_temp_max_mem_threshold>95 C</gpu_temp_max_mem_threshold>"""


def _smi_gpu(
    place: Place, gpu: GpuKind, driver: str, number: int, bus: str, shape: Mapping[str, Any]
) -> str:
    heat = shape.get("heat", 34) + number % 3
    thresholds = _MARGINS if gpu.margin else _DEGREES
    sm, memory = gpu.clocks
    busy = shape.get("heat", 34) > 60
    ecc = shape.get("ecc", "Enabled")
    fabric = ("<state>Completed</state><status>Success</status>"
              if shape.get("nvswitches") or gpu.name == "NVIDIA GB200"
              else "<state>N/A</state><status>N/A</status>")  # fmt: skip
    reasons = "".join(
        f"<clocks_event_reason_{name}>{'Active' if name == idle else 'Not Active'}"
        f"</clocks_event_reason_{name}>\n"
        for idle in [shape.get("reason", "sw_power_cap" if busy else "gpu_idle")]
        for name in ("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown",
                     "hw_thermal_slowdown", "hw_power_brake_slowdown", "sync_boost",
                     "sw_thermal_slowdown", "display_clocks_setting")
    )  # fmt: skip
    return f"""<gpu id="0000{bus.upper()}">
<product_name>{gpu.name}</product_name>
<persistence_mode>Enabled</persistence_mode>
<mig_mode><current_mig>{shape.get("mig", "Disabled")}</current_mig><pending_mig>Disabled</pending_mig></mig_mode>
<serial>165{place.number:03d}{number:07d}</serial>
<uuid>GPU-{number:08x}-{place.number:04x}</uuid>
<vbios_version>96.00.A5.00.01</vbios_version>
<inforom_version><img_version>G520.0200.00.05</img_version><ecc_object>7.16</ecc_object></inforom_version>
<gpu_reset_status><reset_required>No</reset_required><drain_and_reset_recommended>No</drain_and_reset_recommended></gpu_reset_status>
<gpu_recovery_action>None</gpu_recovery_action>
<gsp_firmware_version>{driver}</gsp_firmware_version>
<performance_state>P0</performance_state>
<clocks_event_reasons>
{reasons}</clocks_event_reasons>
<ecc_mode><current_ecc>{ecc}</current_ecc><pending_ecc>{ecc}</pending_ecc></ecc_mode>
<ecc_errors><volatile><sram_correctable>0</sram_correctable><sram_uncorrectable_parity>0</sram_uncorrectable_parity><sram_uncorrectable_secded>0</sram_uncorrectable_secded><dram_correctable>3</dram_correctable><dram_uncorrectable>0</dram_uncorrectable></volatile>
<aggregate><sram_correctable>0</sram_correctable><sram_uncorrectable_parity>0</sram_uncorrectable_parity><sram_uncorrectable_secded>0</sram_uncorrectable_secded><dram_correctable>{number}</dram_correctable><dram_uncorrectable>0</dram_uncorrectable><sram_threshold_exceeded>No</sram_threshold_exceeded></aggregate>
<aggregate_uncorrectable_sram_sources><sram_l2>0</sram_l2><sram_sm>0</sram_sm></aggregate_uncorrectable_sram_sources></ecc_errors>
<retired_pages><pending_blacklist>N/A</pending_blacklist><pending_retirement>N/A</pending_retirement></retired_pages>
<remapped_rows><remapped_row_corr>0</remapped_row_corr><remapped_row_unc>0</remapped_row_unc><remapped_row_pending>No</remapped_row_pending><remapped_row_failure>No</remapped_row_failure><row_remapper_histogram><row_remapper_histogram_max>2560 bank(s)</row_remapper_histogram_max><row_remapper_histogram_high>0 bank(s)</row_remapper_histogram_high><row_remapper_histogram_partial>0 bank(s)</row_remapper_histogram_partial><row_remapper_histogram_low>0 bank(s)</row_remapper_histogram_low><row_remapper_histogram_none>0 bank(s)</row_remapper_histogram_none></row_remapper_histogram></remapped_rows>
<temperature><gpu_temp>{heat} C</gpu_temp>
{thresholds.format(margin=87 - heat, memory=heat + 8)}</temperature>
<gpu_power_readings><power_state>P0</power_state><current_power_limit>{gpu.watts}.00 W</current_power_limit><default_power_limit>{gpu.watts}.00 W</default_power_limit></gpu_power_readings>
<clocks><graphics_clock>{sm - 40 if busy else 345} MHz</graphics_clock><sm_clock>{sm - 40 if busy else 345} MHz</sm_clock><mem_clock>{memory} MHz</mem_clock></clocks>
<applications_clocks><graphics_clock>{sm} MHz</graphics_clock><mem_clock>{memory} MHz</mem_clock></applications_clocks>
<default_applications_clocks><graphics_clock>{sm} MHz</graphics_clock><mem_clock>{memory} MHz</mem_clock></default_applications_clocks>
<max_clocks><graphics_clock>{sm} MHz</graphics_clock><sm_clock>{sm} MHz</sm_clock><mem_clock>{memory} MHz</mem_clock></max_clocks>
<fabric>{fabric}</fabric>
<processes></processes>
</gpu>
"""


def _amd_metric(number: int) -> dict[str, Any]:
    none = {"correctable_count": 0, "uncorrectable_count": 0, "deferred_count": 0}
    return {
        "gpu": number,
        "usage": {"gfx_activity": {"value": 0, "unit": "%"}},
        "temperature": {"edge": "N/A", "hotspot": {"value": 41 + number, "unit": "C"},
                        "mem": {"value": 35, "unit": "C"}},
        "pcie": {"width": 16, "speed": {"value": 32, "unit": "GT/s"}, "replay_count": 0},
        "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": 0,
                "total_deferred_count": 0, "cache_correctable_count": 0,
                "cache_uncorrectable_count": 0},
        "ecc_blocks": {"UMC": none, "SDMA": none, "GFX": none, "XGMI_WAFL": none},
    }  # fmt: skip


def _amd_static(number: int, bus: str) -> dict[str, Any]:
    def celsius(value: int) -> dict[str, Any]:
        return {"value": value, "unit": "C"}

    return {
        "gpu": number, "asic": {"market_name": "AMD Instinct MI300X"}, "bus": {"bdf": bus},
        "vbios": {"name": "AMD MI300X_HW_SRIOV_CVS_1VF", "version": "022.040.003.043.000001",
                  "part_number": "113-M3000100-103"},
        "limit": {"max_power": {"value": 750, "unit": "W"}, "slowdown_edge_temperature": "N/A",
                  "slowdown_hotspot_temperature": celsius(100),
                  "slowdown_vram_temperature": celsius(95), "shutdown_edge_temperature": "N/A",
                  "shutdown_hotspot_temperature": celsius(110),
                  "shutdown_vram_temperature": celsius(105)},
        "ras": {"eeprom_version": "0x30000", "ecc_block_state": {"UMC": "ENABLED"}},
    }  # fmt: skip


def topology(place: Place) -> str:
    """`nvidia-smi topo -m` as the placement of the devices makes it."""
    shape, count = place.shape, len(place.gpus)
    nics = place.topology
    head = "\t" + "\t".join(
        [f"GPU{n}" for n in range(count)] + [f"NIC{n}" for n in range(len(nics))]
    )
    lines = [f"\x1b[4m{head}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"]
    lines = [f"\t\x1b[4m{head[1:]}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"]
    for gpu in range(count):
        cells = ["NV18" if other != gpu else " X " for other in range(count)]
        cells += [_near(shape, gpu, root) for _, root in nics]
        lines.append("\t".join([f"GPU{gpu}", *cells, "0-55", "0", "N/A"]))
    for number in range(len(nics)):
        cells = [_near(shape, gpu, nics[number][1]) for gpu in range(count)]
        cells += [" X " if other == number else "SYS" for other in range(len(nics))]
        lines.append("\t".join([f"NIC{number}", *cells]))
    legend = [f"  NIC{number}: {name}" for number, (name, _) in enumerate(nics)]
    return "\n".join(
        [*lines, "", "Legend:", "", "  X    = Self", "", "NIC Legend:", "", *legend, ""]
    )


def _near(shape: Mapping[str, Any], gpu: int, root: int) -> str:
    if shape.get("near"):
        return str(shape["near"])
    half = shape.get("gpus", 8) // 2 or 1
    same = gpu // half == (root % 8) // half
    if shape.get("switched", True):
        return "PIX" if gpu == root else "NODE" if same else "SYS"
    return "NODE" if same else "SYS"
