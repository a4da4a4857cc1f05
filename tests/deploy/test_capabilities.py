"""The agent under exactly the capabilities of the shipped units, and without each of them: which
parts run. In a private namespace; raw sockets and netlink are the kernel's own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agent.test_degraded import AgentOnHost, make_nic
from tests.io.namespace import run_alone

from syntony.traffic.policy import Mode

pytestmark = pytest.mark.lab

UNITS = Path(__file__).parents[2] / "deploy/systemd"
UNIT = UNITS / "syntony-agent.service"
FAILOVER = UNITS / "syntony-agent.service.d/failover.conf"


def granted(*files: Path) -> set[str]:
    """What units grant together; ambient and bounding set must be the same."""
    found: dict[str, set[str]] = {}
    for file in files:
        for key, names in re.findall(r"^(\w+)=((?:CAP_\w+ ?)+)$", file.read_text(), re.MULTILINE):
            found.setdefault(key, set()).update(names.split())
    assert found["AmbientCapabilities"] == found["CapabilityBoundingSet"]
    return found["AmbientCapabilities"]


def run_with(capabilities: set[str], mode: Mode, *missing: str) -> None:
    """A child with these only must lack exactly these parts."""
    wanted = ",".join(["-all", *(f"+{name[4:].lower()}" for name in sorted(capabilities))])
    command = ["setpriv", "--bounding-set", wanted, sys.executable, "-m", __spec__.name]
    subprocess.run([*command, "agent", mode, *missing], check=True)


def agent(mode: str, *missing: str) -> None:
    with (
        tempfile.TemporaryDirectory() as place,
        AgentOnHost(Path(place), Mode(mode)).running() as host,
    ):
        host.lacks(*missing)


def _two_nics() -> None:
    make_nic("va", 0)
    make_nic("vb", 1)


def the_unit_runs_every_part() -> None:
    _two_nics()
    run_with(granted(UNIT), Mode.OBSERVE)


def the_unit_with_failover_runs_every_part() -> None:
    _two_nics()
    run_with(granted(UNIT, FAILOVER), Mode.ACT)


def without_raw_sockets_paths_are_not_traced() -> None:
    _two_nics()
    run_with(granted(UNIT) - {"CAP_NET_RAW"}, Mode.OBSERVE, "path-tracing")


def without_any_the_agent_still_measures() -> None:
    _two_nics()
    run_with(set(), Mode.OFF, "path-tracing")


@pytest.mark.parametrize(
    "scenario",
    [
        the_unit_runs_every_part,
        the_unit_with_failover_runs_every_part,
        without_raw_sockets_paths_are_not_traced,
        without_any_the_agent_still_measures,
    ],
)
def test_alone(scenario: Callable[[], None]) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv here; install util-linux")
    run_alone(scenario)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
