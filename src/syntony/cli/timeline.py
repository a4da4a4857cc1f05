"""`syntony timeline`: a bundle as a trace that ui.perfetto.dev opens."""

from __future__ import annotations

from pathlib import Path

import click

from syntony.cli.diagnose import open_bundle
from syntony.cli.output import messages


@click.command()
@click.argument("bundle", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path),
              help="File to write, for example trace.json.")  # fmt: skip
def command(bundle: Path, out: Path) -> None:
    """Write BUNDLE as a trace for ui.perfetto.dev: all ranks on one clock.

    Collectives and steps are slices by host and rank, delays of flows counters, verdicts instants.
    BUNDLE is what `syntony diagnose` reads.

    \b
    Example:
      syntony timeline ./bundle --out trace.json
    """
    import msgspec

    from syntony.workload import diagnose
    from syntony.workload.timeline import trace

    loaded = open_bundle(bundle)
    made = trace(loaded, diagnose(loaded).verdicts)
    try:
        out.write_bytes(msgspec.json.encode(made))
    except OSError as error:
        raise click.ClickException(f"{out} cannot be written ({error.strerror})") from error
    messages.print(f"{out}: {len(made.trace_events):,} events; open it in https://ui.perfetto.dev")
