"""A rank of a training job is killed: with checkpoints and a restart, and with a warm spare.

Everything runs on this host, for a spare takes the place of a rank of its own host only. The same
program runs three times: undisturbed; under torchrun, which restarts all ranks from the last
checkpoint; and under `syntony run --spares 1`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from syntony.errors import MissingError, RemoteError
from syntony.model import S

PROGRAM = Path(__file__).parents[1] / "jobs" / "training.py"
CALM, TODAY, SYNTONY = "no failure", "torchrun, checkpoints", "Syntony"
_POLL_S, _END_S = 0.02, 30.0
_MAX_RESTARTS = 3


class RankLossOptions(msgspec.Struct, frozen=True, kw_only=True):
    python: str
    """An interpreter with PyTorch."""
    ranks: int = 4
    steps: int = 300
    kill_at: int = 150
    """The rank is killed in the first step from here on in which a spare is ready."""
    victim: int = 2
    every: int = 20
    """Steps between checkpoints."""
    pause_ns: int = 100_000_000
    """Of every rank in each step, as if it computed."""
    limit_ns: int = 300 * S
    """Of each run."""


class StepLine(msgspec.Struct, frozen=True, array_like=True):
    at_ns: int
    step: int
    loss: str
    """All digits: equal text means an equal number."""


class RankLossTrial(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    began_ns: int
    ended_ns: int
    exit_code: int
    killed_ns: int | None
    steps: tuple[tuple[StepLine, ...], ...]
    """By rank."""
    sha256: tuple[str | None, ...]
    events: tuple[dict[str, Any], ...] = ()
    """Of `syntony run --events`."""
    output: str = ""
    """Its last lines."""


def drill(
    options: RankLossOptions, directory: Path, say: Callable[[str], None]
) -> list[RankLossTrial]:
    """The three runs, in `directory`. Raises `RemoteError`: the undisturbed run failed, or a rank
    could not be killed as planned."""
    trials = []
    for name in (CALM, TODAY, SYNTONY):
        say(f"{name}: {options.ranks} ranks, {options.steps} steps")
        trials.append(run(options, name, directory, say))
    if trials[0].exit_code:
        raise RemoteError(f"the undisturbed job failed:\n{trials[0].output}")
    return trials


def run(
    options: RankLossOptions, name: str, directory: Path, say: Callable[[str], None]
) -> RankLossTrial:
    """One run. Raises `RemoteError`: the rank could not be killed as planned."""
    out = directory / name.split(",", maxsplit=1)[0].replace(" ", "-").lower()
    try:
        out.mkdir(parents=True)
    except OSError as error:
        raise MissingError(f"{out}: {error.strerror}") from error
    argv = launch_argv(options, name, out)
    # Without the second, ranks that torchrun has started again find addresses of the dead.
    environ = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    began_ns = time.monotonic_ns()
    with (out / "output").open("wb") as output:
        process = subprocess.Popen(
            argv, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    killed_ns = None
    try:
        if name != CALM:
            killed_ns = _strike(options, name, out, process, say)
        code = process.wait(options.limit_ns / S)
    except subprocess.TimeoutExpired:
        code = -1
    finally:
        _end(process)
    ranks = range(options.ranks)
    return RankLossTrial(
        name=name, began_ns=began_ns, ended_ns=time.monotonic_ns(), exit_code=code,
        killed_ns=killed_ns, steps=tuple(tuple(lines(out, rank)) for rank in ranks),
        sha256=tuple(_text(out / f"{rank}.sha256") for rank in ranks),
        events=tuple(events(out)), output=(_text(out / "output") or "")[-2000:],
    )  # fmt: skip


def launch_argv(options: RankLossOptions, name: str, out: Path) -> list[str]:
    """The command line of a run."""
    restarts = _MAX_RESTARTS if name == TODAY else 0
    spares = ["--spares", "1", "--events", str(out / "events"), "--"]
    return [
        *([sys.executable, "-m", "syntony", "run", *spares] if name == SYNTONY else []),
        options.python, "-m", "torch.distributed.run", f"--nproc-per-node={options.ranks}",
        "--standalone", f"--max-restarts={restarts}",
        str(PROGRAM), f"--out={out}", f"--steps={options.steps}", f"--every={options.every}",
        f"--pause-ms={options.pause_ns / 1e6}",
    ]  # fmt: skip


def _strike(
    options: RankLossOptions,
    name: str,
    out: Path,
    process: subprocess.Popen[bytes],
    say: Callable[[str], None],
) -> int:
    """Kill the rank when it is due; return the instant."""
    end_s = time.monotonic() + options.limit_ns / S
    while process.poll() is None and time.monotonic() < end_s:
        time.sleep(_POLL_S)
        known = events(out)
        ready = name != SYNTONY or any(each["event"] == "spare-ready" for each in known)
        seen = lines(out, options.victim)
        if not (ready and seen and seen[-1].step >= options.kill_at):
            continue
        pid = rank_pid(name, process.pid, out, options.victim)
        say(f"{name}: rank {options.victim} is killed in step {seen[-1].step + 1}")
        at_ns = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)
        return at_ns
    raise RemoteError(
        f"{name}: rank {options.victim} was not killed: the job ended, or no spare was ready, "
        f"before; more --steps give it time:\n{(_text(out / 'output') or '')[-1000:]}"
    )


def rank_pid(name: str, launcher: int, out: Path, rank: int) -> int:
    """The process that holds a rank now. Raises `RemoteError`: there is none."""
    known = events(out) if name == SYNTONY else []
    pids = {each["worker"]: int(each["pid"]) for each in known if each["event"] == "worker"}
    for each in reversed(known):
        if each["event"] in {"worker", "assigned"} and each["rank"] == rank:
            return pids[each["worker"]]
    return _child_of(launcher, out, rank)


def _child_of(launcher: int, out: Path, rank: int) -> int:
    needle = f"RANK={rank}".encode()
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            words = (each / "environ").read_bytes().split(b"\0")
            command_line = (each / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if parent == launcher and needle in words and f"--out={out}".encode() in command_line:
            return int(each.name)
    raise RemoteError(f"the process of rank {rank} was not found")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process; on SIGTERM it ends the ranks that it started."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def lines(out: Path, rank: int) -> list[StepLine]:
    text = _text(out / f"{rank}.steps") or ""
    whole = (each.split() for each in text.splitlines(keepends=True) if each.endswith("\n"))
    return [StepLine(int(at_ns), int(step), loss) for at_ns, step, loss in whole]


def events(out: Path) -> list[dict[str, Any]]:
    text = _text(out / "events") or ""
    return [json.loads(each) for each in text.splitlines(keepends=True) if each.endswith("\n")]


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except FileNotFoundError:
        return None
