"""Runs collectives: nccl-tests through a launcher, or one PyTorch rank on every host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from syntony.audit.nccl.judge import NcclRun
from syntony.audit.nccl.log import parse_log
from syntony.audit.nccl.output import parse_output
from syntony.audit.nccl.plan import Case, NcclJob, command, environment, hostfile_text
from syntony.errors import InputError, RemoteError

SCRIPT = Path(__file__).with_name("allreduce.py")
PORT = 29_650
_MAX_SAID = 64 << 20
COUNT_TIMEOUT_S = 60.0
"""For a host to count its GPUs."""
_GRACE_S = 2.0
_STEP_S = 0.02
_CUT = 300


class RankCommand(NamedTuple):
    """How to start one rank of a collective test."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    script: Path | None = None
    """What goes to its standard input."""


class RankStarter(Protocol):
    """Starts ranks: on this host, in a lab's hosts, or over SSH."""

    def rank(self, host: str, words: Sequence[str], reported: Mapping[str, str]) -> RankCommand:
        """The command line that runs `words` as Python on `host`."""
        ...

    def address(self, host: str) -> str:
        """Where rank 0 is reached if it runs there."""
        ...


def run_nccl(case: Case, job: NcclJob, hosts: Sequence[str], timeout_s: float) -> NcclRun:
    """Run nccl-tests to its end or its deadline; no process is left behind."""
    order = tuple(hosts)
    with tempfile.TemporaryDirectory(prefix="syntony-nccl-") as folder:
        report, hostfile = Path(folder, "report.json"), Path(folder, "hosts")
        hostfile.write_text(hostfile_text(order, job.gpus), encoding="ascii")
        words = command(case, job, order, str(report), str(hostfile))
        done = finish([RankCommand(words, environment(case, job))], timeout_s)[0]
        reported = report.read_text(encoding="utf-8", errors="replace") if report.exists() else ""
    log = parse_log(done.said)
    if done.trouble:
        return NcclRun(case=case, hosts=order, log=log, trouble=done.trouble, broke=done.started)
    try:
        output = parse_output(reported, done.said)
    except InputError as error:
        return NcclRun(case=case, hosts=order, log=log, trouble=str(error))
    return NcclRun(case=case, hosts=order, output=output, log=log)


def run_torch(
    case: Case, hosts: Sequence[str], where: RankStarter, sizes: tuple[int, int, int],
    timeout_s: float, *, per_host: int = 1,
) -> NcclRun:  # fmt: skip
    """One run of the PyTorch ranks.

    Args:
        case: only its order counts: gloo has one connection per pair.
        hosts: in the order of their ranks.
        where: how a rank gets to its host.
        sizes: smallest and largest message in bytes, iterations.
        timeout_s: for all of it.
        per_host: ranks of each host: one for each GPU.
    """
    order = tuple(hosts)
    reported = {
        "MASTER_ADDR": where.address(order[0]),
        "MASTER_PORT": str(PORT),
        "OMP_NUM_THREADS": "1",
        "SYNTONY_LOCAL_RANKS": str(per_host),
        "SYNTONY_COLLECTIVE_TIMEOUT_S": f"{timeout_s:g}",
    }
    ranks = [
        where.rank(
            host,
            [str(number * per_host), str(len(order) * per_host), *map(str, sizes)],
            {**reported, "SYNTONY_HOST": host},
        )
        for number, host in enumerate(order)
    ]
    ended = finish(ranks, timeout_s)
    for host, done in zip(order, ended, strict=True):
        if done.trouble:
            why = f"{host}: {done.trouble}"
            return NcclRun(case=case, hosts=order, trouble=why, broke=done.started)
    try:
        output = parse_output(ended[0].last_object, ended[0].said)
        return NcclRun(case=case, hosts=order, output=output)
    except InputError as error:
        return NcclRun(case=case, hosts=order, trouble=str(error))


def count_gpus(hosts: Sequence[str], where: RankStarter) -> dict[str, int]:
    """How many GPUs PyTorch can use on each host. Raises `RemoteError`: a host, or PyTorch on it,
    does not answer."""
    ended = finish([where.rank(host, ["count"], {}) for host in hosts], COUNT_TIMEOUT_S)
    found = {}
    for host, done in zip(hosts, ended, strict=True):
        try:
            found[host] = int(json.loads(done.last_object)["gpus"])
        except (ValueError, KeyError, TypeError):
            why = done.trouble or f"it said {done.said.strip()[:80]!r}"
            raise RemoteError(f"{host}: its GPUs could not be counted: {why}") from None
    return found


class ProgramOutput(NamedTuple):
    """The output of a program, and why it is invalid."""

    said: str
    """Standard output and error."""
    trouble: str
    started: bool

    @property
    def last_object(self) -> str:
        """Its last line that is a JSON object; empty: none is."""
        return next((line for line in reversed(self.said.splitlines()) if line[:1] == "{"), "")


def finish(ranks: Sequence[RankCommand], timeout_s: float) -> list[ProgramOutput]:
    """Runs programs side by side until all end, one fails, or the time is over; then kills all."""
    end_s = time.monotonic() + timeout_s
    running: list[_Running] = []
    try:
        running.extend(_Running(rank) for rank in ranks)
        while any(each.busy for each in running) and time.monotonic() < end_s:
            if any(each.failed for each in running):
                break
            time.sleep(_STEP_S)
        late = time.monotonic() >= end_s
        if not late and any(each.busy for each in running):
            time.sleep(_STEP_S * 10)  # the other ranks' errors
        return [each.end(late, timeout_s) for each in running]
    finally:
        for each in running:
            each.kill()


class _Running:
    """One program, its output in a file: pipes that nobody reads would stop it."""

    def __init__(self, rank: RankCommand) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `kill`
        self._process: subprocess.Popen[bytes] | None = None
        self._trouble = ""
        try:
            with (rank.script or Path(os.devnull)).open("rb") as script:
                self._process = subprocess.Popen(
                    rank.argv,
                    stdin=script,
                    stdout=self._file,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **rank.environment},
                    start_new_session=True,
                )
        except OSError as error:
            self._trouble = f"{rank.argv[0]}: {error.strerror}"

    @property
    def busy(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def failed(self) -> bool:
        return self._process is None or self._process.poll() not in {None, 0}

    def end(self, late: bool, timeout_s: float) -> ProgramOutput:
        """The output, and why it is invalid."""
        if self._process is None:
            return ProgramOutput("", self._trouble, started=False)
        self._file.seek(0)
        said = self._file.read(_MAX_SAID).decode("utf-8", "replace")
        if self.busy:
            why = f"no end after {timeout_s:g} s" if late else ""
            return ProgramOutput(said, why, started=True)
        status = self._process.returncode
        return ProgramOutput(said, "" if status == 0 else _why(said, status), started=status != 127)

    def kill(self) -> None:
        """End it and its children, by SIGTERM first, so that launchers end remote processes."""
        process = self._process
        if process is not None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    break
                try:
                    process.wait(_GRACE_S)
                except subprocess.TimeoutExpired:
                    continue
        self._file.close()


def _why(said: str, status: int) -> str:
    """The most informative line of a failed program's output."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [
        line for line in lines
        if any(word in line for word in ("NCCL WARN", "Test NCCL failure", "rror", "not found"))
    ]  # fmt: skip
    best = (telling or lines or ["it said nothing"])[-1][:_CUT]
    return f"exit status {status}: {best}"
