"""A PyTorch job (gloo, CPU): one rank of DDP training, all-reduce or all-to-all in a loop.

    python gloo.py ddp RANK RANKS ELEMENTS

Needs torch and the standard library only, so that any interpreter that has torch can run it; it
prints the same records as the built-in job (`syntony.lab.jobs.records`). MASTER_ADDR, MASTER_PORT
and
GLOO_SOCKET_IFNAME are read by PyTorch. Ends when a line (or the end) arrives on standard input.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

GRACE_S = 5.0
TIMEOUT = dt.timedelta(minutes=30)
"""PyTorch's own default: how long a collective may hang before gloo gives up."""
VALUES = 4096
"""Numbers are integers below this, times small weights: float32 sums below 2^24 are exact."""
FEATURES, BATCH = 256, 8
RATE = 1e-3


def report_event(event: str, rank: int, **more: object) -> None:
    print(json.dumps({"event": event, "rank": rank, **more}), flush=True)


class Collective:
    """Common to all: pattern, weights, rank 0's vote to end."""

    def __init__(self, requested: argparse.Namespace, end_requested: threading.Event) -> None:
        self.rank, self.ranks, self.elements = requested.rank, requested.ranks, requested.elements
        self.spoil, self.end_requested = requested.spoil, end_requested
        draw = torch.Generator().manual_seed(20_011)
        self.pattern = torch.randint(0, VALUES, (self.elements,), generator=draw).float()

    def vote(self) -> float:
        return float(self.rank == 0 and self.end_requested.is_set())

    def planted_error(self, step: int) -> float:
        """The error that a test adds to this rank's data: 1 in one step."""
        return float(step == self.spoil)

    def run_step(self, step: int) -> bool:
        """Run one step; return whether it was the last."""
        raise NotImplementedError

    def count_wrong(self, step: int) -> int:
        """How many elements of the result are wrong; not timed."""
        raise NotImplementedError

    def rolled(self, step: int) -> torch.Tensor:
        return self.pattern.roll(step * 127)


class AllReduce(Collective):
    def run_step(self, step: int) -> bool:
        mine = self.rolled(step) * (self.rank + 1 + step % 3) + self.planted_error(step)
        self.data = torch.cat([mine, torch.tensor([self.vote()])])
        dist.all_reduce(self.data)
        return bool(self.data[-1] > 0)

    def count_wrong(self, step: int) -> int:
        total = sum(rank + 1 + step % 3 for rank in range(self.ranks))
        return int((self.data[:-1] != self.rolled(step) * total).sum())


class AllToAll(Collective):
    def run_step(self, step: int) -> bool:
        share = self.rolled(step)[: self.elements // self.ranks] + self.planted_error(step)
        vote = torch.tensor([self.vote()])
        weights = [self.rank * self.ranks + dst + 1 for dst in range(self.ranks)]
        out = torch.cat([torch.cat([share * weight, vote]) for weight in weights])
        self.into = torch.empty_like(out)
        dist.all_to_all_single(self.into, out)
        return bool(self.into.view(self.ranks, -1)[0, -1] > 0)

    def count_wrong(self, step: int) -> int:
        share = self.rolled(step)[: self.elements // self.ranks]
        weights = torch.tensor([src * self.ranks + self.rank + 1.0 for src in range(self.ranks)])
        wanted = weights[:, None] * share[None, :]
        return int((self.into.view(self.ranks, -1)[:, :-1] != wanted).sum())


class Ddp(Collective):
    """Two layers with about `elements` parameters; gradients against those of the whole batch."""

    def __init__(self, requested: argparse.Namespace, end_requested: threading.Event) -> None:
        super().__init__(requested, end_requested)
        torch.manual_seed(7)
        hidden = max(1, self.elements // (2 * FEATURES + 1))
        self.model = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, FEATURES)
        )
        self.ddp = torch.nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
        draw = torch.Generator().manual_seed(11)
        self.batches = torch.randn(self.ranks, BATCH, FEATURES, generator=draw)

    def run_step(self, step: int) -> bool:
        self.optimizer.zero_grad()
        self.loss(self.ddp(self.batch(step)[self.rank] + self.planted_error(step))).backward()
        vote = torch.tensor([self.vote()])
        dist.all_reduce(vote)
        return bool(vote[0] > 0)

    def count_wrong(self, step: int) -> int:
        """Gradients that differ from the whole batch's by more than rounding; then trains."""
        parameters = list(self.model.parameters())
        whole = self.loss(self.model(self.batch(step).reshape(-1, FEATURES)))
        wanted = torch.autograd.grad(whole, parameters)
        bad = sum(
            int((~torch.isclose(p.grad, g, rtol=1e-3, atol=1e-5)).sum())
            for p, g in zip(parameters, wanted, strict=True)
        )
        self.optimizer.step()
        return bad

    def batch(self, step: int) -> torch.Tensor:
        return self.batches.roll(step, 2)

    @staticmethod
    def loss(out: torch.Tensor) -> torch.Tensor:
        return out.pow(2).mean()


KINDS = {"ddp": Ddp, "all-reduce": AllReduce, "all-to-all": AllToAll}


def listen(end_requested: threading.Event) -> None:
    while line := os.read(0, 64):
        if line.strip():
            end_requested.set()
    end_requested.set()
    time.sleep(GRACE_S)
    os._exit(4)


def run(rank: int, collective: Collective, pause_s: float) -> None:
    step = 0
    while True:
        time.sleep(pause_s)
        start_ns = time.monotonic_ns()
        try:
            last = collective.run_step(step)
        except RuntimeError as error:  # what gloo raises for everything
            fail(rank, step, error)
        end_ns = time.monotonic_ns()
        bad = collective.count_wrong(step)
        report_event("step", rank, step=step, start_ns=start_ns, end_ns=end_ns, wrong=bad)
        step += 1
        if last:
            report_event("done", rank, at_ns=time.monotonic_ns(), steps=step)
            return


def fail(rank: int, step: int, error: Exception) -> None:
    text = " ".join(str(error).split())
    lost = "imed out" in text or "onnection" in text or "peer" in text
    report_event(
        "failed", rank, at_ns=time.monotonic_ns(), step=step, error=text, connection_lost=lost
    )
    os._exit(3)  # gloo's threads would wait for ever


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("rank", type=int)
    parser.add_argument("ranks", type=int)
    parser.add_argument("elements", type=int)
    parser.add_argument("--spoil", type=int, metavar="STEP", help="plant a wrong number: a test")
    parser.add_argument("--pause-ns", type=int, default=0, help="before each step")
    requested = parser.parse_args()
    end_requested = threading.Event()
    threading.Thread(target=listen, args=(end_requested,), daemon=True).start()
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo", rank=requested.rank, world_size=requested.ranks, timeout=TIMEOUT
        )
        collective = KINDS[requested.kind](requested, end_requested)
        dist.barrier()
    except RuntimeError as error:
        fail(requested.rank, -1, error)
    report_event("ready", requested.rank, at_ns=time.monotonic_ns())
    run(requested.rank, collective, requested.pause_ns / 1e9)
    sys.stdout.flush()
    os._exit(0)  # a clean end of gloo waits for peers that may be gone already


if __name__ == "__main__":
    main()
