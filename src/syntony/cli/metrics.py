"""`syntony metrics`: what agents and the controller export to Prometheus."""

from __future__ import annotations

import click

from syntony.cli.lazy import HelpGroup
from syntony.cli.output import console, json_option, print_json
from syntony.metrics.table import GROUPS, Metric
from syntony.view.tables import plain_table


def markdown() -> str:
    """One table a group."""
    return "\n".join(_group(name, metrics) for name, metrics in GROUPS)


def _group(name: str, metrics: tuple[Metric, ...]) -> str:
    head = f"## {name}\n\n| Metric | Kind | Labels | Meaning | Of |\n|---|---|---|---|---|\n"
    return head + "".join(map(_row, metrics))


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return (
        f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.meaning} | {metric.role} |\n"
    )


@click.group(cls=HelpGroup)
def command() -> None:
    """Metrics that Prometheus can scrape.

    \b
    Example:
      syntony metrics list --json
    """


@command.command("list")
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the tables of docs/reference.")
def list_(as_json: bool, as_markdown: bool) -> None:
    """List every metric: name, kind, labels, meaning, exporter.

    \b
    Example (what a lab's daemons export is scraped as `syntony lab scrape` says):
      syntony metrics list
    """
    if as_markdown:
        click.echo(markdown(), nl=False)
        return
    if as_json:
        print_json([_plain(group, metric) for group, metrics in GROUPS for metric in metrics])
        return
    table = plain_table("metric", "kind", "labels", "meaning")
    for _, metrics in GROUPS:
        for metric in metrics:
            table.add_row(metric.full_name, metric.kind, ", ".join(metric.labels), metric.meaning)
    console.print(table)


def _plain(group: str, metric: Metric) -> dict[str, object]:
    return {
        "name": metric.full_name,
        "kind": metric.kind,
        "labels": list(metric.labels),
        "meaning": metric.meaning,
        "exported_by": metric.role.value.split(", "),
        "group": group,
    }
