"""The coordinator's process: run as a file by `supervisor`, with only the standard library."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any

_NO_RANKS = (
    "not protected: no rank of a training job ran in this command; "
    "start its ranks by torchrun, srun or mpirun, in Python programs"
)


async def serve(config: dict[str, Any]) -> None:
    """Serve until the supervisor reports the job's end, or (if it was killed) no rank is left."""
    from syntony.torch.coordinator import Coordinator
    from syntony.torch.orders import Origin, Settings
    from syntony.torch.spool import ENDED, KILLED, JobSpool

    events = Path(config["events"]) if config["events"] else None
    spool = JobSpool(Path(config["place"]))
    origin = Origin(**config["origin"]) if config["origin"] else None
    settings = Settings(**config["settings"])
    coordinator = Coordinator(settings, spool, audit=events, say=say, origin=origin)
    if config["resumed"]:
        coordinator.resume()
    await coordinator.open(socket.socket(fileno=config["listener"]))
    await coordinator.answer_operators(config["job"])
    reason = await asyncio.to_thread(sys.stdin.buffer.read)
    if not reason:
        say("`syntony run` was killed; the job continues, and is protected until it ends")
        await coordinator.wait_alone()
    if reason == KILLED:
        say("the launcher was killed: its ranks are ended")
    if reason == ENDED and not coordinator.had_ranks:
        say(_NO_RANKS)
    await coordinator.close(killed=reason == KILLED)
    if not reason:
        shutil.rmtree(config["place"], ignore_errors=True)


def say(text: str) -> None:
    """Print a line for the operator."""
    with contextlib.suppress(OSError):  # nothing may read it any more
        print(f"syntony: {text}", file=sys.stderr, flush=True)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the job ends when its launcher does
    asyncio.run(serve(json.loads(sys.argv[1])))
    os._exit(0)  # a thread may still wait for the supervisor


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main()
