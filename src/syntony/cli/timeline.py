"""`syntony timeline`: converts a bundle to a trace for ui.perfetto.dev."""

from __future__ import annotations

from pathlib import Path

import click

from syntony.cli.diagnose import open_bundle, print_gaps
from syntony.cli.output import messages
from syntony.errors import UsageError
from syntony.view import lazy_rich


@click.command()
@click.argument("bundle", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path),
              help="File to write, for example trace.json.")  # fmt: skip
def command(bundle: Path, out: Path) -> None:
    """Write BUNDLE as a trace for ui.perfetto.dev: all ranks on one clock.

    Collectives and steps become slices by host and rank, delays of flows counters, verdicts
    instants. BUNDLE is a directory as `syntony diagnose` reads it. The 200 flows with the highest
    delays have a counter. What the bundle lacks is printed on stderr. An existing file is replaced;
    a name that ends in .gz is compressed.

    Exit status: 0 written; 2 no bundle, a broken one, or the file cannot be written.

    \b
    Example:
      syntony timeline ./bundle --out trace.json
    """
    from syntony.io.files import write_output
    from syntony.workload import diagnose
    from syntony.workload.bundle import OWN_CLOCKS
    from syntony.workload.timeline import compressed, encoded, trace

    loaded = open_bundle(bundle)
    result = diagnose(loaded)
    print_gaps(result.gaps)
    if loaded.manifest.timeline == OWN_CLOCKS:
        messages.print("[yellow]note:[/] each host is on its own clock: hosts cannot be compared")
    made = trace(loaded, result.verdicts)
    pieces = encoded(made)
    if out.suffix == ".gz":
        pieces = compressed(pieces)
    try:
        write_output(out, pieces)
    except OSError as error:
        raise UsageError(f"{out} cannot be written ({error.strerror})") from error
    left_out = made.about["flows_left_out"]
    if left_out:
        messages.print(f"[yellow]note:[/] {left_out:,} flows of lower delay have no counter")
    messages.print(f"{lazy_rich.escape(str(out))}: open it in https://ui.perfetto.dev")
