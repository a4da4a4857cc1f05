"""`syntony run`: a program whose TCP connections are multi-path."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syntony.errors import UsageError
from syntony.io.interposer import (
    EXCLUDE_VARIABLE,
    checked_exclusions,
    facts,
    preloading,
    tcp_library,
    verbs_environment,
)
from syntony.io.job_hook import PATH_VARIABLE, hooked_path
from syntony.io.nccl_plugin import plugin_environment, profiler_environment, rdma_ports
from syntony.io.run_directory import SOCKET_VARIABLE, agent_socket
from syntony.model import S
from syntony.model.jobs import JOB_VARIABLE, fresh_job, job_from_environment, job_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from syntony.io.interposer import Facts
    from syntony.torch.membership import Origin, Settings

NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""What shells exit with for a command that is not there, or that cannot be executed."""
_NO_RDMA = "none here: NCCL uses its own transport"


@click.command(
    name="run",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--job", metavar="NAME", help="Its name; else the scheduler's, else a new one.")
@click.option(
    "--exclude",
    metavar="LIST",
    help="Ports, port ranges, addresses and prefixes to connect to in plain TCP.",
)
@click.option("--nccl", is_flag=True, help="NCCL loads Syntony's net plug-in in the command, too.")
@click.option(
    "--nccl-profiler/--no-nccl-profiler",
    default=None,
    help="Load NCCL's profiler plug-in: records what operations wait for. Default: as --nccl.",
)
@click.option("--verbs", is_flag=True, help="Count what its RDMA queue pairs carry, too.")
@click.option(
    "--spares",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Keep N warm processes that take the place of lost ranks of a PyTorch job.",
)
@click.option(
    "--events",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --spares: append what happens, a JSON object a line.",
)
@click.option(
    "--replace-hung",
    type=click.FloatRange(10),
    metavar="SECONDS",
    help="Replace a rank that has not called a collective in which others wait for so long.",
)
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="When no spare is left, keep the job's state there and end; without spares, too.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Go on from the state that --checkpoint kept.",
)
@click.option(
    "--min-ranks",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="With --resume: fewer ranks than the checkpoint has will do. Losses will be others.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be set, and what this host has.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: print JSON.")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND…")
@click.pass_context
def command(
    context: click.Context,
    argv: tuple[str, ...],
    *,
    job: str | None,
    exclude: str | None,
    nccl: bool,
    nccl_profiler: bool | None,
    verbs: bool,
    spares: int,
    events: Path | None,
    replace_hung: float | None,
    checkpoint: Path | None,
    resume: Path | None,
    min_ranks: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run a command whose TCP connections can take several paths.

    The command takes this process's place: same process id, exit code, signals, input and output.
    Its children inherit what it has. Exit code 126: it cannot be executed; 127: there is no such
    command; else its own.

    \b
    Example:
      syntony run --job night -- torchrun --nproc-per-node 8 train.py
      syntony run --spares 1 -- torchrun --nproc-per-node 8 train.py
      syntony run --spares 1 --checkpoint /shared/kept -- torchrun --nproc-per-node 8 train.py
      syntony run --resume /shared/kept/step-71 -- torchrun --nproc-per-node 8 train.py
      syntony run --dry-run -- python3 -m http.server
    """
    words = argv[1:] if argv[:1] == ("--",) else argv
    settings = _settings(spares, checkpoint, resume, replace_hung, min_ranks)
    protected = settings is not None
    _check_use(words, events, protected=protected, dry_run=dry_run, as_json=as_json)
    added = _added(words, job, exclude)
    if nccl:
        added |= plugin_environment(os.environ)
    if nccl if nccl_profiler is None else nccl_profiler:
        added |= profiler_environment(os.environ | added)
    if verbs:
        added |= verbs_environment(os.environ | added)
    found = facts()
    if dry_run:
        _show(added, words, found, as_json)
        if nccl and not as_json:
            click.echo(f"RDMA          {', '.join(rdma_ports()) or _NO_RDMA}", err=True)
        return
    if not found.mptcp:
        click.echo(f"syntony: {found.detail}; the job runs on plain TCP", err=True)
    if nccl and not rdma_ports():
        click.echo(f"syntony: RDMA ports: {_NO_RDMA}", err=True)
    if settings is not None:
        context.exit(_protect(words, os.environ | added, settings, events, resume))
    context.exit(_become(words, os.environ | added))


def _settings(
    spares: int, checkpoint: Path | None, resume: Path | None, replace_hung: float | None,
    min_ranks: int,
) -> Settings | None:  # fmt: skip
    """How ranks are protected; None: they are not."""
    from syntony.torch.membership import Settings

    if min_ranks and resume is None:
        raise UsageError("--min-ranks goes with --resume")
    if replace_hung and not spares:
        raise UsageError("--replace-hung goes with --spares")
    if not spares and checkpoint is None and resume is None:
        return None
    kept = str(checkpoint.absolute()) if checkpoint is not None else ""
    hung_ns = int((replace_hung or 0) * S)
    return Settings(spares, checkpoint=kept, hung_ns=hung_ns, min_ranks=min_ranks)


def _check_use(
    words: Sequence[str], events: Path | None, *, protected: bool, dry_run: bool, as_json: bool
) -> None:
    if not words and not dry_run:
        raise UsageError("run needs a command, for example: syntony run -- torchrun train.py")
    if as_json and not dry_run:
        raise UsageError("--json goes with --dry-run")
    if events is not None and not protected:
        raise UsageError("--events goes with --spares, --checkpoint or --resume")


def _added(words: Sequence[str], job: str | None, exclude: str | None) -> dict[str, str]:
    """The variables to set, in the order in which they are reported."""
    name = job_name(job) if job else job_from_environment(os.environ)
    if name is None:
        name = fresh_job(Path(words[0]).name if words else "job", secrets.token_hex(3))
    added = {"LD_PRELOAD": preloading(tcp_library(), os.environ), JOB_VARIABLE: name}
    exclusions = exclude if exclude is not None else os.environ.get(EXCLUDE_VARIABLE, "")
    if checked := checked_exclusions(exclusions):
        added[EXCLUDE_VARIABLE] = checked
    added[SOCKET_VARIABLE] = agent_socket()
    added[PATH_VARIABLE] = hooked_path(os.environ)
    return added


def _protect(
    words: Sequence[str], environ: dict[str, str], settings: Settings, events: Path | None,
    resume: Path | None,
) -> int:  # fmt: skip
    """Run the command as a child, and replace its lost ranks; its exit code."""
    from syntony.torch.supervisor import Wish, run_job

    def say(text: str) -> None:
        click.echo(f"syntony: {text}", err=True)

    try:
        origin = None if resume is None else _origin(resume)
        wish = Wish(settings, environ[JOB_VARIABLE], events, origin=origin)
        return run_job(words, environ, wish, say)
    except (FileNotFoundError, NotADirectoryError):
        say(f"error: {words[0]}: no such command")
        return NOT_FOUND
    except OSError as error:
        say(f"error: {words[0]}: {error.strerror}")
        return NOT_EXECUTABLE


def _origin(place: Path) -> Origin:
    from syntony.torch.checkpoint import CheckpointError, read
    from syntony.torch.membership import Origin

    try:
        found = read(place)
    except CheckpointError as error:
        raise UsageError(f"--resume: {error}") from error
    return Origin(str(place.absolute()), found.boundary, found.undo, found.world)


def _become(words: Sequence[str], environ: dict[str, str]) -> int:
    """Does not return if the command can be executed; else the exit code that says why not."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; the command must not
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(words[0], list(words), environ)  # noqa: S606 - no shell: we become the command
    except (FileNotFoundError, NotADirectoryError):
        click.echo(f"syntony: error: {words[0]}: no such command", err=True)
        return NOT_FOUND
    except OSError as error:
        click.echo(f"syntony: error: {words[0]}: {error.strerror}", err=True)
        return NOT_EXECUTABLE


def _show(added: dict[str, str], words: Sequence[str], found: Facts, as_json: bool) -> None:
    if as_json:
        document: dict[str, Any] = {
            "environment": added,
            "command": list(words),
            "program": shutil.which(words[0]) if words else None,
            "host": found._asdict(),
        }
        click.echo(json.dumps(document, indent=2))
        return
    for name, value in added.items():
        click.echo(f"{name}={shlex.quote(value)}")
    for line in _fact_lines(found):
        click.echo(line, err=True)


def _fact_lines(found: Facts) -> list[str]:
    agents = {True: "runs here", False: "none here: no paths are added", None: "cannot be seen"}
    return [
        f"MPTCP         {'yes' if found.mptcp else f'no: {found.detail}'}",
        f"path manager  {found.path_manager or 'none'}",
        f"agent         {agents[found.agent]}",
    ]
