"""A host that only offers spares for a job whose coordinator is elsewhere: starts them on
request."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from syntony.torch.launchers import RANK_NAMES
from syntony.torch.messages import SPARE_VARIABLE, VARIABLE, CoordinatorConnection

RETRY_S = 0.2
JOIN_S, RETURN_S = 600.0, 10.0
"""Time until the job must have begun; time until a coordinator that died must have returned."""
OWN = ("GLOO_", "NCCL_", "SYNTONY_", "LD_")
"""Variables of the host itself; all others come from the job."""


def serve(target: str, count: int, say: Callable[[str], None]) -> int:
    """Keep up to `count` spares here until the job has ended.

    Args:
        target: `ADDRESS:PORT:TOKEN` of the coordinator.
        count: number of spares of this host.
        say: prints a line for the operator.

    Returns:
        0; 1 if there is no coordinator.
    """
    hello = {"role": "host", "name": uuid.uuid4().hex[:12], "count": count}
    spares: list[subprocess.Popen[bytes]] = []
    patience_s, met = JOIN_S, False

    def end(number: int, _frame: object) -> None:
        """They have separate sessions: a terminal's signal does not reach them."""
        for each in spares:
            each.send_signal(number)
        sys.exit(128 + number)

    signal.signal(signal.SIGINT, end)
    while (connection := _connect(target, hello, patience_s)) is not None:
        patience_s, met = RETURN_S, True
        while (received := connection.receive()) is not None:
            for each in spares:
                each.poll()
            if received[0]["kind"] == "start":
                spares.append(_start(received[0]["start"], target))
            elif received[0]["kind"] == "end":
                connection.close()
                for each in spares:
                    each.wait()
                return 0
    say("the coordinator is gone" if met else f"no coordinator at {target.rpartition(':')[0]}")
    return 1


def _connect(target: str, hello: dict[str, Any], patience_s: float) -> CoordinatorConnection | None:
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        with contextlib.suppress(OSError):
            return CoordinatorConnection(target, hello)
        time.sleep(RETRY_S)
    return None


def _start(start: Mapping[str, Any], target: str) -> subprocess.Popen[bytes]:
    own = {name: value for name, value in os.environ.items() if name.startswith(OWN)}
    return start_spare(start, {**start["environ"], **own, VARIABLE: target})


def start_spare(start: Mapping[str, Any], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a keeper whose worker waits for a rank.

    Args:
        start: how the launcher started a rank: `python`, `argv`, `directory`.
        environ: of the process; variables that name a rank are removed.
    """
    mine = {name: value for name, value in environ.items() if name not in RANK_NAMES}
    keeper = Path(__file__).with_name("keeper.py")
    return subprocess.Popen(
        [start["python"], "-I", "-S", str(keeper), *start["argv"]],
        env=mine | {SPARE_VARIABLE: "1"},
        cwd=start["directory"],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # see `priority`
    )
