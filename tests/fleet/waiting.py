"""Waiting for a lab to come to something, for as long as a busy machine may need."""

from __future__ import annotations

import time
from collections.abc import Callable

from syntony.errors import RemoteError


def await_true(
    true: Callable[[], bool],
    what: str,
    *,
    patience_s: float,
    pause_s: float,
    instead: Callable[[], object] = str,
) -> None:
    """Until it is true; a controller that does not answer yet is starting.

    `instead` is asked what was there, when it never came true.
    """
    end_s = time.monotonic() + patience_s
    while True:
        try:
            if true():
                return
        except RemoteError:
            pass
        assert time.monotonic() < end_s, f"never: {what} {instead()}"
        time.sleep(pause_s)
