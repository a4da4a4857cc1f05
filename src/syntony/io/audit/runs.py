"""Runs on disk: written as hosts answer, read back in pieces, the newest few kept."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from syntony.audit.result import HostReport
from syntony.audit.runfile import Head, line, parse_head, reports
from syntony.errors import InputError
from syntony.input_files import check_file
from syntony.io.closing import Closing

KEPT = 20
"""Runs kept below the state directory."""
MAX_RUN_BYTES = 16 << 30
MAX_LINE_BYTES = 64 << 20


def state_dir() -> Path:
    """Where runs are kept: ``$XDG_STATE_HOME/syntony/audit``, below the home by default; of a user
    without a home (a container's), among the temporary files.
    """
    reported = os.environ.get("XDG_STATE_HOME")
    if reported:
        return Path(reported) / "syntony/audit"
    try:
        return Path.home() / ".local/state/syntony/audit"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"syntony-{os.geteuid()}/audit"


class RunWriter(Closing):
    """A run that is being written.

    Args:
        path: written anew, or gone on with when `resume`.
        head: of a new file.

    Raises:
        InputError: a file to resume that is no run.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, head: Head, *, resume: bool = False) -> None:
        self.done: frozenset[str] = frozenset()
        """Hosts that a resumed run had already reached."""
        self.parts: dict[str, str] = {}
        """Parts of the fleet as a whole that it had finished, and what was asked."""
        self._file: BinaryIO
        if resume and path.exists():
            _, found = read_run(path)
            reports = list(found)
            self.done = frozenset(r.host for r in reports if not r.unreachable and not r.part)
            self.parts = {report.part: report.requested for report in reports if report.part}
            self._file = path.open("r+b")
            self._file.seek(_whole_bytes(path))
            self._file.truncate()
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._file.write(line(head))
        self._file.flush()

    def add(self, report: HostReport) -> None:
        """One host's report; on disk when this returns."""
        self._file.write(line(report))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _whole_bytes(path: Path) -> int:
    """Up to the end of the last whole line."""
    with path.open("rb") as file:
        return sum(len(each) for each in file if each.endswith(b"\n"))


def read_run(path: Path) -> tuple[Head, Iterator[HostReport]]:
    """A run's head, and its reports one by one; of a host with several, all of them. Raises
    `InputError`: it cannot be read or is no run."""
    try:
        check_file(path, MAX_RUN_BYTES)
        with path.open("rb") as file:
            head = parse_head(file.readline(MAX_LINE_BYTES), str(path))
    except OSError as error:
        raise InputError("no-such-run", f"{path} cannot be read: {error.strerror}") from error
    return head, _reports(path)


def _reports(path: Path) -> Iterator[HostReport]:
    with path.open("rb") as file:
        file.readline(MAX_LINE_BYTES)
        yield from reports(file, str(path))


class StoredRun:
    """A run that can be read repeatedly; of a host with several reports (a resumed run), the
    newest. Raises `InputError`: it cannot be read or is no run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.head, found = read_run(path)
        self._newest = {_key(report): at for at, report in enumerate(found)}

    def __iter__(self) -> Iterator[HostReport]:
        for at, report in enumerate(_reports(self._path)):
            if self._newest.get(_key(report)) == at:
                yield report

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts, in the order of the file."""
        return tuple(host for host, part in self._newest if not part)


def _key(report: HostReport) -> tuple[str, str]:
    return ("", report.part) if report.part else (report.host, "")


def stored_runs(folder: Path) -> list[Path]:
    """Oldest first."""
    return sorted(folder.glob("run-*.jsonl"))


def forget_old(folder: Path) -> None:
    """Remove all runs but the newest `KEPT`."""
    for path in stored_runs(folder)[:-KEPT]:
        path.unlink(missing_ok=True)
