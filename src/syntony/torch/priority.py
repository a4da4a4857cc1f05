"""A spare that starts takes processor time that the job leaves, until it is ready.

Importing PyTorch takes seconds of a core, which ranks that share the host would wait for. Two
means, for it depends on the host which of them counts: the nice value of the spare's session (where
the kernel shares cores between sessions, `/proc/PID/autogroup`), and the class `SCHED_IDLE` within
a session or cgroup. Everybody may take back the first; the second is used only by those who may.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

LOW_S = 10.0
"""A spare that is not ready by then gets its full share: on a busy host it may otherwise never."""
TRIES, AGAIN_S = 20, 0.1
_NONE = os.sched_param(0)


class Lowered:
    """A process that has just been started, in a session of its own."""

    def __init__(self, pid: int, now_s: float) -> None:
        self._pid = pid
        self._until_s: float | None = now_s + LOW_S
        _nice(pid, 19)
        if _may_return():
            with contextlib.suppress(OSError):
                os.sched_setscheduler(pid, os.SCHED_IDLE, _NONE)

    def look(self, now_s: float) -> None:
        """Restore it once its time is over."""
        if self._until_s is not None and now_s >= self._until_s:
            self._until_s = None
            restore(self._pid)


def restore(pid: int) -> None:
    """Of all threads of the process; does nothing to one that was not lowered."""
    _nice(pid, 0)
    with contextlib.suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            if os.sched_getscheduler(int(task.name)) == os.SCHED_IDLE:
                os.sched_setscheduler(int(task.name), os.SCHED_OTHER, _NONE)


def _nice(pid: int, value: int) -> None:
    for _ in range(TRIES):
        try:
            Path(f"/proc/{pid}/autogroup").write_text(str(value))
        except BlockingIOError:  # the kernel allows ten changes a second, of all sessions together
            time.sleep(AGAIN_S)
        except OSError:  # no such kernel
            return
        else:
            return


def _may_return() -> bool:
    """Tried by a thread that ends: classes are of threads."""
    returned: list[bool] = []

    def probe() -> None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, _NONE)
            os.sched_setscheduler(0, os.SCHED_OTHER, _NONE)
            returned.append(True)

    thread = threading.Thread(target=probe)
    thread.start()
    thread.join()
    return bool(returned)
