"""`syntony links show` on a host of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.cli import run
from syntony.wire.links import LinkHistory


def test_an_unknown_verdict_without_compute_ports_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sys/class/net/eth0").mkdir(parents=True)
    assert run(["links", "show", "--all", "--root", str(tmp_path)]) == 3
    said = capsys.readouterr().out
    assert "eth0" in said
    assert "no compute port: no NIC here has an RDMA device" in said
    assert run(["links", "show", "--root", str(tmp_path)]) == 3
    assert "virtual ports that are not shown: 1 (--all)" in capsys.readouterr().err


def test_a_watch_says_that_it_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_s: float) -> None:
        raise KeyboardInterrupt

    nothing = LinkHistory(events=(), counters=(), now_ns=0)
    monkeypatch.setattr("syntony.cli.links.ask", lambda *_, **__: nothing)
    monkeypatch.setattr("syntony.cli.links.time.sleep", interrupted)
    assert run(["links", "watch", "--controller", "unix:x"]) == 130
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[0] == "waiting for events of ports; Ctrl-C ends it"
