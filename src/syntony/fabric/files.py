"""Topologies from files: an operator's TOML, JSON or dot, LLDP, `ibnetdiscover`. Pure: text in.

Whatever the text, the result is a checked topology or one `InputError` that names what is wrong.
"""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from syntony.errors import InputError
from syntony.fabric.graph import Cable, Device, Topology, make_topology
from syntony.fabric.ibnet import is_ports_report, parse_ibnetdiscover
from syntony.fabric.lldp import merge_lldp, read_neighbours

MAX_BYTES = 64 << 20
_STATEMENT = re.compile(r"(?P<left>[^\[\];{}\n]+?)(?:\[(?P<attributes>[^\]]*)\])?\s*(?:;|\n|$)")
_ENDS = re.compile(r'\s*(?P<a>"[^"]*"|[\w./]+(?:[-.][\w./]+)*)(?::(?P<ap>"[^"]*"|\w+))?\s*')
_ATTRIBUTE = re.compile(r'(\w+)\s*=\s*(?:"([^"]*)"|([^\s,"]+))')


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """An operator's file."""

    device: list[Device] = []
    cable: list[Cable] = []


def parse_topology(text: str, form: str = "") -> Topology:
    """Read a topology.

    Args:
        text: the file's content.
        form: ``toml``, ``json``, ``dot``, ``lldp``, ``ibnetdiscover``; empty to detect it.

    Raises:
        InputError: the text does not have that format, or is not a valid fabric.
    """
    if len(text) > MAX_BYTES:
        raise InputError("too-large", f"a topology of more than {MAX_BYTES >> 20} MiB")
    chosen = form or guess_form(text)
    if chosen not in FORMS:
        raise InputError("unknown-form", f"{chosen!r}: use one of {', '.join(FORMS)}")
    topology = FORMS[chosen](text)
    if not topology.devices:
        raise InputError("empty", f"no devices in this {chosen} file")
    return topology


def guess_form(text: str) -> str:
    """Detect the format from the words that each one begins with."""
    start = text.lstrip()[:4096]
    if start.startswith(("{", "[")) and not start.startswith("[["):
        return "lldp" if '"lldp"' in start else "json"
    if re.match(r"(?:strict\s+)?(?:di)?graph\b", start):
        return "dot"
    if "vendid=" in start or "# Topology file: generated" in start or is_ports_report(start):
        return "ibnetdiscover"
    return "toml"


def format_topology(topology: Topology) -> str:
    """Format as JSON, as operators write it; `parse_topology` reads it back."""
    document = {
        "device": msgspec.to_builtins(topology.devices),
        "cable": msgspec.to_builtins(topology.cables),
    }
    return json.dumps(document, indent=1)


def _from_toml(text: str) -> Topology:
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("not-toml", f"not TOML: {error}") from error
    return _from_data(data)


def _from_json(text: str) -> Topology:
    return _from_data(load_json(text, _once))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ: of two lists of devices, JSON readers keep the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise InputError("bad-file", f"key {twice[:40]!r} is there twice")
    return found


def load_json(text: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Parse JSON. Raises `InputError` on anything else."""
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise InputError("not-json", f"not JSON: {error}") from error


def _from_data(data: Any) -> Topology:
    if not isinstance(data, Mapping):
        raise InputError("bad-file", "a topology file has lists `device` and `cable`")
    try:
        file = msgspec.convert(data, _File)
    except msgspec.ValidationError as error:
        raise InputError("bad-file", str(error)) from error
    return make_topology(file.device, file.cable)


def _from_lldp(text: str) -> Topology:
    return merge_lldp(read_neighbours(load_json(text))).topology


def _from_dot(text: str) -> Topology:
    """Parse node statements ``name [kind=leaf]`` and edges ``a:port -- b:port``."""
    body = re.sub(r"//[^\n]*|/\*.*?\*/|^\s*#[^\n]*", "", text, flags=re.DOTALL | re.MULTILINE)
    _, brace, rest = body.partition("{")
    if not brace or "}" not in rest:
        raise InputError("not-dot", "not a dot graph: no { … }")
    devices: dict[str, Device] = {}
    cables = []
    for match in _STATEMENT.finditer(rest.rpartition("}")[0]):
        words = match["left"].strip()
        if not words or words in {"node", "edge", "graph"} or "=" in words:
            continue
        attributes = {k: a or b for k, a, b in _ATTRIBUTE.findall(match["attributes"] or "")}
        ends = [_dot_end(word) for word in re.split(r"--|->", words)]
        for name, _ in ends:
            devices.setdefault(name, Device(name=name))
        if len(ends) == 1:
            devices[ends[0][0]] = _dot_device(ends[0][0], attributes)
        for (a, a_port), (b, b_port) in itertools.pairwise(ends):
            cables.append(Cable(a=a, b=b, a_port=a_port, b_port=b_port))
    return make_topology(devices.values(), cables)


def _dot_device(name: str, attributes: Mapping[str, str]) -> Device:
    data = {"name": name, "addresses": attributes.get("addresses", "").split()}
    if "kind" in attributes:
        data["kind"] = attributes["kind"]
    try:
        return msgspec.convert(data, Device)
    except msgspec.ValidationError as error:
        raise InputError("bad-file", f"{name}: {error}") from error


def _dot_end(word: str) -> tuple[str, str]:
    match = _ENDS.fullmatch(word)
    if match is None:
        raise InputError("not-dot", f"{' '.join(word.split())[:60]!r} is not a node")
    return match["a"].strip('"'), (match["ap"] or "").strip('"')


FORMS: dict[str, Callable[[str], Topology]] = {
    "toml": _from_toml,
    "json": _from_json,
    "dot": _from_dot,
    "lldp": _from_lldp,
    "ibnetdiscover": parse_ibnetdiscover,
}
