"""Verdicts as documents: JUnit for CI, Markdown for a ticket, one page of HTML."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence

from syntony.audit.report.ports import HEADINGS, port_rows
from syntony.audit.report.summary import ORDER, tree, worst_first
from syntony.audit.result import WRONG, Result, Status

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
MAX_TICKET_ROWS = 200


def junit(results: Sequence[Result]) -> str:
    """A test suite for each section: a failure fails, an unknown is an error, a warning passes with
    its words in ``system-out``.
    """
    suites = []
    for node in tree(results):
        counts = node.counts
        skipped = counts[Status.SKIP] + counts[Status.NOT_COMPARED]
        cases = "\n".join(_case(result) for result in node.results)
        suites.append(
            f'  <testsuite name="{_xml(node.section.title)}" tests="{len(node.results)}" '
            f'failures="{counts[Status.FAIL]}" errors="{counts[Status.UNKNOWN]}" '
            f'skipped="{skipped}">\n{cases}\n  </testsuite>'
        )
    body = "\n".join(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n{body}\n</testsuites>\n'


def _case(result: Result) -> str:
    head = f'    <testcase classname="{_xml(result.check)}" name="{_xml(result.subject)}"'
    said = _xml(sentence(result))
    match result.status:
        case Status.FAIL:
            inner = f'<failure message="{said}"/>'
        case Status.UNKNOWN:
            inner = f'<error message="{said}"/>'
        case Status.SKIP | Status.NOT_COMPARED:
            inner = f'<skipped message="{said}"/>'
        case Status.WARN:
            inner = f"<system-out>warning: {said}</system-out>"
        case _:
            return f"{head}/>"
    return f"{head}>{inner}</testcase>"


def sentence(result: Result) -> str:
    """One verdict in a line: what was seen, what was expected, what it means, what to do."""
    parts = []
    if result.got or result.expected:
        parts.append(
            f"got {result.got or 'nothing'}, expected {result.expected or 'nothing known'}"
        )
    if result.meaning:
        parts.append(result.meaning)
    if result.remedy:
        parts.append(f"do: {result.remedy}")
    parts.append(result.evidence)
    return "; ".join(part for part in parts if part)


def markdown(results: Sequence[Result]) -> str:
    """For a ticket: counts, what is wrong, the table of ports."""
    lines = ["## Fleet audit", "", f"| section | {' | '.join(ORDER)} |",
             f"|---|{'---|' * len(ORDER)}"]  # fmt: skip
    for node in tree(results):
        cells = " | ".join(str(node.counts[status]) for status in ORDER)
        lines.append(f"| {node.section.title} | {cells} |")
    bad = [result for result in worst_first(results) if result.status in WRONG]
    if bad:
        lines += ["", "| status | subject | check | got | expected | do | suspect |",
                  "|---|---|---|---|---|---|---|"]  # fmt: skip
    for each in bad[:MAX_TICKET_ROWS]:
        what = each.evidence if each.status is Status.UNKNOWN and not each.got else each.got
        row = (
            each.status,
            each.subject,
            each.check,
            what,
            each.expected,
            each.remedy,
            each.suspect,
        )
        lines.append(f"| {' | '.join(_cell(text) for text in row)} |")
    if len(bad) > MAX_TICKET_ROWS:
        lines.append(f"\n… and {len(bad) - MAX_TICKET_ROWS} more; see the JSON.")
    rows = port_rows(results)
    if rows:
        lines += ["", f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
        lines += [f"| {' | '.join(_cell(text) for text in row.cells())} |" for row in rows]
    return "\n".join(lines) + "\n"


_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;
color:#1a1a1a;background:#fff}
table{border-collapse:collapse;width:100%;margin:.6rem 0 1.4rem}
td,th{text-align:left;vertical-align:top;padding:.25rem .6rem;border-bottom:1px solid #ddd}
th{font-weight:600;color:#555}summary{cursor:pointer;padding:.3rem 0;font-weight:600}
.pass{color:#18794e}.fail{color:#c62a2f;font-weight:600}.warn{color:#ad5700}
.unknown{color:#6e40c9}.skip,.not-compared{color:#777}.n{font-variant-numeric:tabular-nums}
code{background:#f3f3f3;padding:0 .2rem}small{color:#666}
@media(prefers-color-scheme:dark){body{background:#111;color:#eee}td,th{border-color:#333}
th,small{color:#aaa}code{background:#222}.pass{color:#4cc38a}.fail{color:#ff6369}
.warn{color:#ffa94d}.unknown{color:#b794f6}}
"""


def page(results: Sequence[Result], title: str) -> str:
    """One HTML page that needs nothing else: the tree, folded where all is well."""
    total = Counter(result.status for result in results)
    summary = ", ".join(f'<span class="{s}">{total[s]} {s}</span>' for s in ORDER if total[s])
    body = [f"<h1>{html.escape(title)}</h1><p>{summary or 'nothing was checked'}</p>"]
    rows = port_rows(results)
    if rows:
        body.append(_table(HEADINGS, [[_state(text) for text in row.cells()] for row in rows]))
    for node in tree(results):
        counts = ", ".join(f'<span class="{s}">{node.counts[s]} {s}</span>'
                           for s in ORDER if node.counts[s])  # fmt: skip
        opened = " open" if node.counts[Status.FAIL] else ""
        table = _table(_DETAILS, [_detail(result) for result in worst_first(node.results)])
        body.append(
            f"<details{opened}><summary>{html.escape(node.section.title)} — {counts}</summary>"
            f"{table}</details>"
        )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


_WORDS = frozenset(str(status) for status in Status)
_DETAILS = ("status", "subject", "check", "got", "expected", "what to do")


def _detail(result: Result) -> list[str]:
    do = html.escape(result.remedy)
    if result.suspect:
        do += f" <small>(suspect: {html.escape(result.suspect)})</small>"
    got = html.escape(result.got) + f"<br><small>{html.escape(result.evidence)}</small>"
    check = f"<code>{html.escape(result.check)}</code>"
    return [_state(result.status), html.escape(result.subject), check, got,
            html.escape(result.expected), do]  # fmt: skip


def _state(text: str) -> str:
    word = text.rpartition(" ")[2]
    escaped = html.escape(text)
    return f'<span class="{word}">{escaped}</span>' if word in _WORDS else escaped


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


_MARKDOWN = re.compile(r"[\\`*\[\]<>|~]|&(?=[#\w])|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.")
"""What Markdown (GFM) makes more of than text; an underscore within a word is one."""


def _cell(text: str) -> str:
    return _MARKDOWN.sub(lambda mark: f"\\{mark[0]}", " ".join(str(text).split())) or " "


def _xml(text: str) -> str:
    return html.escape(_NO_XML.sub("�", str(text)))
