"""What is printed is what was said: a colon is no emoji, a bracket no colour."""

from __future__ import annotations

import pytest

from syntony.cli import output


def test_foreign_text_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    output.messages.print("root:x:0:0", markup=False)
    output.console.print("h0:warning:1", markup=False)
    shown = capsys.readouterr()
    assert shown.err == "root:x:0:0\n"
    assert shown.out == "h0:warning:1\n"
