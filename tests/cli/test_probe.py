"""`syntony probe matrix` of a lab whose agents report one after the other."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from syntony.cli import fleet, probe
from syntony.cli.fleet import FleetTarget
from syntony.model import MS, S
from syntony.wire.probes import Matrix, MatrixCell


def cell(src: str, dst: str) -> MatrixCell:
    return MatrixCell(
        src=src, dst=dst, paths=8, sent=9, lost=0, owd_min_ns=1_000, owd_p50_ns=1_000,
        owd_p99_ns=1_000, clk_err_ns=40, dropped=0,
    )  # fmt: skip


@pytest.mark.parametrize(("startup_ns", "asked"), [(30 * S, 3), (0, 1)])
def test_a_young_lab_is_shown_once_every_host_has_reported(
    startup_ns: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = cell("h0/rail0", "h1/rail0"), cell("h1/rail0", "h0/rail0")
    answers = [Matrix(cells=cells) for cells in ((), (one,), (one, two))][-asked:]
    if not startup_ns:
        answers = [Matrix(cells=(one,))]
    taken: list[Matrix] = []

    def ask_once(*_: object) -> Matrix:
        taken.append(answers[len(taken)])
        return taken[-1]

    target = FleetTarget("unix:x", None, startup_ns, lab="lab")
    monkeypatch.setattr(fleet, "fleet_target", lambda *_: target)
    monkeypatch.setattr(fleet, "_ask_once", ask_once)
    monkeypatch.setattr(fleet, "_RETRY_NS", 1 * MS)
    monkeypatch.setattr(probe, "lab_hosts", lambda _: frozenset({"h0", "h1"}))
    done = CliRunner().invoke(probe.command, ["matrix"])
    assert done.exit_code == 0, done.output
    assert len(taken) == asked
