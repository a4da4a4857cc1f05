"""Gives a starting spare only processor time that the job does not use, until it is ready.

Importing PyTorch takes seconds of a core, for which ranks on the same host would have to wait. Two
means are used, because their effect depends on the host: the nice value of the spare's session (if
the kernel shares cores between sessions, `/proc/PID/autogroup`), and the class `SCHED_IDLE` within
a session or cgroup. Any process may undo the first; the second is used only where the process may
undo it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

LOW_S = 10.0
"""A spare that is not ready by then gets its full share: on a busy host it might otherwise never
be."""
TRIES, AGAIN_S = 20, 0.1
_NONE = os.sched_param(0)


class LoweredPriority:
    """A process that has just been started, in a separate session."""

    def __init__(self, pid: int, now_s: float) -> None:
        self._pid = pid
        self._until_s: float | None = now_s + LOW_S
        _nice(pid, 19)
        if _may_return():
            _change(pid, os.SCHED_OTHER, os.SCHED_IDLE)

    def look(self, now_s: float) -> None:
        """Restore its priority once the time is over."""
        if self._until_s is not None and now_s >= self._until_s:
            self._until_s = None
            restore(self._pid)


def restore(pid: int) -> None:
    """Restore all threads of the process; does nothing if it was not lowered."""
    _nice(pid, 0)
    _change(pid, os.SCHED_IDLE, os.SCHED_OTHER)


def _change(pid: int, before: int, after: int) -> None:
    """Change the class of all threads that have the class `before`, also of those that start
    meanwhile: a thread has the class of the one that starts it."""
    changed = True
    while changed:
        changed = False
        with contextlib.suppress(OSError):  # the process has ended, or changes are not allowed
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):  # the thread has ended
                    if os.sched_getscheduler(int(task.name)) == before:
                        os.sched_setscheduler(int(task.name), after, _NONE)
                        changed = True


def _nice(pid: int, value: int) -> None:
    for _ in range(TRIES):
        try:
            Path(f"/proc/{pid}/autogroup").write_text(str(value))
        except BlockingIOError:  # the kernel allows ten changes a second, over all sessions
            time.sleep(AGAIN_S)
        except OSError:  # not supported by this kernel
            return
        else:
            return


def _may_return() -> bool:
    """Whether the class can be undone, tried by a temporary thread: classes belong to threads."""
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
