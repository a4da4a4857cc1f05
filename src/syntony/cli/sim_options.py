"""Options that describe a simulated fabric and its traffic."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from syntony.errors import InputError, UsageError
from syntony.input_files import read_text
from syntony.sim.fluid.clos import LeafSpine, ThreeTier
from syntony.sim.fluid.net import Net
from syntony.sim.fluid.presets import KINDS, SIZES, parse_preset, preset_traffic
from syntony.sim.fluid.scenario import damage
from syntony.sim.fluid.traffic import SimulatedTraffic, check_traffic

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_SHAPE = ("leaves", "hosts_per_leaf", "spines", "uplink_gbps", "rails", "planes", "pods", "aggs",
          "cores")  # fmt: skip


class SimulatedScene(NamedTuple):
    """A fabric with its traffic."""

    net: Net
    traffic: SimulatedTraffic
    dead: list[str]


def scene_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `make_scene` to a command."""
    for option in reversed(
        (
            click.option("--leaves", type=int, help="Leaf switches of a plane or pod."),
            click.option("--hosts-per-leaf", type=int, help="NICs below each leaf."),
            click.option("--spines", type=int, help="Spine switches of a plane."),
            click.option("--gbps", type=float, default=100.0,
                         help="Rate of a NIC, and of cables without a rate of their own."),
            click.option("--uplink-gbps", type=float, help="Rate of cables between switches."),
            click.option("--rails", type=int, help="NICs of a host, each on a leaf of its own."),
            click.option("--planes", type=int, help="Copies of the fabric, a NIC port in each."),
            click.option("--pods", type=int, help="Pods; makes a fabric of three tiers."),
            click.option("--aggs", type=int, help="Aggregation switches of each pod."),
            click.option("--cores", type=int, help="Cores above each aggregation switch."),
            click.option("--topology", type=FILE, help="Topology file, in place of these options."),
            click.option("--dead", multiple=True, metavar="CABLE|N",
                         help="Dead cable (leaf0--spine1) or link (leaf0->spine1), or how many."),
            click.option("--speed", multiple=True, metavar="CABLE=GBPS",
                         help="A cable with another rate."),
            click.option("--traffic", required=True, metavar="FILE.cm|PRESET",
                         help=f"{', '.join(KINDS)}; with -256, -2048, -random."),
            click.option("--queue-pairs", type=click.IntRange(1, 64), default=1,
                         help="Number of flows into which a preset splits each flow."),
            click.option("--seed", type=click.IntRange(0), default=1,
                         help="Seed of traffic, dead cables and hashes."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


def make_scene(options: dict[str, Any]) -> SimulatedScene:
    """Make the fabric and traffic that the options describe; removes its own from `options`.

    Raises:
        UsageError: options that exclude each other. InputError: an invalid file, or traffic that
        does not fit the fabric.
    """
    reported = {name: options.pop(name) for name in _SHAPE}
    reported = {name: value for name, value in reported.items() if value is not None}
    name, seed = options.pop("traffic"), options["seed"]
    file = Path(name)
    preset = None if file.is_file() or name.endswith(".cm") else parse_preset(name)
    nics = preset.nics if preset else 0
    net = _net(reported, options.pop("topology"), options.pop("gbps"), nics)
    dead = damage(net, options.pop("dead"), options.pop("speed"), seed)
    queue_pairs = options.pop("queue_pairs")
    if preset:
        traffic = preset_traffic(preset, net, np.random.default_rng(seed), queue_pairs)
    elif queue_pairs > 1:
        raise UsageError("--queue-pairs is for presets; a file lists its flows itself")
    else:
        traffic = _from_file(file)
    return SimulatedScene(net, check_traffic(traffic, net.nics), dead)


def _net(reported: dict[str, Any], topology: Path | None, gbps: float, nics: int) -> Net:
    if topology is not None:
        if reported:
            raise UsageError(f"--topology and --{next(iter(reported)).replace('_', '-')} exclude")
        return read_topology(topology, gbps)
    if nics and not {"leaves", "hosts_per_leaf", "spines", "pods"} & reported.keys():
        reported |= dict(zip(("leaves", "hosts_per_leaf", "spines"), SIZES[nics], strict=True))
    three = {"pods", "aggs", "cores"}
    kind = ThreeTier if three & reported.keys() else LeafSpine
    wrong = {"spines", "rails", "planes"} if kind is ThreeTier else set()
    for name in wrong & reported.keys():
        raise UsageError(f"--{name} is for two tiers, --pods makes three")
    return kind(gbps=gbps, **reported)


def read_topology(file: Path, gbps: float) -> Net:
    """A topology file of any form that `syntony fabric import` reads."""
    from syntony.io.operator_files import load_topology
    from syntony.sim.fluid.graph_net import GraphNet

    with _naming(file):
        return GraphNet(load_topology(file), gbps=gbps)


def _from_file(file: Path) -> SimulatedTraffic:
    from syntony.sim.fluid.matrix_file import parse_matrix

    with _naming(file):
        return parse_matrix(_text(file))


@contextlib.contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Put the file's name in front of what is wrong in it."""
    try:
        yield
    except InputError as error:
        text = str(error).removeprefix(f"{error.name}: ")
        named = text if text.startswith(str(file)) else f"{file}: {text}"
        raise InputError(error.name, named) from error


def _text(file: Path) -> str:
    try:
        return read_text(file)
    except OSError as error:
        name = "not-text" if error.errno == errno.EILSEQ else "unreadable"
        raise InputError(name, f"{file}: {error.strerror}") from error
