"""A spare that starts yields to the job, until it is ready or its time is over."""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live import eventually

from syntony.torch import priority
from syntony.torch.messages import HEADER, VARIABLE, decode, encode, sizes
from syntony.torch.spare_host import start_spare

THREADS = """
import threading, time
for _ in range(2):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("threads", flush=True)
time.sleep(60)
"""
grouped = pytest.mark.skipif(
    not Path("/proc/self/autogroup").exists(),
    reason="needs a kernel with groups of sessions (CONFIG_SCHED_AUTOGROUP): their priority is "
    "NOT tested",
)


def can_return() -> bool:
    return priority._may_return()


def nice(pid: int) -> int:
    return int(Path(f"/proc/{pid}/autogroup").read_text().split()[-1])


def classes(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {os.sched_getscheduler(int(each.name)) for each in tasks}


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", THREADS], stdout=subprocess.PIPE, start_new_session=True
    ) as made:
        yield made
        made.kill()


def threads(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"threads\n"


@grouped
@pytest.mark.parametrize("late", [False, True])
def test_all_threads_are_low_until_time_is_over(
    process: subprocess.Popen[bytes], *, late: bool
) -> None:
    """Also those that the process has started before its class is changed."""
    if late:
        threads(process)
    lowered = priority.LoweredPriority(process.pid, 100.0)
    if not late:
        threads(process)
    low = os.SCHED_IDLE if can_return() else os.SCHED_OTHER
    lowered.look(100.0 + priority.LOW_S - 0.1)
    assert (nice(process.pid), classes(process.pid)) == (19, {low})
    lowered.look(100.0 + priority.LOW_S)
    assert (nice(process.pid), classes(process.pid)) == (0, {os.SCHED_OTHER})


@grouped
def test_a_change_that_the_kernel_does_not_allow_yet_is_tried_again(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = [True, True]
    write = Path.write_text

    def write_text(path: Path, text: str) -> int:
        if path.name == "autogroup" and refused:
            refused.pop()
            raise BlockingIOError
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", write_text)
    priority.LoweredPriority(process.pid, 0.0)
    assert nice(process.pid) == 19


def test_who_may_not_return_is_not_lowered_so(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority, "_may_return", lambda: False)
    priority.LoweredPriority(process.pid, 0.0)
    threads(process)
    assert classes(process.pid) == {os.SCHED_OTHER}


@pytest.mark.skipif(
    os.geteuid() != 0,
    reason="needs root, to become somebody else: what others than root may do is NOT tested",
)
def test_others_than_root_may_not_return() -> None:
    program = """
import os, resource, sys
from syntony.torch import priority
resource.setrlimit(resource.RLIMIT_NICE, (0, 0))
os.setuid(65534)
assert not priority._may_return()
assert os.sched_getscheduler(0) == os.SCHED_OTHER, "it was tried by another thread"
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_one_that_has_ended_is_nobody(process: subprocess.Popen[bytes]) -> None:
    lowered = priority.LoweredPriority(process.pid, 0.0)
    process.kill()
    process.wait()
    lowered.look(priority.LOW_S)


@grouped
def test_a_spare_starts_low_in_a_session_of_its_own(tmp_path: Path) -> None:
    low = os.SCHED_IDLE if can_return() else os.SCHED_OTHER
    program = tmp_path / "train.py"
    program.write_text(f"""
import os, time
began = time.monotonic()
while time.monotonic() < began + {priority.LOW_S - 2}:  # it is lowered while it starts already
    found = os.sched_getscheduler(0), open('/proc/self/autogroup').read().split()[-1]
    if found == ({low}, "19"):
        break
    time.sleep(0.02)
open({str(tmp_path / "found")!r}, 'w').write(repr((*found, os.getsid(0), time.monotonic())))
""")
    start = {"python": sys.executable, "argv": [str(program)], "directory": str(tmp_path)}
    began_s = time.monotonic()
    keeper = start_spare(start, os.environ | {VARIABLE: "127.0.0.1:1:nobody"})
    assert keeper.wait(300) == 0
    kind, nice_value, session, found_s = ast.literal_eval((tmp_path / "found").read_text())
    assert session == keeper.pid
    if found_s - began_s < priority.LOW_S:  # on a starved machine its time may be over by then
        assert (kind, nice_value) == (low, "19")


def test_an_interrupt_of_a_host_that_lends_spares_reaches_them(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.touch()
    start = {
        "python": sys.executable, "argv": [str(program)], "directory": str(tmp_path),
        "environ": dict(os.environ),
    }  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = f"127.0.0.1:{listener.getsockname()[1]}:secret"
        serve = f"from syntony.torch.spare_host import serve; serve({target!r}, 1, print)"
        lender = subprocess.Popen([sys.executable, "-c", serve])
        connection, _ = listener.accept()
        with connection:
            connection.sendall(encode({"kind": "start", "start": start}))
            worker = keepers_worker(listener)
            lender.send_signal(signal.SIGINT)
            assert lender.wait(300) == 128 + signal.SIGINT
            eventually(lambda: has_ended(worker), "the spare's program ends")


def keepers_worker(listener: socket.socket) -> int:
    """The process that a keeper has started, by its first words."""
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as frames:
            text_size, _ = sizes(frames.read(HEADER.size))
            hello = decode(frames.read(text_size))
        if hello["role"] == "keeper":
            return int(hello["pid"])


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
