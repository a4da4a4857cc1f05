"""The parent process of each worker: starts it, reports its end, kills it on the coordinator's
order.

The launcher (torchrun, srun, mpirun) waits for the keeper, which ends when the *rank* has ended, no
matter which process holds it by then. It is a small separate process so that the training program
cannot keep it from answering, for example by holding the interpreter's lock for seconds.

Run as a file, with the interpreter and the arguments of the process that it replaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

POLL_S = 0.2
AGAIN_S = 10.0
"""Time in which a coordinator that died must be restarted."""
_PR_SET_PDEATHSIG = 1
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def is_stopped(pid: int) -> bool:
    """Whether it is stopped by a signal, not by a debugger."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] == "T"


class Keeper:
    """Waits for the worker and for orders at the same time."""

    def __init__(self, argv: list[str]) -> None:
        from syntony.torch import launchers, messages, priority

        self._messages = messages
        self._name = uuid.uuid4().hex[:12]
        self._spare = bool(os.environ.pop(messages.SPARE_VARIABLE, ""))
        self._process = self._start(argv)
        self._lowered: Any = None
        if self._spare:
            self._lowered = priority.LoweredPriority(self._process.pid, time.monotonic())
        self._pidfd = os.pidfd_open(self._process.pid)
        found = None if self._spare else launchers.place(os.environ)
        rank, ranks = found or (None, 0)
        self._hello: dict[str, Any] = {
            "role": "keeper", "name": self._name, "rank": rank, "world": ranks,
            "pid": self._process.pid, "host": os.uname().nodename,
        }  # fmt: skip
        if not self._spare:
            self._hello |= {
                "python": sys.executable,
                "argv": argv,
                "environ": dict(os.environ),
                "directory": str(Path.cwd()),
            }
        self._target = os.environ[messages.VARIABLE]
        self._connection: Any = None
        try:
            self._connection = messages.CoordinatorConnection(self._target, self._hello)
        except (OSError, ValueError) as error:
            print(f"syntony: not protected: no coordinator: {error}", file=sys.stderr)

    def _start(self, argv: list[str]) -> subprocess.Popen[bytes]:
        """Start the worker: the same program, run by `runner`."""
        runner = Path(__file__).with_name("runner.py")
        flags, words = split(argv)
        environ = os.environ | {self._messages.NAME_VARIABLE: self._name}
        libc = ctypes.CDLL(None)

        def die_with_us() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))

        return subprocess.Popen(
            [sys.executable, *flags, str(runner), *words],
            env=environ,
            preexec_fn=die_with_us,  # noqa: PLW1509 - one thread
        )

    def run(self) -> int:
        """Run until the rank has ended; returns its exit code."""
        for number in FORWARDED:
            signal.signal(number, lambda each, _frame: self._process.send_signal(each))
        with selectors.DefaultSelector() as selector:
            selector.register(self._pidfd, selectors.EVENT_READ, "worker")
            if self._connection is not None:
                selector.register(self._connection, selectors.EVENT_READ, "coordinator")
            while True:
                ready = {key.data for key, _ in selector.select(POLL_S)}
                if self._lowered is not None:
                    self._lowered.look(time.monotonic())
                if "coordinator" in ready:
                    code = self._obey(selector)
                    if code is not None:
                        return code
                if "worker" in ready and self._process.returncode is None:
                    selector.unregister(self._pidfd)
                    self._tell({"kind": "exit", "code": self._process.wait()})
                    if self._connection is None:
                        return self._code()
                elif self._process.returncode is None:
                    stopped = is_stopped(self._process.pid)
                    self._tell({"kind": "state", "stopped": stopped})

    def _obey(self, selector: selectors.BaseSelector) -> int | None:
        received = self._connection.receive()
        if received is None:
            selector.unregister(self._connection)
            self._connection.close()
            self._connection = self._again()
            if self._connection is None:
                return self._alone()
            selector.register(self._connection, selectors.EVENT_READ, "coordinator")
            return None
        message = received[0]
        if message["kind"] == "kill":
            self._process.kill()
        elif message["kind"] == "end":
            self._end()
            return int(message["code"])
        return None

    def _again(self) -> Any:
        """Connect to the coordinator that replaced one that died; None: there is none."""
        end_s = time.monotonic() + AGAIN_S
        while time.monotonic() < end_s:
            message = {"again": True, "code": self._process.poll()}
            with contextlib.suppress(OSError):
                return self._messages.CoordinatorConnection(self._target, self._hello | message)
            time.sleep(POLL_S)
        return None

    def _end(self) -> None:
        """End the worker: if it still runs, it is no longer part of the job."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _alone(self) -> int:
        """Without a coordinator: run unprotected; a spare ends."""
        if self._spare:
            self._end()
            return 0
        self._process.wait()
        return self._code()

    def _code(self) -> int:
        """The exit code as a shell reports it."""
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def _tell(self, message: dict[str, Any]) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):  # its end is detected when orders are read
                self._connection.send(message)


def split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split the interpreter's own options from what it runs with its arguments.

    Args:
        argv: `sys.orig_argv` of the process, without the interpreter.
    """
    flags: list[str] = []
    rest = list(argv)
    while rest and rest[0].startswith("-") and rest[0] not in {"-", "-m", "-c"}:
        flags.append(rest.pop(0))
        if flags[-1] in {"-X", "-W"} and rest:
            flags.append(rest.pop(0))
    return flags, rest


def _run_plain_unless_placed(argv: list[str]) -> None:
    """If the launcher does not give the number of ranks, run the program unprotected."""
    from syntony.torch import launchers, messages

    if messages.SPARE_VARIABLE in os.environ or launchers.place(os.environ) is not None:
        return
    names = ", ".join(each.ranks for each in launchers.LAUNCHERS)
    print(f"syntony: not protected: the number of ranks is not set ({names})", file=sys.stderr)
    del os.environ[messages.VARIABLE]
    os.execv(sys.executable, [sys.executable, *argv])  # noqa: S606 - in our place


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    _run_plain_unless_placed(sys.argv[1:])
    sys.exit(Keeper(sys.argv[1:]).run())
