"""`syntony run`: runs a program whose TCP connections can take several paths."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from syntony.cli.protection import Protection, print_line, protection_options
from syntony.errors import UsageError
from syntony.io.interposer import (
    EXCLUDE_VARIABLE,
    MptcpSupport,
    checked_exclusions,
    facts,
    preloading,
    tcp_library,
    verbs_environment,
)
from syntony.io.job_hook import PATH_VARIABLE, REPORTING_VARIABLE, hooked_path
from syntony.io.nccl_plugin import plugin_environment, profiler_environment, rdma_ports
from syntony.io.run_directory import SOCKET_VARIABLE, agent_socket
from syntony.model.jobs import JOB_VARIABLE, fresh_job, job_from_environment, job_name

NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""Exit codes of shells for a command that is not found, or cannot be executed."""
_NO_RDMA = "none here: NCCL uses its own transport"


@click.command(
    name="run",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--job", metavar="NAME", help="Name of the job. [default: the scheduler's, else a new one]"
)
@click.option(
    "--exclude",
    metavar="LIST",
    help="Ports, port ranges, addresses and prefixes to reach over plain TCP.",
)
@click.option(
    "--nccl", is_flag=True, help="Also make NCCL in the command load Syntony's net plug-in."
)
@click.option(
    "--nccl-profiler/--no-nccl-profiler",
    default=None,
    help="Load the NCCL profiler plug-in: records what operations wait for. [default: as --nccl]",
)
@click.option("--verbs", is_flag=True, help="Also measure the job's RDMA queue pairs.")
@protection_options
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would be set and what this host supports; run nothing.",
)
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
    protection: Protection,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run a command whose TCP connections can take several paths.

    The command replaces this process: same process id, exit code, signals, input and output. Its
    children inherit the settings. Exit status: 126 it cannot be executed, 127 there is no such
    command, else its own.

    \b
    Example:
      syntony run --job night -- torchrun --nproc-per-node 8 train.py
      syntony run --spares 1 -- torchrun --nproc-per-node 8 train.py
      syntony run --spares 1 --checkpoint /shared/kept -- torchrun --nproc-per-node 8 train.py
      syntony run --resume /shared/kept/step-71 -- torchrun --nproc-per-node 8 train.py
      syntony run --spares 1 --listen 10.0.0.1:29600 --secret /shared/secret -- torchrun …
      syntony run --join 10.0.0.1:29600 --secret /shared/secret -- torchrun …
      syntony run --join 10.0.0.1:29600 --secret /shared/secret --spares 2
      syntony run --dry-run -- python3 -m http.server
    """
    words = argv[1:] if argv[:1] == ("--",) else argv
    protection.check()
    if protection.only_spares(words):
        context.exit(protection.lend())
    _check_use(words, dry_run=dry_run, as_json=as_json)
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
        _show_rdma(shown=nccl and not as_json)
        return
    for text in _missing(found, Path(added[SOCKET_VARIABLE])):
        click.echo(f"syntony: {text}", err=True)
    if nccl and not rdma_ports():
        click.echo(f"syntony: RDMA ports: {_NO_RDMA}", err=True)
    os.environ.pop(REPORTING_VARIABLE, None)
    if protection.join:
        added |= protection.joining()
    elif protection.enabled:
        context.exit(_protect(words, os.environ | added, protection))
    context.exit(_become(words, os.environ | added))


def _missing(found: MptcpSupport, agent: Path) -> Iterator[str]:
    """What the job will lack. `agent`: its socket, which a container may have though it sees no
    agent."""
    if not found.mptcp:
        yield f"{found.detail}; the job runs on plain TCP"
    if found.agent is False and not agent.exists():
        yield ("no agent runs here: nothing of the job is recorded and no paths are added; start"
               " one, then the job again")  # fmt: skip


def _show_rdma(*, shown: bool) -> None:
    if shown:
        click.echo(f"RDMA          {', '.join(rdma_ports()) or _NO_RDMA}", err=True)


def _check_use(words: Sequence[str], *, dry_run: bool, as_json: bool) -> None:
    if not words and not dry_run:
        raise UsageError("run needs a command, for example: syntony run -- torchrun train.py")
    if as_json and not dry_run:
        raise UsageError("--json needs --dry-run")


def _added(words: Sequence[str], job: str | None, exclude: str | None) -> dict[str, str]:
    """The variables to set, in the order in which they are reported."""
    name = job_name(job) if job is not None else job_from_environment(os.environ)
    if name is None:
        name = fresh_job(Path(words[0]).name if words else "job", secrets.token_hex(3))
    added = {"LD_PRELOAD": preloading(tcp_library(), os.environ), JOB_VARIABLE: name}
    exclusions = exclude if exclude is not None else os.environ.get(EXCLUDE_VARIABLE, "")
    if checked := checked_exclusions(exclusions):
        added[EXCLUDE_VARIABLE] = checked
    added[SOCKET_VARIABLE] = agent_socket()
    added[PATH_VARIABLE] = hooked_path(os.environ)
    return added


def _protect(words: Sequence[str], environ: dict[str, str], protection: Protection) -> int:
    """Run the command as a child and replace its lost ranks; return its exit code."""
    from syntony.torch.supervisor import ListenError, run_job

    options = protection.job_options(environ[JOB_VARIABLE])
    try:
        return run_job(words, environ, options, print_line)
    except ListenError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        return _cannot_run(words[0], error)


def _become(words: Sequence[str], environ: dict[str, str]) -> int:
    """Replace this process by the command; return an exit code only if that fails."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; the command must not
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(words[0], list(words), environ)  # noqa: S606 - no shell: we become the command
    except OSError as error:
        return _cannot_run(words[0], error)


def _cannot_run(word: str, error: OSError) -> int:
    """Print why, and return the exit code that shells use for it."""
    # execve(2) says the same of both. Without a slash, the word is a name in PATH, not a file here.
    if isinstance(error, FileNotFoundError) and "/" in word and os.access(word, os.X_OK):
        print_line(f"error: {word}: the interpreter in its first line does not exist")
        return NOT_EXECUTABLE
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        print_line(f"error: {word}: no such command")
        return NOT_FOUND
    print_line(f"error: {word}: {error.strerror}")
    return NOT_EXECUTABLE


def _show(added: dict[str, str], words: Sequence[str], found: MptcpSupport, as_json: bool) -> None:
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


def _fact_lines(found: MptcpSupport) -> list[str]:
    agents = {True: "runs here", False: "none here: no paths are added", None: "cannot be seen"}
    return [
        f"MPTCP         {'yes' if found.mptcp else f'no: {found.detail}'}",
        f"path manager  {found.path_manager or 'none'}",
        f"agent         {agents[found.agent]}",
    ]
