"""`syntony audit record`, `reach`, `triad`, `gemm`, `clocks`: single measurements of an audit."""

from __future__ import annotations

from pathlib import Path

import click

from syntony.cli.audit_sources import Sources, chosen_checks, source_options
from syntony.cli.output import console, json_option, messages, print_json
from syntony.errors import InputError
from syntony.model import format_ns


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@source_options
def record(*, folder: Path, sources: Sources) -> None:
    """Record what the checks read on this host, as a tree to judge later or elsewhere.

    \b
    Example:
      syntony lab exec h0 -- syntony audit record /tmp/h0 && syntony audit run --root /tmp/h0
    """
    from syntony.io.audit.host import this_host
    from syntony.io.audit.ssh import record_here

    if folder.exists() and any(folder.iterdir()):
        raise InputError("not-empty", f"{folder} is not empty; name a new directory")
    folder.mkdir(parents=True, exist_ok=True)
    record_here(chosen_checks(sources), folder, this_host().host)
    console.print(f"recorded below {folder}; replay it with: syntony audit run --root {folder}")


@click.command()
@click.argument("peers", nargs=-1, required=True)
@click.option("--count", default=20, type=click.IntRange(1, 1000), help="Connections to each peer.")
@json_option
@click.pass_context
def reach(context: click.Context, *, peers: tuple[str, ...], count: int, as_json: bool) -> None:
    """Connect to each peer (HOST or HOST:PORT) --count times; show failures and durations.

    Exit status: 0. The check fe.mesh judges.

    \b
    Example:
      syntony audit reach localhost:22
    """
    from syntony.io.audit.reach import reach as measure

    found = measure(peers, count)
    if as_json:
        print_json([each._asdict() for each in found])
        context.exit(0)
    for each in found:
        took = "" if each.p50_ns is None else f", median {format_ns(each.p50_ns)}"
        console.print(f"{each.peer}: {each.lost} of {each.tries} lost{took} {each.error}".rstrip())


@click.command()
@json_option
def triad(*, as_json: bool) -> None:
    """Measure the memory bandwidth of each NUMA node, GB/s; loads all processors for seconds.

    \b
    Example:
      syntony audit triad
    """
    from syntony.io.audit.triad import nodes
    from syntony.io.audit.triad import triad as measure

    found = {str(node): round(measure(cpus), 2) for node, cpus in nodes().items()}
    if as_json:
        print_json(found)
        return
    for node, rate in found.items():
        console.print(f"node {node}: {rate:.1f} GB/s")


@click.command()
@click.option("--python", help="Python interpreter with torch. [default: searched for]")
@json_option
def gemm(*, python: str | None, as_json: bool) -> None:
    """Measure TFLOP/s of matrix products on every GPU, else on each NUMA node's processors.

    The check node.gemm judges the result. GPUs need a Python interpreter with PyTorch.

    \b
    Example:
      syntony audit gemm
    """
    from syntony.io.audit.gemm import gemm as measure
    from syntony.lab.jobs.torch_build import candidates

    found = measure((python,) if python else candidates())
    if as_json:
        print_json(found)
        return
    for row in found["devices"]:
        worth = f"{row['tflops']:.4g} TFLOP/s ({row['type']})" if "tflops" in row else row["why"]
        console.print(f"{row['device']} {row.get('name', '')}: {worth}", markup=False)
    if found.get("why"):
        messages.print(f"no GPU was measured: {found['why']}", markup=False)


@click.command()
@json_option
def clocks(*, as_json: bool) -> None:
    """Compare this host's clock with its peers' clocks, with a bound on the error.

    The check fe.time judges the result. Needs a running agent.

    \b
    Example:
      syntony lab exec h0 -- syntony audit clocks
    """
    from syntony.io.audit.peer_clocks import peer_clocks
    from syntony.io.fleet_clock import clock_directory

    found = peer_clocks(clock_directory())
    if as_json:
        print_json(found)
        return
    if not found["peers"]:
        messages.print("the agent knows no peer's clock yet")
    for row in found["peers"]:
        if "why" in row:
            console.print(f"{row['peer']}: unknown: {row['why']}", markup=False)
        else:
            offset, bound = (format_ns(round(row[name])) for name in ("offset_ns", "bound_ns"))
            console.print(
                f"{row['peer']}: {offset} from this host's clock, ± {bound}", markup=False
            )
