"""The outcome of a drill: figures, raw trials, one chart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from syntony.errors import MissingError
from syntony.lab.drill.figures import RunFigures, figures
from syntony.lab.drill.trial import NicFlapTrial
from syntony.view import drill_charts


class DrillReport(msgspec.Struct, frozen=True, kw_only=True):
    """What every drill prints as JSON."""

    drill: str
    files: tuple[str, ...] = ()
    """Names of the files that were saved."""


class NicFlapReport(DrillReport, frozen=True, kw_only=True):
    """Whether a job survives a failure, and how."""

    job: str
    ranks: int
    bytes_per_step: int
    """Of each rank."""
    fault: str
    meaning: str
    outage_s: float
    throughput_unit: str = "steps/s"
    runs: tuple[RunFigures, ...]


def make_report(
    drill: str, fault: str, meaning: str, trials: Sequence[NicFlapTrial]
) -> NicFlapReport:
    first = trials[-1]
    return NicFlapReport(
        drill=drill,
        job=first.job,
        ranks=first.ranks,
        bytes_per_step=first.elements * 4,
        fault=fault,
        meaning=meaning,
        outage_s=(first.fault_ns[1] - first.fault_ns[0]) / 1e9,
        runs=tuple(figures(trial) for trial in trials),
    )


def check_out(directory: Path | None) -> None:
    """Check, before a drill that takes minutes, that `save` can write there; None: nothing is to be
    written. Raises `MissingError`: the directory cannot be written, or charts cannot be drawn
    here."""
    if directory is None:
        return
    drill_charts.check()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MissingError(f"--out {directory}: {error.strerror}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise MissingError(f"--out {directory}: cannot be written")


_Report = TypeVar("_Report", bound=DrillReport)


def save(
    report: _Report,
    picture: drill_charts.Chart,
    trials: msgspec.Struct | Sequence[msgspec.Struct],
    directory: Path,
) -> _Report:
    """Report, trials and chart as files of `directory`, which is made if need be.

    Returns:
        The report with the names of all files.

    Raises:
        MissingError: the directory cannot be written, or charts cannot be drawn here.
    """
    drill = report.drill
    files = {f"{drill}.{kind}": picture.render(kind) for kind in drill_charts.FORMATS}
    if isinstance(trials, msgspec.Struct):
        files[f"{drill}.trial.json"] = msgspec.json.encode(trials)
    else:
        lines = (msgspec.json.encode(trial) + b"\n" for trial in trials)
        files[f"{drill}.trials.jsonl"] = b"".join(lines)
    names = (*files, f"{drill}.json")
    whole = msgspec.structs.replace(report, files=tuple(str(directory / name) for name in names))
    files[names[-1]] = msgspec.json.format(msgspec.json.encode(whole))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (directory / name).write_bytes(data)
    except OSError as error:
        raise MissingError(f"--out {directory}: {error.strerror}") from error
    return whole
