"""What tools that measure say, in their own forms (figures of published runs)."""

from __future__ import annotations

import json


def nvbandwidth(h2d: float = 55.37, d2h: float = 55.2, p2p: float = 391.0) -> str:
    """v0.10 on two H100; the first GPU is as reported, the second always well."""
    return f"""nvbandwidth Version: v0.10.0
Built from Git version: v0.10.0

CUDA Runtime Version: 13.2 (13020)
CUDA Driver Version (API): 13.2 (13020)
Driver Version: 535.129.03

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     {h2d:5.2f}     55.36

SUM host_to_device_memcpy_ce {h2d + 55.36:.2f}
COEFFICIENT_OF_VARIATION host_to_device_memcpy_ce 0.00

Running device_to_host_memcpy_ce.
memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0     {d2h:5.2f}     55.18

SUM device_to_host_memcpy_ce {d2h + 55.18:.2f}
COEFFICIENT_OF_VARIATION device_to_host_memcpy_ce 0.00

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    {p2p:6.2f}
 1    392.43       N/A

SUM device_to_device_memcpy_read_ce {p2p + 392.43:.2f}
COEFFICIENT_OF_VARIATION device_to_device_memcpy_read_ce 0.00

NOTE: The reported results may not reflect the full capabilities of the platform.
Performance can vary with software drivers, hardware clocks, and system topology.
"""


def rocm_bandwidth(to_gpu: float = 55.42, between: float = 48.59) -> str:
    """`rocm-bandwidth-test -a`, two sockets and two Instinct GPUs."""
    return f"""
          RocmBandwidthTest Version: 2.6.0

          Launch Command is: rocm-bandwidth-test -a


          Device: 0,  AMD EPYC 9654 96-Core Processor
          Device: 1,  AMD EPYC 9654 96-Core Processor
          Device: 2,  AMD Instinct MI300X,  GPU-8e2a,  03:0.0
          Device: 3,  AMD Instinct MI300X,  GPU-91bb,  83:0.0

          Inter-Device Access

          D/D       0         1         2         3

          0         1         1         1         1

          Unidirectional copy peak bandwidth GB/s

          D/D       0           1           2           3

          0         N/A         N/A         {to_gpu:.3f}      41.210

          1         N/A         N/A         41.560      55.310

          2         55.230      55.260      1689.850    {between:.3f}

          3         55.210      55.250      48.510      1672.910


          Bidirectional copy peak bandwidth GB/s

          D/D       0           1           2           3

          0         N/A         N/A         83.489      83.400
"""


def all_reduce(busbw: float = 470.0, wrong: int = 0, gpus: int = 2,
               device: str = "NVIDIA H100 80GB HBM3") -> str:  # fmt: skip
    """`all_reduce_perf -b 1G -e 8G -f 2 -g N` of nccl-tests 2.17."""
    ranks = "\n".join(
        f"#  Rank {n:2} Group  0 Pid   6899 on gpu001 device {n:2} [0000:{n + 3:02x}:00] {device}"
        for n in range(gpus)
    )
    rows = "\n".join(
        f" {1 << (30 + n):11} {1 << (28 + n):13}     float     sum      -1   5502.0  {busbw:.2f}"
        f"  {busbw:.2f}       {wrong}   5498.9  {busbw:.2f}  {busbw:.2f}       0"
        for n in range(4)
    )
    return f"""# nccl-tests version 2.17.1 nccl-headers=22809 nccl-library=22809
# nThread 1 nGpus {gpus} minBytes 1073741824 maxBytes 8589934592 step: 2(factor) warmup iters: 1
#
# Using devices
{ranks}
#
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
{rows}
# Out of bounds values : {wrong} {"FAILED" if wrong else "OK"}
# Avg bus bandwidth    : {busbw:.2f}
#
"""  # noqa: E501


def gemm(*tflops: float, wrong: int = 0, name: str = "NVIDIA H100 80GB HBM3") -> str:
    """`syntony audit gemm --json` with GPUs."""
    rows = [
        {"device": f"GPU {number}", "name": name, "gpu": True, "type": "bfloat16", "tflops": rate,
         "wrong": wrong}
        for number, rate in enumerate(tflops)
    ]  # fmt: skip
    return json.dumps({"devices": rows})


GEMM_CPU = json.dumps(
    {"devices": [{"device": "node0", "name": "64 CPUs x86_64", "gpu": False, "type": "float32",
                  "tflops": 4.1, "wrong": 0}],
     "why": "/usr/bin/python3: No module named 'torch'"}
)  # fmt: skip


def clocks(offset_ns: float = 2_000.0, bound_ns: float = 900.0, *, synthetic: bool = False) -> str:
    """`syntony audit clocks --json`."""
    return json.dumps(
        {"host": "gpu001", "synthetic": synthetic, "peers": [
            {"peer": "gpu002", "offset_ns": offset_ns, "bound_ns": bound_ns}]}
    )  # fmt: skip
