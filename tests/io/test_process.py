"""What an agent asks of its host for itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

CHILD = """
import ctypes, json, os, platform, struct, threading
from syntony.io.process import serve_promptly

GETATTR = {"x86_64": 315, "aarch64": 275}[platform.machine()]

def slice_and_nice():
    room = ctypes.create_string_buffer(48)
    assert ctypes.CDLL(None).syscall(GETATTR, 0, room, 48, 0) == 0
    _, _, _, nice, _, runtime, _, _ = struct.unpack("<IIQiIQQQ", room)
    return runtime, nice

os.nice(3)
before = slice_and_nice()
granted = serve_promptly()
told = [slice_and_nice()]
thread = threading.Thread(target=lambda: told.append(slice_and_nice()))
thread.start()
thread.join()
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
print(json.dumps([before, granted, *told, serve_promptly(), os.sched_getscheduler(0)]))
"""


def test_all_threads_are_served_promptly_at_the_niceness_they_had() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    (usual_ns, _), granted, here, thread, batch_too, policy = json.loads(done.stdout)
    if usual_ns == 0:
        pytest.skip("needs Linux 6.12 or newer: slices of threads are NOT tested")
    assert granted
    assert here == thread == [100_000, os.nice(0) + 3], "pytest itself may be nice"
    assert not batch_too, "an operator's choice"
    assert policy == 3, "SCHED_BATCH"
