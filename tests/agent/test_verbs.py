"""NICs probed over verbs, over the native tests' fake provider."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agent.halves import config
from tests.live import eventually
from tests.nccl import provider as fake

from syntony.agent.config import AgentConfig, NicConfig, VerbsConfig, VerbsMode
from syntony.agent.daemon import Agent
from syntony.agent.spool import Spool
from syntony.agent.verbs import VerbsPlane
from syntony.io.clocks import KernelClock
from syntony.io.probe import ProbeEngine
from syntony.io.probe_records import ProbeNic
from syntony.model.probes import DeviceClockReading, ProbeFlag
from syntony.model.tls_files import TlsFiles
from syntony.wire.parts import PartState

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def provider() -> Path:
    if shutil.which("cc") is None or not Path("/usr/include/infiniband/verbs.h").exists():
        pytest.skip(
            "needs a C compiler and infiniband/verbs.h (Debian: gcc, libibverbs-dev): probes "
            "over verbs are NOT tested"
        )
    return fake.built()


def two_hosts(provider: Path, case: str = "") -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.agent.verbs_two_hosts", case],
        cwd=ROOT, env=os.environ | {"SYNTONY_IBVERBS": str(provider)}, timeout=600, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_two_hosts_probe_each_other(provider: Path) -> None:
    found = two_hosts(provider)
    assert found["answered"] > 50
    assert found["layers"] == {"lo": "roce"}
    assert found["parts"] == [["verbs:lo", "running"]]
    assert found["heard"]
    assert 0 < found["least_rtt_ns"] < 1_000_000_000


@pytest.mark.parametrize("case", ["restart", "gone"])
def test_a_peer_with_other_queue_pairs_is_found_again(provider: Path, case: str) -> None:
    found = two_hosts(provider, case)
    assert found["answered"] > 50
    assert found["parts"] == [["verbs:lo", "running"]]


def test_a_devices_clock_stamps_until_it_fails(provider: Path) -> None:
    """It is a part of its own then, with its reason, and the NIC is probed without it."""
    found = two_hosts(provider, "clock")
    before, after = (DeviceClockReading(*each) for each in found["clocks"])
    assert before.epoch_ns == after.epoch_ns
    assert before.host_ns < after.host_ns
    doubt_ns = before.uncertainty_ns + after.uncertainty_ns
    passed_ns = after.host_ns - before.host_ns
    assert abs(after.device_ns - before.device_ns - passed_ns) <= doubt_ns + 10
    assert found["flags"] & ProbeFlag.HW_LOCAL
    assert found["flags"] & ProbeFlag.HW_REMOTE
    said = re.fullmatch(
        r"its clock jumped by -(\d+) us: probes are stamped by the engine", found["reason"]
    )
    assert said is not None, found["reason"]
    assert abs(int(said[1]) - 10_000) < 2_000
    assert not found["flags_after"] & ProbeFlag.HW_LOCAL
    assert found["flags_after"] & ProbeFlag.HW_REMOTE, "the other host's is as it was"
    assert found["parts"] == [["verbs:lo", "running"], ["verbs-clock:lo", "waiting"]]


def test_devices_clocks_stamp_while_they_may(provider: Path) -> None:
    """Before a plan allows it, and where none does any more, engines do, by hosts' clocks."""
    found = two_hosts(provider, "allowed")
    by_devices = ProbeFlag.HW_LOCAL | ProbeFlag.HW_REMOTE
    assert [flags & by_devices for flags, _ in found["looks"]] == [0, by_devices, 0, by_devices]
    before, first, between, second = (epoch_ns for _, epoch_ns in found["looks"])
    assert (before, between) == (0, 0)
    assert 0 < first < second, "a clock that was not read meanwhile is another"
    assert found["parts"] == [["verbs:lo", "running"]]


def test_an_agent_says_that_it_reads_stamps_of_devices(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 20)
    agent = Agent(config(tmp_path), spool)
    assert agent.hello("s").reads_device_stamps
    agent.close()
    spool.close()


@pytest.mark.parametrize("mode", [VerbsMode.AUTO, VerbsMode.ON])
def test_a_nic_without_rdma_is_amiss_only_where_it_has_to_be(mode: VerbsMode) -> None:
    its = AgentConfig(
        host="h0", controller="127.0.0.1:1", tls=TlsFiles(ca="", cert="", key=""), spool_dir="",
        nics=(NicConfig(name="lo", rail=0),), verbs=VerbsConfig(mode=mode),
    )  # fmt: skip
    clock = KernelClock("h0")
    with ProbeEngine([ProbeNic(name="lo", nic_id=1, address="", port=1)], clock) as udp:
        plane = VerbsPlane(its, clock, udp)
        plane.start()
        try:
            plane.look({"lo": "198.51.100.77"}, {"lo": 1})
            if mode is VerbsMode.ON:
                eventually(lambda: len(plane.status().parts) == 1, "a part waits")
                (part,) = plane.status().parts
                assert (part.name, part.state) == ("verbs:lo", PartState.WAITING)
                assert "RDMA" in part.reason or "verbs" in part.reason
            else:
                eventually(lambda: plane.turns >= 2, "it was looked at")
                assert plane.status().parts == ()
            assert plane.status().layers == {}
        finally:
            plane.close()


def test_verbs_can_be_switched_off() -> None:
    its = AgentConfig(
        host="h0", controller="127.0.0.1:1", tls=TlsFiles(ca="", cert="", key=""), spool_dir="",
        nics=(NicConfig(name="lo", rail=0),), verbs=VerbsConfig(mode=VerbsMode.OFF),
    )  # fmt: skip
    clock = KernelClock("h0")
    with ProbeEngine([ProbeNic(name="lo", nic_id=1, address="", port=1)], clock) as udp:
        plane = VerbsPlane(its, clock, udp)
        plane.start()
        plane.look({"lo": "127.0.0.1"}, {"lo": 1})
        assert (plane.pending(), plane.drain(), plane.status().parts) == (0, b"", ())
        plane.close()
