"""What an agent costs its leader, attached to it and behind gateways; and what it costs a gateway.

Everything is real except the agents (see `bench.ingest`): leader and gateways are processes of
their own with an embedded store each. Each agent sends one batch of probe rows a second, and
readings of others' clocks every other second. With a longer `--interval` it sends both that often,
which shows more agents than two cores can carry at their rate. After a silence of 2 s batches are
looked up in the store, so each batch then costs more than at that rate.

    python -m bench.gateways --agents 200 --gateways 2
    python -m bench.gateways --agents 2000 --gateways 3 --interval 10 --seconds 60 --behind-only
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bench.ingest import Agent, Usage, channel_to, peers_of, rss_mb, steady
from tests.link import ControllerProcess, GatewayProcess

from syntony.model import S
from syntony.wire.messages import UNCHECKED_NS

ATTACHING = 32
"""Agents that attach at a time."""


class Cost(NamedTuple):
    """Milliseconds of processor time for each agent and second."""

    attached: str
    agents: int
    leader_ms: float
    gateways_ms: float
    """Of all gateways together."""
    client_ms: float
    batches: int
    ack_p50_ms: float
    ack_p99_ms: float
    decision_gap_p50_s: float
    decision_gap_p99_s: float
    """Between two decisions that one agent was sent."""
    attached_s: float
    """From the first agent to the last one's first batch, or its attaching with `--interval`."""
    leader_rss_mb: float
    gateway_rss_mb: float
    """Of the largest."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=20, help="of load")
    parser.add_argument("--interval", type=float, default=1.0, help="s between an agent's batches")
    parser.add_argument("--settle", type=float, default=5.0, help="s between attaching and load")
    parser.add_argument("--behind-only", action="store_true", help="none attached to the leader")
    parser.add_argument("--rows-per-batch", type=int, default=160)
    parser.add_argument("--peers", type=int, default=10, help="whose clocks each agent measures")
    parser.add_argument("--rounds", type=int, default=1, help="each of both kinds, in turn")
    arguments = parser.parse_args()
    arguments.ill = False
    for _ in range(arguments.rounds):
        for gateways in (0, arguments.gateways)[arguments.behind_only :]:
            print(json.dumps(_measure(gateways, arguments)._asdict()), flush=True)
    print(f"load {Path('/proc/loadavg').read_text().split()[0]}, {os.cpu_count()} cores")
    return 0


def _measure(gateways: int, arguments: argparse.Namespace) -> Cost:
    with tempfile.TemporaryDirectory(prefix="syntony-bench-") as directory:
        leader = ControllerProcess(Path(directory), name="leader")
        made = [GatewayProcess(leader, name=f"gw{number}") for number in range(gateways)]
        try:
            for process in (leader, *made):
                process.start()
            return asyncio.run(_drive(leader, made, arguments))
        finally:
            for process in (*made, leader):
                process.end()


async def _drive(
    leader: ControllerProcess, gateways: Sequence[GatewayProcess], arguments: argparse.Namespace
) -> Cost:
    hosts = [f"b{number}" for number in range(arguments.agents)]
    doors: Sequence[ControllerProcess] = gateways or [leader]
    agents, listening = list[Agent](), list[asyncio.Task[None]]()
    began_s = time.monotonic()
    for first in range(0, len(hosts), ATTACHING):
        some = [
            Agent(
                hosts[place], peers_of(hosts, place, arguments.peers),
                channel_to(doors[place % len(doors)], leader.issue(hosts[place])), arguments,
            )
            for place in range(first, min(first + ATTACHING, len(hosts)))
        ]  # fmt: skip
        listening += await asyncio.gather(*(agent.attach() for agent in some))
        agents += some
    if arguments.interval * S <= UNCHECKED_NS:
        await asyncio.gather(*(agent.warm_up() for agent in agents))
    attached_s = time.monotonic() - began_s
    await asyncio.sleep(arguments.settle)
    pids = [leader.pid, *(each.pid for each in gateways)]
    before = [Usage.now(pid) for pid in pids]
    await asyncio.gather(*(steady(agent, place, arguments) for place, agent in enumerate(agents)))
    await asyncio.gather(*(agent.settle() for agent in agents))
    after = [Usage.now(pid) for pid in pids]
    for task in listening:
        task.cancel()
    share = 1e3 / arguments.agents / (after[0].at - before[0].at)
    spent = [share * (b.controller - a.controller) for a, b in zip(before, after, strict=True)]
    delays = np.sort([delay for agent in agents for delay in agent.delays]) * 1e3
    span = before[0].at, after[0].at
    gaps = np.concatenate([
        np.diff([at for at in agent.decided if span[0] <= at <= span[1]]) for agent in agents
    ])  # fmt: skip
    gap_p50, gap_p99 = np.quantile(gaps, [0.5, 0.99]).tolist() if len(gaps) else (0.0, 0.0)
    return Cost(
        "behind gateways" if gateways else "to the leader",
        arguments.agents,
        round(spent[0], 3),
        round(sum(spent[1:]), 3),
        round(share * (after[0].client - before[0].client), 3),
        len(delays),
        round(float(delays[len(delays) // 2]), 1),
        round(float(delays[int(len(delays) * 0.99)]), 1),
        round(gap_p50, 2),
        round(gap_p99, 2),
        round(attached_s, 1),
        rss_mb(pids[0]),
        max(map(rss_mb, pids[1:]), default=0.0),
    )


if __name__ == "__main__":
    sys.exit(main())
