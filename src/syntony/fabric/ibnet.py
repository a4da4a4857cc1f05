"""Parse an InfiniBand fabric as `ibnetdiscover` and `ibnetdiscover -p` print it. Pure.

A node is named by its description if that is unique and specific: ``MF0;leaf0:MQM9700/U1`` is
``leaf0``, ``gpu000 mlx5_0`` is ``gpu000/mlx5_0``. Otherwise it is named by its GUID: an HCA whose
driver has not set the description yet is one of many ``MT4129 ConnectX7``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from syntony.errors import InputError
from syntony.fabric.graph import Cable, Device, Topology, make_topology
from syntony.fabric.names import ComponentKind

_NODE = re.compile(
    r'(?P<type>Switch|Ca|Rt)\s+\d+\s+"(?P<id>[SHR]-[0-9a-f]{1,16})"\s*#\s*"(?P<says>[^"]*)"'
)
_PORT = re.compile(
    r"\[(?P<port>\d{1,3})\](?:\([0-9a-f]+\))?(?:\[ext \d+\])?\s+"
    r'"(?P<id>[SHR]-[0-9a-f]{1,16})"\[(?P<far>\d{1,3})\]'
    r'(?:\([0-9a-f]+\))?\s*(?:\[ext \d+\])?\s*#\s*(?:lid \d+ lmc \d+ )?"(?P<says>[^"]*)"'
)
_REPORTED = re.compile(
    r"(?P<type>SW|CA|RT)\s+\d+\s+(?P<port>\d{1,3})\s+0x(?P<guid>[0-9a-f]{1,16})\s+"
    r"(?P<width>\S+)\s+(?P<speed>\S+(?: \S+)?)"
    r"(?:\s+-\s+(?P<far_type>SW|CA|RT)\s+\d+\s+(?P<far>\d{1,3})\s+0x(?P<far_guid>[0-9a-f]{1,16})"
    r"\s+\( '(?P<says>.*)' - '(?P<far_says>.*)' \)|\s+'.*')\s*"
)
"""A line of `ibnetdiscover -p` (`dump_ports_report` of infiniband-diags); an unconnected port has
only its own node's description."""
_MARKS = {"SW": "S", "CA": "H", "RT": "R"}
_HEADS = ("Switch", "Ca", "Rt")
_SWITCH_NAME = re.compile(r"MF0;(?P<name>[^:;]+):[^/]*/U\d+")
_HOST_NAME = re.compile(r"(?P<host>[\w.-]+)\s+(?P<device>[\w.-]+)")
_RATE = re.compile(r"\s(?P<rate>\d{1,2}x[A-Z]{2,4}\d{0,3})\s*$")
_ENGINE = "Aggregation Node"
_SILENT = "Mellanox Technologies"
_PREFIXES = ("vendid=", "devid=", "sysimgguid=", "switchguid=", "caguid=", "rtguid=", "#")


class _Joint(NamedTuple):
    """One line of a node: its port and the remote end."""

    node: str
    port: str
    far: str
    far_port: str


class Subnet(NamedTuple):
    """A subnet from `ibnetdiscover`: the fabric and facts specific to InfiniBand."""

    topology: Topology
    rates: Mapping[tuple[str, str], str]
    """Device and port → ``4xNDR``, as that end reports it; only ports that report one."""
    says: Mapping[str, str]
    """Device → its node description."""
    unlisted: tuple[str, ...]
    """Devices that others are cabled to but that have no entry: the text is truncated."""
    one_sided: tuple[str, ...]
    """Cables that only one end reports."""
    skipped: tuple[str, ...] = ()
    """Lines that are not from `ibnetdiscover`: ``line 7: ibwarn: …``."""

    @property
    def whole(self) -> bool:
        """Whether nothing is missing, except possibly what the skipped lines would have said."""
        return len(self.unlisted) + len(self.one_sided) <= len(self.skipped)


def parse_ibnetdiscover(text: str) -> Topology:
    """The switches, HCAs and cables of a subnet (see `parse_subnet`)."""
    return parse_subnet(text).topology


def is_ports_report(text: str) -> bool:
    """Whether any line is one of `ibnetdiscover -p`."""
    return any(_REPORTED.fullmatch(line) for line in text.splitlines())


def parse_subnet(text: str) -> Subnet:
    """Parse everything that the text says about a subnet.

    Invalid lines (for example a warning of another program in between) are skipped and listed, as
    long as they are the minority.

    Raises:
        InputError: the text is not an output of `ibnetdiscover`, or a port leads to two places.
    """
    read = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith(_PREFIXES):
            read.line(number, line)
    read.join_adapters()
    if read.skipped and len(read.skipped) >= len(read.joints) + len(read.listed):
        raise InputError("not-ibnetdiscover", f"{read.skipped[0]} is not of ibnetdiscover")
    # A switch's internal aggregation engine (SHARP) appears as a channel adapter behind it: no
    # packet of a job passes through it.
    engines = {guid for guid, text in read.says.items() if _ENGINE in text}
    names = _names({guid: text for guid, text in read.says.items() if guid not in engines})
    devices = [Device(name=name, kind=_kind(guid)) for guid, name in names.items()]
    real = [joint for joint in read.joints if not {joint.node, joint.far} & engines]
    return Subnet(
        topology=make_topology(devices, _cables(real, names)),
        rates={(names[at], port): rate for (at, port), rate in read.rates.items() if at in names},
        says={name: " ".join(read.says[guid].split()) for guid, name in names.items()},
        unlisted=tuple(sorted(name for guid, name in names.items() if guid not in read.listed)),
        one_sided=_one_sided(real, names, read.listed),
        skipped=tuple(read.skipped),
    )


class _Reader:
    """Collects the contents of the lines, in either format."""

    def __init__(self) -> None:
        self.says: dict[str, str] = {}
        self.joints: list[_Joint] = []
        self.rates: dict[tuple[str, str], str] = {}
        self.listed: set[str] = set()
        self.skipped: list[str] = []
        self._node = ""
        self._port_guids: set[str] = set()

    def line(self, number: int, line: str) -> None:
        """One line that is neither empty nor a comment."""
        if match := _NODE.match(line):
            self._node = match["id"]
            self.says[self._node] = match["says"]
            self.listed.add(self._node)
        elif (match := _PORT.match(line)) and self._node:
            rate = _RATE.search(line)
            self._joint(self._node, match["port"], match["id"], match["far"],
                        rate["rate"] if rate else "")  # fmt: skip
            self.says.setdefault(match["id"], match["says"])
        elif match := _REPORTED.fullmatch(line):
            self._reported(match)
        else:
            self.skipped.append(f"line {number}: {line.strip()[:60]!r}")
            if any(word in line for word in _HEADS):
                self._node = ""  # garbled header: the ports below are another node's

    def _reported(self, match: re.Match[str]) -> None:
        """For ``-p``, which lists each port separately; a port of an adapter has its own GUID."""
        if match["far_type"] is None:
            return
        here = f"{_MARKS[match['type']]}-{match['guid']:0>16}"
        there = f"{_MARKS[match['far_type']]}-{match['far_guid']:0>16}"
        speed = match["speed"].replace(" ", "")
        self._joint(here, match["port"], there, match["far"], f"{match['width']}{speed}")
        self.says[here] = match["says"]
        self.says.setdefault(there, match["far_says"])
        self.listed.add(here)
        if match["type"] != "SW":
            self._port_guids.add(here)

    def join_adapters(self) -> None:
        """For ``-p``: ports that have different GUIDs but the same description belong to one
        adapter, unless two of them have the same number."""
        ports: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for joint in self.joints:
            if joint.node in self._port_guids:
                ports[self.says[joint.node]][joint.port].append(joint.node)
        one: dict[str, str] = {}
        for said in ports.values():
            guids = [guid for nodes in said.values() for guid in nodes]
            if len(said) == len(guids):
                one.update(dict.fromkeys(guids, min(guids)))
        self.joints = [
            _Joint(one.get(j.node, j.node), j.port, one.get(j.far, j.far), j.far_port)
            for j in self.joints
        ]
        self.rates = {(one.get(at, at), port): rate for (at, port), rate in self.rates.items()}
        self.says = {guid: said for guid, said in self.says.items() if one.get(guid, guid) == guid}
        self.listed = {one.get(guid, guid) for guid in self.listed}

    def _joint(self, node: str, port: str, far: str, far_port: str, rate: str) -> None:
        self.joints.append(_Joint(node, port, far, far_port))
        if rate:
            self.rates[node, port] = rate


def _one_sided(joints: list[_Joint], names: dict[str, str], listed: set[str]) -> tuple[str, ...]:
    reported = {(joint.node, joint.port) for joint in joints}
    return tuple(
        f"{names[joint.node]}:{joint.port}--{names[joint.far]}:{joint.far_port}"
        for joint in joints
        if joint.far in listed and (joint.far, joint.far_port) not in reported
    )


def _cables(joints: list[_Joint], names: dict[str, str]) -> list[Cable]:
    """Each cable once, although both ends report it."""
    far_end: dict[tuple[str, str], tuple[str, str]] = {}
    cables = []
    for joint in joints:
        here, there = (joint.node, joint.port), (joint.far, joint.far_port)
        if here in far_end:
            if far_end[here] != there:
                raise InputError(
                    "ends-differ",
                    f"port {joint.port} of {names[joint.node]} is reported to lead to two places",
                )
            continue
        far_end[here], far_end[there] = there, here
        cables.append(
            Cable(a=names[joint.node], a_port=joint.port, b=names[joint.far], b_port=joint.far_port)
        )
    return cables


def _names(says: dict[str, str]) -> dict[str, str]:
    """GUID → name: the description if no other node has the same one."""
    wanted = {guid: _name(guid, text) for guid, text in says.items()}
    often = Counter(wanted.values())
    return {guid: name if often[name] == 1 else guid for guid, name in wanted.items()}


def _name(guid: str, text: str) -> str:
    said = " ".join(text.split())
    if _SILENT in said:
        return guid
    if match := _SWITCH_NAME.fullmatch(said):
        return match["name"]
    if guid.startswith("H") and (match := _HOST_NAME.fullmatch(said)):
        return f"{match['host']}/{match['device']}"
    usable = said and said.isprintable() and not re.search(r"->|--|[\"\\]", said)
    return said.replace(" ", "_") if usable else guid


def _kind(guid: str) -> ComponentKind:
    return ComponentKind.NIC if guid.startswith("H") else ComponentKind.SWITCH
