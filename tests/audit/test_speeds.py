"""What is measured on a host: copies and products, each alone."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.audit import speeds
from tests.audit.hosts import nvidia_host
from tests.audit.trees import write

from syntony.audit.check import HostCheck, Section
from syntony.audit.facts import Facts, UnreadableError
from syntony.audit.parse.bandwidth import (
    D2H,
    H2D,
    P2P,
    CopyRate,
    parse_nvbandwidth,
    parse_rocm_bandwidth,
)
from syntony.audit.result import Result, Suspect
from syntony.io.audit.examine import examine_host
from syntony.io.audit.gemm import WORKER, gemm
from syntony.io.audit.gemm_worker import products
from syntony.io.audit.host import recorded_host
from syntony.io.audit.ssh import record_here


def test_nvbandwidth_tells_every_gpu_and_direction() -> None:
    assert parse_nvbandwidth(speeds.nvbandwidth(h2d=55.37, p2p=391.0)) == (
        CopyRate(H2D, 0, 55.37), CopyRate(H2D, 1, 55.36), CopyRate(D2H, 0, 55.2),
        CopyRate(D2H, 1, 55.18), CopyRate(P2P, 0, 391.0), CopyRate(P2P, 1, 392.43),
    )  # fmt: skip


def test_a_single_gpu_and_several_memories() -> None:
    """v0.6 on a GH200, as published by superbench: two memories, no peer."""
    text = """nvbandwidth Version: v0.6
Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0
 0    337.55
 1    142.40

SUM host_to_device_memcpy_ce 479.95

Running device_to_device_memcpy_read_ce.
Waived:
"""
    assert parse_nvbandwidth(text) == (CopyRate(H2D, 0, 337.55),)


@pytest.mark.parametrize(
    "text",
    ["", "nvbandwidth: command failed", speeds.nvbandwidth().replace("SUM device_to_host", "x"),
     speeds.nvbandwidth().replace(" 1    392.43       N/A\n", ""),
     speeds.nvbandwidth().replace("     55.36\n", "\n"), speeds.rocm_bandwidth()],
)  # fmt: skip
def test_half_an_nvbandwidth_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        parse_nvbandwidth(text)


def test_rocm_bandwidth_takes_the_nearest_socket_and_the_slowest_peer() -> None:
    found = {(each.direction, each.gpu): each.gbytes
             for each in parse_rocm_bandwidth(speeds.rocm_bandwidth())}  # fmt: skip
    assert found == {(H2D, 0): 55.42, (D2H, 0): 55.26, (P2P, 0): 48.59, (H2D, 1): 55.31,
                     (D2H, 1): 55.25, (P2P, 1): 48.51}  # fmt: skip


def test_processors_really_multiply() -> None:
    program = f"""import json, os, runpy
worker = runpy.run_path({str(WORKER)!r})
worker["on_cpus"].__globals__.update(CPU_SIZE=256, CPU_PRODUCTS=2)
print(json.dumps(worker["on_cpus"](sorted(os.sched_getaffinity(0)))))"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    reported = json.loads(done.stdout)
    assert reported["tflops"] > 0
    assert (reported["wrong"], reported["gpu"], reported["type"]) == (0, False, "float32")


def test_torch_multiplies_and_sees_what_is_wrong() -> None:
    torch = pytest.importorskip(
        "torch",
        reason="needs PyTorch (pip install '.[torch]'): speeds of its products are NOT tested",
    )
    seconds, wrong = products(torch, [torch.device("cpu")], 256, 2)
    assert seconds[0] > 0
    assert wrong == [0]


def test_an_interpreter_without_torch_is_told_and_processors_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "python"
    fake.write_text(
        "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr("syntony.io.audit.gemm.nodes", dict)
    found = gemm((str(fake), str(tmp_path / "none")))
    assert "No module named 'torch'" in found["why"]
    assert "No such file" in found["why"]
    fake.write_text(f"#!/bin/sh\necho warming up\necho '{speeds.gemm(640.0)}'\n")
    assert gemm((str(fake),))["devices"][0]["tflops"] == 640.0


class _Loading(HostCheck):
    """Says how many of its kind run at the same time."""

    id = "test.loading"
    section = Section.NODE
    reads = ()
    active = True
    meaning, remedy, suspect = "x", "x", Suspect.HOST
    running = 0
    lock = threading.Lock()

    def test(self, host: Facts) -> Iterator[Result]:
        with self.lock:
            _Loading.running += 1
            alone = _Loading.running == 1
        threading.Event().wait(0.05)
        with self.lock:
            _Loading.running -= 1
        yield self.verdict(alone, host, alone)


def test_checks_that_load_a_host_run_one_after_the_other(tmp_path: Path) -> None:
    host = recorded_host(write(nvidia_host(), tmp_path / "gpu001"))
    report = examine_host(host, [_Loading() for _ in range(3)], 0)
    assert [each.got for each in report.results] == ["True"] * 3


class _Recorded(_Loading):
    """Asks what it is reported."""

    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command

    def asks(self) -> tuple[str, ...]:
        return (f"$ {self._command}",)


def test_the_recorder_runs_what_loads_a_host_alone(tmp_path: Path) -> None:
    script = tmp_path / "load"
    script.write_text(
        f"#!/bin/sh\nmkdir {tmp_path}/busy || exit 3\nsleep 0.1\nrmdir {tmp_path}/busy\necho $1\n"
    )
    script.chmod(0o755)
    checks = [_Recorded(f"{script} {word}") for word in ("one", "two", "three")]
    record_here(checks, tmp_path / "tree", "gpu001")
    host = recorded_host(tmp_path / "tree")
    assert [host.run(str(script), word).strip() for word in ("one", "two", "three")] == [
        "one", "two", "three"]  # fmt: skip
