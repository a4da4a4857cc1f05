"""Lines for operators, on the job's terminal, about what happens to its ranks."""

from __future__ import annotations

from typing import Any


def line(event: dict[str, Any]) -> str:  # noqa: PLR0911, PLR0912, C901 - one line for each event
    """The line of an event; empty: it has none."""
    match event:
        case {"event": "program", "file": str(file), "loops": list(loops)}:
            what = "stages of a pipeline" if event.get("pipeline") else "protected"
            return f"{what}: {file}, training loops {', '.join(map(str, loops))}"
        case {"event": "lost", "rank": rank, "reason": reason, "boundary": boundary}:
            return f"rank {rank} lost at step {boundary}: {reason}"
        case {"event": "formed", "lost": dict(lost), "took_ns": took_ns, "boundary": boundary}:
            who = ", ".join(f"rank {rank}" for rank in lost) or "connections"
            return f"{who} replaced at step {boundary}, {took_ns / 1e9:.2f} s"
        case {"event": "unprotected", "reason": reason}:
            return f"not protected from now on: {reason}"
        case {"event": "fixed", "reason": reason, "keeps": keeps}:
            drain = "`syntony jobs drain JOB --host HOST --or-checkpoint`"
            then = "ends it with its state kept" if keeps else "needs --checkpoint"
            return f"ranks cannot be replaced, a lost one ends the job: {reason}; {drain} {then}"
        case {"event": "hang" | "straggler", "reason": str(reason)}:
            return reason
        case {"event": "gave-up", "reason": reason}:
            return f"the job ends, for no rank can be replaced: {reason}"
        case {"event": "spare-exit", "code": int(code)} if code > 0:
            return f"a spare ended with exit code {code}; the next loss starts another"
        case {"event": "no-spare", "rank": rank}:
            return f"rank {rank} waits for a spare to start"
        case {"event": "unkept", "reason": reason}:
            return f"the job ends if its coordinator dies, whose files cannot be written: {reason}"
        case {"event": "sharded", "parts": parts, "copies": 1}:
            return (
                f"parameters are split over {parts} ranks: each sends its neighbour a copy of its "
                "part at each step; two neighbours lost at once end the job"
            )
        case {"event": "sharded", "parts": parts, "copies": copies}:
            return f"parameters are split into {parts} parts; of each there are {copies} copies"
        case {"event": "digest", "equal": True, "boundary": boundary, "alike": 1}:
            return f"each rank has its own part of the parameters at step {boundary}"
        case {"event": "digest", "equal": True, "boundary": boundary, "alike": int(alike)}:
            return f"parameters are the same on each {alike} ranks of a part at step {boundary}"
        case {"event": "digest", "equal": True, "boundary": boundary}:
            return f"parameters of all ranks are the same at step {boundary}"
        case {"event": "drain-host", "host": host, "ranks": ranks}:
            return f"host {host} is drained: rank {', '.join(map(str, ranks))} leaves it"
        case {"event": "drain-refused", "host": host, "reason": reason}:
            return f"host {host} is not drained: {reason}"
        case {"event": "drain-refused", "rank": rank, "reason": reason}:
            return f"rank {rank} is not drained: {reason}"
        case _:
            return ""
