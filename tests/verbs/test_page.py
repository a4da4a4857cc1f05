"""Pages of hostile processes as the agent takes them: their layout, their memory, their time."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

from tests.traffic.test_queue_pair_page import OWNER, page

from syntony.io._library import dtype_of, ffi, library
from syntony.io.queue_pair_page import QueuePairPage
from syntony.traffic.queue_pair_page import (
    PAGE_BYTES,
    RINGS,
    SLOT,
    SLOTS,
    STAMP,
    STAMP_RECORD,
    STAMPS,
)
from syntony.wire.queue_pairs import STAMP_BYTES


def test_the_reader_has_the_headers_layout() -> None:
    native = library()
    assert (native.SYN_QP_SLOTS, native.SYN_QP_STAMPS) == (SLOTS, STAMPS)
    assert native.SYN_QP_RINGS == RINGS
    for ours, theirs in ((SLOT, "syn_qp_slot"), (STAMP, "syn_qp_stamp")):
        assert ours.fields is not None
        declared = dtype_of(theirs)
        assert declared.itemsize == ours.itemsize
        assert declared.fields is not None
        where = {name: (kind, at) for name, (kind, at, *_) in declared.fields.items()}
        assert where == {name: (kind, at) for name, (kind, at, *_) in ours.fields.items()}
    assert ffi.sizeof("struct syn_qp_page") == PAGE_BYTES
    assert STAMP_RECORD.itemsize == STAMP_BYTES


def memory(size: int = PAGE_BYTES, seals: int = 0x7) -> int:
    fd = os.memfd_create("page", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_only_sealed_memory_of_the_right_size_is_taken(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with tempfile.TemporaryFile() as file:
        file.truncate(PAGE_BYTES)
        others = {
            "a pipe": reading,
            "a file": file.fileno(),
            "a fifo": os.open(fifo, os.O_RDONLY | os.O_NONBLOCK),
            "too small": memory(PAGE_BYTES - 1),
            "can shrink": memory(seals=0x4),
            "can be sealed": memory(seals=0x6),
            "/dev/zero": os.open("/dev/zero", os.O_RDONLY),
        }
        count = descriptors()
        for what, fd in others.items():
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            socket.send_fds(theirs, [b"\x01"], [fd])
            taken = QueuePairPage(ours, OWNER)
            assert taken.read() == [], what
            assert taken.malformed == 1, what
            ours.close()
            theirs.close()
        assert descriptors() == count
    for fd in (writing, *(each for what, each in others.items() if what != "a file")):
        os.close(fd)


def test_many_descriptors_are_not_kept() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fds = [memory() for _ in range(8)]
    count = descriptors()
    socket.send_fds(theirs, [b"\x01"], fds)
    taken = QueuePairPage(ours, OWNER)
    taken.read()
    taken.close()
    assert descriptors() == count
    for fd in fds:
        os.close(fd)
    ours.close()
    theirs.close()


def test_a_page_that_comes_late_is_taken_then() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    taken = QueuePairPage(ours, OWNER)
    assert taken.read() == []
    fd = memory()
    whole = page(began_ns=1, first_sent_ns=1)
    os.pwrite(fd, whole, 0)
    socket.send_fds(theirs, [b"\x01"], [fd])
    (figures,) = taken.read()
    assert figures.sent == 10
    taken.close()
    assert taken.read() == []
    for each in (ours, theirs):
        each.close()
    os.close(fd)
