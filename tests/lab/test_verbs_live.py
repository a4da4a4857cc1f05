"""Real verbs between two machines of a lab: they work, and see the lab's faults."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from tests.live import SYNTONY, eventually, syntony

from syntony.lab.client import Lab, open_lab
from syntony.lab.verbs import image
from syntony.lab.world import missing_tools

pytestmark = [pytest.mark.lab, pytest.mark.slow]
NAME = "test-verbs"
PEER = "172.30.0.3"
"""h1 on the front-end network, where the two ends find each other."""
BOOT_S = 240.0
TIMED_OUT = 124
CLIENT_S = 30
SERVER_S = 120
"""It must still listen when a slow client comes."""


@pytest.fixture(scope="module")
def lab(able: None) -> Iterator[Lab]:
    missing = missing_tools(image.TOOLS)
    if missing:
        pytest.skip(
            f"no machines here: {', '.join(missing)} (see syntony doctor): labs of machines are "
            "NOT tested"
        )
    words = (
        "lab", "verbs", "up", "--name", NAME, "--detach", "--seed", "3",
        "--probe-interval-ms", "1000",  # or agents on emulated processors do little else
    )  # fmt: skip
    subprocess.run([*SYNTONY, *words], check=True, timeout=BOOT_S)
    yield open_lab(NAME)
    syntony("lab", "down", "--name", NAME, "--yes")


def pingpong(lab: Lab, rail: int, count: int = 100) -> tuple[int, str]:
    """A reliable connection between both hosts' NICs of a rail: h0's status, what both said."""
    words = ["ibv_rc_pingpong", "-d", f"rxe_rail{rail}", "-g", "1", "-n", str(count)]
    server = subprocess.Popen(
        lab.enter_argv("h1", ["timeout", str(SERVER_S), *words]),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        listening = "ss -ltn | grep -q :18515"
        eventually(lambda: lab_ok(lab, "h1", listening), "h1 listens", within_s=60)
        done = subprocess.run(
            lab.enter_argv("h0", ["timeout", str(CLIENT_S), *words, PEER]),
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
    finally:
        lab_ok(lab, "h1", "pkill -x ibv_rc_pingpong")  # the process here has no hold on it
        reported, _ = server.communicate(timeout=SERVER_S)
    return done.returncode, f"{done.stdout}{done.stderr}h1: {reported}"


def lab_ok(lab: Lab, host: str, script: str) -> bool:
    argv = lab.enter_argv(host, ["sh", "-c", script])
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def port_state(lab: Lab, host: str, rail: int) -> str:
    found = json.loads(lab.run(host, "rdma", "-j", "link"))
    return next(str(x["state"]) for x in found if x["ifname"] == f"rxe_rail{rail}")


@pytest.mark.parametrize("rail", [0, 1])
def test_a_reliable_connection_carries_data(lab: Lab, rail: int) -> None:
    status, said = pingpong(lab, rail)
    assert status == 0, said
    assert "100 iters" in said


def test_a_pulled_cable_takes_the_rdma_port_down_and_back(lab: Lab) -> None:
    lab.inject("link-down", "h0/rail0", {"side": "leaf"})
    eventually(lambda: port_state(lab, "h0", 0) == "DOWN", "rail0 down", within_s=30)
    assert port_state(lab, "h0", 1) == "ACTIVE"
    status, said = pingpong(lab, 1)
    assert status == 0, said
    lab.clear()
    eventually(lambda: port_state(lab, "h0", 0) == "ACTIVE", "rail0 back", within_s=30)
    status, said = pingpong(lab, 0)
    assert status == 0, said


def test_a_black_hole_is_not_seen_by_the_port(lab: Lab) -> None:
    """Nor by this program, which retries for ever (Soft-RoCE takes 7 retries for that)."""
    lab.inject("blackhole", "h0/rail1")
    try:
        assert port_state(lab, "h0", 1) == "ACTIVE"
        status, said = pingpong(lab, 1)
        assert status == TIMED_OUT, said
        assert port_state(lab, "h0", 1) == "ACTIVE"
    finally:
        lab.clear()
    status, said = pingpong(lab, 1)
    assert status == 0, said


def test_the_agents_inside_find_fleet_time(lab: Lab) -> None:
    def known() -> bool:
        words = ("clock", "status", "--lab", NAME, "--json")
        clocks = json.loads(syntony(*words).stdout or "[]")
        return len(clocks) == 2 and all(each["state"] == "SYNCHRONIZED" for each in clocks)

    eventually(known, "both clocks are synchronized", within_s=180)


def test_a_machine_that_dies_boots_again(lab: Lab) -> None:
    boot = lab.run("h1", "cat", "/proc/sys/kernel/random/boot_id")
    subprocess.run(lab.enter_argv("h1", ["sh", "-c", "echo o > /proc/sysrq-trigger"]),
                   capture_output=True, check=False)  # fmt: skip
    deadline_s = time.monotonic() + BOOT_S
    while boot == other(lambda: lab.run("h1", "cat", "/proc/sys/kernel/random/boot_id"), boot):
        assert time.monotonic() < deadline_s, "h1 did not boot again"
        time.sleep(1)
    status, said = pingpong(lab, 0)
    assert status == 0, said


def other(ask: Callable[[], str], otherwise: str) -> str:
    """What is answered; `otherwise` while nobody answers."""
    try:
        return ask()
    except Exception:  # noqa: BLE001 - a machine that is away
        return otherwise
