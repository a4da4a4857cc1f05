"""The ring of records that the agent reads, and the thread that hands it over and waits for the
ends of operations; see `syntony_job_hook`."""

import collections
import fcntl
import itertools
import mmap
import os
import socket
import struct
import sys
import threading
import time
import zlib
from typing import Any

MAGIC, VERSION = b"SYNOPS01", 1
SLOTS, COMMS = 8192, 64
HEADER = struct.Struct("=8sIIiiQQ88s")
"""Magic, version, slots, rank, ranks, newest record, operations that were not recorded, and where
the program is once it has reported nothing for `SILENT_S`."""
NEWEST_PLACE, LOST_PLACE = 3, 4
"""Of the header's 64-bit words."""
COMM = struct.Struct("=II56s")
"""Ranks, length of the name and, above its 8 bits, how often the place was used before; name."""
RECORD = struct.Struct("=HHIQQqqq8xQ")
"""Kind, operation, communicator; number of the operation in it, or of the step; bytes; three
instants or durations, by kind; last the number of the record, from 1."""
COMMS_AT = HEADER.size
RECORDS_AT = COMMS_AT + COMMS * COMM.size
PAGE_BYTES = RECORDS_AT + SLOTS * RECORD.size
BEGIN, END, STEP, WAIT = 1, 2, 3, 4
MOST_OPEN = 1024
"""Maximum operations whose end is waited for at a time."""
POLL_S, IDLE_S, RETRY_S = 0.002, 1.0, 5.0
FRAME_BYTES, SILENT_S = 88, 5.0
_INSTALLED = "-packages" + os.sep
_SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
_F_ADD_SEALS = 1033


class Page:
    """The ring, and the thread that hands it to the agent and waits for the ends of operations."""

    def __init__(self, path):
        self._path = path
        self._fd = os.memfd_create("syntony-ops", os.MFD_CLOEXEC | 0x2)  # MFD_ALLOW_SEALING
        os.ftruncate(self._fd, PAGE_BYTES)
        self._memory = mmap.mmap(self._fd, PAGE_BYTES)
        fcntl.fcntl(self._fd, _F_ADD_SEALS, _SEALS)
        HEADER.pack_into(self._memory, 0, MAGIC, VERSION, SLOTS, -1, 0, 0, 0, b"")
        self._words = memoryview(self._memory).cast("Q")
        self.failed: Any = collections.deque(maxlen=MOST_OPEN)
        """Operations that raised, with their threads."""
        self.put, self.begin, self.end = _putters(self)
        """Write a record: kind, operation, communicator and the values by kind; that an operation
        began: communicator, operation, number, bytes; that it ended: the first three of these."""
        self._lost = itertools.count(1)
        self.free = collections.deque(range(COMMS))
        """Numbers for new communicators: place, and `COMMS` for each earlier use of it."""
        self._open: Any = collections.deque()
        self.stepping: Any = threading.main_thread().ident
        """The thread that does the program's steps."""
        self._reported, self._silent_s = -1, 0.0
        self._wake = threading.Event()
        self._agent: Any = None
        self._thread: Any = None
        self.asking = threading.Lock()
        """Held while GPUs are queried, which must not happen while a graph is captured."""
        self.captures = 0

    def place(self, rank, ranks):
        struct.pack_into("=ii", self._memory, 16, rank, ranks)

    def start(self):
        self._thread = threading.Thread(target=self._run, name="syntony", daemon=True)
        self._thread.start()

    def lose(self):
        """Count an operation that is not recorded."""
        self._words[LOST_PLACE] = next(self._lost)

    def name(self, text, ranks):
        """The number of a new communicator; there must be a free one."""
        comm = self.free.popleft()
        data, place = text.encode("ascii", "replace")[-56:], comm % COMMS
        used = len(data) | comm // COMMS << 8
        COMM.pack_into(self._memory, COMMS_AT + place * COMM.size, ranks, used, data)
        return comm

    def watch(self, comm, operation, seq, ended):
        """Record the end of an operation when `ended()` returns true."""
        if len(self._open) >= MOST_OPEN:
            self.end(comm, operation, seq)  # rather early than never: no end is a hang
            self.lose()
            return
        self._open.append((comm, operation, seq, ended))
        self._wake.set()

    def fail(self, opened):
        """An operation raised: it has ended once the program goes on, else it ends the process."""
        self.failed.append((threading.get_ident(), *opened[:3]))

    def go_on(self):
        """The program has caught the errors of this thread's operations, and has not ended by those
        of threads that have."""
        mine, running = threading.get_ident(), sys._current_frames() if self.failed else ()
        for each in list(self.failed):
            if each[0] == mine or each[0] not in running:
                try:
                    self.failed.remove(each)
                except ValueError:  # another thread, or a signal handler, was first
                    continue
                self.end(*each[1:])

    def _run(self):
        look_s = 0.0
        while True:
            try:
                now_s = time.monotonic()
                if now_s >= look_s:
                    look_s = now_s + (IDLE_S if self._connected() else RETRY_S)
                    self._locate(now_s)
                self._poll()
                self._wake.wait(POLL_S if self._open else IDLE_S)
                self._wake.clear()
                if self._open:
                    time.sleep(POLL_S)
            except Exception:
                time.sleep(IDLE_S)

    def _locate(self, now_s):
        """Say where the program is if it has reported nothing for long, so that others may wait for
        it."""
        reported = self._words[NEWEST_PLACE]
        if reported != self._reported:
            self._reported, self._silent_s = reported, now_s
        silent = now_s - self._silent_s >= SILENT_S
        text = where(self.stepping) if silent else ""
        data = text.encode("ascii", "replace")[:FRAME_BYTES]
        self._memory[COMMS_AT - FRAME_BYTES : COMMS_AT] = data.ljust(FRAME_BYTES, b"\0")

    def _poll(self):
        for _ in range(len(self._open)):
            comm, operation, seq, ended = each = self._open.popleft()
            try:
                with self.asking:
                    over = not self.captures and ended()
            except Exception:
                over = True  # it failed: the program gets the error
            if over:
                self.end(comm, operation, seq)
            else:
                self._open.append(each)

    def _connected(self):
        if self._agent is not None:
            try:
                if self._agent.recv(1):
                    return True
            except BlockingIOError:
                return True
            except OSError:
                pass
            self._agent.close()
            self._agent = None
        agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            agent.settimeout(1.0)
            agent.connect(self._path)
            rights = struct.pack("=i", self._fd)
            agent.sendmsg([b"\x01"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            agent.setblocking(False)
        except OSError:
            agent.close()
            return False
        self._agent = agent
        return True


def _putters(page):
    """`Page.put`, `begin` and `end`, with only the names that they need, and without calls of each
    other: in a step each look-up is a line of memory that is not in a cache."""
    number_next = itertools.count(1).__next__  # one step of the interpreter: threads need no lock
    pack_into, size, slots, first = RECORD.pack_into, RECORD.size, SLOTS, RECORDS_AT
    memory, words, failed, now = page._memory, page._words, page.failed, time.monotonic_ns

    def put(kind, operation, comm, *rest):
        number = number_next()
        pack_into(memory, first + (number - 1) % slots * size, kind, operation, comm, *rest, number)
        words[NEWEST_PLACE] = number

    def begin(comm, operation, seq, data):
        if failed:
            page.go_on()
        number = number_next()
        at = first + (number - 1) % slots * size
        pack_into(memory, at, BEGIN, operation, comm, seq, data, now(), 0, 0, number)
        words[NEWEST_PLACE] = number

    def end(comm, operation, seq):
        number = number_next()
        at = first + (number - 1) % slots * size
        pack_into(memory, at, END, operation, comm, seq, 0, now(), 0, 0, number)
        words[NEWEST_PLACE] = number

    return put, begin, end


def swallow(error):
    """Keep an error of the hook from the program; raise it again if a signal handler of the program
    raised it, which may have run while the hook did: it was given the frame that it interrupted."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        for value in trace.tb_frame.f_locals.values():
            among = value if isinstance(value, tuple) else (value,)
            if any(each is interrupted for each in among):
                raise error


def spelled(ranks):
    """A communicator's ranks, or a checksum of them if they are not evenly spaced."""
    apart = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    even = apart > 0 and list(ranks) == list(range(ranks[0], ranks[-1] + 1, apart))
    if not even:
        return "{:08x}".format(zlib.crc32(repr(list(ranks)).encode()))
    return "{}-{}:{}".format(ranks[0], ranks[-1], apart)


def where(thread):
    """Line and function of the program in which a thread is, or the first one if that has ended,
    and what that has called."""
    torch = getattr(sys.modules.get("torch"), "__file__", None) or __file__
    frames = sys._current_frames()
    first = frames.get(threading.main_thread().ident or 0)
    inner = _outside(frames.get(thread, first), (__file__,))
    outer = _outside(inner, (__file__, os.__file__, torch), _INSTALLED, "<frozen")
    spots = [
        "{}:{} {}".format(os.path.basename(each.f_code.co_filename), each.f_lineno,
                          each.f_code.co_name)
        for each in dict.fromkeys((outer, inner)) if each is not None
    ]  # fmt: skip
    return ", in ".join(spots)


def _outside(frame, files, *parts):
    """The innermost frame of a file that is in none of these files' directories, and whose path has
    none of these parts."""
    within = tuple(os.path.join(os.path.dirname(each), "") for each in files)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(within) and not any(each in path for each in parts):
            break
        frame = frame.f_back
    return frame
