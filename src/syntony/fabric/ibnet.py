"""An InfiniBand fabric as `ibnetdiscover` prints it (infiniband-diags). Pure.

A node is called by its description where that is unique and says something:
``MF0;leaf0:MQM9700/U1`` is ``leaf0``, ``gpu000 mlx5_0`` is
``gpu000/mlx5_0``. Otherwise by its GUID: a HCA whose driver has not set the description yet is one
of many ``MT4129 ConnectX7``.
"""

from __future__ import annotations

import re
from collections import Counter
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
_SWITCH_NAME = re.compile(r"MF0;(?P<name>[^:;]+):[^/]*/U\d+")
_HOST_NAME = re.compile(r"(?P<host>[\w.-]+)\s+(?P<device>[\w.-]+)")
_RATE = re.compile(r"\s(?P<rate>\d{1,2}x[A-Z]{2,4}\d{0,3})\s*$")
_ENGINE = "Aggregation Node"
_SILENT = "Mellanox Technologies"
_PREFIXES = ("vendid=", "devid=", "sysimgguid=", "switchguid=", "caguid=", "rtguid=", "#")


class _Joint(NamedTuple):
    """One line of a node: its port and what is at the far end."""

    node: str
    port: str
    far: str
    far_port: str


class Subnet(NamedTuple):
    """A subnet as `ibnetdiscover` tells it: the fabric and what only InfiniBand says of it."""

    topology: Topology
    rates: Mapping[tuple[str, str], str]
    """Device and port to ``4xNDR``, as that end says it; of ports that say one."""
    says: Mapping[str, str]
    """Device to its node description."""
    unlisted: tuple[str, ...]
    """Devices that others are cabled to and that have no entry: the text is cut off."""
    one_sided: tuple[str, ...]
    """Cables that only one of their ends tells of."""


def parse_ibnetdiscover(text: str) -> Topology:
    """The switches, HCAs and cables of a subnet (see `parse_subnet`)."""
    return parse_subnet(text).topology


def parse_subnet(text: str) -> Subnet:
    """Everything that the text tells of a subnet.

    Raises:
        InputError: a line that is none of `ibnetdiscover`'s, a node that is cut off, or a cable
            whose two ends do not agree.
    """
    says: dict[str, str] = {}
    joints: list[_Joint] = []
    rates: dict[tuple[str, str], str] = {}
    listed: set[str] = set()
    node = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith(_PREFIXES):
            continue
        if match := _NODE.match(line):
            node = match["id"]
            says[node] = match["says"]
            listed.add(node)
        elif (match := _PORT.match(line)) and node:
            joints.append(_Joint(node, match["port"], match["id"], match["far"]))
            says.setdefault(match["id"], match["says"])
            if rate := _RATE.search(line):
                rates[node, match["port"]] = rate["rate"]
        else:
            raise InputError(
                "not-ibnetdiscover", f"line {number}: {line.strip()[:60]!r} is not of ibnetdiscover"
            )
    # A switch's own aggregation engine (SHARP) shows as a channel adapter behind it: no packet of
    # a job passes through.
    engines = {guid for guid, text in says.items() if _ENGINE in text}
    names = _names({guid: text for guid, text in says.items() if guid not in engines})
    devices = [Device(name=name, kind=_kind(guid)) for guid, name in names.items()]
    real = [joint for joint in joints if not {joint.node, joint.far} & engines]
    return Subnet(
        topology=make_topology(devices, _cables(real, names)),
        rates={(names[at], port): rate for (at, port), rate in rates.items() if at in names},
        says={name: " ".join(says[guid].split()) for guid, name in names.items()},
        unlisted=tuple(sorted(name for guid, name in names.items() if guid not in listed)),
        one_sided=_one_sided(real, names, listed),
    )


def _one_sided(joints: list[_Joint], names: dict[str, str], listed: set[str]) -> tuple[str, ...]:
    told = {(joint.node, joint.port) for joint in joints}
    return tuple(
        f"{names[joint.node]}:{joint.port}--{names[joint.far]}:{joint.far_port}"
        for joint in joints
        if joint.far in listed and (joint.far, joint.far_port) not in told
    )


def _cables(joints: list[_Joint], names: dict[str, str]) -> list[Cable]:
    """Each cable once, though both of its ends tell of it."""
    far_end: dict[tuple[str, str], tuple[str, str]] = {}
    cables = []
    for joint in joints:
        here, there = (joint.node, joint.port), (joint.far, joint.far_port)
        if here in far_end:
            if far_end[here] != there:
                raise InputError(
                    "ends-differ",
                    f"port {joint.port} of {names[joint.node]} is told to lead to two places",
                )
            continue
        far_end[here], far_end[there] = there, here
        cables.append(
            Cable(a=names[joint.node], a_port=joint.port, b=names[joint.far], b_port=joint.far_port)
        )
    return cables


def _names(says: dict[str, str]) -> dict[str, str]:
    """GUID to name: what the description says if it is the only one to say so."""
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
