"""Rate-limited logging to stderr, so that repeated errors cannot fill the disk."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from syntony.errors import SyntonyError
from syntony.model import S

BURST = 20
"""Lines of one kind about one object that are logged at once."""
REFILL_NS = 10 * S
"""Then another one every so often."""
MAX_KINDS = 4_096
"""Remembered: the one that was logged longest ago is forgotten first."""
_MAX_TEXT = 200


class LogLimit(logging.Filter):
    """Limits the rate of similar log lines.

    For one handler. Lines are of one kind if their text is the same, and about one object if the
    first value in it is: a host, as a rule. The next line that passes says how many did not.

    Args:
        clock: CLOCK_MONOTONIC, ns.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()
        """Of each: when its burst is whole again, and how many were held back since the last."""
        self.held_back = 0

    def filter(self, record: logging.LogRecord) -> bool:
        values = record.args if isinstance(record.args, tuple) else ()
        kind = str(record.msg)[:_MAX_TEXT], str(values[0])[:_MAX_TEXT] if values else ""
        now_ns = self._clock()
        with self._lock:
            whole_ns, held_back = self._kinds.pop(kind, (0, 0))
            passes = whole_ns - now_ns <= (BURST - 1) * REFILL_NS
            if passes:
                self._kinds[kind] = max(whole_ns, now_ns) + REFILL_NS, 0
            else:
                self._kinds[kind] = whole_ns, held_back + 1
                self.held_back += 1
            if len(self._kinds) > MAX_KINDS:
                self._kinds.popitem(last=False)
        if passes and held_back:
            record.msg = f"{record.msg} held_back_before={held_back}"
        return passes


def log_to_stderr(level: int | str, form: str) -> None:
    """For all of this process.

    Args:
        form: of a line, as `logging` has it.
    """
    handler = logging.StreamHandler()
    handler.addFilter(LogLimit())
    logging.basicConfig(level=level, format=form, handlers=[handler])


@contextmanager
def bugs_logged() -> Iterator[None]:
    """Log the traceback of what ends a daemon, unless the error has a message of its own: a daemon
    cannot simply be repeated with `syntony --debug`."""
    try:
        yield
    except SyntonyError:
        raise
    except Exception:
        logging.getLogger("syntony").exception("ends by a bug")
        raise


def lines_held_back() -> int:
    """Number of lines that this process has suppressed since its start."""
    filters = (each for handler in logging.root.handlers for each in handler.filters)
    return sum(each.held_back for each in filters if isinstance(each, LogLimit))
