"""From readings of GPUs to rows, recordings and verdicts."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.halves import config, down, reporting
from tests.gpus.conftest import H100, Driver, look
from tests.live import eventually
from tests.workload.stored_rows import SEED, T0, bundle, process, record, steps_of

from syntony.agent.daemon import Agent
from syntony.agent.gpus import GpuTelemetry, JobMember
from syntony.agent.queue_pairs import FleetOffset
from syntony.io.gpu_process import GpuProcess
from syntony.model import MS, S
from syntony.wire.arrow import encode_columns
from syntony.wire.gpus import GpuReading, GpuSnapshot
from syntony.wire.tables import COLLECTIVE, GPU, JOB_PROCESS
from syntony.workload import FaultClass, diagnose

AHEAD_NS = 1_000_000 * S
NOW = FleetOffset(100 * S, AHEAD_NS, 0)
MEMBERS = {71: JobMember("night", 3), 72: JobMember("night", 4), 73: JobMember("day", -1)}


class Looks(GpuProcess):
    """Says what it is given."""

    def __init__(self, *looks: GpuSnapshot) -> None:
        super().__init__({})
        self._looks = list(looks)

    def read(self) -> list[GpuSnapshot]:
        """One look a call."""
        return [self._looks.pop(0)] if self._looks else []


def told(*readings: GpuReading, at_s: int = 10, offset: FleetOffset | None = NOW) -> dict[str, Any]:
    """The columns of the last of these readings, 2 s apart."""
    looks = [GpuSnapshot(at_ns=(at_s + 2 * place) * S, gpus=(each,))
             for place, each in enumerate(readings)]  # fmt: skip
    telemetry = GpuTelemetry("h0", Looks(*looks))
    columns: Any = None
    for _ in readings:
        columns = telemetry.rows(offset, MEMBERS)
    assert columns is None or encode_columns(GPU, columns)
    return columns or {}


def test_a_row_for_each_process_of_a_job_and_one_where_there_is_none() -> None:
    for pids, owners in (((), [(0, "", -1)]), ((9,), [(0, "", -1)]), ((73,), [(73, "day", -1)]),
                         ((9, 71, 72), [(71, "night", 3), (72, "night", 4)])):  # fmt: skip
        columns = told(GpuReading(gpu="a"), GpuReading(gpu="a", pids=pids))
        found = zip(columns["pid"], columns["job"], columns["rank"], strict=True)
        assert list(found) == owners
        assert set(columns["host"]) == {"h0"}
        assert {*columns["ts_ns"]} == {10 * S + AHEAD_NS}
        assert {*columns["window_ns"]} == {2 * S}


def test_counters_are_differences_and_survive_a_reset() -> None:
    before = GpuReading(gpu="a", ecc_errors=7, nvlink_errors=1, nvlink_bytes=0, pcie_replays=5)
    after = GpuReading(gpu="a", ecc_errors=9, nvlink_bytes=1000, pcie_replays=2, xid=94)
    columns = told(before, after)
    assert columns["ecc_errors"].tolist() == [2]
    assert columns["nvlink_bps"].tolist() == [4000]
    assert columns["pcie_replays"].tolist() == [2]
    assert columns["xid"].tolist() == [94]
    assert math.isnan(columns["nvlink_errors"][0])


def test_what_is_not_known_is_not_zero() -> None:
    columns = told(GpuReading(gpu="a"), GpuReading(gpu="a", error="GPU is lost"))
    assert columns["error"] == ["GPU is lost"]
    assert columns["throttle"] == [""]
    numbers = [each.name for each in GPU.columns if each.type.startswith("float")]
    assert len(numbers) == 13
    assert all(math.isnan(columns[name][0]) for name in numbers)
    assert told(GpuReading(gpu="a"), GpuReading(gpu="a", throttle=()))["throttle"] == ["none"]
    reasons = GpuReading(gpu="a", throttle=("gpu_idle", "hw_slowdown"))
    assert told(reasons, reasons)["throttle"] == ["gpu_idle,hw_slowdown"]


def test_no_rows_from_the_first_look_nor_without_fleet_time() -> None:
    reading = GpuReading(gpu="a", ecc_errors=7)
    assert told(reading) == {}
    assert told(reading, reading, offset=None) == {}


# --- the agent ---


@pytest.fixture
def agent(tmp_path: Path, driver: Driver) -> Iterator[Agent]:
    with reporting(config(tmp_path)) as made:
        made._machine.gpus.process = GpuProcess({"nvidia": driver.device}, driver.environ)
        yield made


def test_the_part_is_there_where_a_driver_is(agent: Agent, driver: Driver) -> None:
    driver.gpus = {0: H100}
    driver.say(init=9)
    eventually(lambda: "Driver Not Loaded" in down(agent).get("gpus", ""), "its reason")
    driver.say()
    eventually(lambda: agent.parts.is_running("gpus"), "it runs again")


def test_no_part_without_a_driver(tmp_path: Path) -> None:
    absent = GpuProcess({"nvidia": tmp_path / "nothing"})
    with reporting(config(tmp_path)) as agent:
        agent._machine.gpus.process = absent
        eventually(lambda: agent.parts.has("reactor"), "the others")
        agent._machine.check(1 << 60)
        assert not agent.parts.has("gpus")


# --- recordings and verdicts ---


def gpu(rank: int, second: int, **fields: Any) -> dict[str, Any]:
    return {
        "ts_ns": T0 + second * S, "window_ns": 2 * S, "host": f"h{rank}", "gpu": f"GPU-{rank}",
        "job": "night", "pid": 7, "rank": rank, "throttle": "none", "sm_clock_mhz": 1980.0,
        "memory_clock_mhz": math.nan, "pcie_gts": 32.0, "pcie_max_gts": 32.0, "pcie_width": 16.0,
        "pcie_max_width": 16.0, **fields,
    }  # fmt: skip


SLOW: dict[str, tuple[FaultClass, dict[str, Any]]] = {
    "clock": (FaultClass.GPU_THROTTLE, {"sm_clock_mhz": 1200.0}),
    "reason": (FaultClass.GPU_THROTTLE, {"throttle": "sw_power_cap,hw_thermal_slowdown"}),
    "ecc": (FaultClass.GPU_THROTTLE, {"ecc_errors": 4.0}),
    "xid": (FaultClass.GPU_THROTTLE, {"xid": 94}),
    "nvlink": (FaultClass.GPU_THROTTLE, {"nvlink_errors": 9.0}),
    "lanes": (FaultClass.PCIE, {"pcie_width": 8.0}),
    "generation": (FaultClass.PCIE, {"pcie_gts": 8.0, "pcie_max_gts": math.nan}),
    "benign": (FaultClass.STRAGGLER, {"throttle": "gpu_idle,sw_power_cap"}),
    "idle": (FaultClass.STRAGGLER, {}),
}


@pytest.mark.parametrize("kind", SLOW)
def test_a_slow_rank_whose_gpu_says_why(kind: str) -> None:
    print(f"seed {SEED}")
    draw = random.Random(f"{SEED}{kind}")
    slow = draw.randrange(8)
    fault, fields = SLOW[kind]
    found = record({
        JOB_PROCESS.name: [process(f"h{rank}", rank, at) for rank in range(8)
                           for at in range(0, 60, 2)],
        COLLECTIVE.name: steps_of(8, 400, {slow: draw.randrange(10, 60) * MS}, draw),
        GPU.name: [gpu(rank, at, **(fields if rank == slow else {})) for rank in range(8)
                   for at in range(0, 60, 2)],
    })  # fmt: skip
    wanted = f"rank {slow}" if fault is FaultClass.STRAGGLER else f"GPU-{slow}"
    verdicts = diagnose(bundle(found)).verdicts
    assert [(each.fault, each.subjects) for each in verdicts] == [(fault, (wanted,))]


def test_gpus_that_limp_and_cost_nothing_are_not_named() -> None:
    draw = random.Random(SEED)
    for fault, fields in SLOW.values():
        rows = [gpu(rank, at, **(fields if rank == 2 else {})) for rank in range(8)
                for at in range(0, 60, 2)]  # fmt: skip
        found = record({COLLECTIVE.name: steps_of(8, 400, {}, draw), GPU.name: rows})
        assert diagnose(bundle(found)).verdicts == (), fault


def test_lanes_that_slept_while_idle_are_no_downgrade() -> None:
    draw = random.Random(SEED)
    rows = [gpu(rank, at, pcie_gts=2.5 if at % 4 else 32.0) for rank in range(8)
            for at in range(0, 60, 2)]  # fmt: skip
    found = record({COLLECTIVE.name: steps_of(8, 400, {2: 40 * MS}, draw), GPU.name: rows})
    verdicts = diagnose(bundle(found)).verdicts
    assert [each.fault for each in verdicts] == [FaultClass.STRAGGLER]


def test_a_recording_has_each_reading_once_and_says_what_was_not_read() -> None:
    shared = [gpu(0, 2), gpu(0, 2) | {"rank": 1, "pid": 8}]
    lost = gpu(2, 2, error="GPU is lost", throttle="", sm_clock_mhz=math.nan)
    found = record(
        {GPU.name: [*shared, lost], COLLECTIVE.name: steps_of(3, 3, {}, random.Random())}
    )
    hosts = found.tables["hosts"]
    assert hosts["gpu"] == ["GPU-0", "GPU-2"]
    assert hosts["throttle"] == ["", None]
    assert hosts["sm_clock_mhz"] == [1980.0, None]
    assert "memory_clock_mhz" not in hosts
    assert {*zip(found.tables["collectives"]["rank"], found.tables["collectives"]["gpu"],
                 strict=True)} == {(0, "GPU-0"), (1, "GPU-0"), (2, "GPU-2")}  # fmt: skip
    assert found.notes == ("GPU GPU-2 of h2 could not be read: GPU is lost",)


def test_a_rank_on_two_gpus_has_none() -> None:
    rows = [gpu(0, 2), gpu(0, 4, gpu="GPU-9")]
    found = record({GPU.name: rows, COLLECTIVE.name: steps_of(1, 3, {}, random.Random(1))})
    assert "gpu" not in found.tables["collectives"]


def test_from_the_driver_to_the_row(driver: Driver, nvidia: GpuProcess) -> None:
    driver.gpus = {0: H100}
    driver.say()
    telemetry = GpuTelemetry("h0", nvidia)
    nvidia.start()
    found: list[Any] = []

    def come() -> bool:
        found.append(telemetry.rows(NOW, MEMBERS))
        return found[-1] is not None

    eventually(come, "a row")
    assert found[-1]["rank"].tolist() == [3, 4]
    assert found[-1]["ecc_errors"].tolist() == [0, 0]
    assert look(nvidia).gpus[0].gpu == "GPU-a"
