"""Shows verdicts on a terminal: the tree with counts, failures, the table of ports."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from syntony.audit.check import Section
from syntony.audit.registry import every_check, fleet_checks
from syntony.audit.report.ports import HEADINGS, PortRow, port_rows
from syntony.audit.report.summary import ORDER, subject_host, worst_first
from syntony.audit.result import Result, Status
from syntony.cli.output import console
from syntony.model.names import natural
from syntony.view import lazy_rich
from syntony.view.tables import plain_table

_STYLES = {Status.PASS: "green", Status.FAIL: "bold red", Status.WARN: "yellow",
           Status.UNKNOWN: "magenta", Status.NOT_COMPARED: "dim", Status.SKIP: "dim"}  # fmt: skip
_MARKS = {Status.PASS: "✓", Status.FAIL: "✗", Status.WARN: "!", Status.UNKNOWN: "?",
          Status.NOT_COMPARED: "=", Status.SKIP: "–"}  # fmt: skip
_QUIET = frozenset({Status.PASS, Status.NOT_COMPARED, Status.SKIP})
"""Verdicts that are not shown unless all are asked for."""
_NAMED = 6
"""Hosts of a group that are shown by name."""
_FEW = 8
"""Verdicts of one host shown below a section unless all are asked for."""


class _Reported:
    """The verdicts to show, gathered in one pass; passed ones are only counted."""

    def __init__(self, results: Iterable[Result], *, everything: bool) -> None:
        sections = {check.id: check.section for check in every_check()}
        self.counts: Counter[Status] = Counter()
        self.by_section: defaultdict[Section, Counter[Status]] = defaultdict(Counter)
        self.shown: defaultdict[Section, defaultdict[str, list[Result]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self.hosts: set[str] = set()
        self.failures: list[Result] = []
        self.idle: dict[Section, str] = {}
        """A reason why something of a section was skipped."""
        self.ports: list[PortRow] = port_rows(self._pass(results, sections, everything=everything))

    def _pass(
        self, results: Iterable[Result], sections: dict[str, Section], *, everything: bool
    ) -> Iterator[Result]:
        fleet_ids = {check.id for check in fleet_checks()}
        for result in results:
            section = sections.get(result.check, Section.NODE)
            host = subject_host(result)
            if result.check not in fleet_ids:
                self.hosts.add(host)
            self.counts[result.status] += 1
            self.by_section[section][result.status] += 1
            if result.status is Status.SKIP:
                self.idle.setdefault(section, result.evidence)
            if result.status is Status.FAIL:
                self.failures.append(result)
            if everything or result.status not in _QUIET:
                self.shown[section][host].append(result)
            yield result


def show(results: Iterable[Result], *, everything: bool = False) -> None:
    """Show all verdicts.

    Args:
        results: read once. everything: show also verdicts that pass or had nothing to compare with.
    """
    reported = _Reported(results, everything=everything)
    several = f"{len(reported.hosts)} hosts  " if len(reported.hosts) > 1 else ""
    top = lazy_rich.Tree(lazy_rich.Text.assemble(several, _counted(reported.counts)))
    for section in Section:
        if section not in reported.by_section:
            continue
        why = reported.idle[section] if set(reported.by_section[section]) == {Status.SKIP} else ""
        counted = _counted(reported.by_section[section])
        twig = top.add(lazy_rich.Text.assemble(f"{section.title}  ", counted, (why, "dim")))
        for alike, said in _alike(reported.shown[section]):
            _add_hosts(twig, alike, said, everything=everything)
    console.print(top)
    if reported.ports:
        console.print(_ports(reported.ports))
    if len(reported.failures) > 1:
        console.print(_worst(reported.failures))
    alone = reported.counts[Status.NOT_COMPARED]
    if alone and not everything:
        console.print(
            f"{alone} values have nothing to be compared with: give --spec or --golden, or audit "
            "three hosts or more (see: syntony audit learn)",
            style="dim", soft_wrap=True,
        )  # fmt: skip


def one_line(results: Iterable[Result], *, width: int) -> str:
    """For a program that shows one short line: the worst verdict first."""
    total: Counter[Status] = Counter()
    first: Result | None = None
    for result in results:
        total[result.status] += 1
        if result.status in {Status.FAIL, Status.WARN}:
            first = min(first or result, result, key=lambda each: ORDER.index(each.status))
    counts = ", ".join(f"{total[status]} {status}" for status in ORDER if total[status])
    if first is None:
        return (counts or "nothing was checked")[:width]
    return f"{first.subject} {first.check}: {first.got}; {counts}"[:width]


def _worst(failures: list[Result]) -> lazy_rich.Text:
    """All failures in a few lines, at the end of the screen below a tree of many hosts."""
    text = lazy_rich.Text(f"{len(failures)} failures\n", style="bold")
    by_kind: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for each in failures:
        by_kind[each.check, f"{each.suspect}"].append(each.subject)
    for (check, suspect), subjects in sorted(by_kind.items(), key=lambda item: len(item[1])):
        named = ", ".join(sorted(subjects, key=natural)[:_NAMED])
        more = f" and {len(subjects) - _NAMED} more" if len(subjects) > _NAMED else ""
        text.append("✗ ", style=_STYLES[Status.FAIL])
        text.append(f"{check} ")
        text.append(named + more, style="bold")
        text.append(f"  suspect: {suspect}\n" if suspect else "\n", style="dim")
    return text


def _alike(by_host: dict[str, list[Result]]) -> list[tuple[list[str], list[Result]]]:
    """Group hosts with equal verdicts, smallest group first: outliers come on top."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for host, said in sorted(by_host.items()):
        # A host's own name in its verdicts does not count as a difference.
        alike = tuple(_line(each).plain.replace(host, "*") for each in worst_first(said))
        groups.setdefault(alike, []).append(host)
    return [(hosts, by_host[hosts[0]]) for hosts in sorted(groups.values(), key=len)]


def _add_hosts(
    twig: lazy_rich.Tree, hosts: list[str], said: list[Result], *, everything: bool
) -> None:
    named = ", ".join(hosts[:_NAMED]) + (" …" if len(hosts) > _NAMED else "")
    several = f" ({len(hosts)} hosts, each)" if len(hosts) > 1 else ""
    branch = twig.add(
        lazy_rich.Text.assemble(
            f"{named}{several}  ", _counted(Counter(each.status for each in said))
        )
    )
    shown = worst_first(said)
    for result in shown if everything else shown[:_FEW]:
        branch.add(_line(result))
    if not everything and len(shown) > _FEW:
        branch.add(lazy_rich.Text(f"… and {len(shown) - _FEW} more (--all)", style="dim"))


def _line(result: Result) -> lazy_rich.Text:
    text = lazy_rich.Text()
    text.append(f"{_MARKS[result.status]} ", style=_STYLES[result.status])
    at = result.subject.partition("/")[2]
    text.append(f"{result.check} ")
    text.append(f"{at} " if at else "", style="bold")
    if result.got:
        text.append(result.got)
        text.append(f" (expected {result.expected})" if result.expected else "", style="dim")
    if result.status is not Status.PASS or not result.got:
        text.append(f" {result.evidence}", style="dim")
    if result.remedy:
        text.append(f" → {result.remedy}", style="cyan")
    return text


def _counted(total: Counter[Status]) -> lazy_rich.Text:
    text = lazy_rich.Text()
    for status in ORDER:
        if total[status]:
            text.append(f"{total[status]} {status}  ", style=_STYLES[status])
    return text


def _ports(rows: Iterable[PortRow]) -> lazy_rich.Table:
    table = plain_table(*HEADINGS)
    for row in rows:
        table.add_row(*(_cell(text) for text in row.cells()))
    return table


def _cell(text: str) -> lazy_rich.Text:
    word = text.rpartition(" ")[2]
    known = [status for status in Status if str(status) == word]
    return lazy_rich.Text(text, style=_STYLES[known[0]] if known else "")
