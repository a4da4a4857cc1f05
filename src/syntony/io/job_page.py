"""The page that the agent shares with one process of a job (native/job/syn_job_page.h)."""

from __future__ import annotations

import enum
import os
from typing import Any, NamedTuple

import numpy as np

from syntony.errors import MissingError
from syntony.io._library import dtype_of, ffi, library
from syntony.traffic.process_flows import RECORD, address_bytes

MAX_FLOWS = 512
"""SYN_JOB_FLOWS."""


class Subject(enum.IntEnum):
    """``enum syn_job_subject``."""

    PATH_DEAD = 1
    PATH_ALIVE = 2
    STOPPED = 3
    STARTED = 4
    PATH_PACE = 5
    PATH_MOVE = 6
    PATH_AVOID = 7


class JobPageContents(NamedTuple):
    """What a process has written, unchecked."""

    records: list[bytes]
    """Flows, those that wait longest for something outstanding first."""
    flows: int
    """Including those beyond `most`."""
    torn: int
    """Flows that could not be read whole: being written all the time, or their writer died."""
    left_out: int
    """Flows for which the page had no place, by the process's word."""


class JobPage:
    """The agent's end of one page. Not thread-safe. Raises `MissingError`: no memory or descriptor
    is left for it."""

    def __init__(self) -> None:
        fd, error = ffi.new("int *"), ffi.new("int *")
        self._page: Any = library().syn_job_page_make(fd, error)
        if self._page == ffi.NULL:
            raise MissingError(f"no page for a job's process: {os.strerror(error[0])}")
        self.fd = int(fd[0])
        """To be sent to the process; `release` closes it."""
        self._noticed = 0

    def release(self) -> None:
        """The process has it. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def read(self, most: int) -> JobPageContents:
        """The process's current records, unchecked; `most` at most."""
        flows, torn = ffi.new("struct syn_job_flow[]", MAX_FLOWS), ffi.new("uint32_t *")
        count = int(library().syn_job_page_read(self._page, flows, torn))
        raw = bytes(ffi.buffer(flows, count * RECORD.size))
        return JobPageContents(
            _longest_waiting(raw, most), count, int(torn[0]), int(self._page.left_out)
        )

    def notify(
        self,
        subject: Subject,
        *,
        at_ns: int,
        expires_ns: int = 0,
        path: tuple[str, str] = ("", ""),
        rate_bps: int = 0,
    ) -> None:
        """Write a notice; with the two addresses if it is about a path, and with a rate if it is an
        order to pace."""
        fields = {"subject": int(subject), "at_ns": at_ns, "expires_ns": expires_ns}
        fields["rate_bps"] = rate_bps
        notice = ffi.new("struct syn_job_notice *", fields)
        notice.local, notice.remote = map(address_bytes, path)
        library().syn_job_page_notify(self._page, self._noticed, notice)
        self._noticed += 1

    def close(self) -> None:
        """Unmap it. The process may go on writing to what it has."""
        self.release()
        if self._page != ffi.NULL:
            library().syn_job_page_unmap(self._page)
        self._page = ffi.NULL


def _longest_waiting(raw: bytes, most: int) -> list[bytes]:
    count = len(raw) // RECORD.size
    order = range(count)
    if count > most:
        flows = np.frombuffer(raw, dtype_of("syn_job_flow"))
        order = np.lexsort((flows["last_done_ns"], flows["outstanding"] == 0))[:most].tolist()
    return [raw[at * RECORD.size : (at + 1) * RECORD.size] for at in order]
