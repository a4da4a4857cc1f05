"""`syntony fabric show` says which losses and delays have no cause yet."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from syntony.cli import fabric
from syntony.wire.fabric import Findings, Losing

REMOTE = ("--controller", "c:1", "--ca", "a", "--cert", "b", "--key", "c")


@pytest.mark.parametrize(("lost", "said"), [(0.0, False), (1_234.4, True)])
def test_losses_without_a_cause_are_shown_with_their_window(
    monkeypatch: pytest.MonkeyPatch, lost: float, said: bool
) -> None:
    window = "300s" if lost else ""
    answer = Findings(ts_ns=1, findings=(), unexplained=lost, unexplained_window=window)
    monkeypatch.setattr(fabric, "ask", lambda *_words, **_more: answer)
    shown = CliRunner().invoke(fabric.command, ["show", *REMOTE])
    assert shown.exit_code == 0
    words = " ".join(shown.output.split())
    assert ("1234 lost probes of the last 300s have no cause yet" in words) is said


def test_losses_without_a_name_yet_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    nics = tuple(f"h{number}/rail0" for number in range(9))
    answer = Findings(ts_ns=1, findings=(), losing=Losing(lost=21, paths=12, nics=nics))
    monkeypatch.setattr(fabric, "ask", lambda *_words, **_more: answer)
    shown = CliRunner().invoke(fabric.command, ["show", *REMOTE])
    assert shown.exit_code == 2
    words = " ".join(shown.output.split())
    assert "21 probes lost on 12 paths within 2 s, most at h0/rail0, h1/rail0" in words
    assert "h4/rail0" not in words


def test_delays_without_a_cause_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Findings(ts_ns=1, findings=(), unexplained_late=12)
    monkeypatch.setattr(fabric, "ask", lambda *_words, **_more: answer)
    shown = CliRunner().invoke(fabric.command, ["show", *REMOTE])
    words = " ".join(shown.output.split())
    assert "the delays of 12 paths have no cause yet" in words
