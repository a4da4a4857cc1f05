# ruff: noqa: E501, PLR0917 - a device has that many properties
"""Renders a host described in a few lines of TOML as the tree that `syntony audit record` makes.

Independent of `tests.audit.hosts` and of every parser: file formats follow the kernel's and the
vendors' own sources, with the noise that healthy machines have (boot messages, idle links, N/A).
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.audit import machine_text as text
from tests.audit.machine_cards import CARDS, Card
from tests.audit.machine_gpus import GPUS, IDLE, gpu_tools
from tests.audit.trees import Tree


class Place:
    """What is known of a host while it is drawn."""

    def __init__(self, shape: Mapping[str, Any], number: int) -> None:
        self.shape = shape
        self.number = number
        self.name = f"{shape.get('prefix', 'node')}{number:02d}"
        self.files: dict[str, str | None] = {}
        self.links: dict[str, str] = {}
        self.commands: dict[str, str | None] = {}
        self.exits: dict[str, int] = {}
        self.names: dict[str, str] = {"host": str(number), "name": self.name}
        """What ``{gpu0}``, ``{nic3}`` of a fault's deltas stand for."""
        self.gpus: list[str] = []
        self.nics: list[tuple[str, Card]] = []
        self.bridges: list[str] = []
        self.addresses: list[dict[str, Any]] = []
        self.topology: list[tuple[str, int]] = []
        """RDMA device and the number of the root it hangs at."""
        self.bus = 0x10


def render(shape: Mapping[str, Any], number: int = 1) -> tuple[Tree, Place]:
    """A host of the shape; hosts of one shape differ in names, addresses and serials."""
    place = Place(shape, number)
    _gpus(place)
    for group in shape.get("nics", ()):
        _cards(place, group)
    for net in shape.get("nets", ()):
        _virtual(place, net)
    _disks(place)
    _system(place)
    place.files |= {path: value for path, value in shape.get("files", {}).items() if value}
    place.commands |= shape.get("commands", {})
    return Tree(place.files, place.links, place.commands), place


def _pci(
    place: Place, parent: str, address: str, ids: str, class_code: str,
    speed: str = "32.0 GT/s PCIe", width: str = "16", now: str = "",
) -> str:  # fmt: skip
    """One device below another's directory; empty speed: a device without a link of its own."""
    vendor, device = ids.split(":")
    base = f"{parent}/{address}"
    reported = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{class_code}",
            "numa_node": "0" if address < "0000:80" else "1",
            "config": f"{vendor}{device}"}  # fmt: skip
    if speed:
        reported |= {"current_link_speed": now or speed, "current_link_width": width,
                 "max_link_speed": speed, "max_link_width": width,
                 "aer_dev_correctable": "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 0",
                 "aer_dev_nonfatal": "Undefined 0\nDLP 0\nTOTAL_ERR_NONFATAL 0",
                 "aer_dev_fatal": "Undefined 0\nDLP 0\nTOTAL_ERR_FATAL 0"}  # fmt: skip
    place.files.update({f"{base}/{name}": value for name, value in reported.items()})
    place.links[f"/sys/bus/pci/devices/{address}"] = base
    return base


def _root(place: Place, number: int, *, switch: bool) -> str:
    """The directory below which devices of root ``number`` hang; a switch's if there is one."""
    half = number % 8
    bus = (0x10 if number < 4 else 0x80) + 0x10 * (half % 4) + (8 if number >= 8 else 0)
    top = f"/sys/devices/pci0000:{bus:02x}"
    root = f"{top}/0000:{bus:02x}:01.0"
    if f"{root}/vendor" not in place.files:
        _pci(place, top, f"0000:{bus:02x}:01.0", "8086:352a", "060400", "64.0 GT/s PCIe")
        place.bridges.append(f"0000:{bus:02x}:01.0")
    if not switch:
        return root
    up = f"{root}/0000:{bus + 1:02x}:00.0"
    if f"{up}/vendor" not in place.files:
        _pci(place, root, f"0000:{bus + 1:02x}:00.0", "1000:c030", "060400", "64.0 GT/s PCIe")
        place.bridges.append(f"0000:{bus + 1:02x}:00.0")
    return up


def _slot(
    place: Place, number: int, *, switch: bool, at: int, virtual: bool = False
) -> tuple[str, str]:
    """(directory, first part of an address) of a slot of a root."""
    if virtual:
        place.bus += 1
        return "/sys/devices/pci0000:00", f"0000:00:{place.bus:02x}"
    top = _root(place, number, switch=switch)
    bus = int(top.rsplit("/", 1)[1].split(":")[1], 16)
    if not switch:
        return top, f"0000:{bus + 4 + at:02x}:00"
    down = f"{top}/0000:{bus + 1:02x}:{at:02x}.0"
    if f"{down}/vendor" not in place.files:
        _pci(place, top, f"0000:{bus + 1:02x}:{at:02x}.0", "1000:c030", "060400", "64.0 GT/s PCIe")
        place.bridges.append(f"0000:{bus + 1:02x}:{at:02x}.0")
    return down, f"0000:{bus + 2 + at:02x}:00"


def _gpus(place: Place) -> None:
    kind = place.shape.get("gpu", "")
    if not kind:
        return
    gpu = GPUS[kind]
    virtual = bool(place.shape.get("flat"))
    for number in range(place.shape.get("gpus", 8)):
        top, bus = _slot(place, number, switch=place.shape.get("switched", True), at=2,
                         virtual=virtual)  # fmt: skip
        # An idle card falls back to the first generation.
        _pci(place, top, f"{bus}.0", gpu.ids, gpu.class_code, "" if virtual else gpu.speed,
             now=IDLE if gpu.dozes else "")  # fmt: skip
        place.gpus.append(f"{bus}.0")
        place.names[f"gpu{number}"] = f"{bus}.0"
        place.names[f"gpu{number}dir"] = f"{top}/{bus}.0"
        if gpu.vendor == "nvidia":
            place.files[f"/proc/driver/nvidia/gpus/{bus}.0/information"] = f"Model: \t\t {gpu.name}"
        elif gpu.vendor == "amd":
            driver = f"/sys/module/amdgpu/drivers/pci:amdgpu/{bus}.0"
            place.links[driver] = f"/sys/bus/pci/devices/{bus}.0"
    for number in range(place.shape.get("nvswitches", 0)):
        top = _root(place, number, switch=False)
        first = int(top.rsplit("/", 1)[1].split(":")[1], 16)
        _pci(place, top, f"0000:{first + 7:02x}:00.0", "10de:22a3", "068000", "16.0 GT/s PCIe", "2")
    gpu_tools(place, gpu)


def _cards(place: Place, group: Mapping[str, Any]) -> None:
    card = CARDS[group["card"]]
    for number in range(group.get("count", 1)):
        switched = group.get("switched", place.shape.get("switched", True))
        root = number + group.get("root", 0)
        top, bus = _slot(place, root, switch=switched and not group.get("loose"),
                         at=group.get("slot", 3), virtual=bool(place.shape.get("flat")))  # fmt: skip
        for port in range(group.get("ports", 1)):
            _nic_port(place, group, card, number, port, top, bus, root)


def _nic_port(
    place: Place, group: Mapping[str, Any], card: Card, number: int, port: int, top: str, bus: str,
    root: int,
) -> None:  # fmt: skip
    infiniband = group.get("layer", "Ethernet") == "InfiniBand"
    at = group.get("first", 0) + number * group.get("ports", 1) + port
    speed = "" if place.shape.get("flat") or card.width == "0" else card.speed
    base = _pci(place, top, f"{bus}.{port}", card.ids, "020700" if infiniband else "020000",
                speed, card.width)  # fmt: skip
    place.links[f"{base}/driver"] = f"/sys/bus/pci/drivers/{card.driver}"
    place.files[f"/sys/bus/pci/drivers/{card.driver}/module"] = "1"
    if group.get("vf_of"):
        place.links[f"{base}/physfn"] = f"/sys/bus/pci/devices/{place.names[group['vf_of']]}"
    place.nics.append((f"{bus}.{port}", card))
    dark = port > 0 and group.get("second") == "dark"
    rdma = (
        group.get("rdma", "").format(at) if not (dark and group.get("dark_rdma") is False) else ""
    )
    net = group.get("net", "").format(at)
    key = f"{group.get('name', 'nic')}{at}"
    place.names |= {key: f"{bus}.{port}", f"{key}dir": base, f"{key}net": f"{base}/net/{net}",
                    f"{key}port": f"{base}/infiniband/{rdma}/ports/1"}  # fmt: skip
    carrier = "0" if dark else group.get("carrier", "1")
    admin = "down" if dark and group.get("second_admin") == "down" else group.get("admin", "up")
    if net:
        _interface(place, f"{base}/net/{net}", net, base, {
            "carrier": carrier if admin == "up" else "",
            "operstate": "up" if carrier == "1" and admin == "up" else "down",
            "flags": "0x1003" if admin == "up" else "0x1002",
            "type": "32" if infiniband else "1",
            "mtu": str(group.get("mtu", 2044 if infiniband else 9000)),
            "speed": str(group.get("speed", 400_000)) if carrier == "1" else "-1",
            "duplex": "full" if carrier == "1" else "unknown",
            "dev_port": str(port if group.get("one_function") else 0),
            "carrier_changes": "1", "carrier_down_count": "0", "carrier_up_count": "1",
        })  # fmt: skip
        for address in _listed(group.get("ip", "")) if not dark else ():
            _address(place, net, address, at)
        if master := group.get("master"):
            place.links[f"{base}/net/{net}/master"] = f"/sys/devices/{_upper(master, place)}"
    if rdma:
        _rdma(place, group, card, rdma, net, base, at, dark=dark)
        place.topology.append((rdma, root))


def _upper(name: str, place: Place) -> str:
    if place.shape.get("netvsc"):
        return f"LNXSYSTM:00/vmbus/net/{name}"
    return f"virtual/net/{name}"


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) and value else list(value)


def _address(place: Place, net: str, form: str, rail: int = 0) -> None:
    reported = form.format(rail=rail, host=place.number + 10, pair=2 * place.number)
    local, _, length = reported.partition("/")
    row = next((each for each in place.addresses if each["ifname"] == net), None)
    if row is None:
        row = {"ifindex": len(place.addresses) + 2, "ifname": net, "flags": ["UP", "LOWER_UP"],
               "operstate": "UP", "addr_info": []}  # fmt: skip
        place.addresses.append(row)
    six = ":" in local
    link_local = local.lower().startswith("fe80:") or local.startswith("169.254.")
    row["addr_info"].append({
        "family": "inet6" if six else "inet", "local": local, "prefixlen": int(length or 32),
        "scope": "link" if link_local else "global", "valid_life_time": 4294967295,
    })  # fmt: skip


def _interface(place: Place, path: str, net: str, device: str, reported: Mapping[str, str]) -> None:
    place.files |= {f"{path}/{name}": value for name, value in reported.items() if value}
    for name in ("rx_errors", "tx_errors", "rx_crc_errors", "rx_missed_errors", "rx_fifo_errors",
                 "tx_carrier_errors", "collisions", "rx_dropped", "tx_dropped"):  # fmt: skip
        place.files[f"{path}/statistics/{name}"] = "0"
    for name in ("rx_packets", "tx_packets"):
        place.files[f"{path}/statistics/{name}"] = str(81_000_000 + 7 * place.number)
    if device:
        place.links[f"{path}/device"] = device
    place.links[f"/sys/class/net/{net}"] = path


def _rdma(
    place: Place, group: Mapping[str, Any], card: Card, name: str, net: str, base: str, at: int,
    *, dark: bool,
) -> None:  # fmt: skip
    """A port of /sys/class/infiniband: Documentation/ABI/stable/sysfs-class-infiniband."""
    layer = group.get("layer", "Ethernet")
    infiniband = layer == "InfiniBand"
    device, port = f"{base}/infiniband/{name}", f"{base}/infiniband/{name}/ports/1"
    up = not dark and group.get("carrier", "1") == "1"
    place.files |= {
        f"{device}/fw_ver": card.firmware, f"{device}/board_id": card.board,
        f"{device}/node_guid": f"946d:ae03:{place.number:04x}:{at:04x}",
        f"{port}/state": "4: ACTIVE" if up else "1: DOWN",
        f"{port}/phys_state": "5: LinkUp" if up else "2: Polling" if infiniband else "3: Disabled",
        f"{port}/rate": group.get("rate", "400 Gb/sec (4X NDR)") if up else "10 Gb/sec (4X SDR)",
        f"{port}/link_layer": layer if layer != "efa" else "Unspecified",
        f"{port}/lid": f"0x{100 * place.number + at:x}" if infiniband else "0x0",
        f"{port}/sm_lid": "0x1" if infiniband else "0x0",
    }  # fmt: skip
    for counter in ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors",
                    "local_link_integrity_errors", "excessive_buffer_overrun_errors",
                    "port_xmit_discards", "port_rcv_data", "port_xmit_data"):  # fmt: skip
        place.files[f"{port}/counters/{counter}"] = "0"
    for counter in ("rnr_nak_retry_err", "local_ack_timeout_err", "out_of_sequence",
                    "packet_seq_err"):  # fmt: skip
        place.files[f"{port}/hw_counters/{counter}"] = "0"
    verbs = f"/sys/class/infiniband_verbs/uverbs{len(place.topology)}"
    place.files[f"{verbs}/ibdev"] = name
    if infiniband:
        prefix = group.get("prefix", "fe80:0000:0000:0000").format(rail=at)
        place.files[f"{port}/gids/0"] = f"{prefix}:946d:ae03:{place.number:04x}:{at:04x}"
        place.files[f"{port}/pkeys/0"] = group.get("pkey", "0xffff")
        place.files[f"{port}/pkeys/1"] = "0x0000"
        mad = f"/sys/class/infiniband_mad/umad{len(place.topology)}"
        place.files |= {f"{mad}/ibdev": name, f"{mad}/port": "1"}
    elif layer == "Ethernet":
        _gids(place, group, port, net or group.get("over", ""), at)
    if group.get("over") or net:
        place.files[f"{port}/gid_attrs/ndevs/0"] = group.get("over") or net
    place.links[f"{device}/device"] = base
    place.links[f"/sys/class/infiniband/{name}"] = device


def _gids(place: Place, group: Mapping[str, Any], port: str, net: str, at: int) -> None:
    link_local = f"fe80:0000:0000:0000:946d:aeff:fe{place.number:02x}:{at:04x}"
    entries = [link_local]
    for form in _listed(group.get("gid_ip", group.get("ip", ""))):
        local = form.format(rail=at, host=place.number + 10, pair=2 * place.number).partition("/")[
            0
        ]
        entries.append(text.gid(local))
    slot = 0
    for address in entries:
        for kind in ("IB/RoCE v1", "RoCE v2"):
            place.files |= {f"{port}/gids/{slot}": address, f"{port}/gid_attrs/types/{slot}": kind,
                            f"{port}/gid_attrs/ndevs/{slot}": net}  # fmt: skip
            slot += 1


def _virtual(place: Place, net: Mapping[str, Any]) -> None:
    """A bond, VLAN, bridge, or synthetic interface, with the kernel's lower_ and upper_ links."""
    name, kind = net["name"], net["kind"]
    path = f"/sys/devices/{_upper(name, place)}" if kind == "netvsc" else (
        f"/sys/devices/virtual/net/{name}")  # fmt: skip
    reported = {"carrier": "1", "operstate": "unknown" if kind in {"wireguard", "dummy"} else "up",
            "flags": "0x1003", "type": "1",
            "mtu": str(net.get("mtu", 1500)), "speed": str(net.get("speed", 200_000)),
            "duplex": "full", "carrier_changes": "2"}  # fmt: skip
    if kind in {"bridge", "vxlan", "wireguard", "dummy"}:
        reported |= {"speed": "-1", "duplex": "unknown"}
    device = ""
    if kind == "netvsc":
        device = "/sys/devices/LNXSYSTM:00/vmbus/0000-net"
        place.files[f"{device}/vendor"] = "0x1414"
        place.links[f"{device}/driver"] = "/sys/bus/vmbus/drivers/hv_netvsc"
        place.files["/sys/bus/vmbus/drivers/hv_netvsc/module"] = "1"
    _interface(place, path, name, device, reported)
    lowers = net.get("lower", ())
    for lower in lowers:
        below = place.links[f"/sys/class/net/{lower}"]
        place.links[f"{path}/lower_{lower}"] = below
        place.links[f"{below}/upper_{name}"] = path
        if kind in {"bond", "bridge", "netvsc"}:
            place.links[f"{below}/master"] = path
    if kind == "bond":
        place.files[f"/proc/net/bonding/{name}"] = text.bonding(
            lowers, net.get("mode", "802.3ad"), place.number
        )
        place.files[f"{path}/bonding/slaves"] = " ".join(lowers)
    if kind == "vlan":
        (lower,) = lowers
        place.files[f"/proc/net/vlan/{name}"] = (
            f"{name}  VID: {net.get('vid', 100)}\t REORDER_HDR: 1"
        )
        place.files["/proc/net/vlan/config"] = (
            f"VLAN Dev name\t | VLAN ID\n{name} | {net.get('vid', 100)}  | {lower}"
        )
    for form in _listed(net.get("ip", "")):
        _address(place, name, form)


def _disks(place: Place) -> None:
    for number in range(place.shape.get("nvmes", 1)):
        top = _root(place, 6, switch=False)
        bus = int(top.rsplit("/", 1)[1].split(":")[1], 16)
        if not place.shape.get("flat"):
            _pci(place, top, f"0000:{bus + 12 + number:02x}:00.0", "144d:a808", "010802",
                 "16.0 GT/s PCIe", "4")  # fmt: skip
        place.files[f"/sys/class/nvme/nvme{number}/state"] = "live"
        place.commands[f"nvme smart-log -o json /dev/nvme{number}"] = json.dumps(
            {"critical_warning": 0, "temperature": 310, "avail_spare": 100, "percent_used": 2}
        )


def _system(place: Place) -> None:
    shape = place.shape
    distro = text.DISTROS[shape.get("distro", "ubuntu-22.04")]
    place.files |= {
        "/etc/os-release": distro.release, "/etc/hostname": place.name,
        "/etc/environment": 'PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"',
        "/etc/resolv.conf": shape.get("resolv", "search cluster.example\nnameserver 10.9.0.53\n"
                                                "options timeout:2"),
        "/etc/fstab": distro.fstab,
        "/proc/sys/kernel/osrelease": distro.kernel,
        "/proc/sys/kernel/hostname": place.name,
        "/proc/sys/kernel/random/boot_id": f"7d1b0c2e-0000-4000-8000-{place.number:012d}",
        "/proc/cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{distro.kernel} root=UUID=0b-{place.number} "
                         f"ro quiet iommu=pt",
        "/proc/uptime": f"{864_000 + 977 * place.number}.31 100.0",
        "/proc/meminfo": text.meminfo(shape.get("memory_gib", 2048), place.number),
        "/proc/self/limits": text.LIMITS,
        "/proc/cpuinfo": text.cpuinfo(shape.get("arch", "x86"), bool(shape.get("virtual"))),
        "/proc/mounts": "\n".join(shape.get("mounts", distro.mounts)),
        "/proc/self/mountinfo": text.mountinfo(shape.get("mounts", distro.mounts)),
        "/proc/1/stat": "1 (systemd) S 0 1 1 0 -1", "/proc/42/stat": "42 (kworker/0:1) I 2 0 0",
        "/proc/net/route": text.route4(shape.get("default", ()), shape.get("routes", ())),
        "/proc/net/ipv6_route": text.route6(shape.get("default6", ())),
        "/proc/modules": text.modules(shape, distro),
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "/sys/kernel/mm/ksm/run": "0",
    }  # fmt: skip
    for node in range(shape.get("sockets", 2)):
        kib = shape.get("memory_gib", 2048) // shape.get("sockets", 2) * 1048576
        place.files[f"/sys/devices/system/node/node{node}/meminfo"] = (
            f"Node {node} MemTotal:       {kib - 4096 * place.number} kB"
        )
    for name, value in text.SYSCTL.items():
        place.files[f"/proc/sys/{name}"] = value
    if not shape.get("virtual"):
        for cpu in range(2):
            place.files[f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"] = (
                "performance"
            )
        place.files |= {"/sys/devices/system/edac/mc/mc0/ue_count": "0",
                        "/sys/devices/system/edac/mc/mc0/ce_count": "1"}  # fmt: skip
    else:
        place.files["/sys/devices/system/cpu/cpu0/online"] = "1"
    place.files["/sys/class/net/lo/type"] = "772"
    for name in text.libraries(shape):
        place.files[f"/usr/lib/x86_64-linux-gnu/{name}"] = "\x7fELF"
    place.commands = {**_commands(place, distro), **place.commands}


def _commands(place: Place, distro: text.Distro) -> dict[str, str | None]:
    shape = place.shape
    commands: dict[str, str | None] = {
        "dmesg": text.dmesg(shape, distro, place.number),
        "ldconfig -p": text.ldconfig(shape),
        "dmidecode -t 17": text.dmidecode(shape, place.number),
        "lspci -vvv": text.lspci(place.gpus, place.nics, place.bridges, GPUS.get(
            shape.get("gpu", "")), virtual=bool(shape.get("virtual"))),
        "getenforce": "Enforcing\n" if distro.selinux else None,
        "syntony clock now --json": None, "syntony audit clocks --json": None,
        "ofed_info -s": "MLNX_OFED_LINUX-23.10-1.1.9.0:\n" if shape.get("ofed") else None,
        text.DF: text.df(shape.get("mounts", distro.mounts)),
        "ip -j address show": json.dumps([*text.LOOPBACK, *place.addresses]),
        "ip -j rule show": json.dumps([{"priority": 0, "src": "all", "table": "local"}]),
        "ip -j neigh show": json.dumps([
            {"dst": text.gateway(net), "dev": net, "lladdr": "00:00:5e:00:01:01",
             "state": ["REACHABLE"]} for net in _listed(shape.get("default", []))]),
        f"getent ahosts {place.name}": f"10.9.0.{place.number + 10}       STREAM {place.name}\n",
        "mlxlink -d DEVICE -m": None, "mlxconfig": None, "ibstat": None, "dcb": None,
        "lldpctl -f json": None, "wpa_cli": None, "mlnx_qos": None, "ethtool": None,
        "nvidia-smi -q -x": None, "amd-smi static --json": None, "nv-fabricmanager --version": None,
        "nvidia-ctk --version": None,
    }  # fmt: skip
    commands |= text.time_commands(shape.get("time", "chrony"))
    commands |= text.bmc_commands(shape.get("bmc", "freeipmi"))
    commands |= text.systemd_commands(shape, distro)
    if not text.has_disks(shape.get("mounts", distro.mounts)):
        place.exits[text.DF] = 1
    return commands


def deltas(place: Place, tree: Tree, fault: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Changes of files by a fault, with ``{gpu0}`` and the like filled in; None: it is gone."""
    for path, value in fault.get("files", {}).items():
        real = posixpath.normpath(fill(path, place))
        if value is False:
            yield real, None
        elif isinstance(value, dict):
            yield real, edit(tree.files.get(real) or "", value, place)
        else:
            yield real, fill(str(value), place)


def edit(before: str, change: Mapping[str, Any], place: Place) -> str:
    """``{append = "…"}`` and ``{replace = ["old", "new", …]}``; what is replaced must be there."""
    after = before
    pairs = [fill(each, place) for each in change.get("replace", [])]
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in after, f"{old!r} is not in {after[:2000]!r}"
        after = after.replace(old, new, change.get("times", 1))
    if "append" in change:
        after = f"{after.rstrip()}\n{fill(change['append'], place)}\n"
    return fill(change["text"], place) if "text" in change else after


def fill(text: str, place: Place) -> str:
    """``{gpu0}`` and the like replaced; other braces, as kernels print them, stay."""
    return re.sub(r"\{(\w+)\}", lambda found: place.names.get(found[1], found[0]), text)
