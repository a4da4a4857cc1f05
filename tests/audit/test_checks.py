"""Every check on hosts that are right, and on the same hosts with one thing wrong."""

from __future__ import annotations

import fnmatch
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.audit import speeds
from tests.audit.hosts import ALL_REDUCE, DF, IB, NVBANDWIDTH, PCI, amd_host, nvidia_host, smi
from tests.audit.trees import Broken, broken, write

from syntony.audit.collecting import inputs, split_inputs
from syntony.audit.judge import Golden, Judge
from syntony.audit.registry import every_check, host_checks
from syntony.audit.result import HostReport, Result, Status
from syntony.audit.spec import Spec, limits, parse_spec
from syntony.io.audit.examine import examine_tree
from syntony.io.audit.host import HostFacts, recorded_host

_SPEC = parse_spec(
    {
        "checks": {
            "fe.mesh": {"peers": ["gpu002:22"]},
            "fe.pmtu": {"peers": ["gpu002"]},
            "fe.storage": {"endpoints": ["10.9.0.7:2049"], "mounts": ["/data"]},
            "sw.services": {"required": ["slurmd|kubelet"]},
            "sw.sysctl": {"peers": 1024},
        }
    },
    "the test's spec",
)


class Good(NamedTuple):
    """Trees of hosts that are right, and what was said of them."""

    nvidia: Path
    amd: Path
    reports: dict[Path, HostReport]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Good:
    folder = tmp_path_factory.mktemp("good")
    nvidia = write(nvidia_host(), folder / "gpu001")
    amd = write(amd_host(), folder / "amd001")
    return Good(nvidia, amd, {root: _examine(root) for root in (nvidia, amd)})


def _examine(root: Path, only: str = "") -> HostReport:
    chosen = host_checks([only] if only else (), active=True)
    given = limits(_SPEC, chosen)
    checks = [check(given[check.id]) for check in chosen]
    return examine_tree(recorded_host(root), checks, taken_ns=0)


def _verdicts(report: HostReport, golden: HostReport) -> list[Result]:
    return list(Judge(Spec(), Golden(golden)).verdicts(report))


def test_hosts_that_are_right_pass_everything(good: Good) -> None:
    for root, report in good.reports.items():
        bad = [each for each in _verdicts(report, report)
               if each.status not in {Status.PASS, Status.SKIP}]  # fmt: skip
        assert not bad, root.name


def test_every_check_passes_somewhere(good: Good) -> None:
    passed = {each.check for report in good.reports.values()
              for each in _verdicts(report, report) if each.status is Status.PASS}  # fmt: skip
    assert {check.id for check in host_checks(active=True)} - passed == set()


GPU0 = f"{PCI}/0000:03:00.0"
NIC0 = f"{PCI}/0000:04:00.0"
PORT0 = f"{IB}/mlx5_0/ports/1"
BOND = "/sys/class/net/bond0"
_FAIL, _WARN, _UNKNOWN = Status.FAIL, Status.WARN, Status.UNKNOWN
NVIDIA: list[tuple[str, Status, str, Broken]] = [
    ("sw.os", _FAIL, "gpu001", Broken({"/proc/sys/kernel/osrelease": "6.1.0-odd"})),
    ("sw.os", _UNKNOWN, "gpu001", Broken({"/etc/os-release": "garbage"})),
    ("sw.kernel-cmdline", _FAIL, "gpu001", Broken({"/proc/cmdline": "ro intel_iommu=on"})),
    ("sw.kernel-cmdline", _FAIL, "gpu001", Broken({"/proc/cmdline": "ro iommu=pt pci=noats"})),
    ("sw.modules", _FAIL, "gpu001", Broken({"/proc/modules": "ib_core 1 0 - Live 0x0"})),
    ("sw.modules", _UNKNOWN, "gpu001", Broken({"/proc/modules": "module ib_core ist geladen"})),
    ("sw.governor", _WARN, "gpu001",
     Broken({"/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave"})),
    ("sw.driver", _FAIL, "gpu001",
     Broken(commands={"nvidia-smi -q -x": smi(["0000:03:00.0", "0000:83:00.0"]).replace(
         "<driver_version>535.129.03", "<driver_version>550.54.15")})),
    ("sw.driver", _UNKNOWN, "gpu001/nvidia-smi", Broken(denied=("nvidia-smi -q -x",))),
    ("sw.fabricmanager", _FAIL, "gpu001",
     Broken(commands={"systemctl is-active nvidia-fabricmanager": "failed"})),
    ("sw.fabricmanager", _FAIL, "gpu001/version",
     Broken(commands={"nv-fabricmanager --version": "Fabric Manager version is : 525.60.13"})),
    ("sw.ofed", _FAIL, "gpu001", Broken(commands={"ofed_info -s": "MLNX_OFED_LINUX-5.8:"})),
    ("sw.nic-fw", _FAIL, "gpu001/mlx5_0", Broken({f"{IB}/mlx5_0/fw_ver": "28.36.1010"})),
    ("sw.nic-fw", _UNKNOWN, "gpu001/mlx5_0", Broken({f"{IB}/mlx5_0/fw_ver": None})),
    ("sw.transceiver-fw", _FAIL, "gpu001/mlx5_1",
     Broken(commands={"mlxlink -d mlx5_1 -m":
                      "Vendor Part Number : MMA4Z00-NS\nFW Version : 46.120.0001"})),
    ("sw.libs", _FAIL, "gpu001/libcuda",
     Broken(commands={"ldconfig -p": "0 libs found in cache `/etc/ld.so.cache'"})),
    ("sw.nccl-version", _FAIL, "gpu001/libnccl",
     Broken({"/usr/lib/x86_64-linux-gnu/libnccl.so.2": None,
             "/usr/lib/x86_64-linux-gnu/libnccl.so.2.18.1": "ELF"},
            {"ldconfig -p": "1 libs found in cache `x'\n\tlibnccl.so.2 (libc6) => "
                            "/usr/lib/x86_64-linux-gnu/libnccl.so.2.18.1"})),
    ("sw.env", _FAIL, "gpu001/NCCL_IB_DISABLE", Broken({"/etc/nccl.conf": "NCCL_IB_DISABLE=1"})),
    ("sw.env", _FAIL, "gpu001/NCCL_IB_HCA",
     Broken({"/etc/environment": "NCCL_IB_HCA=mlx5_1"})),
    ("sw.limits", _FAIL, "gpu001/locked memory",
     Broken({"/proc/self/limits": "Max locked memory         65536   65536  bytes\n"
                                  "Max open files            1024    4096   files"})),
    ("sw.sysctl", _FAIL, "gpu001/gc_thresh3",
     Broken({"/proc/sys/net/ipv4/neigh/default/gc_thresh3": "1000"})),
    ("sw.services", _FAIL, "gpu001/slurmd|kubelet",
     Broken(commands={"systemctl is-active slurmd": "failed"})),
    ("sw.services", _WARN, "gpu001/failed units",
     Broken(commands={"systemctl list-units --failed --plain --no-legend":
                      "nvme.service loaded failed failed NVMe"})),
    ("sw.time", _FAIL, "gpu001/wall time",
     Broken(commands={"chronyc -n -c tracking": "0A090035,10.9.0.53,2,17.1,0.250000,0.2,0.3,1.5,"
                                                "0.001,0.05,0.0001,0.00002,64.0,Normal"})),
    ("sw.time", _UNKNOWN, "gpu001/wall time",
     Broken(commands={"chronyc -n -c tracking": "506 Ne peut pas parler"})),
    ("sw.container", _FAIL, "gpu001/toolkit", Broken(commands={"nvidia-ctk --version": None})),
    ("mem.total", _FAIL, "gpu001",
     Broken({"/proc/meminfo": "MemTotal:  1981808640 kB\nSwapTotal: 0 kB"})),
    ("mem.total", _UNKNOWN, "gpu001", Broken({"/proc/meminfo": "Gesamtspeicher: viel"})),
    ("mem.dimms", _FAIL, "gpu001",
     Broken(commands={"dmidecode -t 17": "\n\n".join(
         f"Handle 0x{n:04X}, DMI type 17\nMemory Device\n\tSize: {size}\n\tLocator: D{n}\n"
         "\tConfigured Memory Speed: 4800 MT/s" for n, size in
         enumerate(("64 GB", "64 GB", "64 GB", "32 GB")))})),
    ("mem.dimms", _UNKNOWN, "gpu001", Broken(denied=("dmidecode -t 17",))),
    ("mem.edac", _FAIL, "gpu001/mc0",
     Broken({"/sys/devices/system/edac/mc/mc0/ue_count": "1"})),
    ("mem.edac", _WARN, "gpu001/mc0",
     Broken({"/sys/devices/system/edac/mc/mc0/ce_count": "90000"})),
    ("mem.mce", _FAIL, "gpu001",
     Broken(commands={"dmesg": "[1.0] mce: [Hardware Error]: Machine check events logged"})),
    ("mem.hugepages", _WARN, "gpu001/swap",
     Broken({"/proc/meminfo": "MemTotal:  2113929216 kB\nSwapTotal: 100 kB\nSwapFree: 1 kB"})),
    ("mem.gpu-ecc", _FAIL, "gpu001/0000:03:00.0",
     Broken(commands={"nvidia-smi -q -x": smi(["0000:03:00.0", "0000:83:00.0"],
                                              remapped_rows__remapped_row_pending="Yes")})),
    ("mem.gpu-ecc", _UNKNOWN, "gpu001",
     Broken(commands={"nvidia-smi -q -x": smi(["0000:03:00.0"])[:400]})),
    ("mem.bw", _FAIL, "gpu001/node1",
     Broken(commands={"syntony audit triad --json": '{"0": 310.0, "1": 150.0}'})),
    ("pcie.present", _FAIL, "gpu001/nic", Broken({f"{NIC0}/class": "0x050000"})),
    ("pcie.present", _FAIL, "gpu001", Broken({f"{GPU0}/vendor": "0xffff"})),
    ("pcie.link", _FAIL, "gpu001/0000:04:00.0", Broken({f"{NIC0}/current_link_width": "8"})),
    ("pcie.link", _WARN, "gpu001/0000:03:00.0",
     Broken({f"{GPU0}/current_link_speed": "2.5 GT/s PCIe"})),
    ("pcie.link", _FAIL, "gpu001/0000:01:00.0",
     Broken({f"{PCI}/0000:01:00.0/current_link_speed": "16.0 GT/s PCIe"})),
    ("pcie.link", _UNKNOWN, "gpu001/0000:04:00.0",
     Broken({f"{NIC0}/current_link_speed": "schnell"})),
    ("pcie.bw-limited", _FAIL, "gpu001",
     Broken(commands={"dmesg": "[1.0] mlx5_core 0000:04:00.0: 126.016 Gb/s available PCIe "
                               "bandwidth, limited by 8.0 GT/s PCIe x16 link at 0000:00:01.0"})),
    ("pcie.power", _WARN, "gpu001",
     Broken(commands={"dmesg": "[1.0] mlx5_core 0000:04:00.0: Detected insufficient power on the "
                               "PCIe slot (27W)."})),
    ("pcie.aer", _FAIL, "gpu001/0000:04:00.0",
     Broken({f"{NIC0}/aer_dev_nonfatal": "Undefined 3\nTOTAL_ERR_NONFATAL 3"})),
    ("pcie.iommu", _WARN, "gpu001", Broken({"/sys/kernel/iommu_groups/0/type": "DMA-FQ"})),
    ("pcie.mrrs", _WARN, "gpu001/0000:04:00.0",
     Broken(commands={"lspci -vvv": "04:00.0 Infiniband controller: Mellanox ConnectX-7\n"
                                    "\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes\n"})),
    ("pcie.mrrs", _UNKNOWN, "gpu001",
     Broken(commands={"lspci -vvv": "04:00.0 Infiniband controller: Mellanox ConnectX-7\n"
                                    "\tCapabilities: <access denied>\n"})),
    ("pcie.acs", _FAIL, "gpu001/0000:01:00.0",
     Broken(commands={"lspci -vvv": "01:00.0 PCI bridge: Broadcom\n\tMaxPayload 512 bytes, "
                      "MaxReadReq 512 bytes\n\tACSCtl:\tSrcValid+ ReqRedir+ CmpltRedir+\n"})),
    ("pcie.affinity", _FAIL, "gpu001/GPU1",
     Broken(commands={"nvidia-smi topo -m": "\tGPU0\tGPU1\tNIC0\tNIC1\nGPU0\t X \tNV18\tPIX\tSYS\n"
                      "GPU1\tNV18\t X \tSYS\tSYS\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"})),
    ("pcie.ro", _FAIL, "gpu001/mlx5_0",
     Broken(commands={"mlxconfig -d 0000:04:00.0 query PCI_WR_ORDERING":
                      "         PCI_WR_ORDERING      per_mkey(0)"})),
    ("node.reach", _WARN, "gpu001/uptime", Broken({"/proc/uptime": "12.0 1.0"})),
    ("node.gpu-count", _FAIL, "gpu001/NVIDIA",
     Broken(commands={"nvidia-smi -q -x": smi(["0000:03:00.0"])})),
    ("node.gpu-count", _FAIL, "gpu001",
     Broken({f"{GPU0}/class": "0x050000"}, {"nvidia-smi -q -x": smi(["0000:83:00.0"])})),
    ("node.gpu-health", _FAIL, "gpu001/0000:03:00.0",
     Broken(commands={"nvidia-smi -q -x": smi(["0000:03:00.0", "0000:83:00.0"],
                                              temperature__gpu_temp="88 C")})),
    ("node.gpu-recovery", _FAIL, "gpu001/0000:03:00.0",
     Broken(commands={"nvidia-smi -q -x": smi(["0000:03:00.0", "0000:83:00.0"],
                                              gpu_reset_status__reset_required="Yes")})),
    ("node.kernel", _FAIL, "gpu001/nvme0",
     Broken(commands={"dmesg": "[1.0] nvme nvme0: controller is down; will reset: CSTS=0x3"})),
    ("pcie.slots", _FAIL, "gpu001",
     Broken({f"{PCI}/0000:02:01.0/max_link_width": "8", f"{NIC0}/current_link_width": "8",
             f"{PCI}/0000:02:01.0/current_link_width": "8"})),
    ("node.xid", _FAIL, "gpu001/0000:03:00",
     Broken(commands={"dmesg": "[1.0] NVRM: Xid (PCI:0000:03:00): 79, pid=1, GPU has fallen off "
                               "the bus."})),
    ("node.xid", _UNKNOWN, "gpu001",
     Broken(denied=("dmesg",))),
    ("node.nvlink", _FAIL, "gpu001/GPU 0",
     Broken(commands={"nvidia-smi nvlink -s": "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n"
                      "\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"})),
    ("node.dcgm", _FAIL, "gpu001/memory",
     Broken(commands={"dcgmi diag -r 1 -j": '{"tests": [{"name": "memory", "results": '
                                            '[{"status": "Fail", "warnings": "bad"}]}]}'})),
    ("node.gpu-bw", _FAIL, "gpu001/GPU 0",
     Broken(commands={NVBANDWIDTH: speeds.nvbandwidth(h2d=26.03)})),
    ("node.gpu-bw", _FAIL, "gpu001/GPU 0",
     Broken(commands={NVBANDWIDTH: speeds.nvbandwidth(p2p=276.07)})),
    ("node.gpu-bw", _UNKNOWN, "gpu001", Broken(commands={NVBANDWIDTH: None})),
    ("node.gpu-bw", _UNKNOWN, "gpu001",
     Broken(commands={NVBANDWIDTH: speeds.nvbandwidth().partition(" 1    392.43")[0]})),
    ("node.gpu-bw", _UNKNOWN, "gpu001", Broken(denied=(NVBANDWIDTH,))),
    ("node.gemm", _FAIL, "gpu001/GPU 1",
     Broken(commands={"syntony audit gemm --json": speeds.gemm(640.0, 560.0)})),
    ("node.gemm", _FAIL, "gpu001/GPU 3",
     Broken(commands={"syntony audit gemm --json": speeds.gemm(640, 641, 639, 590)})),
    ("node.gemm", _FAIL, "gpu001/GPU 0",
     Broken(commands={"syntony audit gemm --json": speeds.gemm(640.0, 638.0, wrong=3)})),
    ("node.gemm", _UNKNOWN, "gpu001/GPUs",
     Broken(commands={"syntony audit gemm --json": speeds.GEMM_CPU})),
    ("node.nccl-local", _FAIL, "gpu001",
     Broken(commands={ALL_REDUCE: speeds.all_reduce(228.0)})),
    ("node.nccl-local", _FAIL, "gpu001/results",
     Broken(commands={ALL_REDUCE: speeds.all_reduce(wrong=2)})),
    ("node.nccl-local", _UNKNOWN, "gpu001",
     Broken(commands={ALL_REDUCE: speeds.all_reduce().partition("# Out of")[0]})),
    ("node.nccl-local", _UNKNOWN, "gpu001/ranks",
     Broken(commands={ALL_REDUCE: speeds.all_reduce(gpus=1)})),
    ("fe.time", _FAIL, "gpu001/gpu002",
     Broken(commands={"syntony audit clocks --json": speeds.clocks(offset_ns=-4e6)})),
    ("fe.time", _FAIL, "gpu001/gpu002",
     Broken(commands={"syntony audit clocks --json": speeds.clocks(bound_ns=2e6)})),
    ("fe.time", _WARN, "gpu001/gpu002",
     Broken(commands={"syntony audit clocks --json": speeds.clocks(999_500.0)})),
    ("fe.time", _UNKNOWN, "gpu001",
     Broken(commands={"syntony audit clocks --json": '{"peers": []}'})),
    ("node.disk", _FAIL, "gpu001//",
     Broken(commands={DF: "Filesystem 1024-blocks Used Available Capacity Mounted on\n"
                          "/dev/nvme0n1p2 1000000 990000 10000 99% /"})),
    ("node.disk", _FAIL, "gpu001/nvme0", Broken({"/sys/class/nvme/nvme0/state": "resetting"})),
    ("node.dstate", _WARN, "gpu001/zombies",
     Broken({f"/proc/{n}/stat": f"{n} (job) Z 1 1 1" for n in range(100, 130)})),
    ("node.dstate", _FAIL, "gpu001/uninterruptible",
     Broken({"/proc/99/stat": "99 (nvidia-smi) D 1 1 1"})),
    ("node.kmsg-novel", _UNKNOWN, "gpu001",
     Broken(commands={"dmesg": "[1.0] xyz driver: fatal error 17"})),
    ("node.bmc", _FAIL, "gpu001",
     Broken(commands={"ipmi-sensors --output-sensor-state --comma-separated-output":
                      "ID,Name,Type,State,Reading\n1,FAN1,Fan,Critical,0,RPM,'low'"})),
    ("fe.iface", _FAIL, "gpu001/bond0",
     Broken({"/proc/net/bonding/bond0": "MII Status: up\n\nSlave Interface: eth8\n"
             "MII Status: up\n\nSlave Interface: eth9\nMII Status: down"})),
    ("fe.iface", _FAIL, "gpu001/bond0", Broken({f"{BOND}/mtu": "1500"})),
    ("fe.errors", _WARN, "gpu001/bond0", Broken({f"{BOND}/statistics/rx_crc_errors": "900000"})),
    ("fe.errors", _FAIL, "gpu001/bond0",
     Broken({"later:/sys/devices/virtual/net/bond0/statistics/rx_crc_errors": "7"})),
    ("fe.addr", _FAIL, "gpu001/gateway",
     Broken(commands={"ip -j neigh show": '[{"dst": "10.9.0.1", "state": ["FAILED"]}]'})),
    ("fe.addr", _WARN, "gpu001/name",
     Broken(commands={"getent ahosts gpu001": "127.0.1.1 STREAM gpu001"})),
    ("fe.ports", _WARN, "gpu001/eth9",
     Broken({f"{PCI}/0000:c1:00.1/net/eth9/carrier": "0"})),
    ("fe.mesh", _FAIL, "gpu001/gpu002:22",
     Broken(commands={"syntony audit reach --json --count 20 gpu002:22":
                      '[{"peer": "gpu002:22", "lost": 3, "p99_ns": 1000, "error": "refused"}]'})),
    ("fe.pmtu", _FAIL, "gpu001/gpu002",
     Broken(denied=("ping -c 3 -i 0.2 -W 1 -M do -s 8972 gpu002",))),
    ("fe.storage", _FAIL, "gpu001//data",
     Broken({"/proc/mounts": "/dev/nvme0n1p2 / ext4 rw 0 0"})),
    ("be.init.present", _FAIL, "gpu001", Broken({f"{IB}/mlx5_0": None})),
    ("be.init.phys", _FAIL, "gpu001/mlx5_0:1",
     Broken({f"{PORT0}/state": "1: DOWN", f"{PORT0}/phys_state": "2: Polling"})),
    ("be.init.phys", _UNKNOWN, "gpu001/mlx5_0:1",
     Broken({f"{PORT0}/state": "N/A", f"{PORT0}/phys_state": ""})),
    ("be.init.driver", _FAIL, "gpu001/mlx5_0",
     Broken({"/sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_9"})),
    ("be.init.driver", _FAIL, "gpu001/0000:04:00.0",
     Broken(commands={"dmesg": "[1.0] mlx5_core 0000:04:00.0: device's health compromised - "
                               "reached miss count"})),
    ("be.act.state", _FAIL, "gpu001/mlx5_0:1", Broken({f"{PORT0}/state": "2: INIT"})),
    ("be.act.state", _FAIL, "gpu001/mlx5_0:1", Broken({f"{PORT0}/sm_lid": "0x0"})),
    ("be.act.rate", _FAIL, "gpu001/mlx5_0:1", Broken({f"{PORT0}/rate": "100 Gb/sec (1X NDR)"})),
    ("be.act.rate", _FAIL, "gpu001/mlx5_0:1", Broken({f"{PORT0}/rate": "200 Gb/sec (4X HDR)"})),
    ("be.act.rate", _UNKNOWN, "gpu001/mlx5_0:1", Broken({f"{PORT0}/rate": "vierhundert"})),
    ("be.act.mtu", _FAIL, "gpu001/mlx5_0:1", Broken({f"{NIC0}/net/ib0/mtu": "2044"})),
    ("be.act.pkey", _FAIL, "gpu001/mlx5_0:1", Broken({f"{PORT0}/pkeys/0": "0x7fff"})),
    ("be.act.flap", _FAIL, "gpu001/mlx5_0:1",
     Broken({f"{NIC0}/net/ib0/carrier_down_count": "300"})),
    ("be.act.flap", _WARN, "gpu001/mlx5_0:1",
     Broken({f"{NIC0}/net/ib0/carrier_down_count": "1"})),
    ("be.act.counters", _WARN, "gpu001/mlx5_0:1",
     Broken({f"{PORT0}/counters/link_downed": "255"})),
    ("be.act.ber", _FAIL, "gpu001/mlx5_0:1",
     Broken(commands={"mlxlink -d mlx5_0 -p 1 -c -e -m": "Raw Physical BER : 1E-5\n"
                                                         "Symbol BER : 2E-12"})),
    ("be.gid.ib", _FAIL, "gpu001/mlx5_0:1",
     Broken({f"{PORT0}/gids/0": "fec0:0000:0000:0001:946d:ae03:00e1:0000"})),
]  # fmt: skip
AMD: list[tuple[str, Status, str, Broken]] = [
    ("sw.modules", _FAIL, "amd001", Broken({"/proc/modules": "ib_core 1 0 - Live 0x0"})),
    ("mem.gpu-badpages", _FAIL, "amd001/gpu1",
     Broken(commands={"amd-smi bad-pages --json": '[{"gpu": 0}, {"gpu": 1, "bad_pages": '
                                                  '[{"status": "PENDING"}]}]'})),
    ("mem.gpu-badpages", _UNKNOWN, "amd001",
     Broken(commands={"amd-smi bad-pages --json": "ERROR: pas de GPU"})),
    ("node.gpu-count", _FAIL, "amd001/AMD",
     Broken(commands={"amd-smi static --json": '[{"gpu": 0}]'})),
    ("node.gpu-health", _FAIL, "amd001/gpu0",
     Broken(commands={"amd-smi metric --json": '[{"gpu": 0, "temperature": {"hotspot": 108}}]'})),
    ("node.xid", _FAIL, "amd001",
     Broken(commands={"dmesg": "[1.0] amdgpu 0000:03:00.0: GPU reset begin!"})),
    ("pcie.affinity", _FAIL, "amd001/GPU0",
     Broken({f"{NIC0}/class": "0x050000", f"{IB}/mlx5_0": None})),
    ("be.init.auth", _FAIL, "amd001/mlx5_0:1",
     Broken(commands={"wpa_cli -i eth1 status": "Supplicant PAE state=HELD"})),
    ("be.act.state", _FAIL, "amd001/mlx5_0:1", Broken({f"{NIC0}/net/eth1/operstate": "down"})),
    ("be.act.mtu", _FAIL, "amd001/mlx5_0:1", Broken({f"{NIC0}/net/eth1/mtu": "1500"})),
    ("be.act.qos", _FAIL, "amd001/mlx5_0:1",
     Broken(commands={"dcb -j pfc show dev eth1": '{"prio-pfc": {"0": true, "3": true}}'})),
    ("be.gid.table", _FAIL, "amd001/mlx5_0:1",
     Broken({f"{PORT0}/gids/2": None, f"{PORT0}/gids/3": None})),
    ("be.gid.table", _UNKNOWN, "amd001/mlx5_0:1",
     Broken({f"{PORT0}/gid_attrs/types/{place}": None for place in range(4)})),
    ("be.gid.same", _FAIL, "amd001",
     Broken({f"{PORT0}/gids/3": None, f"{PORT0}/gid_attrs/types/5": "RoCE v2",
             f"{PORT0}/gids/5": "0000:0000:0000:0000:0000:ffff:0a00:0001"})),
    ("be.gid.v2", _FAIL, "amd001/mlx5_0:1", Broken({"/etc/nccl.conf": "NCCL_IB_GID_INDEX=0"})),
    ("be.gid.ip", _FAIL, "amd001/eth1",
     Broken(commands={"ip -j address show": '[{"ifname": "eth1", "addr_info": [{"family": "inet",'
                      ' "local": "10.0.0.1", "prefixlen": 16}]}, {"ifname": "eth2", "addr_info": '
                      '[{"family": "inet", "local": "10.0.0.2", "prefixlen": 16}]}]'})),
    ("pcie.numbering", _FAIL, "amd001/mlx5_0", Broken({f"{NIC0}/net/eth1": None})),
    ("node.gpu-bw", _FAIL, "amd001/GPU 0",
     Broken(commands={"rocm-bandwidth-test -a": speeds.rocm_bandwidth(to_gpu=25.1)})),
    ("node.gpu-bw", _FAIL, "amd001/GPU 0",
     Broken(commands={"rocm-bandwidth-test -a": speeds.rocm_bandwidth(between=24.0)})),
    ("node.gpu-bw", _UNKNOWN, "amd001",
     Broken(commands={"rocm-bandwidth-test -a": speeds.rocm_bandwidth()[:700]})),
]  # fmt: skip


CASES = [
    pytest.param(host, (check, status, subject), change, id=f"{check}-{status}-{number}")
    for host, cases in (("nvidia", NVIDIA), ("amd", AMD))
    for number, (check, status, subject, change) in enumerate(cases)
]


@pytest.mark.parametrize(("host", "wanted", "change"), CASES)
def test_what_is_wrong_is_said(
    host: str, wanted: tuple[str, Status, str], change: Broken, good: Good, tmp_path: Path
) -> None:
    root = good.nvidia if host == "nvidia" else good.amd
    _says(root, good, wanted, broken(root, tmp_path, change))


def _says(root: Path, good: Good, wanted: tuple[str, Status, str], tree: Path) -> None:
    check, status, subject = wanted
    results = _verdicts(_examine(tree, check), good.reports[root])
    assert (status, subject) in {(each.status, each.subject) for each in results}, results
    for each in results:
        bad = each.status in {Status.FAIL, Status.WARN}
        assert bool(each.remedy and each.meaning and each.suspect) is bad, each
        assert each.evidence or each.status is Status.PASS, each


def test_every_check_fails_somewhere() -> None:
    reported = {check for check, status, *_ in [*NVIDIA, *AMD] if status is not _UNKNOWN}
    without = {"be.act.homog", "node.kmsg-novel", "fe.route"}  # test_judge, below, test_fixtures
    assert {check.id for check in host_checks(active=True)} - reported == without


def test_a_dark_port_beside_its_siblings(good: Good, tmp_path: Path) -> None:
    port = f"{IB}/mlx5_1/ports/2"
    change = Broken({f"{port}/state": "4: ACTIVE", f"{port}/phys_state": "5: LinkUp",
                     f"{port}/link_layer": "InfiniBand"})  # fmt: skip
    tree = broken(good.nvidia, tmp_path, change)
    shutil.copytree((tree / IB[1:] / "mlx5_1").resolve(), tree / IB[1:] / "mlx5_2", symlinks=True)
    results = _verdicts(_examine(tree, "be.act.homog"), good.reports[good.nvidia])
    assert [(each.status, each.got) for each in results] == [(Status.FAIL, "mlx5_0")]


def test_every_check_says_what_it_is_about() -> None:
    for check in every_check():
        assert check.title().endswith("."), check.id
        assert check.rule(), check.id
        assert check.meaning, check.id
        assert check.remedy, check.id
        assert check.suspect, check.id


class _Spy(HostFacts):
    """Notes what is asked."""

    requested: set[str]

    def read_bytes(self, path: str) -> bytes:
        self.requested.add(path)
        return super().read_bytes(path)

    def names(self, path: str) -> tuple[str, ...]:
        found = super().names(path)
        self.requested.update(f"{path}/{name}" for name in found[:3])
        return found

    def run(self, *command: str) -> str:
        self.requested.add("$ " + " ".join(command))
        return super().run(*command)


def test_checks_ask_for_nothing_that_they_do_not_declare(good: Good) -> None:
    """A recorder elsewhere takes along what is declared, and nothing else."""
    found: dict[str, list[str]] = {}
    for root in (good.nvidia, good.amd):
        host = recorded_host(root)
        given = limits(_SPEC, host_checks(active=True))
        for kind in host_checks(active=True):
            check = kind(given[kind.id])
            spy = _Spy(host.host, root, host._commands)
            spy.requested = set()
            list(check.test(spy))
            files, commands = inputs([check])
            lines = ["$ " + " ".join(_star(word) for word in words) for words in commands]
            above = {str(parent) for file in files for parent in Path(file).parents}
            patterns = [*files, *above, *lines, "/proc/[0-9a-z]*"]
            strange = [
                each
                for each in spy.requested
                if not any(fnmatch.fnmatchcase(each, each_) for each_ in patterns)
            ]
            if strange:
                found[check.id] = strange
    assert not found


def _star(word: str) -> str:
    for name in ("DEVICE", "NETDEV", "ADDRESS", "NVME", "HOST", "SIZE", "PEER", "GPUS"):
        word = word.replace(name, "*")
    return "1" if word == "PORT" else word


def test_commands_that_load_the_host_run_alone_and_once() -> None:
    checks = [kind() for kind in host_checks(active=True)]
    files, together, alone = split_inputs(checks)
    assert (files, sorted(together + alone)) == (inputs(checks)[0], sorted(inputs(checks)[1]))
    assert alone
    assert together == inputs(each for each in checks if not each.active)[1]
