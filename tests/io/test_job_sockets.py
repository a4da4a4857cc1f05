"""Sockets of other processes, borrowed for a moment."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syntony.io.job_sockets import TCP_DELACK_MAX_US, TCP_RTO_MIN_US, SocketHolder, lower_timeouts
from syntony.model import MS

_HOLDER = """
import socket, sys
with socket.socket() as sock:
    print(sock.fileno(), flush=True)
    for option in sys.stdin:
        print(sock.getsockopt(socket.IPPROTO_TCP, int(option)), flush=True)
"""


class Holder:
    """A process with a socket, which says what options it has."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.held = SocketHolder(process.pid, int(process.stdout.readline()))
        self.inode = Path(f"/proc/{process.pid}/fd/{self.held.fd}").stat().st_ino

    def us(self, option: int) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(option, file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


@pytest.fixture
def holder() -> Iterator[Holder]:
    with socket.socket() as sock:
        try:
            sock.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MIN_US)
        except OSError:
            pytest.skip("needs Linux 6.15 or newer: timers of jobs' connections are NOT tested")
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Holder(process)


def test_another_process_s_timers_are_lowered_and_never_raised(holder: Holder) -> None:
    before_us = holder.us(TCP_RTO_MIN_US)
    assert lower_timeouts(holder.held, holder.inode, 80 * MS)
    assert holder.us(TCP_RTO_MIN_US) == 80_000 < before_us
    assert holder.us(TCP_DELACK_MAX_US) == 40_000
    assert not lower_timeouts(holder.held, holder.inode, 100 * MS)
    assert holder.us(TCP_RTO_MIN_US) == 80_000


def test_a_descriptor_that_is_another_socket_by_now_is_left_alone(holder: Holder) -> None:
    before_us = holder.us(TCP_RTO_MIN_US)
    for held, inode, code in (
        (holder.held, holder.inode + 1, errno.ESTALE),
        (holder.held._replace(fd=999), holder.inode, errno.EBADF),
    ):
        with pytest.raises(OSError) as reported:  # noqa: PT011 - the number is looked at
            lower_timeouts(held, inode, 80 * MS)
        assert reported.value.errno == code
    assert holder.us(TCP_RTO_MIN_US) == before_us
