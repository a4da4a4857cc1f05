"""The plug-in on real verbs: two machines with Soft-RoCE, and rails that fail under it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from syntony.io.nccl_plugin import net_plugin
from syntony.lab.client import Lab, open_lab
from syntony.lab.testing import SYNTONY, syntony
from syntony.lab.verbs import image
from syntony.lab.world import missing_tools, unshare_argv

pytestmark = [pytest.mark.lab, pytest.mark.slow]
NAME = "test-nccl"
SOURCES = Path(__file__).parents[2] / "native/tests/nccl"
MESSAGES, SIZE = 12_000, 32_768
RECEIVER = "172.30.0.3:7100"
"""h1 on the front-end network."""
ENV = (
    "env", "SYNTONY_NCCL_RAILS=rxe_rail0+rxe_rail1", "SYNTONY_NCCL_SOCKET_IFNAME=mgmt0",
    "DRIVE_LOG=1",
)  # fmt: skip
FAULTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("link-down", "h0/rail0", {"side": "leaf"}),
    ("blackhole", "h1/rail1", {}),
    ("link-down", "h1/rail0", {"side": "leaf"}),
)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    unshare_argv()
    missing = missing_tools(image.TOOLS)
    if missing:
        pytest.skip(f"no machines here: {', '.join(missing)} (see syntony doctor)")
    words = ("lab", "verbs", "up", "--name", NAME, "--detach", "--no-agents")
    subprocess.run([*SYNTONY, *words], check=True, timeout=300)
    yield open_lab(NAME)
    syntony("lab", "down", "--name", NAME, "--yes")


@pytest.fixture(scope="module")
def program(lab: Lab) -> Path:
    """In the lab's directory, which machines see."""
    made = lab.directory / "two_hosts"
    files = [str(SOURCES / "two_hosts.c"), str(SOURCES / "drive.c")]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2"]
    subprocess.run(["cc", *flags, *files, "-o", str(made), "-ldl"], check=True)
    return made


def begin(lab: Lab, host: str, program: Path, *words: str) -> subprocess.Popen[str]:
    argv = [*ENV, str(program), str(net_plugin()), "11", *words, str(MESSAGES), str(SIZE)]
    pipe = subprocess.PIPE
    return subprocess.Popen(lab.enter_argv(host, argv), stdout=pipe, stderr=pipe, text=True)


def test_no_message_is_lost_or_doubled_while_rails_fail(lab: Lab, program: Path) -> None:
    receiver = begin(lab, "h1", program, "receive", RECEIVER.partition(":")[2])
    sender = begin(lab, "h0", program, "send", RECEIVER)
    try:
        time.sleep(5)
        for kind, target, options in FAULTS:
            assert sender.poll() is None, sender.communicate()
            lab.inject(kind, target, options)
            time.sleep(4)
            lab.clear()
            time.sleep(4)
        reported, said = receiver.communicate(timeout=400)
        _, sent = sender.communicate(timeout=60)
    finally:
        receiver.kill()
        sender.kill()
    assert (receiver.returncode, sender.returncode) == (0, 0), said + sent
    found = json.loads(reported)
    assert (found["messages"], found["wrong"]) == (MESSAGES, 0)
    for rail in ("rxe_rail0", "rxe_rail1"):
        assert f"rail {rail} is left" in sent + said
        assert f"rail {rail} is back" in sent + said
    print(f"longest time between two messages: {found['longest_us'] / 1e3:.0f} ms")
