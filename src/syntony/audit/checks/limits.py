"""1.1 Software: limits of processes and of the kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

import msgspec

from syntony.audit.check import HostCheck, Key, Section
from syntony.audit.facts import AbsentError, Facts, UnreadableError
from syntony.audit.parse.text import number_of
from syntony.audit.rdma import compute_ports, rdma_devices
from syntony.audit.result import ComparedValue, Result, Status, Suspect

_LIMIT = re.compile(
    r"^(Max [a-z ]+?)\s{2,}(unlimited|\d{1,20})\s+(unlimited|\d{1,20})", re.MULTILINE
)
_GIB = 1 << 30


class Limits(HostCheck):
    """Processes may lock memory and open files as RDMA needs.

    Expected results: locked memory unlimited or at least 16 GiB, at least 65,536 open files,
    vm.max_map_count at least 65,530. The limits are those of the audit's own process: run it where
    jobs run (a prolog), or set `process` to another's number.
    """

    id = "sw.limits"
    section = Section.SOFTWARE
    reads = ("/proc/*/limits", "/proc/sys/vm/max_map_count")
    meaning = "ibv_reg_mr fails with ENOMEM, or jobs run out of descriptors at scale"
    remedy = "set memlock and nofile in limits.conf and in slurmd's or kubelet's unit"
    suspect = Suspect.CONFIG

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        memlock_bytes: int = 16 * _GIB
        open_files: int = 65_536
        max_map_count: int = 65_530
        process: Annotated[str, msgspec.Meta(pattern=r"^(self|\d{1,9})$")] = "self"

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        path = f"/proc/{self.limits.process}/limits"
        reported = {match[1]: match[2] for match in _LIMIT.finditer(host.read(path))}
        rdma = bool(rdma_devices(host))
        yield self._one(host, reported, "Max locked memory", self.limits.memlock_bytes,
                        Status.FAIL if rdma else Status.WARN)  # fmt: skip
        yield self._one(host, reported, "Max open files", self.limits.open_files, Status.WARN)
        yield from self.part(host, self._maps(host), "max_map_count")

    def _one(
        self, host: Facts, reported: dict[str, str], name: str, least: int, bad: Status
    ) -> Result:
        path = f"/proc/{self.limits.process}/limits"
        value = reported.get(name)
        at = name.removeprefix("Max ")
        if value is None:
            return self.unknown(host, f"{path} does not tell it", at)
        enough = value == "unlimited" or int(value) >= least
        return self.verdict(enough, host, value, f"unlimited or ≥ {least}", path, at=at, bad=bad)

    def _maps(self, host: Facts) -> Iterator[Result]:
        path, least = "/proc/sys/vm/max_map_count", self.limits.max_map_count
        value = number_of(host.read(path), path)
        yield self.verdict(value >= least, host, value, f"≥ {least}", path, at="max_map_count",
                           bad=Status.WARN)  # fmt: skip


_COMPARED = (
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/netdev_max_backlog",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/conf/all/arp_ignore",
    "net/ipv4/conf/all/arp_announce",
    "net/ipv4/neigh/default/gc_thresh3",
    "net/ipv4/tcp_congestion_control",
    "kernel/numa_balancing",
    "vm/overcommit_memory",
)


class Sysctl(HostCheck):
    """The kernel's network settings suit many NICs and many peers.

    Expected results: rp_filter not strict on hosts with several RDMA NICs over Ethernet; there,
    arp_ignore ≥ 1 and arp_announce = 2; gc_thresh3 at least `peers` × NICs; the listed settings
    equal to the expected ones.
    """

    id = "sw.sysctl"
    section = Section.SOFTWARE
    reads = tuple(f"/proc/sys/{name}" for name in _COMPARED)
    meaning = "replies leave by another NIC, or the neighbour table overflows at scale"
    remedy = "set it in /etc/sysctl.d and run sysctl --system"
    suspect = Suspect.CONFIG
    keys = (Key("sw.sysctl", "value of a kernel setting", variant="setting"),)

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        peers: int = 0
        """Hosts of the fleet; 0: gc_thresh3 is only compared."""

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        for name in _COMPARED:
            try:
                value = one_value(host, name)
            except AbsentError:
                continue
            except UnreadableError as error:
                yield self.unknown(host, str(error), name)
                continue
            yield self.reading(
                host, "sw.sysctl", value, name, variant=name, evidence=f"/proc/sys/{name}"
            )
        try:
            roce = [port for port in compute_ports(host) if port.layer == "Ethernet"]
        except AbsentError:
            roce = []
        if len(roce) > 1:
            yield from self._several_nics(host)
        if self.limits.peers:
            yield self._neighbours(host, max(1, len(roce)))

    def _several_nics(self, host: Facts) -> Iterator[Result]:
        strict = one_value(host, "net/ipv4/conf/all/rp_filter")
        yield self.verdict(
            strict != "1", host, strict, "0 or 2", "/proc/sys/net/ipv4/conf/all/rp_filter",
            at="rp_filter", bad=Status.WARN,
        )  # fmt: skip
        for name, good in (("arp_ignore", {"1", "2"}), ("arp_announce", {"1", "2"})):
            value = one_value(host, f"net/ipv4/conf/all/{name}")
            yield self.verdict(
                value in good, host, value, " or ".join(sorted(good)),
                f"/proc/sys/net/ipv4/conf/all/{name}", at=name, bad=Status.WARN,
            )  # fmt: skip

    def _neighbours(self, host: Facts, nics: int) -> Result:
        path = "/proc/sys/net/ipv4/neigh/default/gc_thresh3"
        value = number_of(host.read(path), path)
        wanted = self.limits.peers * nics
        return self.verdict(value >= wanted, host, value, f"≥ {wanted}", path, at="gc_thresh3")


def one_value(host: Facts, name: str) -> str:
    """A kernel setting below /proc/sys. Raises `FactError`."""
    text = " ".join(host.read(f"/proc/sys/{name}").split())
    if not text or not text.isprintable():
        raise UnreadableError(f"/proc/sys/{name} is empty or not text")
    return text
