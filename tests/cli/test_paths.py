"""What `syntony paths` prints of processes, whatever they call themselves."""

from __future__ import annotations

import pytest

from syntony.cli import paths, run
from syntony.model import MS
from syntony.wire.failover import (
    FleetConnections,
    HostPaths,
    PathsReport,
    ProcessFlowView,
    ProcessView,
)


def flow(number: int, **changed: object) -> ProcessFlowView:
    reported = {
        "mechanism": "rdma", "number": number, "nic": "mlx5_0", "local": "[fe80::1]:49152",
        "remote": "10.0.0.2", "bytes_done": 2_500_000, "bytes_outstanding": 0, "outstanding": 3,
        "idle_ns": 2 * MS, "errors": 0, "last_error": 0, "failed": False,
    }  # fmt: skip
    return ProcessFlowView(**reported | changed)  # type: ignore[arg-type]


def test_processes_and_their_flows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    many = tuple(map(flow, range(9)))
    processes = (
        ProcessView(job="a", program="[/red]x", pid=1, uid=0, age_ns=0, flows=many, left_out=5),
        ProcessView(job="b", program="y", pid=2, uid=0, age_ns=0, flows=(), malformed=4),
        ProcessView(
            job="c", program="z", pid=3, uid=0, age_ns=0,
            flows=(flow(77, failed=True, last_error=12), flow(78, idle_ns=-1)),
        ),
    )  # fmt: skip
    report = PathsReport(
        mode="act", stopped=False, connections=(), processes=processes, refused={"no-job": 2}
    )
    answer = FleetConnections(hosts=(HostPaths(host="h0", age_ns=0, report=report),))
    monkeypatch.setattr(paths, "ask", lambda *_, **__: answer)
    assert run(["paths", "--controller", "unix:/nowhere"]) == 0
    said = capsys.readouterr()
    lines = [line.split() for line in said.out.splitlines()]
    assert len(lines) == 1 + 8 + 1 + 2
    words = "h0 a [/red]x[1] rdma 0 mlx5_0 [fe80::1]:49152 > 10.0.0.2 2.5 MB 3 2 ms"
    assert " ".join(lines[1]) == words
    assert lines[9] == ["h0", "b", "y[2]", "none"]
    assert lines[10][-3:] == ["3", "failed", "(12)"]
    assert lines[11][-1] == "3"
    assert said.err.splitlines() == [
        "h0: [/red]x[1] 6 more flows are not shown",
        "h0: y[2] 4 malformed flows",
        "h0: 2 processes may not connect: no-job",
    ]
