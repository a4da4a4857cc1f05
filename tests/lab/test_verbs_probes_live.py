"""Agents in two machines probe each other over Soft-RoCE: both planes are in the matrix, a black
hole in both, and the verbs plane is back after it; likewise after a reboot. A file system without
room, or read-only, ends no agent."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.live import SYNTONY, eventually, syntony

from syntony.lab.client import Lab, open_lab
from syntony.lab.verbs import image
from syntony.lab.world import missing_tools

pytestmark = [pytest.mark.lab, pytest.mark.slow]
NAME = "test-verbs-probes"
BOOT_S = 600.0
PATIENCE_S = 300.0
WINDOW = "20s"


@pytest.fixture(scope="module")
def lab(able: None) -> Iterator[Lab]:
    missing = missing_tools(image.TOOLS)
    if missing:
        pytest.skip(
            f"no machines here: {', '.join(missing)} (see syntony doctor): probes over verbs are "
            "NOT tested in a lab"
        )
    words = (
        "lab", "verbs", "up", "--name", NAME, "--detach", "--seed", "3", "--rails", "1",
        "--spines", "1", "--probe-interval-ms", "1000",
    )  # fmt: skip
    subprocess.run([*SYNTONY, *words], check=True, timeout=BOOT_S)
    yield open_lab(NAME)
    syntony("lab", "down", "--name", NAME, "--yes")


def cells(over: str) -> list[dict[str, Any]]:
    """The matrix over the last seconds; nothing while nobody answers."""
    words = ("probe", "matrix", "--lab", NAME, "--over", over, "--window", WINDOW, "--json")
    said = syntony(*words).stdout
    found: list[dict[str, Any]] = json.loads(said) if said.strip() else []
    return found


def compared() -> set[str]:
    """Planes of one matrix of both."""
    words = ("probe", "matrix", "--lab", NAME, "--over", "both", "--json")
    said = syntony(*words).stdout
    return {cell["over"] for cell in json.loads(said)["cells"]} if said.strip() else set()


def arrive(over: str) -> bool:
    """Whether both directions are measured and hardly anything is lost."""
    found = cells(over)
    return len(found) == 2 and all(
        cell["owd_p50_ns"] is not None and cell["lost"] < 0.2 * cell["sent"] for cell in found
    )


def test_both_planes_are_probed_and_see_what_becomes_of_the_fabric(lab: Lab) -> None:
    eventually(lambda: arrive("udp"), "UDP is measured", within_s=PATIENCE_S)
    eventually(lambda: arrive("verbs"), "verbs are measured", within_s=PATIENCE_S)
    assert {cell["over"] for cell in cells("verbs")} == {"verbs"}
    eventually(lambda: compared() == {"udp", "verbs"}, "both are compared", within_s=PATIENCE_S)
    lab.inject("blackhole", "h0/rail0")
    try:
        for over in ("udp", "verbs"):
            eventually(
                lambda over=over: any(
                    cell["lost"] > 0.5 * cell["sent"] > 0 for cell in cells(over)
                ),  # type: ignore[misc]
                f"dark over {over}",
                within_s=PATIENCE_S,
            )
    finally:
        lab.clear()
    eventually(lambda: arrive("verbs"), "verbs are measured again", within_s=PATIENCE_S)


def guest(lab: Lab, script: str) -> str:
    return lab.run("h1", "sh", "-c", script)


def parts() -> dict[str, dict[str, Any]]:
    """What h1's agent says of its parts; nothing while it does not report."""
    said = syntony("agent", "parts", "h1", "--lab", NAME, "--json").stdout
    found = json.loads(said).get("h1", []) if said.strip() else []
    return {each["name"]: each for each in found}


def telemetry(lab: Lab) -> str:
    """Process of h1's telemetry."""
    return guest(lab, "pgrep -f '[s]yntony agent --config' || true").strip()


@pytest.mark.parametrize(
    ("mount", "reason"),
    [("size=64k", "No space left"), ("ro", "Read-only file system")],
)
def test_a_spool_that_cannot_be_written_ends_no_agent(lab: Lab, mount: str, reason: str) -> None:
    eventually(lambda: arrive("verbs"), "verbs are measured", within_s=PATIENCE_S)
    spool = lab.directory / "spool" / "h1"
    guest(lab, f"mount -t tmpfs -o {mount} none {spool}")
    if mount != "ro":
        guest(lab, f"dd if=/dev/zero of={spool}/ballast bs=1k 2>/dev/null || true")
    before = telemetry(lab)
    guest(lab, f"kill -9 {before}")  # the next one opens the spool there
    killed_ns = time.monotonic_ns()
    eventually(lambda: telemetry(lab) not in {"", before}, "another one", within_s=PATIENCE_S)

    def missed() -> bool:
        spool = parts().get("spool")
        newer = spool is not None and spool["age_ns"] < time.monotonic_ns() - killed_ns
        return newer and spool is not None and reason in spool["reason"]

    eventually(missed, f"the spool: {reason}", within_s=PATIENCE_S)
    process = telemetry(lab)
    eventually(lambda: arrive("verbs"), "h0 measures it nevertheless", within_s=PATIENCE_S)
    assert telemetry(lab) == process
    guest(lab, f"umount -l {spool}")
    eventually(
        lambda: parts().get("spool", {}).get("state") == "running",
        "the spool is back",
        within_s=PATIENCE_S,
    )
    assert telemetry(lab) == process


def incidents() -> list[dict[str, Any]]:
    said = syntony("incidents", "list", "--lab", NAME, "--all", "--json").stdout
    found: list[dict[str, Any]] = json.loads(said)["incidents"] if said.strip() else []
    return found


def test_a_machine_that_reboots_is_probed_again_and_is_no_fault_of_the_fabric(lab: Lab) -> None:
    eventually(lambda: arrive("verbs"), "verbs are measured", within_s=PATIENCE_S)
    before = {each["number"] for each in incidents()}
    boot = "cat /proc/sys/kernel/random/boot_id"
    old = guest(lab, boot)
    reboot = lab.enter_argv("h1", ["sh", "-c", "echo b > /proc/sysrq-trigger"])
    subprocess.run(reboot, capture_output=True, check=False)

    def booted() -> bool:
        argv = lab.enter_argv("h1", ["sh", "-c", boot])
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode == 0 and done.stdout != old

    eventually(booted, "h1 has booted", within_s=BOOT_S)
    for over in ("udp", "verbs"):
        eventually(lambda over=over: arrive(over), over, within_s=PATIENCE_S)  # type: ignore[misc]
    assert parts()["verbs:rail0"]["state"] == "running"
    new = [each for each in incidents() if each["number"] not in before]
    print(json.dumps(new))
    own = {"host-silent", "agent-degraded", "clock-unsynchronized"}
    assert {each["rule"] for each in new} <= own, new


def test_nothing_of_it_is_left(lab: Lab) -> None:
    """Last: it ends the lab."""
    machines = f"qemu-system-x86_64 .*{lab.directory}"
    running = ["pgrep", "-f", machines]
    assert subprocess.run(running, capture_output=True, check=False).returncode == 0
    assert syntony("lab", "verbs", "down", "--name", NAME, "--yes").returncode == 0
    assert subprocess.run(running, capture_output=True, check=False).returncode == 1
    assert not lab.directory.exists()
    assert NAME not in syntony("lab", "list", "--json").stdout
