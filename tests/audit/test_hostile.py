"""What hosts say can hold anything; what is printed holds nothing that a terminal or page obeys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.audit.fixture_fleet import judge_all

from syntony.audit.report.documents import junit, markdown, page
from syntony.audit.reported import host_report
from syntony.audit.result import ComparedValue, HostReport, Result, Status, Suspect
from syntony.audit.text import printable
from syntony.cli.audit_view import one_line, show

OSC = "\x1b]0;owned\x07"
CLIPBOARD = "\x1b]52;c;cm0gLXJmIC8=\x1b\\"
HOSTILE = [
    f"gpu{OSC}001", "\x1b[31mred\x1b[0m", f"mlx5_0{CLIPBOARD}", "a\x9b2Jb", "\x9d0;x\x9cafter",
    "safe\u202egnp.exe", "line\nbreak\r\x08", "\x1bPq#0;2;0;0;0\x1b\\x", "\x1b", "tail\x1b]0;open",
    "<script>alert(1)</script>", "[click](javascript:alert(1))", "| cell | `code` ![x](y)",
    "https://evil.example/x", "\udcff", "\x00",
]  # fmt: skip
OWN_TAGS = {
    "!doctype", "html", "head", "meta", "title", "style", "body", "h", "p", "span", "details",
    "summary", "table", "tr", "th", "td", "code", "br", "small",
}  # fmt: skip
WORDS = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=40)).map(
    lambda text: text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
)


def result(text: str) -> Result:
    return Result(check=text, status=Status.FAIL, subject=f"{text}/{text}", expected=text, got=text,
                  evidence=text, meaning=text, remedy=text, suspect=Suspect.CABLE)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    clean = printable(text)
    assert clean.isprintable()
    for payload in ("owned", "cm0gLXJmIC8", "open", "31m", "2J"):
        assert payload not in clean
    assert printable(clean) == clean


def test_the_words_around_it_stay() -> None:
    assert printable(f"gpu{OSC}001") == "gpu001"
    assert printable("\x1b[1;31mNVRM: Xid 79\x1b[0m, fallen\toff") == "NVRM: Xid 79, fallen off"


@given(text=WORDS)
def test_whoever_makes_or_decodes_a_record_can_print_it(text: str) -> None:
    raw = json.dumps({
        "host": text, "taken_ns": 1, "unreachable": text,
        "results": [{"check": text, "status": "fail", "subject": text, "got": text}],
        "readings": [{"check": text, "key": text, "subject": text, "value": text,
                      "variant": text, "evidence": text}],
    }).encode()  # fmt: skip
    report = msgspec.json.decode(raw, type=HostReport)
    made = ComparedValue(check="c", key="k", subject=text, value=text, variant=text)
    said = [report.host, report.unreachable, *_texts(report.results[0]),
            *_texts(report.readings[0]), *_texts(made), *_texts(result(text))]  # fmt: skip
    assert all(each.isprintable() for each in said)
    assert all(r.evidence.isprintable() for r in judge_all([report]))


def test_a_host_that_reports_a_number_beyond_all_others_spoils_no_audit() -> None:
    reading = {"check": "mem.total", "key": "mem.total", "subject": "h0"}
    for value, said in ((2**64 - 1, ""), (10**400, "a number of more than 64 bits")):
        report = {"host": "h0", "taken_ns": 1, "readings": [reading | {"value": value}]}
        asked = host_report("h0", json.dumps(report).encode(), "", 1)
        assert said in asked.unreachable
        assert bool(said) is bool(asked.unreachable)
        assert judge_all([asked])


def _texts(record: Result | ComparedValue) -> list[str]:
    return [str(getattr(record, name)) for name in record.__struct_fields__]


@given(text=WORDS)
def test_documents_hold_nothing_of_the_hosts_own(text: str) -> None:
    results = [result(text)]
    html = page(results, "Fleet audit")
    tags = set(re.findall(r"<\s*/?\s*([a-zA-Z!]+)", html))
    assert tags <= OWN_TAGS
    ET.fromstring(junit(results))  # noqa: S314 - our own
    ticket = markdown(results)
    assert ticket.replace("\n", "").isprintable()
    (row,) = [line for line in ticket.splitlines() if line.startswith("| fail")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 8
    assert not re.search(r"(?<!\\)[<`*\[\]]", row)
    assert not re.search(r"(?<!\\)://", row)


@pytest.mark.parametrize("text", HOSTILE)
def test_the_terminal_gets_none_of_it(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    show([result(text)], everything=True)
    print(one_line([result(text)], width=200))
    out = capsys.readouterr().out
    assert all(letter.isprintable() or letter == "\n" for letter in out)
    assert "owned" not in out


@pytest.mark.parametrize("fill", [lambda text: text, lambda text: f"<6>{text} NVRM: Xid 79"])
def test_names_and_kernel_lines_of_a_tree(
    fill: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from syntony.cli import run

    (tmp_path / "t/etc").mkdir(parents=True)
    (tmp_path / "t/sys").mkdir()
    (tmp_path / "t/proc").mkdir()
    (tmp_path / "t/etc/hostname").write_text(fill("h\x1b]0;owned\x07ost") + "\n")
    (tmp_path / "t/commands").mkdir()
    run(["audit", "run", f"--root={tmp_path / 't'}", "--save", str(tmp_path / "r.jsonl"), "--all"])
    out = capsys.readouterr()
    assert "\x1b" not in out.out + out.err
    assert "owned" not in out.out + out.err
