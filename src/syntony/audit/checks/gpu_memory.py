"""1.2 Memory of the GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from syntony.audit.check import HostCheck, Section
from syntony.audit.gpus import AMD_BAD_PAGES, NvidiaCheck, amd_smi, has_amd, nvidia_smi, without_gpu
from syntony.audit.result import Status, Suspect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from syntony.audit.facts import Facts
    from syntony.audit.parse.nvidia import Gpu
    from syntony.audit.result import Reading, Result


class GpuEcc(NvidiaCheck):
    """GPU memory has no errors that hurt, and room for more repairs.

    Expected results: ECC enabled; no volatile uncorrected error; at most `sram_uncorrected` of SRAM
    over its life; no remapping pending or failed, at most `remapped_uncorrected` rows remapped for
    uncorrected errors; no retired page pending.
    """

    id = "mem.gpu-ecc"
    section = Section.MEMORY
    reads = ("$ nvidia-smi -q -x",)
    meaning = "the GPU's memory fails: wrong results or a job that dies"
    remedy = "drain; reset the GPU to let it remap rows; RMA it if the row remapper has failed"
    suspect = Suspect.GPU

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        sram_uncorrected: int = 4
        remapped_uncorrected: int = 512

    limits: Input

    def look(self, host: Facts) -> Iterator[Result | Reading]:
        for gpu in nvidia_smi(host).gpus:
            found = list(self._one(host, gpu))
            told = [each for each in found if each.status is not Status.UNKNOWN]
            yield from (
                told
                or found
                or [self.unknown(host, "nvidia-smi tells nothing of its memory's errors", gpu.bus)]
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


_FLAGS = (
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

    def test(self, host: Facts) -> Iterator[Result | Reading]:
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
