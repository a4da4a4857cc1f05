"""GPUs of drivers that are not there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live import eventually

from syntony.io.gpu_process import GpuProcess
from syntony.wire.gpus import GpuSnapshot

HERE = Path(__file__).parent
H100 = {
    "uuid": "GPU-a", "name": "NVIDIA H100 80GB HBM3", "bus": "00000000:1B:00.0", "sm_clock": 1980,
    "memory_clock": 2619, "reasons": 0, "celsius": 41, "milliwatts": 402_500, "ecc_corrected": 5,
    "ecc_uncorrected": 0, "pcie_generation": 5, "pcie_max_generation": 5, "pcie_width": 16,
    "pcie_max_width": 16, "pcie_tx": 1_000, "pcie_rx": 500, "pcie_replays": 3, "field.138": 4,
    "field.139": 6, "field.52": 2, "field.59": 1, "pids": "71,72",
}  # fmt: skip
"""What the fake says of a GPU."""


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a libnvidia-ml.so.1."""
    place = tmp_path_factory.mktemp("nvml")
    library, source = place / "libnvidia-ml.so.1", HERE / "fake_nvml.c"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", library,
         source], check=True,
    )  # fmt: skip
    return place


class Driver:
    """A driver whose library says what is written here."""

    def __init__(self, place: Path, library: Path) -> None:
        self._file = place / "state"
        self.device = place / "nvidiactl"
        self.device.touch()
        self.environ = {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(self._file)}
        self.gpus: dict[int, dict[str, Any]] = {}
        self.say()

    def say(self, **values: Any) -> None:
        """From now on, at once."""
        lines = [f"{key} {value}" for key, value in {"count": len(self.gpus), **values}.items()]
        lines += [f"{index}.{key} {value}" for index, gpu in self.gpus.items()
                  for key, value in gpu.items()]  # fmt: skip
        fresh = self._file.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(self._file)


@pytest.fixture
def driver(tmp_path: Path, fake_nvml: Path) -> Driver:
    """Without GPUs yet."""
    return Driver(tmp_path, fake_nvml)


@pytest.fixture
def nvidia(driver: Driver) -> Iterator[GpuProcess]:
    """Asks it; not started."""
    made = GpuProcess({"nvidia": driver.device}, driver.environ)
    yield made
    made.close()


@pytest.fixture
def amd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[dict[str, Any]], GpuProcess]]:
    """Asks an amdsmi that says this; started."""
    (tmp_path / "kfd").touch()
    monkeypatch.syspath_prepend(str(HERE / "fake_amdsmi"))
    made: list[GpuProcess] = []

    def start(state: dict[str, Any]) -> GpuProcess:
        file = tmp_path / "amd.json"
        file.write_text(json.dumps(state))
        environ = {"PYTHONPATH": str(HERE / "fake_amdsmi"), "FAKE_AMDSMI": str(file)}
        made.append(GpuProcess({"amd": tmp_path / "kfd"}, environ))
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        each.close()


def look(
    process: GpuProcess, wanted: Callable[[GpuSnapshot], bool] = lambda _: True
) -> GpuSnapshot:
    """The next look of which this is so."""
    found: list[GpuSnapshot] = []

    def come() -> bool:
        found.extend(each for each in process.read() if wanted(each))
        return bool(found)

    eventually(come, "a look at the GPUs")
    return found[0]
