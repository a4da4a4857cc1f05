"""What a path's death costs a job while an agent hangs, or one of its two processes.

    python -m bench.hung_agent --rounds 5           # about four minutes

One MPTCP connection over two rails of a lab of its own (50 Mb/s each) sends 200 kB messages, each
answered, from h0 to h1. An agent is stopped, and then h0's first rail drops everything, both ways.
Told is the longest message from then on, medians and all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from bench.slow_path import NAME, RATE, acting, await_joins, job
from tests.live import LiveLab, eventually, live

HUNG = {
    "nobody": (),
    "telemetry, both ends": (("telemetry-stop", "h0"), ("telemetry-stop", "h1")),
    "reactor, sender": (("reactor-stop", "h0"),),
    "reactor, receiver": (("reactor-stop", "h1"),),
    "agent, sender": (("agent-stop", "h0"),),
    "agent, receiver": (("agent-stop", "h1"),),
}
"""Who hangs: faults and hosts."""
HOSTS, SIZE = 4, 200_000
WATCHED_S, PAUSE_S = 5.0, 6.0


def measure(lab: LiveLab, port: int, hung: str, hung_s: float) -> float:
    """Seconds of the longest message."""
    faults = []
    try:
        with job(lab, port, SIZE) as sender:
            assert sender.stdout is not None  # noqa: S101 - a pipe was asked for
            await_joins(lab)
            faults += [lab.inject(kind, host) for kind, host in HUNG[hung]]
            time.sleep(hung_s)
            faults.append(lab.inject("blackhole", "h0/rail0"))
            began_s, longest_s = time.monotonic(), 0.0
            for line in sender.stdout:
                now_s, _, message_s = json.loads(line)
                if now_s >= began_s:
                    longest_s = max(longest_s, message_s)
                if now_s >= began_s + WATCHED_S:
                    return longest_s
            raise RuntimeError("the sender ended early")
    finally:
        for fault in reversed(faults):
            lab.clear(fault.id)
        time.sleep(PAUSE_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--who", nargs="+", choices=HUNG, default=list(HUNG), help="who hangs")
    parser.add_argument("--hung-for", type=float, default=3.0, help="s before the path dies")
    requested = parser.parse_args()
    port = 5600
    options = ("--hosts", str(HOSTS), "--leaves", "1", "--spines", "1", "--rate", RATE)
    found: dict[str, list[float]] = {hung: [] for hung in requested.who}
    with live(NAME, *options, agents=True) as lab:
        eventually(lambda: acting(lab) == HOSTS, "all agents manage paths", within_s=60)
        for _ in range(requested.rounds):
            for hung in requested.who:
                port += 1
                found[hung].append(measure(lab, port, hung, requested.hung_for))
                print(f"hangs: {hung}: {found[hung][-1]:.2f} s", flush=True)
    print("\n| Hangs | Longest message, s: median | All |\n| --- | --- | --- |")
    for hung, each in found.items():
        every = " ".join(f"{one:.2f}" for one in each)
        print(f"| {hung} | {statistics.median(each):.2f} | {every} |")


if __name__ == "__main__":
    main()
