"""Every act reports, whatever becomes of the others."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from syntony.cli import run
from syntony.cli._console import OutputConsole
from syntony.cli.demo import exit_status
from syntony.demo.claims import ActReport, DemoClaim
from syntony.demo.runner import hold_until_interrupted, play
from syntony.demo.screen import Screen, summary
from syntony.demo.stage import Stage
from syntony.errors import MissingError, RemoteError, StoreError, SyntonyError
from syntony.lab.messages import LabEvent
from syntony.lab.world import World

HELD = DemoClaim(text="it holds", measured="yes", held=True)
BROKEN = DemoClaim(text="it does not", measured="no", held=False)


class FakeLab:
    """Counts how often its faults are cleared; may be gone."""

    def __init__(self, gone: bool) -> None:
        self.cleared, self.gone = 0, gone
        self.crashed: tuple[str, ...] = ()

    def clear(self) -> None:
        self.cleared += 1
        if self.gone:
            raise RemoteError("no lab")

    def crash_reports(self) -> tuple[str, ...]:
        if self.gone:
            raise RemoteError("no lab")
        return self.crashed


def stage(*, gone: bool = False) -> tuple[Stage, FakeLab, io.StringIO]:
    out, lab = io.StringIO(), FakeLab(gone)
    fake = SimpleNamespace(lab=lab, screen=Screen(Console(file=out, width=200)))
    return cast("Stage", fake), lab, out


def raises(error: Exception) -> Callable[[Stage], tuple[DemoClaim, ...]]:
    def act(_stage: Stage) -> tuple[DemoClaim, ...]:
        raise error

    return act


def test_an_act_that_runs_reports_its_claims() -> None:
    on, lab, _ = stage()
    assert play("a", lambda _: (HELD, BROKEN), on) == ActReport(act="a", claims=(HELD, BROKEN))
    assert lab.cleared == 0


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("kind", [MissingError, RemoteError, StoreError])
def test_an_act_that_cannot_run_says_why(kind: type[SyntonyError], gone: bool) -> None:
    on, lab, out = stage(gone=gone)
    report = play("a", raises(kind("paths not learnt")), on)
    assert report == ActReport(act="a", not_run="paths not learnt")
    assert lab.cleared == 1, "its faults must not stay for the next act"
    assert "a ended early: paths not learnt" in out.getvalue()


def test_an_act_without_a_controller_says_what_the_controller_said() -> None:
    on, lab, out = stage()
    lab.crashed = ("controller restarted 4 times, last: it needs scipy",)
    report = play("a", raises(RemoteError("no controller answers")), on)
    assert report.not_run == f"no controller answers; {lab.crashed[0]}"
    assert "it needs scipy" in out.getvalue()


def test_a_defect_in_an_act_is_a_failed_claim() -> None:
    on, lab, _ = stage()
    (claim,) = play("a", raises(ZeroDivisionError("by zero")), on).claims
    assert not claim.held
    assert "ZeroDivisionError: by zero" in claim.measured
    assert lab.cleared == 1


RAN = ActReport(act="a", claims=(HELD, HELD))
FAILED = ActReport(act="b", claims=(HELD, BROKEN))
NOT_RUN = ActReport(act="c", not_run="lab [x] is busy")


@pytest.mark.parametrize(
    ("reports", "status", "title"),
    [
        ([RAN], 0, "2 of 2 claims held, 7 s"),
        ([RAN, NOT_RUN], 0, "2 of 2 claims held, 7 s; 1 of 2 acts could not run"),
        ([NOT_RUN, FAILED, RAN], 2, "3 of 4 claims held, 7 s; 1 of 3 acts could not run"),
        ([NOT_RUN], 3, "0 of 0 claims held, 7 s; 1 of 1 acts could not run"),
    ],
)
def test_the_summary_counts_them_apart(reports: list[ActReport], status: int, title: str) -> None:
    assert exit_status(reports) == status
    out = io.StringIO()
    OutputConsole(file=out).print(summary(reports, 7.2))
    assert title in out.getvalue()
    assert ("c could not run here" in out.getvalue()) == (NOT_RUN in reports)
    assert ("lab [x] is busy" in out.getvalue()) == (NOT_RUN in reports), "shown as it is"


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Names of the acts that would be played; each reports a held claim."""
    played: list[list[str]] = []

    def run_acts(acts: dict[str, Any], _screen: Screen, **_how: object) -> tuple[ActReport, ...]:
        played.append(list(acts))
        return tuple(ActReport(act=name, claims=(HELD,)) for name in acts)

    monkeypatch.setattr("syntony.demo.runner.run_acts", run_acts)
    return played


def test_several_acts_are_played_in_the_order_of_the_story(reported: list[list[str]]) -> None:
    assert run(["demo", "--act", "named-cause, one-clock"]) == 0
    assert reported == [["one-clock", "named-cause"]]


def test_an_unknown_act_is_named(
    reported: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--act", "one-clock,two-clocks"]) == 2
    assert "no act 'two-clocks'" in capsys.readouterr().err
    assert not reported


@pytest.mark.parametrize(
    ("words", "fetched"), [([], 0), (["--no-fetch-torch"], 0), (["--fetch-torch"], 1)]
)
def test_nothing_is_fetched_unasked(
    words: list[str],
    fetched: int,
    reported: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    calls = []

    def fetch(_say: object) -> None:
        calls.append(1)
        raise MissingError("PyTorch cannot be installed: no network")

    monkeypatch.setattr("syntony.lab.jobs.torch_build.fetch_torch", fetch)
    assert run(["demo", "--act", "nobody-noticed", *words]) == 0
    assert len(calls) == fetched
    assert reported == [["nobody-noticed"]], "played all the same"
    assert ("plain sockets take its place" in capsys.readouterr().err) == bool(fetched)


def test_a_held_lab_says_where_its_console_is_until_ctrl_c(tmp_path: Path) -> None:
    def events() -> Iterator[LabEvent]:
        yield LabEvent(kind="note", text="h0 is down")
        raise KeyboardInterrupt

    out = io.StringIO()
    world = SimpleNamespace(
        directory=tmp_path, console_url="http://127.0.0.1:1/#token=first", events=events
    )
    hold_until_interrupted(cast("World", world), Screen(Console(file=out, width=200)))
    said = out.getvalue()
    assert "http://127.0.0.1:1/#token=first" in said, "the controller is away: the first link"
    assert "h0 is down" in said
