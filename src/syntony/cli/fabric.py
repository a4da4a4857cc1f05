"""`syntony fabric`: the fabric's parts, the paths through it, and the faulty parts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from syntony.cli.fleet import FleetTarget, ask, fleet_options, window_option
from syntony.cli.lazy import LazyGroup
from syntony.cli.name_checks import check_nics
from syntony.cli.output import console, json_option, messages, print_json
from syntony.model import parse_duration_ns
from syntony.view import lazy_rich
from syntony.view.tables import plain_table
from syntony.wire.fabric import (
    FabricChange,
    FabricChangesQuery,
    FindingsQuery,
    LearntPath,
    PathsQuery,
)

MAX_LOSING = 4
"""NICs that are named where packets are lost."""
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FORM = click.option(
    "--form",
    default="",
    show_default=False,
    help="toml, json, dot, lldp or ibnetdiscover. [default: detected]",
)


_ELSEWHERE = {
    "locate": (
        "fabric_locate:locate",
        "Name the components that lose or delay packets; an empty list if nothing is wrong.",
    ),
}


@click.group(cls=LazyGroup, lazy=_ELSEWHERE)
def command() -> None:
    """The fabric: its parts, the paths through it, and the part at fault.

    \b
    Example:
      syntony fabric show && syntony fabric paths h0/rail0 h7/rail0
    """


@command.command()
@fleet_options
@click.pass_context
def show(context: click.Context, target: FleetTarget, as_json: bool) -> None:
    """Show the parts that the controller currently finds at fault.

    Exit status: 0 none, 2 a part is at fault, or packets are lost at one that is not named yet,
    3 nothing was measured yet.

    \b
    Example:
      syntony fabric show --json
    """
    answer = ask(target, FindingsQuery(), until=lambda answer: answer.ts_ns > 0)
    if as_json:
        print_json(answer)
    else:
        from syntony.cli.fabric_locate import show_findings

        show_findings(answer.findings)
        if answer.unexplained:
            console.print(
                f"{answer.unexplained:.0f} lost probes of the last {answer.unexplained_window} "
                "have no cause yet: the search reached the limit of its work"
            )
        if losing := answer.losing:
            console.print(
                f"{losing.lost} probes lost on {losing.paths} paths within 2 s, most at "
                f"{', '.join(losing.nics[:MAX_LOSING])}: the cause is not named yet"
            )
        if answer.unexplained_late:
            console.print(
                f"the delays of {answer.unexplained_late} paths have no cause yet: the search "
                "reached the limit of its work"
            )
    context.exit(3 if not answer.ts_ns else 2 if answer.findings or answer.losing else 0)


@command.command()
@click.argument("src", required=False, default="")
@click.argument("dst", required=False, default="")
@click.option(
    "--parquet", type=click.Path(path_type=Path), help="Write PATHS, which `locate` reads."
)
@fleet_options
def paths(src: str, dst: str, parquet: Path | None, target: FleetTarget, as_json: bool) -> None:
    """List the traced path of every probe flow and of its replies; `..` is an unknown hop.

    \b
    Example:
      syntony fabric paths h0/rail0 h7/rail0
    """
    answer = ask(target, PathsQuery(), until=lambda answer: bool(answer.paths))
    chosen = [path for path in answer.paths if src in {"", path.src} and dst in {"", path.dst}]
    if not chosen:
        check_nics(target, src, dst)
    if parquet is not None:
        _write_paths(chosen, parquet)
    elif as_json:
        print_json(chosen)
    else:
        for path in chosen:
            devices = [name for name in path.components if "->" not in name]
            console.print(f"{path.path_id}: {' → '.join(devices)}", soft_wrap=True)
        if not chosen:
            messages.print(
                "no such path is traced yet: tracing takes half a minute after the start, on a "
                "busy machine minutes; `syntony probe plan` lists the pairs that are probed"
            )


@command.command()
@window_option("24h", name="since")
@fleet_options
@click.pass_context
def changes(context: click.Context, since: str, target: FleetTarget, as_json: bool) -> None:
    """List changes of the fabric seen in traced paths: cables lost and found, NICs moved, paths
    that go another way.

    Exit status: 0 nothing, 1 something.

    \b
    Example:
      syntony lab fault link-down leaf0-0/spine0; sleep 90; syntony fabric changes --since 10min
    """

    query = FabricChangesQuery(window_ns=parse_duration_ns(since))
    answer = ask(target, query)
    if as_json:
        print_json(answer.changes)
    elif answer.changes:
        console.print(_change_table(answer.changes))
    else:
        console.print(f"nothing changed in {since}")
    context.exit(1 if answer.changes else 0)


def _change_table(found: tuple[FabricChange, ...]) -> lazy_rich.Table:
    from syntony.alerts.render import instant

    table = plain_table("when", "change", "what", "name", "detail")
    for each in found:
        table.add_row(instant(each.ts_ns), each.change, each.what, each.name, each.detail)
    return table


def _write_paths(chosen: list[LearntPath], file: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table(
        {
            "path_id": [path.path_id for path in chosen],
            "components": [list(path.components) for path in chosen],
        }
    )
    parquet.write_table(table, file)


@command.command(name="import")
@click.argument("file", type=_FILE)
@_FORM
@click.option(
    "--json", "as_json", is_flag=True, help="Print the topology in the format of a topology file."
)
def import_(file: Path, form: str, as_json: bool) -> None:
    """Read and check a topology: TOML, JSON, dot, `lldpctl -f json` or `ibnetdiscover`.

    With --json it is printed in the format of a controller's `topology` file.

    \b
    Example:
      ibnetdiscover > fabric.txt; syntony fabric import fabric.txt --json > topology.json
    """
    from syntony.fabric.files import format_topology
    from syntony.io.operator_files import load_topology

    topology = load_topology(file, form)
    if as_json:
        click.echo(format_topology(topology))
        return
    kinds = Counter(device.kind.value for device in topology.devices)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    console.print(f"{len(topology.devices)} devices ({counts}), {len(topology.cables)} cables")


@command.command()
@click.argument("before", type=_FILE)
@click.argument("after", type=_FILE)
@_FORM
@json_option
@click.pass_context
def diff(context: click.Context, before: Path, after: Path, form: str, as_json: bool) -> None:
    """Show what was added, removed, moved or changed between two topologies.

    Exit status: 0 nothing, 1 something.

    \b
    Example:
      syntony fabric diff yesterday.txt today.txt
    """
    from syntony.fabric.graph import diff as compare
    from syntony.io.operator_files import load_topology

    changes = compare(load_topology(before, form), load_topology(after, form))
    if as_json:
        print_json(changes)
    else:
        table = lazy_rich.Table(box=None, pad_edge=False, show_header=False)
        for change in changes:
            table.add_row(change.change, change.what, change.name, change.detail)
        console.print(table if changes else "no difference")
    context.exit(1 if changes else 0)
