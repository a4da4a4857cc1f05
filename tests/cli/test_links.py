"""`syntony links show` on a host of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.cli import run


def test_an_unknown_verdict_without_compute_ports_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sys/class/net/eth0").mkdir(parents=True)
    assert run(["links", "show", "--all", "--root", str(tmp_path)]) == 3
    said = capsys.readouterr().out
    assert "eth0" in said
    assert "no compute port: no NIC here has an RDMA device" in said
