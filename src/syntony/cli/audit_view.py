"""Verdicts on a terminal: the tree with counts, what is wrong, the table of ports."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from syntony.audit.report.ports import HEADINGS, port_rows
from syntony.audit.report.summary import ORDER, host_of, tree, worst_first
from syntony.audit.result import Result, Status
from syntony.cli.output import console

if TYPE_CHECKING:
    from collections.abc import Sequence

_STYLES = {Status.PASS: "green", Status.FAIL: "bold red", Status.WARN: "yellow",
           Status.UNKNOWN: "magenta", Status.SKIP: "dim"}  # fmt: skip
_MARKS = {Status.PASS: "✓", Status.FAIL: "✗", Status.WARN: "!", Status.UNKNOWN: "?",
          Status.SKIP: "–"}  # fmt: skip
_NAMED = 6
"""Hosts of a group that are shown by name."""
_FEW = 8
"""Verdicts of one host shown below a section unless all are asked for."""


def show(results: Sequence[Result], *, everything: bool = False) -> None:
    """The whole of it.

    Args:
        everything: each verdict, also what passes and what had nothing to be compared with.
    """
    hosts = {host_of(result) for result in results}
    top = Tree(Text.assemble(f"{len(hosts)} hosts  " if len(hosts) > 1 else "", _counts(results)))
    for node in tree(results):
        twig = top.add(Text.assemble(f"{node.section.title}  ", _counts(node.results)))
        by_host: defaultdict[str, list[Result]] = defaultdict(list)
        for result in node.results:
            if everything or _worth_telling(result):
                by_host[host_of(result)].append(result)
        for alike, said in _alike(by_host):
            _add_hosts(twig, alike, said, everything=everything)
    console.print(top)
    rows = port_rows(results)
    if rows:
        console.print(_ports(results))
    undecided = sum(_undecided(result) for result in results)
    if undecided and not everything:
        console.print(
            f"{undecided} values have nothing to be compared with: give --spec or --golden, or "
            "audit three hosts or more (see: syntony audit learn)",
            style="dim", soft_wrap=True,
        )  # fmt: skip


def one_line(results: Sequence[Result], *, width: int) -> str:
    """For a program that shows one short line: the worst verdict first."""
    bad = [each for each in worst_first(results) if each.status in {Status.FAIL, Status.WARN}]
    total = Counter(result.status for result in results)
    counts = ", ".join(f"{total[status]} {status}" for status in ORDER if total[status])
    if not bad:
        return (counts or "nothing was checked")[:width]
    first = bad[0]
    return f"{first.subject} {first.check}: {first.got}; {counts}"[:width]


def _alike(by_host: dict[str, list[Result]]) -> list[tuple[list[str], list[Result]]]:
    """Hosts of which the same is said are shown once, fewest first: what is odd stands on top."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for host, said in sorted(by_host.items()):
        groups.setdefault(tuple(_line(each).plain for each in worst_first(said)), []).append(host)
    return [(hosts, by_host[hosts[0]]) for hosts in sorted(groups.values(), key=len)]


def _add_hosts(twig: Tree, hosts: list[str], said: list[Result], *, everything: bool) -> None:
    named = ", ".join(hosts[:_NAMED]) + (" …" if len(hosts) > _NAMED else "")
    several = f" ({len(hosts)} hosts, each)" if len(hosts) > 1 else ""
    branch = twig.add(Text.assemble(f"{named}{several}  ", _counts(said)))
    shown = worst_first(said)
    for result in shown if everything else shown[:_FEW]:
        branch.add(_line(result))
    if not everything and len(shown) > _FEW:
        branch.add(Text(f"… and {len(shown) - _FEW} more (--all)", style="dim"))


def _line(result: Result) -> Text:
    text = Text()
    text.append(f"{_MARKS[result.status]} ", style=_STYLES[result.status])
    at = result.subject.partition("/")[2]
    text.append(f"{result.check} ")
    text.append(f"{at} " if at else "", style="bold")
    if result.got:
        text.append(result.got[:120])
        text.append(f" (expected {result.expected[:80]})" if result.expected else "", style="dim")
    if result.status in {Status.UNKNOWN, Status.SKIP} or not result.got:
        text.append(f" {result.evidence[:160]}", style="dim")
    if result.remedy:
        text.append(f" → {result.remedy}", style="cyan")
    return text


def _counts(results: Sequence[Result]) -> Text:
    total = Counter(result.status for result in results)
    text = Text()
    for status in ORDER:
        if total[status]:
            text.append(f"{total[status]} {status}  ", style=_STYLES[status])
    return text


def _ports(results: Sequence[Result]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in HEADINGS:
        table.add_column(heading)
    for row in port_rows(results):
        table.add_row(*(_cell(text) for text in row.cells()))
    return table


def _cell(text: str) -> Text:
    word = text.rpartition(" ")[2]
    known = [status for status in Status if str(status) == word]
    return Text(text, style=_STYLES[known[0]] if known else "")


def _worth_telling(result: Result) -> bool:
    return result.status not in {Status.PASS, Status.SKIP} and not _undecided(result)


def _undecided(result: Result) -> bool:
    return result.status is Status.UNKNOWN and "undecided:" in result.evidence
