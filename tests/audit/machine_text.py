# ruff: noqa: E501 - lines are as long as programs print them
"""What files and programs of a healthy host say, as their sources print it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.audit.machine_gpus import GPUS, GpuKind

if TYPE_CHECKING:
    from tests.audit.machine_cards import Card

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max locked memory         unlimited            unlimited            bytes
Max open files            1048576              1048576              files"""
SYSCTL = {
    "net/core/rmem_max": "67108864", "net/core/wmem_max": "67108864",
    "net/ipv4/ip_forward": "1", "net/ipv4/conf/all/rp_filter": "2",
    "net/ipv4/conf/all/arp_ignore": "1", "net/ipv4/conf/all/arp_announce": "2",
    "net/ipv4/neigh/default/gc_thresh3": "131072", "vm/max_map_count": "262144",
    "kernel/numa_balancing": "0", "net/ipv4/tcp_congestion_control": "cubic",
}  # fmt: skip
LOOPBACK = [{"ifindex": 1, "ifname": "lo", "addr_info": [
    {"family": "inet", "local": "127.0.0.1", "prefixlen": 8, "scope": "host"},
    {"family": "inet6", "local": "::1", "prefixlen": 128, "scope": "host"}]}]  # fmt: skip
DF = ("df -P -k --local --exclude-type=tmpfs --exclude-type=devtmpfs --exclude-type=squashfs "
      "--exclude-type=overlay --exclude-type=efivarfs")  # fmt: skip


class Distro(NamedTuple):
    """A distribution as installed."""

    release: str
    kernel: str
    mounts: tuple[str, ...]
    fstab: str
    selinux: bool = False


def _release(name: str, id_: str, pretty: str) -> str:
    return f'NAME="{name}"\nID={id_}\nPRETTY_NAME="{pretty}"'


_USUAL = (
    "sysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0",
    "proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0",
    "tmpfs /run tmpfs rw,nosuid,nodev,size=52772k,mode=755 0 0",
)
_DEBIAN = (*_USUAL, "/dev/nvme0n1p2 / ext4 rw,relatime,errors=remount-ro 0 0",
           "/dev/nvme0n1p1 /boot/efi vfat rw,relatime,fmask=0077,errors=remount-ro 0 0")  # fmt: skip
_DEBIAN_TAB = ("UUID=0b / ext4 errors=remount-ro 0 1\nUUID=0a /boot/efi vfat umask=0077 0 1\n"
               "/dev/sr0 /media/cdrom0 udf,iso9660 user,noauto 0 0")  # fmt: skip
_REDHAT = (*_USUAL, "/dev/mapper/rhel-root / xfs rw,seclabel,relatime,attr2,inode64 0 0",
           "/dev/nvme0n1p2 /boot xfs rw,seclabel,relatime 0 0")  # fmt: skip
_REDHAT_TAB = "/dev/mapper/rhel-root / xfs defaults 0 0\nUUID=b /boot xfs defaults 0 0"
_SNAPS = ("/dev/loop0 /snap/core20/1974 squashfs ro,nodev,relatime,errors=continue 0 0",)
DISTROS = {
    "ubuntu-22.04": Distro(_release("Ubuntu", "ubuntu", "Ubuntu 22.04.4 LTS"),
                           "5.15.0-1078-generic", (*_DEBIAN, *_SNAPS), _DEBIAN_TAB),
    "ubuntu-24.04": Distro(_release("Ubuntu", "ubuntu", "Ubuntu 24.04.2 LTS"), "6.8.0-55-generic",
                           (*_DEBIAN, *_SNAPS), _DEBIAN_TAB),
    "debian-12": Distro(_release("Debian GNU/Linux", "debian", "Debian GNU/Linux 12 (bookworm)"),
                        "6.1.0-30-amd64", _DEBIAN, _DEBIAN_TAB),
    "rhel-9": Distro(_release("Red Hat Enterprise Linux", "rhel", "Red Hat Enterprise Linux 9.4 "
                              "(Plow)"), "5.14.0-427.13.1.el9_4.x86_64", _REDHAT, _REDHAT_TAB,
                     selinux=True),
    "rocky-8": Distro(_release("Rocky Linux", "rocky", "Rocky Linux 8.10 (Green Obsidian)"),
                      "4.18.0-553.el8_10.x86_64", _REDHAT, _REDHAT_TAB, selinux=True),
    "sles-15": Distro(_release("SLES", "sles", "SUSE Linux Enterprise Server 15 SP6"),
                      "6.4.0-150600.23-default",
                      (*_USUAL, ("/dev/sda2 / btrfs rw,relatime,ssd,subvol=/@/.snapshots/1/snapshot "
                       "0 0"), "/dev/sda2 /var btrfs rw,relatime,ssd,subvol=/@/var 0 0"),
                      "UUID=c / btrfs defaults 0 0\nUUID=c /var btrfs subvol=/@/var 0 0"),
    "sle-micro": Distro(_release("SLE Micro", "sle-micro", "SUSE Linux Enterprise Micro 5.5"),
                        "5.14.21-150500.55-default",
                        (*_USUAL, ("/dev/sda3 / btrfs ro,relatime,ssd,subvol=/@/.snapshots/2/snapshot"
                         " 0 0"), "/dev/sda3 /var btrfs rw,relatime,ssd,subvol=/@/var 0 0"),
                        "UUID=c / btrfs ro 0 0\nUUID=c /var btrfs subvol=/@/var 0 0"),
    "talos": Distro(_release("Talos", "talos", "Talos (v1.9.4)"), "6.12.13-talos",
                    (*_USUAL, "/dev/loop0 / squashfs ro,relatime,errors=continue 0 0",
                     "/dev/nvme0n1p4 /var xfs rw,relatime,attr2 0 0",
                     "/dev/nvme0n1p3 /system/state xfs rw,relatime 0 0"), ""),
    "bottlerocket": Distro(_release("Bottlerocket", "bottlerocket", "Bottlerocket OS 1.32.0 "
                                    "(aws-k8s-1.31-nvidia)"), "6.1.128",
                           (*_USUAL, "/dev/dm-0 / ext4 ro,seclabel,relatime,stripe=1024 0 0",
                            "/dev/nvme0n1p12 /var/lib/bottlerocket ext4 rw,relatime 0 0",
                            "/dev/nvme1n1p1 /local ext4 rw,relatime 0 0"), "", selinux=True),
    "flatcar": Distro(_release("Flatcar Container Linux by Kinvolk", "flatcar", "Flatcar Container "
                               "Linux by Kinvolk 4081.2.0 (Oklo)"), "6.6.74-flatcar",
                      (*_USUAL, "/dev/sda9 / ext4 rw,seclabel,relatime 0 0",
                       "/dev/mapper/usr /usr btrfs ro,seclabel,relatime 0 0",
                       "/dev/sda6 /oem btrfs rw,relatime 0 0"), "", selinux=True),
    "coreos": Distro(_release("Fedora Linux", "fedora", "Fedora CoreOS 41.20250302.3.1"),
                     "6.12.15-200.fc41.x86_64",
                     (*_USUAL, "/dev/sda4 /sysroot xfs ro,seclabel,relatime 0 0",
                      "/dev/sda4 / xfs rw,seclabel,relatime 0 0",
                      "/dev/sda4 /usr xfs ro,seclabel,relatime 0 0",
                      "/dev/sda4 /var xfs rw,seclabel,relatime 0 0",
                      "/dev/sda3 /boot ext4 ro,seclabel,nosuid,nodev,relatime 0 0"), "",
                     selinux=True),
    "cos": Distro(_release("Container-Optimized OS", "cos", "Container-Optimized OS from Google"),
                  "6.6.72+",
                  (*_USUAL, "/dev/root / ext2 ro,relatime 0 0",
                   "/dev/sda1 /mnt/stateful_partition ext4 rw,nosuid,relatime,commit=30 0 0",
                   "/dev/sda8 /usr/share/oem ext4 ro,nosuid,nodev,noexec,relatime 0 0",
                   "/dev/sda1 /var ext4 rw,nosuid,relatime,commit=30 0 0"), ""),
    "amazon-2023": Distro(_release("Amazon Linux", "amzn", "Amazon Linux 2023.6.20250218"),
                          "6.1.127-135.201.amzn2023.x86_64",
                          (*_USUAL, "/dev/nvme0n1p1 / xfs rw,seclabel,noatime,attr2 0 0"),
                          "UUID=d / xfs defaults,noatime 1 1", selinux=True),
    "diskless": Distro(_release("Rocky Linux", "rocky", "Rocky Linux 9.4 (Blue Onyx)"),
                       "5.14.0-427.13.1.el9_4.x86_64",
                       (*_USUAL, "rootfs / rootfs rw,size=1056428172k,nr_inodes=264107043 0 0",
                        "10.9.0.7:/home /home nfs4 rw,relatime,vers=4.2,proto=tcp,addr=10.9.0.7 0 0"),
                       ""),
}  # fmt: skip


# --- Kernel ---


_BOOT = """[    0.000000] Linux version {kernel} (buildd@lcy02) (gcc 12.3.0) #1 SMP
[    0.000000] Command line: BOOT_IMAGE=/boot/vmlinuz-{kernel} root=UUID=0b ro quiet iommu=pt
[    0.000000] BIOS-provided physical RAM map:
[    0.004000] x86/fpu: Supporting XSAVE feature 0x001: 'x87 floating point registers'
[    0.312345] ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PC00], AE_NOT_FOUND (20221020)
[    0.412345] rcu: \tRCU event tracing is enabled.
[    0.498100] rcu: Hierarchical SRCU implementation.
[    0.501200] mce: CPU0: Thermal monitoring enabled (TM1)
[    0.612345] pci 0000:10:01.0: PME# supported from D0 D3hot D3cold
[    0.700000] pcieport 0000:10:01.0: pciehp: Slot #1 AttnBtn- PwrCtrl- MRL- AttnInd- PwrInd- HotPlug+ Surprise+ Interlock- NoCompl+ IbPresDis- LLActRep+
[    0.702000] pcieport 0000:10:01.0: pciehp: Slot(1): Card present
[    0.703000] pcieport 0000:10:01.0: pciehp: Slot(1): Link Up
[    0.800000] RAS: Correctable Errors collector initialized.
[    1.100000] nvme nvme0: pci function 0000:a4:00.0
[    1.200000] nvme nvme0: 128/0/0 default/read/poll queues
[    2.000000] EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Opts: (null). Quota mode: none.
[    2.500000] systemd[1]: Inserted module 'autofs4'
[    3.0{seed}0000] EXT4-fs (nvme0n1p2): re-mounted. Opts: errors=remount-ro. Quota mode: none.
[    4.000000] mlx5_core 0000:13:00.0: firmware version: 28.39.1002
[    4.100000] mlx5_core 0000:13:00.0: 504.112 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)
[    4.900000] mlx5_core 0000:13:00.0: Port module event: module 0, Cable plugged
[    5.300000] ipmi_si: Unable to find any System Interface(s)
[    8.000000] IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready
[   20.100000] audit: type=1400 audit(1700000000.1:2): apparmor="STATUS" operation="profile_load"
[  312.4{seed}0000] perf: interrupt took too long (2501 > 2500), lowering kernel.perf_event_max_sample_rate to 79750
"""
_NVIDIA = """[    9.000000] nvidia: loading out-of-tree module taints kernel.
[    9.100000] nvidia-nvlink: Nvlink Core is being initialized, major device number 511
[    9.600000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build
[   10.000000] nvidia-uvm: Loaded the UVM driver, major device number 509.
"""
_AMD = """[    9.000000] amdgpu 0000:12:00.0: amdgpu: RAS INFO: ras initialized successfully, hardware ability[7fff] ras_mask[7fff]
[    9.100000] [drm] amdgpu kernel modesetting enabled.
[    9.300000] amdgpu 0000:12:00.0: amdgpu: SMU is initialized successfully!
"""


def dmesg(shape: Mapping[str, Any], distro: Distro, seed: int) -> str:
    """A healthy boot with its usual noise."""
    gpu = GPUS.get(shape.get("gpu", ""))
    vendor = gpu.vendor if gpu else ""
    more = {"nvidia": _NVIDIA, "amd": _AMD}.get(vendor, "")
    return _BOOT.format(kernel=distro.kernel, seed=seed) + more + str(shape.get("boot", ""))


def bonding(legs: Sequence[str], mode: str, seed: int) -> str:
    """drivers/net/bonding/bond_procfs.c"""
    lacp = mode == "802.3ad"
    name = "IEEE 802.3ad Dynamic link aggregation" if lacp else "fault-tolerance (active-backup)"
    head = (f"Ethernet Channel Bonding Driver: v5.15.0\n\nBonding Mode: {name}\n"
            "MII Status: up\nMII Polling Interval (ms): 100\nUp Delay (ms): 0\n")  # fmt: skip
    if lacp:
        head += "\n802.3ad info\nLACP active: on\nLACP rate: fast\nAggregator selection policy: stable\n"
    rows = []
    for number, leg in enumerate(legs):
        row = (
            f"\nSlave Interface: {leg}\nMII Status: up\nSpeed: 100000 Mbps\nDuplex: full\n"
            f"Link Failure Count: {seed % 2}\nPermanent HW addr: b8:ce:f6:00:{seed:02x}:{number:02x}\n"
        )
        if lacp:
            row += ("Slave queue ID: 0\nAggregator ID: 1\nActor Churn State: none\n"
                    "Partner Churn State: none\n")  # fmt: skip
        rows.append(row)
    return head + "".join(rows)


def gateway(net: str) -> str:
    """Of a default interface."""
    return "10.9.0.1"


def route4(defaults: str | Iterable[str], more: Iterable[Mapping[str, str]]) -> str:
    """/proc/net/route, addresses in the byte order of the machine."""
    names = [defaults] if isinstance(defaults, str) else list(defaults)
    rows = ["Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"]
    for metric, name in enumerate(names):
        rows.append(f"{name}\t00000000\t{_little(gateway(name))}\t0003\t0\t0\t{100 + metric}\t"
                    "00000000\t0\t0\t0")  # fmt: skip
    for route in more:
        network = ipaddress.ip_network(route["to"])
        rows.append(f"{route['dev']}\t{_little(str(network.network_address))}\t00000000\t0001\t0\t0"
                    f"\t0\t{_little(str(network.netmask))}\t0\t0\t0")  # fmt: skip
    return "\n".join(rows)


def _little(address: str) -> str:
    return ipaddress.IPv4Address(address).packed[::-1].hex().upper()


def route6(defaults: str | Iterable[str]) -> str:
    """/proc/net/ipv6_route"""
    names = [defaults] if isinstance(defaults, str) else list(defaults)
    zero, via = "0" * 32, "fe80000000000000000000fffe000001"
    rows = [f"{zero} 00 {zero} 00 {via} 00000400 00000001 00000000 00000003 {name:>8}"
            for name in names]  # fmt: skip
    rows.append(f"{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo")
    return "\n".join(rows)


def gid(local: str) -> str:
    """An address as a GID's file shows it."""
    address = ipaddress.ip_address(local)
    if address.version == 4:
        address = ipaddress.IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)
    return address.exploded


def meminfo(gib: int, seed: int) -> str:
    """/proc/meminfo"""
    total = gib * 1048576 - 20_000_000 - 4096 * seed
    return (
        f"MemTotal:       {total} kB\nMemFree:        {total // 2 - seed} kB\n"
        f"MemAvailable:   {total // 2} kB\nSwapTotal:             0 kB\n"
        "SwapFree:              0 kB\nHugePages_Total:       0\nHugepagesize:       2048 kB"
    )


def cpuinfo(arch: str, virtual: bool) -> str:
    """/proc/cpuinfo; Arm's has features and no flags."""
    if arch == "arm":
        return "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd evtstrm aes sha2 crc32"
    more = " hypervisor" if virtual else ""
    return f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vme de pse tsc msr pae{more}"


def modules(shape: Mapping[str, Any], distro: Distro) -> str:
    """/proc/modules"""
    names = ["ib_core", "ib_uverbs", "rdma_cm", "iw_cm", "ib_cm", "nvme", "nvme_core"]
    cards = {group["card"].split("-")[0] for group in shape.get("nics", ())}
    if cards & {"cx7", "cx8", "cx6", "cx6dx", "cx5", "bf3"}:
        names += ["mlx5_ib", "mlx5_core", "ib_umad"]
    gpu = GPUS.get(shape.get("gpu", ""))
    if gpu and gpu.vendor == "nvidia":
        names += ["nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_peermem"]
    if gpu and gpu.vendor == "amd":
        names += ["amdgpu"]
    return "\n".join(f"{name} 16384 2 - Live 0x0000000000000000" for name in names)


# --- Storage ---


def df(mounts: Iterable[str]) -> str:
    """`df -P -k` of what it is not ordered to leave out; read-only images are full."""
    lines = ["Filesystem     1024-blocks      Used Available Capacity Mounted on"]
    for row in (mount.split() for mount in mounts):
        if row[2] not in {"ext2", "ext4", "xfs", "btrfs", "vfat", "iso9660", "erofs", "udf"}:
            continue
        if "ro" in row[3].split(","):
            lines.append(f"{row[0]} 964532 964532 0 100% {row[1]}")
        else:
            lines.append(f"{row[0]} 1843269236 412345678 1430923558 23% {row[1]}")
    if len(lines) == 1:
        return "df: no file systems processed"
    return "\n".join(lines)


def has_disks(mounts: Iterable[str]) -> bool:
    """Whether `df` has anything to tell of."""
    return not df(mounts).startswith("df:")


def mountinfo(mounts: Iterable[str]) -> str:
    """/proc/self/mountinfo (fs/proc_namespace.c): what was asked for, then the superblock's own."""
    rows = []
    for number, mount in enumerate(mounts):
        source, where, kind, options, *_ = mount.split()
        first = options.split(",")[0]
        rows.append(f"{24 + number} 1 259:{number} / {where} {first},relatime shared:{number + 1} - "
                    f"{kind} {source} {options}")  # fmt: skip
    return "\n".join(rows)


# --- Tools ---


def ldconfig(shape: Mapping[str, Any]) -> str:
    """`ldconfig -p`"""
    names = libraries(shape)
    rows = [f"\t{name} (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/{name}" for name in names]
    return "\n".join([f"{len(names)} libs found in cache `/etc/ld.so.cache'", *rows, ""])


def libraries(shape: Mapping[str, Any]) -> list[str]:
    """What is installed for the GPUs and NICs there are."""
    gpu = GPUS.get(shape.get("gpu", ""))
    names = {
        "nvidia": ["libcuda.so.1", "libnvidia-ml.so.1"],
        "amd": ["libamdhip64.so.6", "librocm_smi64.so.7"],
    }.get(gpu.vendor if gpu else "", [])
    return [*names, "libibverbs.so.1", "libc.so.6"]


def dmidecode(shape: Mapping[str, Any], seed: int) -> str:
    """`dmidecode -t 17`"""
    each = shape.get("memory_gib", 2048) // 32 or 1
    return "# dmidecode 3.3\nGetting SMBIOS data from sysfs.\n\n" + "\n".join(
        f"Handle 0x{slot + 32:04X}, DMI type 17, 92 bytes\nMemory Device\n\tTotal Width: 80 bits\n"
        f"\tSize: {each} GB\n\tForm Factor: DIMM\n\tLocator: CPU{slot // 16}_DIMM_{slot % 16}\n"
        f"\tSpeed: 5600 MT/s\n\tManufacturer: Samsung\n\tSerial Number: {seed:04d}{slot:04d}\n"
        f"\tPart Number: M321R8GA0PB0-CWMXH\n\tConfigured Memory Speed: 4800 MT/s\n"
        for slot in range(32)
    )


def lspci(
    gpus: Sequence[str], nics: Sequence[tuple[str, Card]], bridges: Sequence[str],
    gpu: GpuKind | None, *, virtual: bool,
) -> str:  # fmt: skip
    """`lspci -vvv` as root."""
    blocks = [
        f"{address.removeprefix('0000:')} PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch "
        "(rev b0) (prog-if 00 [Normal decode])\n\tCapabilities: [68] Express (v2)\n"
        "\t\tDevCtl:\tCorrErr+ NonFatalErr+\n\t\t\tMaxPayload 512 bytes, MaxReadReq 512 bytes\n"
        "\tCapabilities: [148 v1] Access Control Services\n\t\tACSCtl:\tSrcValid- TransBlk- "
        "ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n"
        for address in bridges
    ]
    for address, card in nics:
        kind = "Ethernet controller"
        sizes = (128, 128) if "Virtual Function" in card.model else (256 if virtual else 512, 4096)
        blocks.append(
            f"{address.removeprefix('0000:')} {kind}: {card.model}\n"
            "\tControl: I/O- Mem+ BusMaster+\n\tCapabilities: [60] Express (v2)\n"
            f"\t\t\tMaxPayload {sizes[0]} bytes, MaxReadReq {sizes[1]} bytes\n"
        )
    for address in gpus:
        name = gpu.name if gpu else ""
        blocks.append(f"{address.removeprefix('0000:')} 3D controller: NVIDIA Corporation {name} "
                      "(rev a1)\n\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes\n")  # fmt: skip
    return (
        "\n".join(blocks)
        or "00:00.0 Host bridge: Intel Corporation\n\tMaxPayload 128 bytes, MaxReadReq 128 bytes\n"
    )


_TIMEDATECTL = """Timezone=Etc/UTC
LocalRTC=no
CanNTP=yes
NTP=yes
NTPSynchronized=yes
TimeUSec=Tue 2025-03-04 10:11:12 UTC
"""
_TIMESYNC = """       Server: 10.9.0.53 (ntp.cluster.example)
Poll interval: 34min 8s (min: 32s; max 34min 8s)
         Leap: normal
      Version: 4
      Stratum: 2
    Reference: 11FD227B
    Precision: 1us (-25)
Root distance: 320us (max: 5s)
       Offset: -71us
        Delay: 260us
       Jitter: 88us
 Packet count: 412
    Frequency: +13.5ppm
"""
_NTPQ = """associd=0 status=0615 leap_none, sync_ntp, 1 event, clock_sync,
version="ntpd 4.2.8p15@1.3728-o", processor="x86_64", system="Linux/5.14", leap=00, stratum=3,
precision=-24, rootdelay=0.281, rootdisp=0.402, refid=10.9.0.53,
reftime=eb71f2a0.5c28f5c2  Tue, Mar  4 2025 10:09:04.360, clock=eb71f31f.f0a3d70a,
peer=30841, tc=10, mintc=3, offset=-0.012345, frequency=-9.541, sys_jitter=0.021,
clk_jitter=0.008, clk_wander=0.001
"""
_CHRONY = ("0A090035,10.9.0.53,2,1700000000.1,0.000002,0.000001,0.000003,1.5,0.001,0.05,0.0001,"
           "0.00002,64.0,Normal\n")  # fmt: skip


def time_commands(kind: str) -> dict[str, str | None]:
    """What the time services of a host say."""
    none: dict[str, str | None] = {"chronyc -n -c tracking": None, "ntpq -c rv": None}
    systemd: dict[str, str | None] = {"timedatectl show": _TIMEDATECTL,
                                      "timedatectl timesync-status": None}  # fmt: skip
    running: dict[str, dict[str, str | None]] = {
        "chrony": {"chronyc -n -c tracking": _CHRONY},
        "timesyncd": {"timedatectl timesync-status": _TIMESYNC},
        "ntpd": {"ntpq -c rv": _NTPQ},
        "none": {},
    }
    return none | systemd | running[kind]


_FREEIPMI = "ipmi-sensors --output-sensor-state --comma-separated-output"


def bmc_commands(kind: str) -> dict[str, str | None]:
    """What the board's controller says."""
    sdr = ("FAN1             | 30h | ok  | 29.1 | 9000 RPM\nCPU1 Temp        | 01h | ok  |  3.1 | "
           "45 degrees C\nPS1 Status       | C8h | ok  | 10.1 | Presence detected\n"
           "FAN9             | 38h | ns  | 29.9 | No Reading\n")  # fmt: skip
    free = "ID,Name,Type,State,Reading,Units,Event\n1,FAN1,Fan,Nominal,9000,RPM,'OK'\n"
    tools: dict[str, dict[str, str | None]] = {
        "freeipmi": {_FREEIPMI: free, "ipmitool sdr elist": None},
        "ipmitool": {_FREEIPMI: None, "ipmitool sdr elist": sdr},
        "none": {_FREEIPMI: None, "ipmitool sdr elist": None},
    }
    return tools[kind]


_SERVICES = ("slurmd", "kubelet", "containerd", "docker", "lldpd", "chronyd", "chrony", "ntpd",
             "systemd-timesyncd", "ptp4l", "nvidia-persistenced", "nvidia-fabricmanager",
             "opensmd", "sssd", "munge", "irqbalance", "syntony-agent", "syntony-reactor")  # fmt: skip


def systemd_commands(shape: Mapping[str, Any], distro: Distro) -> dict[str, str | None]:
    """`systemctl`; a system without systemd has none."""
    if shape.get("init") == "machined":
        return {"systemctl": None, "getenforce": None, "timedatectl": None}
    active = {"containerd", *shape.get("services", ("slurmd", "munge"))}
    if shape.get("nvswitches"):
        active.add("nvidia-fabricmanager")
    found: dict[str, str | None] = {
        f"systemctl is-active {name}": "active\n" if name in active else "inactive\n"
        for name in _SERVICES
    }
    found["systemctl list-units --failed --plain --no-legend"] = ""
    return found
