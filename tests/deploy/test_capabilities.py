"""Both halves of an agent under exactly the capabilities of their units, and without each of them:
which parts run. In a private namespace; raw sockets and netlink are the kernel's own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agent.halves import config, lacks, reacting, reporting
from tests.agent.test_degraded import make_nic
from tests.io.namespace import run_alone

from syntony.traffic.policy import FailoverMode

pytestmark = pytest.mark.lab

UNITS = Path(__file__).parents[2] / "deploy/systemd"
AGENT, REACTOR = UNITS / "syntony-agent.service", UNITS / "syntony-reactor.service"
OF_REACTOR = {"failover", "join-port", "probing", "job-socket", "reactor-socket"}
FAILOVER = UNITS / "syntony-reactor.service.d/failover.conf"
RAW = ("path-tracing", "segment-sampling")
"""Parts that need CAP_NET_RAW."""


def granted(*files: Path) -> set[str]:
    """What units grant together; ambient and bounding set must be the same."""
    found: dict[str, set[str]] = {}
    for file in files:
        for key, names in re.findall(r"^(\w+)=((?:CAP_\w+ ?)+)$", file.read_text(), re.MULTILINE):
            found.setdefault(key, set()).update(names.split())
    assert found["AmbientCapabilities"] == found["CapabilityBoundingSet"]
    return found["AmbientCapabilities"]


def run_with(reactor: set[str], telemetry: set[str], mode: FailoverMode, *missing: str) -> None:
    """Both halves, each a process with these only: they must lack exactly these parts."""
    with tempfile.TemporaryDirectory() as place:
        words = (place, mode, *missing)
        with subprocess.Popen(
            limited(reactor, "reactor", *words), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline(), "the reactor lacks something else"
            subprocess.run(limited(telemetry, "telemetry", *words), check=True)
            other.communicate()
        assert other.returncode == 0


def limited(capabilities: set[str], *words: str) -> list[str]:
    """A function of this module, in a process with these capabilities."""
    wanted = ",".join(["-all", *(f"+{name[4:].lower()}" for name in sorted(capabilities))])
    return ["setpriv", "--bounding-set", wanted, sys.executable, "-m", __spec__.name, *words]


def reactor(place: str, mode: str, *missing: str) -> None:
    """Until standard input ends."""
    with reacting(config(Path(place), FailoverMode(mode))) as half:
        lacks(half, [part for part in missing if part in OF_REACTOR])
        print("ready", flush=True)
        sys.stdin.read()


def telemetry(place: str, mode: str, *missing: str) -> None:
    with reporting(config(Path(place), FailoverMode(mode))) as half:
        lacks(half, [part for part in missing if part not in OF_REACTOR])


def _two_nics() -> None:
    make_nic("va", 0)
    make_nic("vb", 1)


def the_units_run_every_part() -> None:
    _two_nics()
    run_with(granted(REACTOR), granted(AGENT), FailoverMode.OBSERVE)


def the_units_with_failover_run_every_part() -> None:
    _two_nics()
    run_with(granted(REACTOR, FAILOVER), granted(AGENT), FailoverMode.ACT)


def without_raw_sockets_paths_are_not_traced_and_segments_not_sampled() -> None:
    _two_nics()
    run_with(granted(REACTOR), granted(AGENT) - {"CAP_NET_RAW"}, FailoverMode.OBSERVE, *RAW)


def without_any_the_agent_still_measures() -> None:
    _two_nics()
    run_with(set(), set(), FailoverMode.OFF, *RAW)


@pytest.mark.parametrize(
    "scenario",
    [
        the_units_run_every_part,
        the_units_with_failover_run_every_part,
        without_raw_sockets_paths_are_not_traced_and_segments_not_sampled,
        without_any_the_agent_still_measures,
    ],
)
def test_alone(scenario: Callable[[], None]) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv (Debian: util-linux): capabilities of the units are NOT tested")
    run_alone(scenario)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
