"""Runs the programs that checks read, without a shell, in the C locale, under a deadline.

A recorded tree keeps each output in ``commands/`` below its root, in a file called like the command
line with ``%`` and ``/`` written as in URLs; a failed one has its exit status in ``NAME.exit``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from syntony.audit.facts import AbsentError, ProgramTimeoutError, UnreadableError
from syntony.input_files import read_bytes
from syntony.model import S

FOLDER = "commands"
MAX_OUTPUT_BYTES = 8 << 20
"""Largest output accepted: `lspci -vvv` of a large node is one megabyte."""
MAX_STATUS_BYTES = 16
_SYSTEM_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/opt/rocm/bin", "/usr/local/bin")
"""Where administrators' tools are that an ordinary user's PATH leaves out."""
_NOT_FOUND, _NOT_EXECUTABLE, _TIMED_OUT = 127, 126, 124


def file_name(command: tuple[str, ...]) -> str:
    """Where a recorded tree keeps the output of a command."""
    return " ".join(command).replace("%", "%25").replace("/", "%2F")


class LiveCommands:
    """Runs them.

    Args:
        timeout_ns: for each; it is killed, with its children, when that has passed.
    """

    def __init__(self, timeout_ns: int) -> None:
        self._timeout_ns = timeout_ns
        own = os.environ.get("PATH", os.defpath).split(os.pathsep)
        # Our own directory too: some checks ask `syntony`.
        self._path = os.pathsep.join([*own, *_SYSTEM_PATHS, str(Path(sys.executable).parent)])

    def run(self, command: tuple[str, ...]) -> str:
        """Standard output. Raises `FactError` as `Facts.run` does."""
        program = shutil.which(command[0], path=self._path)
        if program is None:
            raise AbsentError(f"{command[0]} is not installed")
        environment = {**os.environ, "LC_ALL": "C", "LANG": "C", "PATH": self._path}
        try:
            process = subprocess.Popen(
                [program, *command[1:]],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=environment, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise UnreadableError(f"{command[0]}: {error.strerror}") from error
        with process:
            output, complaint = self._finish(process, command)
        if len(output) > MAX_OUTPUT_BYTES:
            raise UnreadableError(f"{command[0]}: more than {MAX_OUTPUT_BYTES} bytes of output")
        return outcome(command, process.returncode, output, complaint)

    def _finish(
        self, process: subprocess.Popen[bytes], command: tuple[str, ...]
    ) -> tuple[bytes, bytes]:
        try:
            return process.communicate(timeout=self._timeout_ns / S)
        except subprocess.TimeoutExpired as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # A child in an uninterruptible wait does not die of SIGKILL either: it is left behind.
            end_s = time.monotonic() + 1
            while process.poll() is None and time.monotonic() < end_s:
                time.sleep(0.01)
            if process.returncode is None:
                process.returncode = -signal.SIGKILL
            text = f"{' '.join(command)}: no answer in {self._timeout_ns / S:g} s"
            raise ProgramTimeoutError(text) from error


class RecordedCommands:
    """Replays them from a tree."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER

    def run(self, command: tuple[str, ...]) -> str:
        file = self._folder / file_name(command)
        try:
            output = read_bytes(file, MAX_OUTPUT_BYTES)
        except FileNotFoundError as error:
            missing = f"`{' '.join(command)}` was not recorded"
            if (self._folder / f"{command[0].replace('/', '%2F')}.absent").exists():
                raise AbsentError(f"{command[0]} is not installed") from error
            raise UnreadableError(missing) from error
        except OSError as error:
            raise UnreadableError(f"{file}: {error.strerror}") from error
        return outcome(command, self._status(file), output, b"")

    @staticmethod
    def _status(file: Path) -> int:
        try:
            text = read_bytes(file.with_name(f"{file.name}.exit"), MAX_STATUS_BYTES).strip()
        except FileNotFoundError:
            return 0
        except OSError:
            return 1
        return int(text) if text.isdigit() else 1


def outcome(command: tuple[str, ...], status: int, output: bytes, complaint: bytes) -> str:
    """The text of a command that ended.

    Raises:
        AbsentError: the shell's way of saying that there is no such program.
        ProgramTimeoutError: a recorder's way, and timeout(1)'s, of saying that it did not end in
            its time.
        UnreadableError: it failed; with the first line of what it said.
    """
    text = output.decode("utf-8", "replace")
    if status == 0:
        return text
    if status == _NOT_FOUND:
        raise AbsentError(f"{command[0]} is not installed")
    said = complaint.decode("utf-8", "replace").strip() or text.strip()
    first = said.partition("\n")[0].strip()[:160]
    if status == _TIMED_OUT:
        raise ProgramTimeoutError(f"`{' '.join(command)}`: {first or 'no answer in time'}")
    why = "not executable" if status == _NOT_EXECUTABLE else f"exit status {status}"
    raise UnreadableError(f"`{' '.join(command)}`: {first or why}")
