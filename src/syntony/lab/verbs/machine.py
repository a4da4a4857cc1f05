"""One host as a virtual machine, inside the namespace that has the host's ports.

    ip netns exec h0 python -m syntony.lab.verbs.machine DIRECTORY h0

Each port of the host is joined to a NIC of the guest, both ways and unchanged, by `tc` and a tap.
The port's carrier becomes the NIC's, over QEMU's own socket, so that the guest sees a pulled cable
too.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from syntony.errors import SyntonyError
from syntony.lab import commands, netns, state
from syntony.lab.linkwatch import NamespaceLinkWatch
from syntony.lab.messages import LabFile
from syntony.lab.plan import LabPlan, LinkKind, Port, make_plan
from syntony.lab.routes import host_routes
from syntony.lab.verbs.guest import GuestConfig, GuestNic
from syntony.lab.verbs.image import LAB_TAG, ROOT_TAG, Image

MEMORY_MB = 768
SHARED = "security_model=none,multidevs=remap"
EVERYTHING = "u32 match u32 0 0"
"""The classifier that most kernels have."""
REDIRECT = "action mirred egress redirect"
_QMP_S = 240.0
"""QEMU needs less than a second, or minutes at a load of 100 on two cores."""


def mac(port: Port) -> str:
    """Locally administered; interface indexes are unique in a lab."""
    return f"52:54:00:00:{port.index >> 8:02x}:{port.index & 255:02x}"


def guest_config(plan: LabPlan, host: str) -> GuestConfig:
    """Everything that the guest makes of itself."""
    links = plan.links_of(host)
    return GuestConfig(
        host=host,
        nics=tuple(
            GuestNic(link.a.name, mac(link.a), verbs=link.kind is LinkKind.RAIL) for link in links
        ),
        sysctls=commands.sysctls(plan, host),
        ip=commands.address_lines(plan, host),
        rules={family: commands.rule_lines(plan, host, family) for family in (4, 6)},
        routes=commands.route_lines("add", host_routes(plan, host)),
        address=plan.link(f"{host}/mgmt0").a.ipv4,
    )


def qemu_argv(image: Image, directory: Path, plan: LabPlan, host: str, config: Path) -> list[str]:
    """QEMU with software emulation: needs no /dev/kvm, and no privilege except for the taps."""
    words = {"lab": str(directory), "python": sys.executable, "config": str(config)}
    append = ["console=ttyS0", "quiet", "panic=-1", "mitigations=off", "tsc=reliable"]
    append += ["no_timer_check"]  # on a busy machine the emulated timer looks broken
    khz = tsc_khz(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    if khz and not Path("/sys/devices/system/cpu/cpu0/cpufreq").exists():
        append += [f"tsc_early_khz={khz}"]
    append += [f"syntony.{name}={value}" for name, value in words.items()]
    shared = ((ROOT_TAG, Path("/"), "on"), (LAB_TAG, directory, "off"))
    argv = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-M", "q35", "-m", str(MEMORY_MB)]
    argv += ["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"]
    argv += [
        "-kernel",
        str(image.kernel),
        "-initrd",
        str(image.initrd),
        "-append",
        " ".join(append),
    ]
    argv += ["-qmp", f"unix:{qmp_path(directory, host)},server=on,wait=off"]
    for tag, path, readonly in shared:
        argv += [
            "-virtfs",
            f"local,path={path},mount_tag={tag},readonly={readonly},{SHARED}",
        ]
    for link in plan.links_of(host):
        port = link.a
        argv += ["-netdev", f"tap,id={port.name},ifname={tap(port)},script=no,downscript=no"]
        argv += [
            "-device",
            f"virtio-net-pci,netdev={port.name},id=nic-{port.name},mac={mac(port)},romfile=",
        ]
    return argv


def tsc_khz(cpuinfo: str) -> int:
    """Rate of this machine's time stamp counter, which a guest sees as it is, from
    ``/proc/cpuinfo``; 0: that file shows how fast the processor runs now instead.

    A guest on a busy machine measures it against timers that QEMU serves late: its clock then ran
    21 times too fast.
    """
    lines = dict(re.findall(r"^([^\t:]+)\t*: (.*)$", cpuinfo, re.MULTILINE))
    if "aperfmperf" in lines.get("flags", "aperfmperf").split():
        return 0
    return round(1000 * float(lines.get("cpu MHz", 0)))


def qmp_path(directory: Path, host: str) -> Path:
    return directory / f"qmp-{host}.sock"


def tap(port: Port) -> str:
    return f"t-{port.name}"


def join_lines(ports: Sequence[Port]) -> tuple[list[str], list[str]]:
    """For `ip -batch` and `tc -batch`: a tap for each port, all packets mirrored between them."""
    ip, tc = [], []
    for port in ports:
        ip += [f"tuntap add {tap(port)} mode tap", f"link set {tap(port)} up"]
        for here, there in ((port.name, tap(port)), (tap(port), port.name)):
            tc += [
                f"qdisc add dev {here} clsact",
                f"filter add dev {here} ingress protocol all {EVERYTHING} {REDIRECT} dev {there}",
            ]
    return ip, tc


class Qmp:
    """QEMU's monitor. Raises `OSError` or `ValueError`: it does not answer."""

    def __init__(self, path: Path) -> None:
        deadline_s = time.monotonic() + _QMP_S
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_QMP_S)
        while True:
            try:
                self._socket.connect(str(path))
                break
            except OSError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.05)
        self._lines = self._socket.makefile("rb")
        self._lines.readline()
        self.order("qmp_capabilities")

    def order(self, execute: str, **arguments: object) -> None:
        request = {"execute": execute, "arguments": arguments}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            said = json.loads(self._lines.readline())
            if "return" in said:
                return
            if "error" in said:
                raise ValueError(f"QEMU: {said['error'].get('desc')}")


def main(directory: Path, host: str) -> int:
    """Runs the guest until it ends; its status."""
    file = msgspec.json.decode((directory / state.LAB_FILE).read_bytes(), type=LabFile)
    plan = make_plan(file.spec)
    ports = [link.a for link in plan.links_of(host)]
    config = directory / f"guest-{host}.json"
    config.write_bytes(msgspec.json.encode(guest_config(plan, host)))
    # Remove what a guest that died left behind.
    netns.batch_forced(host, ["tc"], [f"qdisc del dev {port.name} clsact" for port in ports])
    netns.batch_forced(host, ["ip"], [f"link del {tap(port)}" for port in ports])
    ip, tc = join_lines(ports)
    netns.batch(None, ["ip"], ip)
    netns.batch(None, ["tc"], tc)
    image = Image.of(Path(file.image))
    qmp_path(directory, host).unlink(missing_ok=True)
    qemu = subprocess.Popen(
        qemu_argv(image, directory, plan, host, config), stdin=subprocess.DEVNULL
    )
    try:
        _copy_carrier(qemu, Qmp(qmp_path(directory, host)), NamespaceLinkWatch(host), ports)
    finally:
        qemu.kill()
    return qemu.wait()


def _copy_carrier(
    qemu: subprocess.Popen[bytes], monitor: Qmp, watch: NamespaceLinkWatch, ports: Sequence[Port]
) -> None:
    """Copy each port's carrier to its guest NIC until QEMU has ended."""
    names = {port.index: port.name for port in ports}
    known = dict.fromkeys(names, True)
    ended = os.pidfd_open(qemu.pid)
    with selectors.DefaultSelector() as selector:
        selector.register(ended, selectors.EVENT_READ)
        selector.register(watch.fileno(), selectors.EVENT_READ)
        while True:
            if any(key.fd == ended for key, _ in selector.select()):
                return
            for seen in watch.read():
                if known.get(seen.ifindex, seen.up) != seen.up:
                    known[seen.ifindex] = seen.up
                    monitor.order("set_link", name=f"nic-{names[seen.ifindex]}", up=seen.up)


def _end(_number: int, _frame: object) -> None:
    sys.exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    try:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
    except (SyntonyError, OSError, ValueError) as error:
        sys.exit(f"guest {sys.argv[2]}: {error}")
