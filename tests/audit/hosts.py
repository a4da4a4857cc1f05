"""Hosts as trees: two that are right, to be broken one thing at a time."""

from __future__ import annotations

import json

from tests.audit import speeds
from tests.audit.trees import Tree

PCI = "/sys/bus/pci/devices"
IB = "/sys/class/infiniband"


NVBANDWIDTH = ("nvbandwidth -t host_to_device_memcpy_ce device_to_host_memcpy_ce "
               "device_to_device_memcpy_read_ce")  # fmt: skip
ALL_REDUCE = "all_reduce_perf -b 1G -e 8G -f 2 -g 2 -n 20 -c 1"


def nvidia_host() -> Tree:
    """Two GPUs and two InfiniBand NICs, pairwise below a PCIe switch; NVSwitch, NVMe, a bond."""
    files, links, commands = _common("gpu001")
    files["/proc/driver/nvidia/version"] = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023"
    )
    files["/proc/modules"] = "\n".join(
        f"{name} 16384 2 - Live 0x0000000000000000"
        for name in ("ib_core", "ib_uverbs", "ib_umad", "rdma_cm", "mlx5_ib", "mlx5_core",
                     "nvidia", "nvidia_peermem")
    )  # fmt: skip
    for number, bus in enumerate(("00", "80")):
        below = _switch(files, links, bus)
        gpu = _pci(files, links, f"{below}/0000:{_hex(bus, 2)}:00.0", f"0000:{_hex(bus, 3)}:00.0",
                   "10de:2330:030200")  # fmt: skip
        files[f"/proc/driver/nvidia/gpus/{gpu}/information"] = "Model: NVIDIA H100"
        nic = _pci(files, links, f"{below}/0000:{_hex(bus, 2)}:01.0", f"0000:{_hex(bus, 4)}:00.0",
                   "15b3:1021:020700")  # fmt: skip
        _rdma(files, links, number, links[f"{PCI}/{nic}"], layer="InfiniBand")
    _pci(files, links, "/sys/devices/pci0000:c0/0000:c0:01.0", "0000:c4:00.0", "10de:22a3:068000")
    commands |= {
        "nvidia-smi -q -x": smi(["0000:03:00.0", "0000:83:00.0"]),
        "nvidia-smi nvlink -s": "\n".join(
            f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n"
            + "\n".join(f"\t Link {link}: 26.562 GB/s" for link in range(18))
            for gpu in range(2)
        ),
        "nvidia-smi nvlink -e": "\n".join(
            f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n"
            + "\n".join(f"\t Link {link}: Replay Errors: 0" for link in range(18))
            for gpu in range(2)
        ),
        "nvidia-smi topo -m": (
            "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\x1b[0m\n"
            "GPU0\t X \tNV18\tPIX\tSYS\t0-63\nGPU1\tNV18\t X \tSYS\tPIX\t64-127\n"
            "NIC0\tPIX\tSYS\t X \tSYS\nNIC1\tSYS\tPIX\tSYS\t X\n\nNIC Legend:\n\n"
            "  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
        ),
        "nv-fabricmanager --version": "Fabric Manager version is : 535.129.03",
        "systemctl is-active nvidia-fabricmanager": "active",
        "ofed_info -s": "MLNX_OFED_LINUX-23.10-1.1.9.0:",
        "nvidia-ctk --version": "NVIDIA Container Toolkit CLI version 1.14.3\ncommit: 53b24618",
        "amd-smi static --json": None,
        NVBANDWIDTH: speeds.nvbandwidth(),
        "syntony audit gemm --json": speeds.gemm(640.0, 638.0),
        ALL_REDUCE: speeds.all_reduce(),
        "dcgmi diag -r 1 -j": json.dumps({"DCGM GPU Diagnostic": {"test_categories": [
            {"category": "Deployment", "tests": [
                {"name": "software", "results": [{"status": "Pass"}]}]}]}}),
    }  # fmt: skip
    for number in range(2):
        commands[f"mlxlink -d mlx5_{number} -m"] = (
            "Module Info\n-----------\nVendor Part Number : MMA4Z00-NS\nFW Version : 47.171.0001\n"
        )
        commands[f"mlxlink -d mlx5_{number} -p 1 -c -e -m"] = (
            "Temperature [C]                    : 48 [-5..75]\n"
            "Raw Physical BER                   : 2E-10\n"
            "Effective Physical BER             : 15E-255\nSymbol BER : 15E-255\n"
        )
        address = f"0000:{('04', '84')[number]}:00.0"
        commands[f"mlxconfig -d {address} query PCI_WR_ORDERING"] = (
            "Configurations:          Next Boot\n         PCI_WR_ORDERING      force_relax(1)\n"
        )
    return Tree(files, links, commands)


def amd_host() -> Tree:
    """Two Instinct GPUs and two RoCE NICs, each rail its own subnet."""
    files, links, commands = _common("amd001")
    files["/sys/module/amdgpu/version"] = "6.8.5"
    files["/proc/modules"] = "\n".join(
        f"{name} 16384 2 - Live 0x0000000000000000"
        for name in ("ib_core", "ib_uverbs", "bnxt_re", "bnxt_en", "amdgpu")
    )
    for number, bus in enumerate(("00", "80")):
        below = _switch(files, links, bus)
        _pci(files, links, f"{below}/0000:{_hex(bus, 2)}:00.0", f"0000:{_hex(bus, 3)}:00.0",
             "1002:74a1:120000")  # fmt: skip
        nic = _pci(files, links, f"{below}/0000:{_hex(bus, 2)}:01.0", f"0000:{_hex(bus, 4)}:00.0",
                   "15b3:1021:020000")  # fmt: skip
        _rdma(files, links, number, links[f"{PCI}/{nic}"], layer="Ethernet")
    rows = [{"gpu": gpu, "temperature": {"edge": "N/A", "hotspot": {"value": 51, "unit": "C"},
                                         "mem": {"value": 45, "unit": "C"}},
             "ecc": {"total_uncorrectable_count": 0}}
            for gpu in range(2)]  # fmt: skip
    addresses = [
        {"ifname": f"eth{rail + 1}", "addr_info": [
            {"family": "inet", "local": f"10.{rail}.0.1", "prefixlen": 24, "scope": "global"}]}
        for rail in range(2)
    ]  # fmt: skip
    commands |= {
        "nvidia-smi -q -x": None,
        "amd-smi metric --json": json.dumps(rows),
        "amd-smi static --json": json.dumps(
            [{"gpu": gpu, "vbios": {"version": "022.040.003", "part_number": "113-M3000100"}}
             for gpu in range(2)]
        ),
        "amd-smi bad-pages --json": json.dumps(
            [{"gpu": gpu, "bad_pages": [{"page_address": "0x1", "status": "RESERVED"}]}
             for gpu in range(2)]
        ),
        "ip -j address show": json.dumps([*json.loads(commands["ip -j address show"] or ""),
                                          *addresses]),
        "ip -j rule show": json.dumps([{"priority": 0, "src": "all", "table": "local"}]),
        "wpa_cli -i eth1 status": "Supplicant PAE state=AUTHENTICATED\nsuppPortStatus=Authorized",
        "ofed_info -s": None,
        "rocm-bandwidth-test -a": speeds.rocm_bandwidth(),
        "syntony audit gemm --json": speeds.gemm(610.0, 608.0, name="AMD Instinct MI300X"),
        ALL_REDUCE: speeds.all_reduce(310.0, device="AMD Instinct MI300X"),
    }  # fmt: skip
    for number in range(2):
        address = f"0000:{('03', '83')[number]}:00.0"
        links[f"/sys/module/amdgpu/drivers/pci:amdgpu/{address}"] = f"{PCI}/{address}"
    files["/var/run/wpa_supplicant/eth1"] = ""
    files["/etc/nccl.conf"] = "NCCL_IB_GID_INDEX=3\n"
    for rail in range(2):
        commands |= {
            f"dcb -j pfc show dev eth{rail + 1}": json.dumps(
                {"ifname": f"eth{rail + 1}", "prio-pfc": {str(p): p == 3 for p in range(8)}}
            ),
            f"dcb -j app show dev eth{rail + 1}": json.dumps({"dscp_prio": [[26, 3]]}),
            f"mlxlink -d mlx5_{rail} -m": None,
            f"mlxconfig -d 0000:{('04', '84')[rail]}:00.0 query PCI_WR_ORDERING": None,
        }
    return Tree(files, links, commands)


def smi(buses: list[str], **changes: str) -> str:
    """`nvidia-smi -q -x` of GPUs that are well, but for `changes` (``a__b`` for the path a/b)."""
    gpus = []
    for bus in buses:
        reported = _GPU | ({name.replace("__", "/"): text for name, text in changes.items()}
                       if bus == buses[0] else {})  # fmt: skip
        gpus.append(f'<gpu id="0000{bus.upper()}">{elements(reported)}</gpu>')
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
        "<nvidia_smi_log><driver_version>535.129.03</driver_version>"
        f"<cuda_version>12.2</cuda_version><attached_gpus>{len(buses)}</attached_gpus>"
        f"{''.join(gpus)}</nvidia_smi_log>"
    )


_GPU = {
    "product_name": "NVIDIA H100 80GB HBM3",
    "persistence_mode": "Enabled",
    "mig_mode/current_mig": "Disabled",
    "vbios_version": "96.00.61.00.01",
    "gpu_reset_status/reset_required": "No",
    "gsp_firmware_version": "535.129.03",
    "inforom_version/img_version": "G520.0200.00.05",
    "ecc_mode/current_ecc": "Enabled",
    "ecc_errors/volatile/sram_uncorrectable_parity": "0",
    "ecc_errors/volatile/sram_uncorrectable_secded": "0",
    "ecc_errors/volatile/dram_uncorrectable": "0",
    "ecc_errors/aggregate/sram_uncorrectable_parity": "0",
    "ecc_errors/aggregate/sram_uncorrectable_secded": "1",
    "remapped_rows/remapped_row_unc": "0",
    "remapped_rows/remapped_row_pending": "No",
    "remapped_rows/remapped_row_failure": "No",
    "temperature/gpu_temp": "34 C",
    "temperature/memory_temp": "45 C",
    "clocks_event_reasons/clocks_event_reason_hw_slowdown": "Not Active",
    "clocks_event_reasons/clocks_event_reason_sw_thermal_slowdown": "Not Active",
    "gpu_power_readings/current_power_limit": "700.00 W",
    "max_clocks/sm_clock": "1980 MHz",
    "max_clocks/mem_clock": "2619 MHz",
    "fabric/state": "Completed",
    "fabric/status": "Success",
}


def elements(reported: dict[str, str]) -> str:
    """XML of texts by path."""
    tree: dict[str, object] = {}
    for path, text in reported.items():
        *parents, name = path.split("/")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})  # type: ignore[assignment]
        place[name] = text
    return _xml(tree)


def _xml(tree: dict[str, object]) -> str:
    return "".join(
        f"<{name}>{_xml(value) if isinstance(value, dict) else value}</{name}>"
        for name, value in tree.items()
    )


def _hex(bus: str, add: int) -> str:
    return f"{int(bus, 16) + add:02x}"


def _switch(files: dict[str, str | None], links: dict[str, str], bus: str) -> str:
    """Root port, upstream port and two downstream ports; the directory of the upstream port."""
    top = f"/sys/devices/pci0000:{bus}"
    root, up = f"0000:{bus}:01.0", f"0000:{_hex(bus, 1)}:00.0"
    _pci(files, links, top, root, "8086:352a:060400")
    _pci(files, links, f"{top}/{root}", up, "1000:c030:060400")
    for port in ("00", "01"):
        _pci(
            files, links, f"{top}/{root}/{up}", f"0000:{_hex(bus, 2)}:{port}.0", "1000:c030:060400"
        )
    return f"{top}/{root}/{up}"


def _pci(
    files: dict[str, str | None], links: dict[str, str], parent: str, address: str, ids: str
) -> str:
    """`ids` is ``vendor:device:class``."""
    vendor, device, class_code = (f"0x{part}" for part in ids.split(":"))
    base = f"{parent}/{address}"
    reported = {"vendor": vendor, "device": device, "class": class_code, "numa_node": "0",
            "current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16",
            "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16",
            "aer_dev_correctable": "RxErr 0\nTOTAL_ERR_COR 0",
            "aer_dev_nonfatal": "Undefined 0\nTOTAL_ERR_NONFATAL 0",
            "aer_dev_fatal": "Undefined 0\nTOTAL_ERR_FATAL 0"}  # fmt: skip
    files.update({f"{base}/{name}": text for name, text in reported.items()})
    links[f"{PCI}/{address}"] = base
    return address


def _rdma(
    files: dict[str, str | None], links: dict[str, str], number: int, nic: str, *, layer: str
) -> None:
    roce = layer == "Ethernet"
    net = f"eth{number + 1}" if roce else f"ib{number}"
    device = f"{nic}/infiniband/mlx5_{number}"
    port = f"{device}/ports/1"
    files |= {
        f"{device}/fw_ver": "28.39.1002",
        f"{device}/board_id": "MT_0000000838",
        f"{port}/state": "4: ACTIVE",
        f"{port}/phys_state": "5: LinkUp",
        f"{port}/rate": "400 Gb/sec (4X NDR)",
        f"{port}/link_layer": layer,
        f"{port}/lid": f"0x{number + 17:x}" if not roce else "0x0",
        f"{port}/sm_lid": "0x1" if not roce else "0x0",
        f"{port}/gid_attrs/ndevs/0": net,
    }
    for name in ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors",
                 "local_link_integrity_errors", "excessive_buffer_overrun_errors",
                 "port_xmit_discards"):  # fmt: skip
        files[f"{port}/counters/{name}"] = "0"
    for name in ("rnr_nak_retry_err", "local_ack_timeout_err", "out_of_sequence"):
        files[f"{port}/hw_counters/{name}"] = "0"
    base = f"{nic}/net/{net}"
    files |= {f"{base}/mtu": "9000" if roce else "4092", f"{base}/operstate": "up",
              f"{base}/flags": "0x1003", f"{base}/carrier": "1", f"{base}/speed": "400000",
              f"{base}/carrier_down_count": "0", f"{base}/type": "1" if roce else "32",
              f"{base}/dev_port": "0"}  # fmt: skip
    if roce:
        link_local = f"fe80:0000:0000:0000:0000:0000:0000:000{number + 1}"
        mapped = f"0000:0000:0000:0000:0000:ffff:0a0{number}:0001"
        for place, (address, kind) in enumerate(
            ((link_local, "IB/RoCE v1"), (link_local, "RoCE v2"), (mapped, "IB/RoCE v1"),
             (mapped, "RoCE v2"))
        ):  # fmt: skip
            files[f"{port}/gids/{place}"] = address
            files[f"{port}/gid_attrs/types/{place}"] = kind
            files[f"{port}/gid_attrs/ndevs/{place}"] = net
        files[f"{device}/tc/1/traffic_class"] = "Global tclass=106"
        files[f"{base}/ecn/roce_np/enable/3"] = "1"
    else:
        files[f"{port}/gids/0"] = f"fe80:0000:0000:0000:946d:ae03:00e1:000{number}"
        files[f"{port}/pkeys/0"] = "0xffff"
        files[f"/sys/class/infiniband_mad/umad{number}/ibdev"] = f"mlx5_{number}"
        files[f"/sys/class/infiniband_mad/umad{number}/port"] = "1"
    files[f"/sys/class/infiniband_verbs/uverbs{number}/ibdev"] = f"mlx5_{number}"
    links[f"{device}/device"] = nic
    links[f"{base}/device"] = nic
    links[f"/sys/class/net/{net}"] = base
    links[f"{IB}/mlx5_{number}"] = device


def _common(
    host: str,
) -> tuple[dict[str, str | None], dict[str, str], dict[str, str | None]]:
    """What both have: image, memory, disks, the front-end network, services."""
    files: dict[str, str | None] = {}
    links: dict[str, str] = {}
    files |= {
        "/etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.4 LTS"',
        "/etc/environment": 'PATH="/usr/bin"',
        "/etc/resolv.conf": "nameserver 10.9.0.53",
        "/proc/sys/kernel/osrelease": "5.15.0-1078-generic",
        "/proc/sys/kernel/hostname": host,
        "/proc/sys/kernel/random/boot_id": "7d1b0c2e-0000-4000-8000-000000000001",
        "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=1 ro quiet iommu=pt",
        "/proc/uptime": "864000.00 100.0",
        "/proc/meminfo": "MemTotal:  2113929216 kB\nMemFree: 1 kB\nSwapTotal: 0 kB\n"
        "SwapFree: 0 kB\nHugePages_Total: 0",
        "/proc/self/limits": "Limit                     Soft Limit  Hard Limit  Units\n"
        "Max locked memory         unlimited   unlimited   bytes\n"
        "Max open files            1048576     1048576     files",
        "/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme sse",
        "/proc/mounts": "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\n10.9.0.7:/data /data nfs rw 0 0",
        "/proc/1/stat": "1 (systemd) S 0 1 1",
        "/proc/42/stat": "42 (kworker/0:1) I 2 0 0",
        "/proc/net/route": "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
        "bond0\t00000000\t0100090A\t0003\t0\t0\t0\t00000000\t0\t0\t0",
        "/proc/net/bonding/bond0": "Bonding Mode: IEEE 802.3ad\nMII Status: up\n\n"
        "Slave Interface: eth8\nMII Status: up\nAggregator ID: 1\n\n"
        "Slave Interface: eth9\nMII Status: up\nAggregator ID: 1",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "/sys/kernel/iommu_groups/0/type": "identity",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
        "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance",
        "/sys/devices/system/edac/mc/mc0/ue_count": "0",
        "/sys/devices/system/edac/mc/mc0/ce_count": "2",
        "/sys/class/nvme/nvme0/state": "live",
    }
    for node in range(2):
        files[f"/sys/devices/system/node/node{node}/meminfo"] = (
            f"Node {node} MemTotal:       1056964608 kB"
        )
    for name, value in (("net/core/rmem_max", "67108864"), ("net/ipv4/ip_forward", "0"),
                        ("net/ipv4/conf/all/rp_filter", "2"), ("vm/max_map_count", "262144"),
                        ("net/ipv4/conf/all/arp_ignore", "1"),
                        ("net/ipv4/conf/all/arp_announce", "2"),
                        ("net/ipv4/neigh/default/gc_thresh3", "16384"),
                        ("kernel/numa_balancing", "0")):  # fmt: skip
        files[f"/proc/sys/{name}"] = value
    _front_end(files, links)
    for library in ("libcuda", "libnvidia-ml", "libamdhip64", "librocm_smi64", "libibverbs"):
        files[f"/usr/lib/x86_64-linux-gnu/{library}.so.1"] = "ELF"
    files["/usr/lib/x86_64-linux-gnu/libnccl.so.2.19.3"] = "ELF"
    links["/usr/lib/x86_64-linux-gnu/libnccl.so.2"] = "/usr/lib/x86_64-linux-gnu/libnccl.so.2.19.3"
    return files, links, _common_commands(host)


_PORT = {"operstate": "up", "flags": "0x1003", "carrier": "1", "type": "1", "speed": "100000",
         "mtu": "9000"}  # fmt: skip


def _front_end(files: dict[str, str | None], links: dict[str, str]) -> None:
    top = "/sys/devices/pci0000:c0"
    _pci(files, links, top, "0000:c0:01.0", "8086:352a:060400")
    for number, net in enumerate(("eth8", "eth9")):
        address = _pci(
            files, links, f"{top}/0000:c0:01.0", f"0000:c1:00.{number}", "8086:1592:020000"
        )
        base = f"{links[f'{PCI}/{address}']}/net/{net}"
        files |= {f"{base}/{name}": text for name, text in _PORT.items()}
        links[f"{base}/device"] = links[f"{PCI}/{address}"]
        links[f"/sys/class/net/{net}"] = base
    _pci(files, links, f"{top}/0000:c0:01.0", "0000:c2:00.0", "144d:a808:010802")
    bond = "/sys/devices/virtual/net/bond0"
    files |= {f"{bond}/operstate": "up", f"{bond}/mtu": "9000", f"{bond}/speed": "200000",
              f"{bond}/duplex": "full", f"{bond}/flags": "0x1003", f"{bond}/carrier": "1",
              f"{bond}/type": "1"}  # fmt: skip
    for name in ("rx_errors", "tx_errors", "rx_crc_errors"):
        files[f"{bond}/statistics/{name}"] = "0"
    for name in ("rx_packets", "tx_packets"):
        files[f"{bond}/statistics/{name}"] = "900000000"
    links["/sys/class/net/bond0"] = bond


def _common_commands(host: str) -> dict[str, str | None]:
    services = ("slurmd", "kubelet", "containerd", "docker", "lldpd", "chronyd", "chrony", "ntpd",
                "systemd-timesyncd", "ptp4l", "nvidia-persistenced", "nvidia-fabricmanager",
                "opensmd", "sssd", "munge", "irqbalance", "syntony-agent",
                "syntony-reactor")  # fmt: skip
    cache = "\n".join(
        f"\t{name} (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/{name}"
        for name in ("libcuda.so.1", "libnvidia-ml.so.1", "libamdhip64.so.1", "librocm_smi64.so.1",
                     "libibverbs.so.1", "libnccl.so.2")
    )  # fmt: skip
    modules = "\n\n".join(
        f"Handle 0x{slot:04X}, DMI type 17, 92 bytes\nMemory Device\n\tSize: 64 GB\n"
        f"\tLocator: DIMM_{slot}\n\tConfigured Memory Speed: 4800 MT/s\n\tPart Number: M321R8GA0BB0"
        for slot in range(4)
    )
    commands: dict[str, str | None] = {
        "ldconfig -p": f"6 libs found in cache `/etc/ld.so.cache'\n{cache}",
        "dmidecode -t 17": f"# dmidecode 3.3\n{modules}",
        "dmesg": "[    0.000000] Linux version 5.15.0-1078-generic\n[    9.1] mlx5_core: ready",
        "lspci -vvv": LSPCI,
        "getenforce": None,
        "syntony clock now --json": None,
        "chronyc -n -c tracking": "0A090035,10.9.0.53,2,1700000000.1,0.000002,0.000001,0.000003,"
        "1.5,0.001,0.05,0.0001,0.00002,64.0,Normal",
        "systemctl list-units --failed --plain --no-legend": "",
        DF: "Filesystem 1024-blocks Used Available Capacity Mounted on\n"
        "/dev/nvme0n1p2 1000000 400000 600000 40% /",
        "nvme smart-log -o json /dev/nvme0": json.dumps({"critical_warning": 0}),
        "ipmi-sensors --output-sensor-state --comma-separated-output":
        "ID,Name,Type,State,Reading,Units,Event\n1,FAN1,Fan,Nominal,9000,RPM,'OK'",
        "ip -j address show": json.dumps([{"ifname": "bond0", "addr_info": [
            {"family": "inet", "local": "10.9.0.11", "prefixlen": 16, "scope": "global"}]}]),
        "ip -j neigh show": json.dumps([{"dst": "10.9.0.1", "dev": "bond0",
                                         "state": ["REACHABLE"]}]),
        f"getent ahosts {host}": "10.9.0.11       STREAM " + host,
        "syntony audit clocks --json": speeds.clocks(),
        "syntony audit triad --json": json.dumps({"0": 310.0, "1": 309.0}),
        "syntony audit reach --json --count 20 gpu002:22": json.dumps(
            [{"peer": "gpu002:22", "tries": 20, "lost": 0, "p50_ns": 90_000, "p99_ns": 200_000,
              "error": ""}]),
        "syntony audit reach --json --count 3 10.9.0.7:2049": json.dumps(
            [{"peer": "10.9.0.7:2049", "tries": 3, "lost": 0, "p99_ns": 1, "error": ""}]),
    }  # fmt: skip
    for size in (56, 8972):
        commands[f"ping -c 3 -i 0.2 -W 1 -M do -s {size} gpu002"] = (
            "3 packets transmitted, 3 received, 0% packet loss"
        )
    active = {"slurmd", "containerd", "chronyd", "nvidia-fabricmanager"}
    for service in services:
        commands[f"systemctl is-active {service}"] = "active" if service in active else "inactive"
    return commands


DF = ("df -P -k --local --exclude-type=tmpfs --exclude-type=devtmpfs --exclude-type=squashfs "
      "--exclude-type=overlay --exclude-type=efivarfs")  # fmt: skip

LSPCI = """01:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch
\t\tDevCtl:\tCorrErr+ NonFatalErr+
\t\t\tMaxPayload 512 bytes, MaxReadReq 512 bytes
\tCapabilities: [148 v1] Access Control Services
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-

04:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]
\t\t\tMaxPayload 512 bytes, MaxReadReq 4096 bytes

84:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]
\t\t\tMaxPayload 512 bytes, MaxReadReq 4096 bytes
"""
