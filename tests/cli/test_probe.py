"""`syntony probe matrix`: of a young lab, and of a store that lags."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from syntony.cli import fleet, probe
from syntony.cli.fleet import FleetTarget
from syntony.model import MS, S
from syntony.wire.probes import Matrix, MatrixCell, MatrixQuery, Plane, Planes, PlanesQuery


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


@pytest.mark.parametrize(("lag_ns", "said"), [(3 * S, False), (12 * S, True)])
@pytest.mark.parametrize("as_json", [False, True])
def test_the_age_of_an_old_matrix_is_said(
    lag_ns: int, said: bool, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[MatrixQuery] = []

    def ask_once(_: object, query: MatrixQuery, *__: object) -> Matrix:
        asked.append(query)
        return Matrix(cells=(cell("h0/rail0", "h1/rail0"),), lag_ns=lag_ns)

    monkeypatch.setattr(fleet, "fleet_target", lambda *_: FleetTarget("unix:x", None))
    monkeypatch.setattr(fleet, "_ask_once", ask_once)
    words = ["matrix", "--window", "5s", *["--json"] * as_json]
    done = CliRunner().invoke(probe.command, words)
    assert done.exit_code == 0, done.output
    assert ("is 12 s old" in " ".join(done.stderr.split())) == said
    assert [(query.newest, query.window_ns) for query in asked] == [(True, 5 * S)]
    assert not as_json or len(json.loads(done.stdout)) == 1


@pytest.mark.parametrize(
    ("end_ns", "said"), [(70 * S, ["both"]), (0, ["udp", "verbs"])], ids=["now", "before"]
)
def test_planes_are_shown_for_the_window_in_which_they_are_compared(
    end_ns: int, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller of the previous version does not say where that window ends."""
    shown: dict[Plane, MatrixQuery] = {}

    def ask_once(_: object, query: MatrixQuery | PlanesQuery, *__: object) -> Matrix | Planes:
        if isinstance(query, PlanesQuery):
            assert query.newest
            return Planes(disagreements=(), compared=0, end_ns=end_ns)
        shown[query.over] = query
        return Matrix(cells=(cell("h0/rail0", "h1/rail0"),), lag_ns=12 * S)

    monkeypatch.setattr(fleet, "fleet_target", lambda *_: FleetTarget("unix:x", None))
    monkeypatch.setattr(fleet, "_ask_once", ask_once)
    done = CliRunner().invoke(probe.command, ["matrix", "--over", "both"])
    assert done.exit_code == 0, done.output
    assert {query.end_ns for query in shown.values()} == {end_ns}
    assert [query.newest for query in shown.values()] == [True, True]
    lines = [line for line in done.stderr.splitlines() if "newest stored probe" in line]
    assert lines == [
        f"the newest stored probe over {what} is 12 s old: the window ends there" for what in said
    ]
    assert "no direction was probed over both" in done.stdout
