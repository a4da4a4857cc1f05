"""A program on another host that takes orders: JSON lines over its standard input and output."""

from __future__ import annotations

import json
import os
import resource
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

from syntony.audit.reach import HostNic
from syntony.errors import RemoteError, UsageError

BOOT = "import sys; n = int(sys.stdin.readline()); exec(sys.stdin.read(n))"
"""The program itself comes first over standard input: nothing is installed on the host."""
ANSWER_S = 60.0
"""For one order."""
AT_ONCE = 256
"""Hosts that work on an order at a time: each takes a thread here."""
FILES_EACH = 4
"""Open files of a host here."""
_CHUNK = 1 << 16
_MAX_LINE = 64 << 20


class Surveyor(Protocol):
    """One host's program; a simulated one in tests."""

    host: str
    nics: tuple[HostNic, ...]

    def order(self, order: Mapping[str, Any]) -> Any:
        """What it answers. Raises `RemoteError`: it ended, or takes too long."""

    def close(self) -> None:
        """Ends it."""


class Remote:
    """The program on one host, started by a command line (ssh, or the way into a lab's namespace).

    Args:
        argv: what runs ``python3 -u -c BOOT`` there.
        until_s: monotonic time at which nothing more is waited for.

    Raises:
        RemoteError: it cannot be started.
    """

    def __init__(self, host: str, argv: Sequence[str], until_s: float) -> None:
        self.host = host
        self.nics: tuple[HostNic, ...] = ()
        self._until_s = until_s
        self._heard = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the program
        try:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
            )
        except OSError as error:
            self._errors.close()
            raise RemoteError(f"{argv[0]}: {error.strerror}") from error
        assert self._process.stdin is not None  # noqa: S101 - as asked for
        assert self._process.stdout is not None  # noqa: S101
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)

    def load(self, script: str) -> None:
        """Send the program. Raises `RemoteError`."""
        self._write(b"%d\n" % len(script) + script.encode(), self._end_s())

    def order(self, order: Mapping[str, Any]) -> Any:
        """What it answers. Raises `RemoteError`: it ended, or takes too long."""
        end_s = self._end_s()
        self._write(json.dumps(order).encode() + b"\n", end_s)
        line = self._line(end_s)
        try:
            return json.loads(line)
        except ValueError as error:
            said = line[:80].decode("utf-8", "replace").strip()
            raise RemoteError(f"invalid answer {said!r}") from error

    def close(self) -> None:
        """Ends it: the program ends with its standard input."""
        self._process.kill()
        self._process.wait()
        for each in (self._process.stdin, self._process.stdout, self._errors):
            if each is not None:
                each.close()

    def _end_s(self) -> float:
        now_s = time.monotonic()
        return now_s + min(ANSWER_S, max(0.0, self._until_s - now_s))

    def _write(self, data: bytes, end_s: float) -> None:
        view = memoryview(data)
        while view:
            self._wait(self._in, select.POLLOUT, end_s)
            try:
                view = view[os.write(self._in, view[:_CHUNK]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise RemoteError(self._error_output()) from error

    def _line(self, end_s: float) -> bytes:
        while b"\n" not in self._heard:
            self._wait(self._out, select.POLLIN, end_s)
            data = os.read(self._out, _CHUNK)
            if not data or len(self._heard) > _MAX_LINE:
                raise RemoteError(self._error_output())
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def _wait(self, descriptor: int, event: int, end_s: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        left_s = end_s - time.monotonic()
        if left_s <= 0 or not poll.poll(left_s * 1000):
            raise RemoteError("no answer in time")

    def _error_output(self) -> str:
        """Its standard error; a hung program has been ended before."""
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:200] if lines else "the program ended"


_T = TypeVar("_T")
_R = TypeVar("_R", bound=Surveyor)


class SurveyHosts(Generic[_R]):
    """All hosts of a survey. Orders go to all at once; a host that fails is dropped and listed as
    silent."""

    def __init__(self, members: Sequence[_R], silent: Mapping[str, str]) -> None:
        self.members = {each.host: each for each in members}
        self.silent = dict(silent)
        self._pool = ThreadPoolExecutor(max_workers=max(1, min(AT_ONCE, len(members))))

    def each(self, hosts: Sequence[str], work: Callable[[_R], _T]) -> dict[str, _T]:
        """The result of `work` for each of these hosts that still answers."""
        there = [self.members[host] for host in hosts if host in self.members]
        done = self._pool.map(lambda member: self._try(member, work), there)
        return {
            member.host: answer[0]
            for member, answer in zip(there, done, strict=True)
            if answer is not None
        }

    def close(self) -> None:
        list(self._pool.map(lambda member: member.close(), self.members.values()))
        self._pool.shutdown()

    def _try(self, member: _R, work: Callable[[_R], _T]) -> tuple[_T] | None:
        try:
            return (work(member),)
        except RemoteError as error:
            if self.members.pop(member.host, None) is not None:
                self.silent[member.host] = str(error)
                member.close()
            return None


def allow_files(hosts: int) -> None:
    """Raises this process's limit of open files as far as so many hosts need. Raises `UsageError`:
    it may not be raised so far."""
    wanted = FILES_EACH * hosts + 256
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise UsageError(
                f"{hosts} hosts need {wanted} open files, {hard} are allowed: ulimit -n"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
