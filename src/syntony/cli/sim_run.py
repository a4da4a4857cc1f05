"""`syntony sim run`: simulates traffic on a fabric under a policy."""

from __future__ import annotations

import math
from typing import Any

import click

from syntony.cli.output import console, json_option, messages, print_json
from syntony.cli.sim_options import make_scene, scene_options
from syntony.errors import MissingError, UsageError
from syntony.sim.fluid.matrix_file import format_matrix
from syntony.sim.fluid.policies import POLICIES
from syntony.sim.fluid.policies.base import Tools
from syntony.sim.fluid.run import RunSettings
from syntony.sim.fluid.scenario import simulate


@click.command()
@scene_options
@click.option(
    "--policy", type=click.Choice(list(POLICIES)), default="syntony", help="How paths are chosen."
)
@click.option("--hop-ns", type=float, default=1_000.0, help="Delay of one link, ns.")
@click.option("--epoch-us", type=float, default=100.0, help="Interval at which telemetry is read.")
@click.option("--age", type=click.IntRange(0, 100), default=0, help="Age of telemetry, in epochs.")
@click.option("--noise", type=float, default=0.0, help="Relative error of measurements, 1 sigma.")
@click.option(
    "--max-epochs", type=click.IntRange(1), default=300, help="Stop after this many intervals."
)
@click.option("--unknown-flows", is_flag=True, help="Learn flows from telemetry only.")
@json_option
def run(**options: Any) -> None:
    """Compute completion times and rates of --traffic under --policy, and the optimum.

    Rates are those of the flows that start first, after the policy has settled and as if they never
    ended, as a share of what each would get if only NICs limited it. Completion times are those of
    all flows, up to the last acknowledgement.

    \b
    Examples:
      syntony sim run --traffic alltoall-256 --policy ecmp
      syntony sim run --leaves 16 --hosts-per-leaf 16 --spines 16 --traffic M.cm --json
    """
    as_json = options.pop("as_json")
    scene = make_scene(options)
    settings = _settings(options)
    tools = _tools(known=not options["unknown_flows"])
    with messages.status(f"{scene.traffic.flows} flows on {scene.net.nics} NICs"):
        answer = simulate(scene.net, scene.traffic, options["policy"], settings, tools)
    document = answer.document()
    if as_json:
        print_json(document)
        return
    console.print(f"{options['policy']}: {scene.traffic.flows} flows, {scene.net.nics} NICs")
    if scene.dead:
        console.print(f"dead: {', '.join(scene.dead[:8])}{' …' if len(scene.dead) > 8 else ''}")
    best = document.pop("optimum")
    for name, value in document.items():
        unless = f"   (optimum {best[name]:.4g})" if name in best else ""
        console.print(f"{name:20} {value:.6g}{unless}")


def _settings(options: dict[str, Any]) -> RunSettings:
    for name in ("hop_ns", "epoch_us", "noise"):
        if not (math.isfinite(options[name]) and options[name] >= 0):
            raise UsageError(f"--{name.replace('_', '-')} must not be negative")
    if options["epoch_us"] < 1:
        raise UsageError("--epoch-us: give 1 or more")
    return RunSettings(
        hop_ns=options["hop_ns"],
        epoch_ns=options["epoch_us"] * 1_000,
        age=options["age"],
        noise=options["noise"],
        max_epochs=options["max_epochs"],
        seed=options["seed"],
    )


def _tools(*, known: bool) -> Tools:
    """Use native code if it is built: the results are the same."""
    try:
        from syntony.io.fluid import NativeColouring, max_min
    except MissingError:
        return Tools(known=known)
    return Tools(share=max_min, colouring=NativeColouring, known=known)


@click.command()
@scene_options
def traffic(**options: Any) -> None:
    """Print --traffic as a connection matrix, to edit or for a packet-level simulator.

    \b
    Example:
      syntony sim traffic --traffic rings-256 > rings.cm
    """
    scene = make_scene(options)
    click.echo(format_matrix(scene.traffic, scene.net.nics), nl=False)
