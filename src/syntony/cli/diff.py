"""`syntony diff`: what changed between two recorded runs."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.markup import escape

from syntony.cli.diagnose import clean, open_bundle, print_gaps
from syntony.cli.output import console, print_json

SAME, CHANGED, UNLIKE = 0, 1, 3
MOST = 15
"""Changes that are printed; `--json` has all."""


@click.command()
@click.argument("before", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("after", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON: all changes.")
@click.pass_context
def command(context: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Compare two recorded runs of a job, like with like: BEFORE and AFTER are bundles.

    Operations of the same kind, size and ranks, flows between the same NICs, links and hosts of the
    same name; what was set up differently is said.

    Exit status: 0 nothing changed; 1 something did; 2 no bundle, or a broken one; 3 the runs cannot
    be compared.

    \b
    Example:
      syntony diff ./monday ./tuesday
    """
    from syntony.workload.compare import compare, size

    one, other = open_bundle(before), open_bundle(after)
    print_gaps(one.gaps, of=f"{before}: ")
    print_gaps(other.gaps, of=f"{after}: ")
    result = compare(one, other)
    if as_json:
        print_json(msgspec.to_builtins(result))
    else:
        for sentence in result.sentences:
            console.print(escape(clean(sentence)), soft_wrap=True)
        for each in result.changes[:MOST]:
            mark = "[red]worse [/]" if each.worse else "[green]better[/]"
            text = (f"{each.measure} of {each.subject}: {size(each)}"
                    f" ({each.values[1]} and {each.values[0]} values)")  # fmt: skip
            console.print(f"  {mark} {escape(clean(text))}", soft_wrap=True)
        if len(result.changes) > MOST:
            console.print(f"  … and {len(result.changes) - MOST} more (--json)")
    changed = result.changes or result.appeared or result.gone
    context.exit(UNLIKE if not result.comparable else CHANGED if changed else SAME)
