"""The agent's side of `gpu_reader`: starts it, reads its output, gives up if it hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from syntony.errors import MissingError, WireError
from syntony.model import S, format_ns
from syntony.wire.gpus import MAX_LINE, GpuSnapshot, decode

DEVICES = {"nvidia": Path("/dev/nvidiactl"), "amd": Path("/dev/kfd")}
"""What drivers make where there are GPUs."""
LIBRARIES = {"nvidia": "pynvml", "amd": "amdsmi"}
"""Vendor to the module that asks its driver."""
FIRST_LOOK_NS, LOOK_NS = 60 * S, 15 * S
"""A reading that takes longer hangs; the first may wake all GPUs, seconds each."""

END_S = 2.0
"""A killed process that is still there after that hangs; the agent ends without it."""


class GpuProcess:
    """Never waits. Of one thread.

    Args:
        devices: vendor to a file that is there where its driver is.
        environ: of the process, in addition to ours.
    """

    def __init__(
        self, devices: Mapping[str, Path] = DEVICES, environ: Mapping[str, str] | None = None
    ) -> None:
        self._devices, self._environ = devices, dict(environ or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._left: subprocess.Popen[bytes] | None = None
        """A process that was killed but has not ended: its driver call does not return."""
        self._buffer = b""
        self._due_ns = 0

    def is_possible(self) -> bool:
        """Whether this host has a GPU's driver."""
        return any(path.exists() for path in self._devices.values())

    def start(self) -> None:
        """Begin, or begin again. Raises `MissingError`: no driver, or the process of before does
        not go."""
        self._stop()
        if self._left is not None and self._left.poll() is None:
            raise MissingError(
                f"a call of the GPU's driver does not return (process {self._left.pid}); "
                "look for Xids in the kernel log, drain and reset the GPU"
            )
        self._left = None
        vendors = [name for name, path in self._devices.items() if path.exists()]
        if not vendors:
            raise MissingError("no GPU driver is loaded any more")
        missing = [LIBRARIES[name] for name in vendors if find_spec(LIBRARIES[name]) is None]
        if len(missing) == len(vendors):
            raise MissingError(f"Python's {' and '.join(missing)} is not installed")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "syntony.io.gpu_reader", *vendors],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=os.environ | self._environ, close_fds=True,
        )  # fmt: skip
        if self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)
        self._buffer, self._due_ns = b"", time.monotonic_ns() + FIRST_LOOK_NS

    def read(self) -> list[GpuSnapshot]:
        """Readings since the last call.

        Raises:
            MissingError: it cannot read GPUs, hangs or has ended: start it again.
            WireError: it wrote something else.
        """
        process = self._process
        if process is None or process.stdout is None:
            return []
        ended = process.poll() is not None
        looks = [decode(line) for line in self._lines(process.stdout.fileno())]
        reason = next((each.reason for each in looks if each.reason), "")
        now_ns = time.monotonic_ns()
        if looks:
            self._due_ns = now_ns + LOOK_NS
        if reason:
            self._fail(reason)
        if ended:
            self._fail(f"the reader of GPUs ended with status {process.returncode}")
        if now_ns > self._due_ns:
            self._fail(f"the GPU's driver has not answered for {format_ns(LOOK_NS)}")
        return looks

    def close(self) -> None:
        """The end of the agent. Idempotent."""
        self._stop()
        if self._left is not None:
            with suppress(subprocess.TimeoutExpired):
                self._left.wait(END_S)

    def _stop(self) -> None:
        """Kill it without waiting: it may hang where no signal reaches it."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            if process.stdout is not None:
                process.stdout.close()
            self._left = process

    def _fail(self, reason: str) -> None:
        self._stop()
        raise MissingError(reason)

    def _lines(self, file: int) -> list[bytes]:
        while len(self._buffer) <= MAX_LINE:
            try:
                data = os.read(file, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                break
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        if len(self._buffer) > MAX_LINE:
            self._stop()
            raise WireError("the GPU reader wrote a line without an end")
        return lines
