"""`syntony record`: writes a job's recording as a bundle."""

from __future__ import annotations

from pathlib import Path

import click

from syntony.cli._recording import fetch, window_ns_option
from syntony.cli.fleet import FleetTarget, fleet_options
from syntony.cli.output import console, print_json
from syntony.errors import UsageError


@click.command()
@click.argument("job")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A new directory.")
@window_ns_option()
@fleet_options
def command(target: FleetTarget, job: str, out: Path, window_ns: int, as_json: bool) -> None:
    """Write the fleet's recording of JOB into a directory that `syntony diagnose` reads.

    \b
    Example:
      syntony record train-7 --window 10m --out ./bundle
      syntony diagnose ./bundle
    """
    from syntony.io.bundle_files import write_bundle

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists and is not an empty directory")
    found = fetch(target, job, window_ns)
    try:
        write_bundle(out, found.tables, found.manifest | {"notes": found.notes})
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror or error}") from error
    rows = {name: table.num_rows for name, table in found.tables.items()}
    if as_json:
        print_json({"bundle": str(out), "rows": rows})
        return
    for name, count in rows.items():
        console.print(f"{name:<12} {count:>9,} rows")
