"""1.2 Memory of the GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from syntony.audit.check import HostCheck, Section
from syntony.audit.facts import Facts
from syntony.audit.gpus import (
    AMD_BAD_PAGES,
    AMD_METRIC,
    amd_smi,
    has_amd,
    has_nvidia,
    nvidia_smi,
    without_gpu,
)
from syntony.audit.parse.nvidia import Gpu
from syntony.audit.parse.text import whole
from syntony.audit.result import ComparedValue, Result, Status, Suspect


class GpuEcc(HostCheck):
    """GPU memory has no errors that hurt, and room for more repairs.

    Expected results: ECC enabled; no volatile uncorrected error; at most `sram_uncorrected` of SRAM
    over its life, and its threshold not exceeded; no remapping pending or failed, at most
    `remapped_uncorrected` rows remapped for uncorrected errors, no bank without spare rows; no
    retired page pending. AMD: no uncorrectable error in any block.
    """

    id = "mem.gpu-ecc"
    section = Section.MEMORY
    reads = ("$ nvidia-smi -q -x", "$ amd-smi metric --json")
    meaning = "the GPU's memory fails: wrong results or a job that dies"
    remedy = "drain; reset the GPU to let it remap rows; RMA it if the row remapper has failed"
    suspect = Suspect.GPU

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        sram_uncorrected: int = 4
        remapped_uncorrected: int = 512

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        nvidia, amd = has_nvidia(host), has_amd(host)
        if not nvidia and not amd:
            yield without_gpu(self, host, "no GPU of NVIDIA or AMD here")
        if nvidia:
            yield from self._nvidia(host)
        if amd:
            for number, record in enumerate(amd_smi(host, *AMD_METRIC)):
                yield self._amd(host, f"gpu{record.get('gpu', number)}", record)

    def _amd(self, host: Facts, at: str, record: dict[str, Any]) -> Result:
        counts = dict(amd_uncorrected(record))
        if not counts:
            return self.unknown(host, "amd-smi reports no count of memory errors", at)
        bad = {name: count for name, count in counts.items() if count}
        got = ", ".join(f"{name} {count}" for name, count in bad.items()) or "0 in all blocks"
        return self.verdict(not bad, host, got, "0 uncorrectable", "amd-smi metric: ecc", at=at)

    def _nvidia(self, host: Facts) -> Iterator[Result]:
        for gpu in nvidia_smi(host).gpus:
            found = list(self._one(host, gpu))
            reported = [each for each in found if each.status is not Status.UNKNOWN]
            yield from (
                reported
                or found
                or [self.unknown(host, "nvidia-smi reports no memory error counts", gpu.bus)]
            )

    def _one(self, host: Facts, gpu: Gpu) -> Iterator[Result]:
        mode = gpu.text("ecc_mode/current_ecc")
        if mode is not None:
            yield self.verdict(mode == "Enabled", host, f"ECC {mode}", "ECC Enabled",
                               "ecc_mode/current_ecc", at=gpu.bus)  # fmt: skip
        for what, value, limit in self._counts(gpu):
            if value is not None:
                yield self.verdict(value <= limit, host, f"{what} {value:g}", f"≤ {limit}",
                                   "nvidia-smi -q -x", at=gpu.bus)  # fmt: skip
        for path in _FLAGS:
            said = gpu.text(path)
            if said is not None:
                yield self.verdict(said in {"No", "0"}, host, f"{path}: {said}", "No",
                                   "nvidia-smi -q -x", at=gpu.bus)  # fmt: skip
        for level, bad in (("none", Status.FAIL), ("low", Status.WARN)):
            banks = gpu.number(f"{_HISTOGRAM}_{level}")
            if banks:
                yield self.verdict(
                    False, host, f"{banks:g} banks with {level} spare rows left", "0",
                    "remapped_rows/row_remapper_histogram", at=gpu.bus, bad=bad,
                    meaning="the next bad row of these banks cannot be replaced",
                    remedy="plan to replace the GPU; NVIDIA's RMA policy counts this",
                )  # fmt: skip

    def _counts(self, gpu: Gpu) -> Iterator[tuple[str, float | None, int]]:
        for name in ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded",
                     "dram_uncorrectable"):  # fmt: skip
            yield f"volatile {name}", gpu.number(f"ecc_errors/volatile/{name}"), 0
        aggregate = [
            gpu.number(f"ecc_errors/aggregate/{name}")
            for name in ("sram_uncorrectable", "sram_uncorrectable_parity",
                         "sram_uncorrectable_secded")
        ]  # fmt: skip
        known = [value for value in aggregate if value is not None]
        yield (
            "aggregate SRAM uncorrected",
            sum(known) if known else None,
            self.limits.sram_uncorrected,
        )
        remapped = gpu.number("remapped_rows/remapped_row_unc")
        yield "rows remapped", remapped, self.limits.remapped_uncorrected


def amd_uncorrected(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """(block, count) of `amd-smi metric`'s uncorrectable errors; of the total where that is all."""
    totals, blocks = record.get("ecc"), record.get("ecc_blocks")
    for name in ("total_uncorrectable_count", "cache_uncorrectable_count"):
        count = whole(str(totals.get(name))) if isinstance(totals, dict) else None
        if count is not None:
            yield name, count
    for block, reported in blocks.items() if isinstance(blocks, dict) else ():
        count = (
            whole(str(reported.get("uncorrectable_count"))) if isinstance(reported, dict) else None
        )
        if count is not None:
            yield str(block)[:40], count


_HISTOGRAM = "remapped_rows/row_remapper_histogram/row_remapper_histogram"
_FLAGS = (
    "ecc_errors/aggregate/sram_threshold_exceeded",
    "remapped_rows/remapped_row_pending",
    "remapped_rows/remapped_row_failure",
    "retired_pages/pending_retirement",
    "retired_pages/pending_blacklist",
)


class GpuBadPages(HostCheck):
    """AMD GPUs have no bad page that waits to be retired.

    Expected results: no page whose status is pending or unreservable; skipped without an AMD GPU.
    """

    id = "mem.gpu-badpages"
    section = Section.MEMORY
    reads = ("$ amd-smi bad-pages --json",)
    meaning = "the GPU's memory has a bad page that is still in use"
    remedy = "drain and reboot; RMA the GPU if pages keep coming"
    suspect = Suspect.GPU

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        if not has_amd(host):
            yield without_gpu(self, host, "no AMD GPU here")
            return
        for number, gpu in enumerate(amd_smi(host, *AMD_BAD_PAGES)):
            waiting = [
                page for page in pages_of(gpu) if page.lower() in {"pending", "unreservable"}
            ]
            got = f"{len(waiting)} pending" if waiting else "none pending"
            yield self.verdict(not waiting, host, got, "none pending", self.reads[0][2:],
                               at=f"gpu{gpu.get('gpu', number)}")  # fmt: skip


def pages_of(record: Any) -> Iterator[str]:
    """The ``status`` of every page in a GPU's record, however deep ROCm's version puts it."""
    if isinstance(record, dict):
        status = record.get("status")
        if isinstance(status, str):
            yield status
        for name, value in record.items():
            if name in {"pending", "un_res"} and isinstance(value, list):
                yield from ("pending" for _ in value)
            else:
                yield from pages_of(value)
    elif isinstance(record, list):
        for each in record:
            yield from pages_of(each)
