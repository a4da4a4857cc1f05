"""Worlds from seeds: promises hold, faults that are put back are found, a seed is the same again.

Each runs in a process of its own, whose hashes are fixed: only then does a seed mean the same.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.world.ambient import without_places
from tests.world.planted import PLANTED

ROOT = Path(__file__).parents[2]
DRAWN = random.randrange(1_000_000)
QUICK = (
    "switch-from-telemetry",
    "acknowledged-when-accepted",
    "any-certificate-is-an-operator",
)
"""Found within a seed or two."""


def _bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.world", *words],
        cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "0"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_every_promise_holds() -> None:
    ran = _bench("--first", str(DRAWN), "--seeds", "1", "--seconds", "30")
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr
    assert "broken=0" in ran.stdout


@pytest.mark.slow
def test_every_promise_holds_for_more_hosts_and_controllers() -> None:
    ran = _bench("--first", str(DRAWN), "--seeds", "10", "--hosts", "8", "--controllers", "3")
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr


@pytest.mark.slow
def test_every_promise_holds_behind_gateways() -> None:
    ran = _bench("--first", str(DRAWN), "--seeds", "10", "--gateways", "2")
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["lose_gateway", "cut_gateway"])
def test_what_is_lost_behind_one_gateway_is_known_exactly(fault: str) -> None:
    """One page and none of a host; agents of one without a leader are with another one soon."""
    ran = _bench(
        *("--first", str(DRAWN), "--seeds", "3", "--gateways", "2"),
        *("--seconds", "60", "--faults", fault, "--gap", "60"),
    )
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PLANTED],
)
def test_a_fault_that_is_put_back_is_found(name: str) -> None:
    ran = _bench("--planted", name, "--seeds", "50")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_seed_is_the_same_again() -> None:
    words = ("--first", str(DRAWN), "--seeds", "1", "--seconds", "10", "--echo")
    one, other = (_strip(_bench(*words).stdout) for _ in range(2))
    assert one == other, f"seed {DRAWN}"
    assert any("plan generation" in line for line in one), f"seed {DRAWN}"
    assert one[-1].startswith("digest="), f"seed {DRAWN}"


def _strip(text: str) -> list[str]:
    """Without how long it took."""
    lines = text.splitlines()
    return [without_places(line) for line in lines if "simulated_s_per_cpu_s" not in line]
