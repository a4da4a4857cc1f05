"""2 Node: how fast the GPUs copy, compute and reduce. All of it loads the host."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from syntony.audit.check import Compare, HostCheck, Key, Section
from syntony.audit.facts import AbsentError, FactError, Facts, UnreadableError
from syntony.audit.gpus import has_amd, has_nvidia, nvidia_smi, without_gpu
from syntony.audit.nccl.diagnosis import floor_of
from syntony.audit.nccl.output import Output, parse_table
from syntony.audit.parse.bandwidth import (
    CASES,
    D2H,
    H2D,
    P2P,
    CopyRate,
    parse_nvbandwidth,
    parse_rocm_bandwidth,
)
from syntony.audit.parse.text import json_of
from syntony.audit.result import ComparedValue, Result, Suspect
from syntony.errors import InputError

NVBANDWIDTH = ("nvbandwidth", "-t", *CASES)
ROCM_BANDWIDTH = ("rocm-bandwidth-test", "-a")


class CopyFloor(NamedTuple):
    """What a healthy GPU of a model copies at the least."""

    device: str
    """Part of the device's name."""
    direction: str
    gbytes: float
    source: str


COPY_FLOORS = (
    CopyFloor("A100", H2D, 23.0, "Azure node health checks"),
    CopyFloor("A100", D2H, 23.0, "Azure node health checks"),
    CopyFloor("H100", H2D, 48.0, "Azure node health checks"),
    CopyFloor("H100", D2H, 48.0, "Azure node health checks"),
    CopyFloor("H100 80GB HBM3", P2P, 335.0, "Azure node health checks, over NVLink"),
)
"""For SXM modules; other models are compared with their peers only."""


class GpuBandwidth(HostCheck):
    """GPUs copy to and from the host, and between each other, as fast as they should.

    Expected results: each direction of each GPU at least its model's floor where one is published
    (H100: 48 GB/s to and from the host, 335 GB/s to its slowest peer; A100: 23 GB/s), and no more
    than 5 % below the expected value. Active: it takes the GPUs for about a minute.
    """

    id = "node.gpu-bw"
    section = Section.NODE
    reads = (f"$ {' '.join(NVBANDWIDTH)}", f"$ {' '.join(ROCM_BANDWIDTH)}", "$ nvidia-smi -q -x")
    active = True
    meaning = "the GPU's PCIe or NVLink is slow: loading, offloading and all-reduce wait for it"
    remedy = "look at pcie.link, pcie.acs and node.nvlink of this GPU; reset it; then reseat it"
    suspect = Suspect.GPU
    keys = (
        Key("node.gpu-bw", "GB/s of a GPU's copies", Compare.AT_LEAST, within=0.05, unit="GB/s",
            variant="GPU model, direction"),
    )  # fmt: skip

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        nvidia, amd = has_nvidia(host), has_amd(host)
        if not nvidia and not amd:
            yield without_gpu(self, host, "no GPU of NVIDIA or AMD here")
        if nvidia:
            text = _requested(host, NVBANDWIDTH, "nvbandwidth")
            yield from self._judged(host, parse_nvbandwidth(text), _models(host), NVBANDWIDTH)
        if amd:
            text = _requested(host, ROCM_BANDWIDTH, "rocm-bandwidth-test")
            yield from self._judged(host, parse_rocm_bandwidth(text), {}, ROCM_BANDWIDTH)

    def _judged(
        self, host: Facts, found: tuple[CopyRate, ...], models: dict[int, str],
        command: tuple[str, ...],
    ) -> Iterator[Result | ComparedValue]:  # fmt: skip
        if models and {each.gpu for each in found} != set(models):
            seen = len({each.gpu for each in found})
            yield self.unknown(host, f"{command[0]} saw {seen} of {len(models)} GPUs", "GPUs")
        for each in found:
            model = models.get(each.gpu, "AMD GPU" if not models else "GPU")
            at = f"GPU {each.gpu}"
            floor = _copy_floor(model, each.direction)
            if floor is not None:
                yield self.verdict(
                    each.gbytes >= floor.gbytes, host, f"{each.gbytes:g} GB/s {each.direction}",
                    f"≥ {floor.gbytes:g} GB/s ({floor.source})", command[0], at=at,
                )  # fmt: skip
            yield self.reading(host, "node.gpu-bw", each.gbytes, at, evidence=command[0],
                               variant=f"{model}, {each.direction}")  # fmt: skip


def _copy_floor(model: str, direction: str) -> CopyFloor | None:
    fitting = (f for f in COPY_FLOORS if f.device in model and f.direction == direction)
    return None if "PCIe" in model or "NVL" in model else next(fitting, None)


def _models(host: Facts) -> dict[int, str]:
    """In nvidia-smi's order, which is nvbandwidth's too unless CUDA_DEVICE_ORDER says otherwise."""
    gpus = nvidia_smi(host).gpus
    return {number: gpu.text("product_name") or "GPU" for number, gpu in enumerate(gpus)}


def _requested(host: Facts, command: tuple[str, ...], package: str) -> str:
    try:
        return host.run(*command)
    except AbsentError as error:
        raise UnreadableError(
            f"there are GPUs, but {command[0]} is not installed ({package})"
        ) from error


GEMM = ("syntony", "audit", "gemm", "--json")
SLOW_GPU = 0.93
"""A GPU below this share of its siblings' median is slow (Azure's Guest Health Reporting)."""
_SIBLINGS = 3


class Gemm(HostCheck):
    """Matrices multiply as fast as on the others, and come out the same every time.

    Expected results: TFLOP/s of a matrix product (bfloat16 on GPUs through PyTorch; float32 on the
    processors of each NUMA node, said as such, where there is no GPU) no more than 3.5 % below the
    expected value (10 % on processors), no GPU below 93 % of its siblings' median, no element
    wrong. Unknown where there are GPUs but no PyTorch that can use them. Active.
    """

    id = "node.gemm"
    section = Section.NODE
    reads = ("$ syntony audit gemm --json",)
    active = True
    meaning = "a slow GPU slows every step of the whole job; a wrong element is silent corruption"
    remedy = (
        "look at clocks, power and heat (node.gpu-health); run dcgmi diag -r 3; replace the GPU"
    )
    suspect = Suspect.GPU
    keys = (
        Key("node.gemm", "TFLOP/s of a matrix product", Compare.AT_LEAST, within=0.035,
            unit="TFLOP/s",
            variant="GPU model, type"),
        Key("node.gemm-cpu", "TFLOP/s of a matrix product on processors", Compare.AT_LEAST,
            unit="TFLOP/s",
            within=0.10, variant="NUMA node, type"),
    )  # fmt: skip

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        reported = json_of(host.run(*GEMM), "`syntony audit gemm`")
        rows = reported.get("devices") if isinstance(reported, dict) else None
        if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
            raise UnreadableError("`syntony audit gemm` measured nothing")
        on_gpus = any(row.get("gpu") is True for row in rows)
        if not on_gpus and (has_nvidia(host) or has_amd(host)):
            why = str(reported.get("why") or "no PyTorch here can use them")
            yield self.unknown(host, f"the GPUs were not measured: {why}", "GPUs")
        rates: dict[str, dict[str, float]] = defaultdict(dict)
        for row in rows:
            yield from self._one(host, row, rates)
        for name, siblings in rates.items():
            yield from self._siblings(host, name, siblings)

    def _one(
        self, host: Facts, row: dict[str, Any], rates: dict[str, dict[str, float]]
    ) -> Iterator[Result | ComparedValue]:
        at, name, rate = (row.get(key) for key in ("device", "name", "tflops"))
        number = isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0
        if not isinstance(at, str) or not isinstance(name, str) or not number:
            yield self.unknown(host, "`syntony audit gemm` named no device's rate", str(at)[:40])
            return
        wrong = row.get("wrong")
        if isinstance(wrong, int):
            yield self.verdict(wrong == 0, host, f"{wrong} wrong elements", "0", " ".join(GEMM),
                               at=at)  # fmt: skip
        gpu = row.get("gpu") is True
        if gpu:
            rates[name][at] = float(rate)  # type: ignore[arg-type]
        yield self.reading(
            host, "node.gemm" if gpu else "node.gemm-cpu", float(rate), at,  # type: ignore[arg-type]
            variant=f"{name if gpu else at}, {row.get('type', '?')}", evidence=" ".join(GEMM),
        )  # fmt: skip

    def _siblings(self, host: Facts, name: str, rates: dict[str, float]) -> Iterator[Result]:
        if len(rates) < _SIBLINGS:
            return
        median = statistics.median(rates.values())
        for at, rate in rates.items():
            yield self.verdict(
                rate >= SLOW_GPU * median, host, f"{rate:.4g} TFLOP/s",
                f"≥ {SLOW_GPU:.0%} of {median:.4g}", f"median of this host's {len(rates)} {name}",
                at=at,
            )  # fmt: skip


_REDUCE = "all_reduce_perf -b 1G -e 8G -f 2 -g GPUS -n 20 -c 1"
_PROC_GPUS = "/proc/driver/nvidia/gpus"
_AMD_GPUS = "/sys/module/amdgpu/drivers/pci:amdgpu"
_FLOOR_GPUS = 8
"""What published floors of one node are of."""


class LocalAllReduce(HostCheck):
    """All GPUs of the host reduce together as fast as NVLink or xGMI allows.

    Expected results: bus bandwidth of `all_reduce_perf` over all GPUs of this host at least the
    floor of its model (eight GPUs: A100 228, H100 460, H200 431, B200 800 GB/s), no more than 5 %
    below the expected value, no element wrong. Skipped with fewer than two GPUs. Active.
    """

    id = "node.nccl-local"
    section = Section.NODE
    reads = (f"$ {_REDUCE}", f"{_PROC_GPUS}/*", f"{_AMD_GPUS}/*")
    active = True
    meaning = "NVLink, NVSwitch or NVLS does not work: every all-reduce is slow on this host"
    remedy = (
        "look at node.nvlink and sw.fabricmanager; reset the GPUs; NCCL_DEBUG=INFO logs the path"
    )
    suspect = Suspect.GPU
    keys = (
        Key("node.nccl-local", "GB/s of an all-reduce within the host", Compare.AT_LEAST,
            unit="GB/s",
            within=0.05, variant="number and model of GPUs"),
    )  # fmt: skip

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        if not has_nvidia(host) and not has_amd(host):
            yield without_gpu(self, host, "no GPU of NVIDIA or AMD here")
            return
        gpus = _driven(host)
        if gpus < 2:
            yield self.skip(host, f"{gpus} GPU: nothing to reduce with")
            return
        command = tuple(_REDUCE.replace("GPUS", str(gpus)).split())
        text = _requested(host, command, "nccl-tests or rccl-tests")
        try:
            output = parse_table(text)
        except InputError as error:
            raise UnreadableError(f"`{command[0]}`: {error}") from error
        yield from self._judged(host, output, gpus)

    def _judged(self, host: Facts, output: Output, gpus: int) -> Iterator[Result | ComparedValue]:
        if output.wrong is None:
            yield self.unknown(host, "all_reduce_perf did not check its results", "results")
        else:
            yield self.verdict(output.wrong == 0, host, f"{output.wrong} wrong elements", "0",
                               "all_reduce_perf -c 1", at="results")  # fmt: skip
        if len(output.ranks) != gpus:
            yield self.unknown(host, f"{len(output.ranks)} ranks for {gpus} GPUs", "ranks")
        floor = floor_of(output.device, 1) if gpus == _FLOOR_GPUS else None
        if floor is not None:
            yield self.verdict(
                output.peak >= floor.gbytes, host, f"{output.peak:g} GB/s",
                f"≥ {floor.gbytes:g} GB/s ({floor.source})", "all_reduce_perf",
            )  # fmt: skip
        yield self.reading(host, "node.nccl-local", output.peak, evidence="all_reduce_perf",
                           variant=f"{gpus} × {output.device or 'GPU'}")  # fmt: skip


def _driven(host: Facts) -> int:
    """As many as the recorder counts. Raises `FactError`."""
    try:
        return len(host.names(_PROC_GPUS))
    except FactError:
        return sum(
            re.fullmatch(r"\w+:\w+:[\w.]+", name) is not None for name in host.names(_AMD_GPUS)
        )
