"""GPUs' drivers through their own Python bindings: readings, losses, hangs, crashes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gpus.conftest import H100, Driver, look
from tests.live import eventually

from syntony.errors import MissingError, WireError
from syntony.io import gpu_process
from syntony.io.gpu_process import GpuProcess
from syntony.wire.gpus import MAX_LINE, GpuReading, GpuSnapshot, decode, encode


def fault(process: GpuProcess) -> str:
    """Why it reads no more."""
    found: list[str] = []

    def ended() -> bool:
        try:
            process.read()
        except MissingError as error:
            found.append(str(error))
        return bool(found)

    eventually(ended, "the end of it")
    return found[0]


def test_readings_come_through_nvidias_own_binding(driver: Driver, nvidia: GpuProcess) -> None:
    driver.gpus = {0: H100, 1: {"uuid": "GPU-b", "pids": ""}}
    driver.say()
    assert nvidia.is_possible()
    nvidia.start()
    found = look(nvidia)
    assert found.at_ns > 0
    assert found.gpus == (
        GpuReading(
            gpu="GPU-a", bus="00000000:1b:00.0", model="NVIDIA H100 80GB HBM3", pids=(71, 72),
            sm_clock_mhz=1980, memory_clock_mhz=2619, throttle=(), temperature_c=41, power_w=402.5,
            ecc_errors=5, nvlink_errors=3, nvlink_bytes=10 * 1024, pcie_gts=32.0, pcie_max_gts=32.0,
            pcie_width=16, pcie_max_width=16, pcie_replays=3, pcie_bytes_per_s=1_500_000.0,
        ),
        GpuReading(gpu="GPU-b"),
    )  # fmt: skip


@pytest.mark.parametrize("old", [0, 1])
def test_reasons_have_the_names_of_nvidia_smi(driver: Driver, nvidia: GpuProcess, old: int) -> None:
    driver.gpus = {0: H100 | {"reasons": 0x1045}}
    driver.say(old=old)
    nvidia.start()
    assert look(nvidia).gpus[0].throttle == (
        "gpu_idle", "sw_power_cap", "hw_thermal_slowdown", "unknown_0x1000"
    )  # fmt: skip


def test_an_xid_is_of_one_reading_of_its_gpu(driver: Driver, nvidia: GpuProcess) -> None:
    driver.gpus = {0: H100, 1: H100 | {"uuid": "GPU-b"}}
    driver.say()
    nvidia.start()
    assert [each.xid for each in look(nvidia).gpus] == [0, 0]
    driver.say(events=1, xid=94, xid_gpu=1)
    found = look(nvidia, lambda each: any(gpu.xid for gpu in each.gpus))
    assert [each.xid for each in found.gpus] == [0, 94]
    assert [each.xid for each in look(nvidia).gpus] == [0, 0]


def test_a_lost_gpu_costs_its_own_reading(driver: Driver, nvidia: GpuProcess) -> None:
    driver.gpus = {0: H100, 1: H100 | {"uuid": "GPU-b"}}
    driver.say()
    nvidia.start()
    look(nvidia)
    driver.gpus[0] = H100 | {"lost": 1}
    driver.say()
    lost, other = look(nvidia, lambda each: bool(each.gpus[0].error)).gpus
    assert lost == GpuReading(gpu="GPU-a", error="GPU is lost")
    assert (other.gpu, other.error, other.sm_clock_mhz) == ("GPU-b", "", 1980)


def test_a_call_that_hangs_holds_nothing_up(
    driver: Driver, nvidia: GpuProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.gpus = {0: H100}
    driver.say(hang=1)
    monkeypatch.setattr(gpu_process, "FIRST_LOOK_NS", 0)
    nvidia.start()
    assert fault(nvidia) == "the GPU's driver has not answered for 15 s"
    assert nvidia.read() == []
    monkeypatch.undo()
    driver.say()
    eventually(lambda: _starts(nvidia), "the killed process gone")
    assert look(nvidia).gpus[0].gpu == "GPU-a"


def _starts(process: GpuProcess) -> bool:
    try:
        process.start()
    except MissingError:
        return False
    return True


def test_no_second_process_beside_one_that_no_signal_reaches(nvidia: GpuProcess) -> None:
    with subprocess.Popen(["sleep", "60"]) as stuck:
        nvidia._left = stuck
        with pytest.raises(MissingError, match=rf"does not return \(process {stuck.pid}\)"):
            nvidia.start()
        stuck.kill()
        stuck.wait()
        nvidia.start()


@pytest.mark.parametrize(
    ("said", "reason"),
    [({"crash": 1}, "ended with status -11"), ({"init": 9}, "NVML: Driver Not Loaded"),
     ({"gone": 1}, "NVML: Uninitialized")],
)  # fmt: skip
def test_what_ends_the_reading_is_a_reason(
    driver: Driver, nvidia: GpuProcess, said: dict[str, int], reason: str
) -> None:
    driver.gpus = {0: H100}
    driver.say(**said)
    nvidia.start()
    assert reason in fault(nvidia)
    assert nvidia.read() == []


def test_without_a_driver_or_a_library_it_says_so(tmp_path: Path) -> None:
    absent = GpuProcess({"nvidia": tmp_path / "nothing"})
    assert not absent.is_possible()
    with pytest.raises(MissingError, match="no GPU driver"):
        absent.start()
    (tmp_path / "nvidiactl").touch()
    bare = GpuProcess({"nvidia": tmp_path / "nvidiactl"}, {"LD_LIBRARY_PATH": str(tmp_path)})
    bare.start()
    assert "NVML Shared Library Not Found" in fault(bare)
    bare.close()


AMD = {
    "uuid": "1eff74a1-0000-1000-8000-000000000000", "bdf": "0000:05:00.0",
    "clocks": {"GFX": {"clk": 2100, "max_clk": 2100}, "MEM": {"clk": 1300}},
    "ecc": {"correctable_count": 4, "uncorrectable_count": 1, "deferred_count": 0},
    "pcie": {
        "pcie_static": {"max_pcie_width": 16, "max_pcie_speed": 32000},
        "pcie_metric": {"pcie_width": 8, "pcie_speed": 16000, "pcie_bandwidth": 80,
                        "pcie_replay_count": 7},
    },
    "processes": [{"name": "python", "pid": 71}],
    "violations": {"active_prochot_thrm": False, "active_ppt_pwr": True, "active_hbm_thrm": True,
                   "active_vr_thrm": "N/A", "acc_counter": 9},
    "links": {"num_links": 2, "links": [{"read": 3, "write": 4}, {"read": "N/A", "write": "N/A"}]},
}  # fmt: skip


def test_readings_come_through_amds_binding(
    amd: Callable[[dict[str, Any]], GpuProcess],
) -> None:
    unknown = {"clk": "N/A"}
    bare = {"uuid": "b", "bdf": "b", "clocks": {"GFX": unknown, "MEM": unknown}}
    process = amd({"gpus": [AMD, bare, {"lost": True}]})
    found = look(process).gpus
    assert found[0] == GpuReading(
        gpu=str(AMD["uuid"]), bus="0000:05:00.0", pids=(71,), sm_clock_mhz=2100,
        memory_clock_mhz=1300, throttle=("sw_power_cap", "memory_thermal"), ecc_errors=5,
        nvlink_bytes=7 * 1024, pcie_gts=16.0, pcie_max_gts=32.0, pcie_width=8, pcie_max_width=16,
        pcie_replays=7, pcie_bytes_per_s=10e6,
    )  # fmt: skip
    assert found[1] == GpuReading(gpu="b", bus="b")
    assert (found[2].gpu, found[2].error != "") == ("amd2", True)


def test_an_amdsmi_that_fails_is_a_reason(amd: Callable[[dict[str, Any]], GpuProcess]) -> None:
    process = amd({"gpus": [], "init": "Error code:\n\t34 | AMDSMI_STATUS_NOT_INIT"})
    assert fault(process) == "amdsmi: Error code: 34 | AMDSMI_STATUS_NOT_INIT"


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_line_breaks_the_agent(line: bytes) -> None:
    try:
        assert isinstance(decode(line), GpuSnapshot)
    except WireError:
        return


@pytest.mark.parametrize(
    "fields", [{"ecc_errors": -1}, {"pids": [-1]}, {"pids": [1] * 2_000}, {"xid": "x"},
               {"gpu": "x" * 200}, {"nvlink_bytes": 1 << 65}],
)  # fmt: skip
def test_what_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    good = {"at_ns": 1, "gpus": [{"gpu": "a"}]}
    assert decode(msgspec.json.encode(good)) == GpuSnapshot(at_ns=1, gpus=(GpuReading(gpu="a"),))
    with pytest.raises(WireError):
        decode(msgspec.json.encode(good | {"gpus": [{"gpu": "a"} | fields]}))


def test_a_line_without_an_end_is_refused(nvidia: GpuProcess) -> None:
    with subprocess.Popen(["head", "-c", str(MAX_LINE + 70_000), "/dev/zero"],
                          stdout=subprocess.PIPE) as flood:  # fmt: skip
        nvidia._process, nvidia._due_ns = flood, 1 << 62
        with pytest.raises(WireError, match="without an end"):
            eventually(lambda: bool(nvidia.read()), "the end of patience")


def test_encoding_is_read_back() -> None:
    sent = GpuSnapshot(
        at_ns=3, gpus=(GpuReading(gpu="a", throttle=("hw_slowdown",), ecc_errors=2),)
    )
    assert decode(encode(sent)) == sent
