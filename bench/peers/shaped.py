"""Two hosts and a switch in namespaces of a private world, a rate limit at the switch, and load."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from syntony.lab import netns
from syntony.lab.world import unshare_argv

SERVER, SWITCH, CLIENT = "a", "r", "b"
ADDRESS = {SERVER: "10.77.0.1", CLIENT: "10.77.0.2"}
INTERFACE = {SERVER: "va", CLIENT: "vb"}
SHAPER = ("rate", "100mbit", "burst", "4kb", "latency", "2ms")
"""At both of the switch's ports: the queue stands in the network, not in a host."""
_INSIDE = "SYNTONY_BENCH_INSIDE"
_SETTLE_S = 0.4
_QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def in_private_world(arguments: Sequence[str]) -> int | None:
    """Run this module's program again in namespaces of its own; its exit code.

    None where that has already happened: go on.
    """
    if os.environ.get(_INSIDE):
        netns.mount("none", "/run", "tmpfs")
        netns.mount("none", "/sys", "sysfs")
        netns.NETNS_DIR.mkdir()
        return None
    argv = [*unshare_argv(), sys.executable, *arguments]
    return subprocess.run(argv, env={**os.environ, _INSIDE: "1"}, check=False).returncode


def build() -> None:
    """Server, client and the switch between them, shaped in both directions."""
    for node in (SERVER, SWITCH, CLIENT):
        netns.create(node, {})
        netns.tool(node, ["ip", "link", "set", "lo", "up"])
    netns.tool(SWITCH, ["ip", "link", "add", "br0", "type", "bridge"])
    netns.tool(SWITCH, ["ip", "link", "set", "br0", "up"])
    for node in (SERVER, CLIENT):
        port, own = f"r{node}", INTERFACE[node]
        netns.tool(SWITCH, ["ip", "link", "add", port, "type", "veth", "peer", own, "netns", node])
        netns.tool(SWITCH, ["ip", "link", "set", port, "master", "br0", "up"])
        netns.tool(node, ["ip", "address", "add", f"{ADDRESS[node]}/24", "dev", own])
        netns.tool(node, ["ip", "link", "set", own, "up"])
        netns.tool(SWITCH, ["tc", "qdisc", "add", "dev", port, "root", "tbf", *SHAPER])


def start(node: str, argv: Sequence[str], **options: object) -> subprocess.Popen[str]:
    """A process inside `node`."""
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        ["ip", "netns", "exec", node, *argv], text=True, **{**_QUIET, **options}
    )


@contextmanager
def load(forward_mbps: int, reverse_mbps: int) -> Iterator[None]:
    """UDP payload from server to client and back, paced per millisecond, while the block lasts."""
    running = []
    for src, dst, mbps in ((SERVER, CLIENT, forward_mbps), (CLIENT, SERVER, reverse_mbps)):
        if not mbps:
            continue
        running.append(start(dst, ["iperf3", "-s"]))
        time.sleep(_SETTLE_S)
        flow = ["-u", "-b", f"{mbps}M", "-l", "1400", "--pacing-timer", "1000", "-t", "3600"]
        running.append(start(src, ["iperf3", "-c", ADDRESS[dst], *flow]))
    try:
        yield
    finally:
        stop(running)


def stop(running: Sequence[subprocess.Popen[str]]) -> None:
    """End processes, newest first."""
    for process in reversed(running):
        process.terminate()
    for process in running:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=3)
        process.kill()
        process.wait()
