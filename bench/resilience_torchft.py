"""The program of `lab.drill.rank_loss` under torchft, for `bench.resilience_schedule`.

    python -m bench.resilience_torchft --out=DIR --ranks=4 --steps=N --pause-ms=100

Each rank is a replica group of its own; the launcher serves the lighthouse and starts a group that
dies again. A group that was away takes the others' state and misses the steps they did meanwhile.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from syntony.lab.jobs.training import BATCH, CLASSES, WIDTH, digits, sha256

RANK = "RANK"
LIGHTHOUSE = "TORCHFT_LIGHTHOUSE"
POLL_S = 0.02


def launch(args: argparse.Namespace) -> int:
    """Until every group has ended well."""
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(
        bind="[::]:0", min_replicas=1, join_timeout_ms=200, quorum_tick_ms=50,
        heartbeat_timeout_ms=1000,
    )  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # its groups end with it
    argv = [sys.executable, "-m", "bench.resilience_torchft", *sys.argv[1:], "--group"]
    groups: dict[int, subprocess.Popen[bytes]] = {}
    try:
        while True:
            for rank in range(args.ranks):
                if rank not in groups or groups[rank].poll() not in {None, 0}:
                    environ = os.environ | {RANK: str(rank), LIGHTHOUSE: server.address()}
                    groups[rank] = subprocess.Popen(argv, env=environ)
            if all(each.poll() == 0 for each in groups.values()):
                return 0
            time.sleep(POLL_S)
    finally:
        for each in groups.values():
            each.kill()
        server.shutdown()


def train(args: argparse.Namespace) -> None:
    """One replica group."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F  # noqa: N812
    import torchft
    from torch import nn
    from torch.utils.data import DistributedSampler

    torch.set_num_threads(1)
    rank = int(os.environ[RANK])
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port)}
    os.environ |= {RANK: "0", "WORLD_SIZE": "1"}
    torch.manual_seed(1)
    layers = [nn.Linear(WIDTH, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, CLASSES)]
    inner = nn.Sequential(*layers)
    adam = torch.optim.AdamW(inner.parameters(), lr=1e-3)
    torch.manual_seed(100 + rank)
    data = digits(args.steps * BATCH * args.ranks)
    order = list(DistributedSampler(data, args.ranks, rank, shuffle=True, seed=9))

    def load(state: Any) -> None:
        inner.load_state_dict(state["model"])
        adam.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=5)),
        load_state_dict=load,
        state_dict=lambda: {"model": inner.state_dict(), "optimizer": adam.state_dict()},
        min_replica_size=1,
        replica_id=f"r{rank}",
        timeout=timedelta(seconds=10),
    )
    model = torchft.DistributedDataParallel(manager, inner)
    optimizer = torchft.Optimizer(manager, adam)
    with (args.out / f"{rank}.steps").open("a", buffering=1) as log:
        while (step := manager.current_step()) < args.steps:
            x, y = data[order[step * BATCH : (step + 1) * BATCH]]
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            time.sleep(args.pause_ms / 1e3)
            loss.backward()
            optimizer.step()
            if manager.current_step() > step:
                done = manager.current_step() - 1
                log.write(f"{time.monotonic_ns()} {done} {loss.item()!r}\n")
    (args.out / f"{rank}.sha256").write_text(sha256(inner, adam))
    manager.shutdown(wait=False)
    sys.stdout.flush()
    os._exit(0)  # its threads may wait for groups that have ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--pause-ms", type=float, default=0.0)
    parser.add_argument("--group", action="store_true", help="One of them, by RANK.")
    args = parser.parse_args()
    if args.group:
        train(args)
    else:
        sys.exit(launch(args))


if __name__ == "__main__":
    main()
