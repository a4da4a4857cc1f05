"""`syntony audit checks`: prints the table of checks."""

from __future__ import annotations

import click

from syntony.audit.check import Check
from syntony.audit.registry import every_check
from syntony.cli.output import console, json_option, print_json
from syntony.view.tables import plain_table


@click.command()
@json_option
@click.option("--markdown", is_flag=True, help="Print the table of docs/reference.")
def checks(as_json: bool, markdown: bool) -> None:
    """List every check: what it reads and expects, what a failure means, what to do.

    \b
    Example:
      syntony audit checks
    """
    if as_json:
        print_json([_plain(check) for check in every_check()])
    elif markdown:
        click.echo(markdown_table(), nl=False)
    else:
        headings = ("check", "section", "what it is about", "a failure means")
        table = plain_table(*headings, overflow="fold")
        for check in every_check():
            table.add_row(check.id, check.section.title, check.title(), check.meaning)
        console.print(table)


def markdown_table() -> str:
    """The tables of docs/reference/audit-checks.md, one for each section."""
    from itertools import groupby

    lines: list[str] = []
    for section, members in groupby(every_check(), key=lambda check: check.section):
        lines += [f"### {section.title}", ""]
        lines += ["| check | reads | expected | a failure means | do |", "|---|---|---|---|---|"]
        for check in members:
            reads = ", ".join(f"`{each}`" for each in check.reads)
            cells = (f"`{check.id}`", reads, check.rule(), check.meaning, check.remedy)
            lines.append(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |")
        lines.append("")
    return "\n".join(lines)


def _plain(check: type[Check]) -> dict[str, object]:
    import msgspec

    return {
        "check": check.id,
        "section": check.section.title,
        "title": check.title(),
        "expected": check.rule(),
        "reads": list(check.reads),
        "meaning": check.meaning,
        "remedy": check.remedy,
        "suspect": str(check.suspect),
        "active": getattr(check, "active", False),
        "keys": [
            {"key": key.name, "meaning": key.meaning, "compare": key.compare.value,
             "within": key.within, "variant": key.variant}
            for key in check.keys
        ],
        "limits": {
            field.name: msgspec.to_builtins(field.default)
            for field in msgspec.structs.fields(check.Input)
        },
    }  # fmt: skip
