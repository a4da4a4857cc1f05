"""The fabric as data: which namespaces, links and addresses a lab of a given size has. Pure.

Names: hosts ``h0``…, leaves ``leaf{rail}-{k}``, spines ``spine{k}``, the front-end router ``fe0``
and ``ctl``, where the controller lives. A link is named after its first end: ``h3/rail0``,
``leaf0-1/spine0``, ``h3/mgmt0``.

Addresses: every link is a /31 (RFC 3021) and a /127 (RFC 6164). A leaf's hosts share one prefix,
``10.{10+rail}.{leaf}.0/24``, so that a switch needs one route per leaf.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from itertools import groupby

import msgspec

from syntony.errors import UsageError
from syntony.model import MS, S
from syntony.model.names import did_you_mean

_LETTERS = re.compile(r"\D*")
ROUTER = "fe0"
CONTROLLER = "ctl"
MGMT = "mgmt0"
ULA = "fd73:796e:746f"
MGMT_PREFIXES = ("172.30.0.0/16", f"{ULA}:ffff::/64")
FIRST_INDEX = 100
"""Interface indexes are unique in the whole fabric: the two ends of a veth must differ, or the
kernel's linkwatch delays link-down events by up to a second."""
_LIMITS = {"hosts": (2, 64), "rails": (1, 8), "leaves": (1, 16), "spines": (1, 16)}


class FabricSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: sizes, shaping, seed."""

    hosts: int = 8
    rails: int = 2
    leaves: int = 2
    spines: int = 2
    rate_bps: int = 200_000_000
    burst_bytes: int = 32_768
    latency_ns: int = 20 * MS
    """How long a packet may wait in a shaper before it is dropped."""
    convergence_ns: int = 1 * S
    seed: int = 1


class LinkKind(enum.StrEnum):
    RAIL = "rail"
    FABRIC = "fabric"
    MGMT = "mgmt"


class Port(msgspec.Struct, frozen=True):
    node: str
    name: str
    index: int
    ipv4: str
    ipv6: str

    def address(self, family: int) -> str:
        return self.ipv4 if family == 4 else self.ipv6

    def __str__(self) -> str:
        return f"{self.node}/{self.name}"


class Link(msgspec.Struct, frozen=True):
    """A veth pair; `a` is the host (or leaf) end, `b` the leaf, router (or spine) end."""

    kind: LinkKind
    a: Port
    b: Port

    @property
    def name(self) -> str:
        return str(self.a)

    def port_at(self, node: str) -> Port:
        """The end in namespace `node`."""
        return self.a if self.a.node == node else self.b


class LabPlan(msgspec.Struct, frozen=True):
    spec: FabricSpec
    hosts: tuple[str, ...]
    leaves: tuple[str, ...]
    spines: tuple[str, ...]
    links: tuple[Link, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return (*self.hosts, *self.leaves, *self.spines, ROUTER, CONTROLLER)

    @property
    def switches(self) -> tuple[str, ...]:
        """Namespaces of the fabric whose routes the control plane owns."""
        return (*self.leaves, *self.spines)

    def of_kind(self, kind: LinkKind) -> tuple[Link, ...]:
        return tuple(link for link in self.links if link.kind is kind)

    def links_of(self, node: str) -> tuple[Link, ...]:
        return tuple(link for link in self.links if node in (link.a.node, link.b.node))

    def link(self, name: str) -> Link:
        """A link by its name. Raises `UsageError`: there is none; the message names the nearest."""
        for link in self.links:
            if link.name == name:
                return link
        raise unknown("NIC or link", name, (link.name for link in self.links))

    def nic(self, name: str) -> Link:
        """The link of a host's rail NIC (``h3/rail0``). Raises `UsageError`."""
        rails = {link.name: link for link in self.of_kind(LinkKind.RAIL)}
        if name not in rails:
            raise unknown("NIC", name, rails)
        return rails[name]

    def node(self, name: str, among: Iterable[str] | None = None, what: str = "node") -> str:
        """`name` if it is one of `among` (default: every namespace). Raises `UsageError`."""
        known = tuple(self.nodes if among is None else among)
        if name not in known:
            raise unknown(what, name, known)
        return name


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = list(known)
    parts = [each for each in names if each.startswith(f"{name}/")]
    near = f"; did you mean {parts[0]!r}?" if parts else did_you_mean(name, names)
    return UsageError(f"no {what} {name!r} in this lab{near or f'; known: {_ranges(names)}'}")


def _ranges(names: Iterable[str]) -> str:
    """``h0 … h7, leaf0-0 … leaf1-1, ctl``."""
    groups = [list(group) for _, group in groupby(names, lambda name: _LETTERS.findall(name)[0])]
    return ", ".join(
        group[0] if len(group) == 1 else f"{group[0]} … {group[-1]}" for group in groups
    )


def leaf_name(rail: int, leaf: int) -> str:
    return f"leaf{rail}-{leaf}"


def leaf_prefixes(leaf: str) -> tuple[str, str]:
    """The IPv4 and IPv6 prefix of the hosts behind ``leaf{rail}-{k}``."""
    rail, index = (int(part) for part in leaf.removeprefix("leaf").split("-"))
    return f"10.{10 + rail}.{index}.0/24", f"{ULA}:{(16 + rail) << 8 | index:x}::/64"


def rail_prefixes(rail: int) -> tuple[str, str]:
    """The IPv4 and IPv6 prefix of a whole rail."""
    return f"10.{10 + rail}.0.0/16", f"{ULA}:{(16 + rail) << 8:x}::/56"


def make_plan(spec: FabricSpec) -> LabPlan:
    """The fabric of a given size; the same spec always gives the same plan. Raises `UsageError`: a
    size is out of range."""
    _check(spec)
    hosts = tuple(f"h{i}" for i in range(spec.hosts))
    leaves = tuple(leaf_name(r, k) for r in range(spec.rails) for k in range(spec.leaves))
    spines = tuple(f"spine{k}" for k in range(spec.spines))
    links: list[Link] = []

    def join(kind: LinkKind, a: tuple[str, str], b: tuple[str, str], net: tuple[str, str]) -> None:
        """`net` is the link's even (far) address in both families; the near end has the odd one."""
        index = FIRST_INDEX + 2 * len(links)
        near, far = (_address(net, odd) for odd in (1, 0))
        links.append(Link(kind, Port(*a, index, *near), Port(*b, index + 1, *far)))

    for rail in range(spec.rails):
        slots = [0] * spec.leaves
        for i, host in enumerate(hosts):
            leaf = i * spec.leaves // spec.hosts
            v4, v6 = (prefix.partition("/")[0] for prefix in leaf_prefixes(leaf_name(rail, leaf)))
            net = (_plus4(v4, 2 * slots[leaf]), f"{v6}{2 * slots[leaf]:x}")
            join(LinkKind.RAIL, (host, f"rail{rail}"), (leaf_name(rail, leaf), host), net)
            slots[leaf] += 1
    for row, leaf_node in enumerate(leaves):
        for k, spine in enumerate(spines):
            net = (f"10.{100 + k}.{row}.0", f"{ULA}:{0x100 + k:x}::{2 * row:x}")
            join(LinkKind.FABRIC, (leaf_node, spine), (spine, leaf_node), net)
    for i, node in enumerate((*hosts, CONTROLLER)):
        net = (_plus4("172.30.0.0", 2 * i), f"{ULA}:ffff::{2 * i:x}")
        join(LinkKind.MGMT, (node, MGMT), (ROUTER, node), net)
    return LabPlan(spec, hosts, leaves, spines, tuple(links))


def _check(spec: FabricSpec) -> None:
    for field, (low, high) in _LIMITS.items():
        value = getattr(spec, field)
        if not low <= value <= high:
            raise UsageError(f"{value} {field} is out of range; a lab has {low} to {high}")
    if spec.leaves > spec.hosts:
        raise UsageError(f"{spec.leaves} leaves for {spec.hosts} hosts; use at most one per host")


def _plus4(base: str, add: int) -> str:
    head, _, last = base.rpartition(".")
    return f"{head}.{int(last) + add}"


def _address(net: tuple[str, str], odd: int) -> tuple[str, str]:
    v4, v6 = net
    head, _, last = v6.rpartition(":")
    return _plus4(v4, odd), f"{head}:{int(last, 16) + odd:x}"
