"""The command line's root: lazy groups, and every error as one line.

Exit codes: 0 done; 2 a wrong command or a missing requirement; 3 the other side failed; 1 an error
of Syntony itself; 130 interrupted; 141 the reader of the output has gone.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from syntony import __version__
from syntony.cli.lazy import HelpGroup
from syntony.errors import MissingError, SyntonyError
from syntony.extras import EXTRAS, install_command

GROUPS = {
    "lab": "A fleet on this machine: bring it up, inject faults, compare with the truth.",
    "demo": "A tour on one machine: measure, inject faults, check every claim.",
    "agent": "Run the daemon of one host.",
    "controller": "Run the daemon of the fleet.",
    "probe": "One-way delay between NICs.",
    "paths": "Connections of managed jobs and their paths.",
    "failover": "Failover actions, and the fleet's stop switch.",
    "traffic": "Jobs that share links: contention, placement and pacing.",
    "clock": "Clocks of the fleet.",
    "fabric": "The fabric: parts, paths, and the part at fault.",
    "incidents": "What is wrong in the fleet, one incident for each cause.",
    "enrol": "The fleet's members: join tokens, certificates, revocation.",
    "changes": "The audit log: who changed what, when and why.",
    "login": "Log in to the API of a controller, and use it from now on.",
    "context": "Fleets to which you are logged in, and the one in use.",
    "links": "Ports, flaps, cables and counters.",
    "metrics": "Metrics that Prometheus can scrape.",
    "sla": "Latency compared with objectives and with its past.",
    "sim": "The fabric simulator.",
    "audit": "Check hosts, networks and NCCL before a job starts.",
    "jobs": "Running and recent jobs.",
    "job": "One job: its flows.",
    "why": "Diagnose a running job: three sentences, then the evidence.",
    "record": "Write the recording of a job to a directory, for `syntony diagnose`.",
    "replay": "Replay recorded rows: what would be found and paged.",
    "diagnose": "Diagnose a recorded job: verdicts from a bundle of telemetry.",
    "diff": "Compare two recorded runs of a job.",
    "timeline": "Write a recorded job as a trace for Perfetto.",
    "cost": "Estimate the cost of failures, without and with Syntony.",
    "run": "Run a job whose TCP connections can take several paths.",
    "kubernetes": "What Syntony's pods report to the Kubernetes API server.",
    "config": "Check configuration files.",
    "doctor": "What this machine lacks for a lab, or as a host of a fleet.",
    "version": "Print the version.",
}
"""Command to its one-line help. Each is the attribute `command` of ``syntony.cli.NAME``, imported
on use, so that `--help` is fast and a missing extra concerns only the command that needs it."""
_MODULES = {"run": "run_job"}
"""Modules whose name differs from the command: `syntony.cli.run` is a function."""
INTERRUPTED, OUTPUT_CLOSED = 130, 141
"""What a shell shows of a process that SIGINT or SIGPIPE ended."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class _Root(HelpGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(GROUPS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in GROUPS:
            return None
        try:
            module = importlib.import_module(f"syntony.cli.{_MODULES.get(cmd_name, cmd_name)}")
        except ModuleNotFoundError as error:
            raise MissingError(_missing(cmd_name, error.name or "a module")) from error
        command: click.Command = module.command
        return command

    def line(self, name: str) -> str:
        return GROUPS[name]


def _missing(command: str, module: str) -> str:
    if module.startswith("syntony"):
        return f"`syntony {command}` is not part of this installation ({module})"
    return f"`syntony {command}` needs {module}; install it with: {install_command(module, 'lab')}"


@click.group(
    cls=_Root,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="Example: syntony lab up --detach && syntony lab status && syntony lab down",
)
@click.version_option(__version__, message="syntony %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--controller",
    metavar="URL",
    help="The controller of the fleet to use; can also be given after the command.",
)
def root(debug: bool, controller: str | None) -> None:  # noqa: ARG001 - `syntony.cli.fleet` reads it
    """Make a GPU fleet's communication visible and resilient, in software."""
    click.get_current_context().obj = debug


def main() -> None:
    """Entry point of the `syntony` program."""
    _open_streams()
    sys.exit(run(sys.argv[1:]))


def _open_streams() -> None:
    """Give a program that was started without stdin, stdout or stderr all three, and write what the
    locale's encoding lacks, or a file name that is no text, as escapes."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        getattr(sys, name).reconfigure(errors="backslashreplace")


def run(args: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; errors become one line on stderr."""
    debug = bool(args) and args[0] == "--debug"
    try:
        result: Any = root.main(list(args), prog_name="syntony", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        return _wrong_command(error)
    except (click.Abort, KeyboardInterrupt):
        return _print_error("interrupted", INTERRUPTED)
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code != 1:
            raise  # a signal's exit code; click's after `| head` has ended is 1
        _discard_output()
        return OUTPUT_CLOSED
    except Exception as error:  # noqa: BLE001 - the outermost boundary
        if debug:
            traceback.print_exc()
        return _print_error(*_explain(error, debug=debug))
    return result if isinstance(result, int) else 0


def _explain(error: Exception, *, debug: bool) -> tuple[str, int]:
    """The line for an error, and the exit code."""
    if isinstance(error, SyntonyError):
        return f"error: {error}", error.exit_code
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in EXTRAS:
        name = error.name or ""
        return f"error: this command needs {name}; install it with: {install_command(name)}", 2
    if isinstance(error, UnicodeEncodeError):
        return f"error: {error.object!r} is not UTF-8 text", 2
    if isinstance(error, OSError):
        if error.filename is not None:
            return f"error: {error.filename}: {error.strerror}", 2
        if error.errno in _FULL:
            _discard_output()
            return f"error: the output cannot be written: {error.strerror}", 2
    hint = "" if debug else " (a bug; see it with: syntony --debug …)"
    return f"error: {type(error).__name__}: {error}{hint}", 1


def _discard_output() -> None:
    """Let Python's last flush, at exit, succeed."""
    with contextlib.suppress(OSError):  # stdout is no file: in a test
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _wrong_command(error: click.ClickException) -> int:
    """A group without a command prints its help; anything else is one line."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return 2
    message = re.sub(r"^Invalid value for '{.*?}': ", "", error.format_message())  # of a choice
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context else "syntony"
    return _print_error(f"error: {message} (see: {command} --help)", 2)


def _print_error(text: str, code: int) -> int:
    from syntony.audit.text import printable

    click.echo(f"syntony: {printable(' '.join(text.split()))}", err=True)
    return code
