"""`syntony run --spares`: the process that starts a job's launcher and its coordinator.

It holds the coordinator's listening socket. A coordinator that dies is restarted, finds the state
in the job's directory (`spool`), and keepers and workers connect to it at the same address.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from syntony.torch.keeper import is_stopped
from syntony.torch.messages import VARIABLE, make_socket
from syntony.torch.orders import PRESERVED, Origin, Settings
from syntony.torch.spool import CONCLUSION, ENDED, FAILED, KILLED

MAX_STARTS = 8
"""Maximum starts of a coordinator: one that dies again and again has a fault."""
END_S = 20.0
"""Time for a coordinator to end its spares, at the job's end."""
STOPPED_S = 3
"""A coordinator that is stopped (SIGSTOP) for this long is killed: ranks do not wait for it longer
than `session.ACK_S`."""
BACKLOG = 1024
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ListenError(Exception):
    """The socket cannot listen at the address; the message is one line."""


class JobOptions(NamedTuple):
    """The operator's options for a job."""

    settings: Settings
    job: str
    """Its name, for commands of operators."""
    events: Path | None = None
    """File to which events are appended, a JSON object a line."""
    address: str = "127.0.0.1"
    """Where the coordinator listens."""
    port: int = 0
    token: str = ""
    """Secret of those who connect; empty: a new one."""
    origin: Origin | None = None
    """The checkpoint from which it resumes."""


def run_job(
    argv: Sequence[str], environ: Mapping[str, str], options: JobOptions, say: Callable[[str], None]
) -> int:
    """Run the launcher together with a coordinator; returns the launcher's exit code, or
    `PRESERVED`.

    Raises:
        ListenError: the socket cannot listen at the address.
        OSError: the launcher cannot be executed.
    """
    place = Path(tempfile.mkdtemp(prefix="syntony-job-"))
    coordinators: Coordinators | None = None
    try:
        with _listener(options) as listener:
            token = options.token or secrets.token_hex(16)
            target = f"{options.address}:{listener.getsockname()[1]}:{token}"
            environ = {**environ, VARIABLE: target}
            coordinators = Coordinators(options, environ, listener, place, say)
            launcher = subprocess.Popen(list(argv), env=environ)
            for number in FORWARDED:
                signal.signal(number, lambda each, _frame: launcher.send_signal(each))
            code = launcher.wait()
        coordinators.end(KILLED if code < 0 else ENDED)
        kept = place / CONCLUSION
        if kept.exists():
            say(kept.read_text())
            return PRESERVED
        return _shell_code(code)
    finally:
        if coordinators is not None:
            coordinators.end(FAILED)
        shutil.rmtree(place, ignore_errors=True)


def _listener(options: JobOptions) -> socket.socket:
    made = make_socket(options.address)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((options.address, options.port))
        made.listen(BACKLOG)
        return made
    except OSError as error:
        made.close()
        raise ListenError(f"{options.address}:{options.port}: {error.strerror}") from None


def _shell_code(code: int) -> int:
    return code if code >= 0 else 128 - code


class Coordinators:
    """The coordinator of a job, and the successors of one that dies."""

    def __init__(
        self, options: JobOptions, environ: Mapping[str, str], listener: socket.socket, place: Path,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._options = options
        # Its own connections are not the job's: no library is preloaded into it.
        self._environ = {k: v for k, v in environ.items() if k not in {"LD_PRELOAD", "PYTHONPATH"}}
        self._listener = listener
        self._place = place
        self._say = say
        self._lock = threading.Lock()
        self._ending = False
        self._process = self._start(resumed=False)
        self._watcher = threading.Thread(target=self._watch, name="coordinators", daemon=True)
        self._watcher.start()

    def _start(self, *, resumed: bool) -> subprocess.Popen[bytes]:
        config: dict[str, Any] = {
            "settings": self._options.settings._asdict(), "job": self._options.job,
            "events": str(self._options.events.absolute()) if self._options.events else None,
            "listener": self._listener.fileno(), "place": str(self._place), "resumed": resumed,
            "origin": self._options.origin._asdict() if self._options.origin else None,
        }  # fmt: skip
        program = Path(__file__).with_name("serve.py")
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(program), json.dumps(config)],
            env=self._environ,
            pass_fds=[self._listener.fileno()],
            stdin=subprocess.PIPE,
            start_new_session=True,  # a terminal's signals are the job's
        )

    def _watch(self) -> None:
        for started in range(1, MAX_STARTS + 1):
            code = ended(self._process)
            with self._lock:
                if self._ending:
                    return
                if started == MAX_STARTS:
                    break
                self._say(f"the coordinator died ({_word(code)}); another takes up the job")
                self._process = self._start(resumed=True)
        self._say(f"not protected: {MAX_STARTS} coordinators died")
        self._listener.close()  # processes that reconnect must notice it

    def end(self, how: bytes) -> None:
        """The job has ended, or (`KILLED`) its launcher has and cannot end its ranks; without
        effect if it was called before."""
        with self._lock:
            if self._ending:
                return
            self._ending = True
            process = self._process
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.write(how)
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for a coordinator's end and return its exit code; one that is stopped is killed."""
    stopped_s = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(1)
        stopped_s = stopped_s + 1 if is_stopped(process.pid) else 0
        if stopped_s >= STOPPED_S:
            process.kill()


def _word(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
