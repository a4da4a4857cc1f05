"""One rank of an all-reduce test in PyTorch, for hosts without nccl-tests: NCCL where there are
GPUs, gloo where there are none (a test of the CPU fabric).

    python allreduce.py RANK RANKS MIN_BYTES MAX_BYTES ITERATIONS
    python allreduce.py count                (how many GPUs PyTorch can use here, as JSON)

SYNTONY_LOCAL_RANKS says how many ranks this host has, one for each GPU; RANK is then the first's,
and the others are forked, as torchrun would start them.

Needs torch and the standard library only, so that any interpreter with torch can run it, from
standard input too. Rank 0 says what nccl-tests would write to its report. MASTER_ADDR, MASTER_PORT
and GLOO_SOCKET_IFNAME are read by PyTorch.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import signal
import socket
import sys
import time

import torch
import torch.distributed as dist

WARMUP = 2
VALUES = 1024
"""Numbers are integers below this: sums of up to 16,384 ranks are exact in float32."""


def measure(elements: int, iterations: int, device: torch.device) -> tuple[list[float], int]:
    """Seconds of each iteration, and how many elements of the last result were wrong."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    pattern = (torch.arange(elements, dtype=torch.int64) % VALUES).float().to(device)
    times = []
    data = pattern
    for turn in range(WARMUP + iterations):
        data = pattern + float(rank)
        dist.barrier()
        start_ns = time.perf_counter_ns()
        dist.all_reduce(data)
        if device.type == "cuda":
            torch.cuda.synchronize()
        if turn >= WARMUP:
            times.append((time.perf_counter_ns() - start_ns) / 1e9)
    wanted = pattern * ranks + ranks * (ranks - 1) / 2
    return times, int((data != wanted).sum())


def slowest(times: list[float], device: torch.device) -> list[float]:
    """Each iteration as long as on its slowest rank."""
    reported = torch.tensor(times, dtype=torch.float64, device=device)
    dist.all_reduce(reported, op=dist.ReduceOp.MAX)
    return [float(each) for each in reported]


def result(size: int, times: list[float], wrong: int) -> dict[str, object]:
    """As a result of nccl-tests: gloo and PyTorch reduce in place only."""
    ranks = dist.get_world_size()
    mean = sum(times) / len(times)
    algorithm = size / mean / 1e9
    bus = algorithm * 2 * (ranks - 1) / ranks
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, (len(ordered) * 99 + 99) // 100 - 1)]
    reported = {"time": mean * 1e6, "alg_bw": algorithm, "bus_bw": bus, "nwrong": wrong}
    iterations = {"p50_us": ordered[len(ordered) // 2] * 1e6, "p99_us": p99 * 1e6}
    return {
        "size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "-1",
        "out_of_place": reported, "in_place": reported, "out_of_place_per_iter": iterations,
    }  # fmt: skip


def spread(ranks: int) -> int:
    """Forks a process for each local rank; returns in each of them, with its number.

    The process that was started only waits: it ends well when all have, and badly, the others
    ended, as soon as one has.
    """
    if ranks == 1:
        return int(os.environ.get("LOCAL_RANK", "0"))
    running = set()
    for local in range(ranks):
        child = os.fork()
        if child == 0:
            return local
        running.add(child)
    signal.signal(signal.SIGTERM, lambda *_: end(running))
    while running:
        child, status = os.wait()
        running.discard(child)
        if status:
            end(running)
    os._exit(0)


def end(running: set[int]) -> None:
    """Ends local ranks, and this process as a failure."""
    for child in running:
        os.kill(child, signal.SIGKILL)
    os._exit(1)


def main() -> None:
    if sys.argv[1:] == ["count"]:
        print(json.dumps({"gpus": torch.cuda.device_count() if torch.cuda.is_available() else 0}))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    for name in ("rank", "ranks", "min_bytes", "max_bytes", "iterations"):
        parser.add_argument(name, type=int)
    requested = parser.parse_args()
    several = int(os.environ.get("SYNTONY_LOCAL_RANKS", "1"))
    local = spread(several)
    requested.rank += local if several > 1 else 0
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        rank=requested.rank,
        world_size=requested.ranks,
        timeout=dt.timedelta(seconds=float(os.environ.get("SYNTONY_COLLECTIVE_TIMEOUT_S", "60"))),
    )
    name = torch.cuda.get_device_name(device) if cuda else f"CPU {platform.machine()} (gloo)"
    reported: list[object] = [None] * requested.ranks
    dist.all_gather_object(reported, (os.environ.get("SYNTONY_HOST", socket.gethostname()), name))
    results = []
    size = requested.min_bytes
    while size <= requested.max_bytes:
        times, wrong = measure(size // 4, requested.iterations, device)
        counted = torch.tensor([wrong], dtype=torch.int64, device=device)
        dist.all_reduce(counted)
        results.append(result(size, slowest(times, device), int(counted[0])))
        size *= 2
    if requested.rank == 0:
        print(json.dumps(report(results, reported)), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # a clean end of gloo waits for peers that may be gone already


def report(results: list[dict[str, object]], reported: list[object]) -> dict[str, object]:
    """The document of nccl-tests' ``-J``, as far as it is read."""
    places = [result["in_place"] for result in results]
    speeds = [place["bus_bw"] for place in places if isinstance(place, dict)]
    devices = [
        {"rank": rank, "hostname": each[0], "device_info": each[1]}
        for rank, each in enumerate(reported)
        if isinstance(each, tuple)
    ]
    return {
        "config": {"devices": devices},
        "results": results,
        "average_bus_bandwidth": {"bandwidth": sum(speeds) / len(speeds), "okay": "unchecked"},
        "errors": [],
    }


if __name__ == "__main__":
    main()
