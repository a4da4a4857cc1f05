"""Which peers of jobs' flows an agent reports on."""

from __future__ import annotations

from pathlib import Path

from tests.agent.halves import config

from syntony.agent.job_paths import JobPaths
from syntony.agent.reactor.messages import ReactorUpdate
from syntony.model import S
from syntony.model.paths import FourTuple
from syntony.traffic.flows import ReportedFlow
from syntony.wire.traffic import Paces


def flow(remote: str, port: int, *, process: int = 0, tx_bps: int = 10**7) -> ReportedFlow:
    return ReportedFlow(
        job="train", token=0, nic="rail0", flow=FourTuple("10.0.0.1", port, remote, port),
        dialled=True, movable=False, moving=False, tx_bps=tx_bps, rx_bps=0, windows=3,
        process=process,
    )  # fmt: skip


def test_rates_that_come_too_late_are_refused_and_reported(tmp_path: Path) -> None:
    paths = JobPaths(config(tmp_path), lambda _order: "")

    def reported() -> int:
        report = paths.report(lambda *_: (), 100 * S, (), stopped=False)
        return report.late_paces

    rates = Paces(paces=(), expires_ns=100 * S)
    try:
        for fleet_ns, late in ((None, 0), (100 * S - 1, 0), (100 * S, 1), (103 * S, 2)):
            paths.paces(rates, fleet_ns, stopped=False)
            assert reported() == late
    finally:
        paths.close()


def test_delays_are_reported_to_peers_of_queue_pairs_as_well(tmp_path: Path) -> None:
    """Without them the controller would not know that queue pairs wait: nothing else is probed for
    a job that has no large TCP flow."""
    paths = JobPaths(config(tmp_path), lambda _order: "")
    try:
        flows = (
            flow("10.0.0.2", 5),
            flow("10.0.0.3", 0, process=77),
            flow("10.0.0.4", 6, tx_bps=1),  # of many for control: not traced
        )
        paths.take(ReactorUpdate(pending=0, probing=0, outcome="", has_flows=True, flows=flows))
        assert paths.remotes() == {"10.0.0.2", "10.0.0.3"}
        assert [four.remote for _, four in paths.in_use()] == ["10.0.0.2"], "ports are not known"
    finally:
        paths.close()
