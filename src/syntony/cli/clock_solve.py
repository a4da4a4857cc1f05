"""`syntony clock solve`: computes clocks from a file of probes with the daemons' code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from syntony.cli.output import console, json_option, messages, print_json, shown_ns
from syntony.cli.parquet import as_arrays, read_parquet
from syntony.clock.offline import WindowResult, solve_probes
from syntony.clock.probe_file import check_probes
from syntony.io.window_fit import fit_window
from syntony.model import ClockState, parse_duration_ns
from syntony.view import lazy_rich
from syntony.view.tables import plain_table

COLUMNS = ("src", "dst", "t_tx_ns", "t_rx_ns", "pair", "path")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--reference", metavar="NODE", help="Clock to use as fleet time.")
@click.option("--window", default="2s", metavar="TIME", help="Length of one window.")
@click.option("--series", is_flag=True, help="Print every window, not only the last.")
@json_option
@click.pass_context
def solve(  # noqa: PLR0917 - click passes its parameters by name
    context: click.Context,
    file: Path,
    reference: str | None,
    window: str,
    series: bool,
    as_json: bool,
) -> None:
    """Compute offset, drift and bound of every clock in FILE, a Parquet file of probes.

    Columns: src, dst, t_tx_ns (src's clock), t_rx_ns (dst's clock); optional pair, path.
    Exit status: 0 all synchronized, 1 some not or on several islands, 3 some unknown.

    \b
    Example:
      syntony clock solve probes.parquet --reference h0 --json
    """
    probes = check_probes(as_arrays(read_parquet(file, COLUMNS)))
    window_ns = parse_duration_ns(window)
    hidden = not messages.is_terminal
    with lazy_rich.Progress(console=messages.rich, transient=True, disable=hidden) as bar:
        task = bar.add_task("solving", total=None)
        results = solve_probes(
            probes,
            window_ns=window_ns,
            reference=reference,
            progress=lambda done, of: bar.update(task, completed=done, total=of),
            fit=fit_window,
        )
    shown = results if series else results[-1:]
    if as_json:
        print_json(_document(shown, series, probes.duplicates))
    else:
        for result in shown:
            console.print(_table(result))
        _print_notes(results[-1], probes.duplicates)
    context.exit(_exit_code(results[-1]))


def _print_notes(result: WindowResult, duplicates: int) -> None:
    if duplicates:
        messages.print(f"{duplicates:,} repeated rows were dropped", style="dim")
    islands = _islands(result)
    if len(islands) > 1:
        messages.print(
            f"{len(islands)} islands ({', '.join(islands)}): offsets of different islands cannot be"
            " compared; --reference NODE says which one counts",
            style="yellow",
        )


def _islands(result: WindowResult) -> list[str]:
    return sorted({node.component for node in result.nodes} - {""})


def _document(shown: tuple[WindowResult, ...], series: bool, duplicates: int) -> Any:
    if series:
        return {"windows": shown, "duplicates": duplicates}
    return {**msgspec.to_builtins(shown[0]), "duplicates": duplicates}


def _table(result: WindowResult) -> lazy_rich.Table:
    known = any(node.offset_ns is not None for node in result.nodes)
    title = f"at {result.ref_ns}" if known else "nothing can be said"
    several = len(_islands(result)) > 1
    island = ("island",) if several else ()
    headings = ("clock", "state", ">offset", ">drift ppb", ">1-sigma", ">bound", *island, "reason")
    table = plain_table(*headings)
    table.title = title
    for node in result.nodes:
        table.add_row(
            node.node,
            node.state,
            shown_ns(node.offset_ns),
            "" if node.drift_ppb is None else f"{node.drift_ppb:.1f}",
            shown_ns(node.sigma_ns),
            shown_ns(node.bound_ns),
            *((node.component,) if several else ()),
            node.reason,
        )
    return table


def _exit_code(result: WindowResult) -> int:
    states = {node.state for node in result.nodes}
    if ClockState.UNKNOWN in states:
        return 3
    return int(states != {ClockState.SYNCHRONIZED} or len(_islands(result)) > 1)
