"""What an agent tells Prometheus of the socket at which queue pairs are reported."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from syntony.agent.job_admission import MAX_PER_PROCESS
from syntony.agent.metrics import put_queue_pairs
from syntony.agent.queue_pairs import FleetOffset, QueuePairSocket
from syntony.metrics.sheet import Sheet
from syntony.metrics.text import render

PEER = """
import os, socket, sys
made = []
for _ in range(int(sys.argv[1])):
    made.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    made[-1].connect(os.environ["SYNTONY_AGENT"])
    if os.environ.get("SYNTONY_JOB"):
        made[-1].send(b"x")
print("ready", flush=True)
sys.stdin.readline()
"""


def scraped(socket: QueuePairSocket) -> dict[str, float]:
    """Metric, with the reason where it has one, to its value."""
    sheet = Sheet({"host": "h0"})
    put_queue_pairs(sheet, socket)
    return {
        " ".join([each.name, each.labels.get("reason", "")]).strip(): each.value
        for family in text_string_to_metric_families(render(sheet, "")[1])
        for each in family.samples
    }


def peer(path: Path, connections: int, job: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "SYNTONY_AGENT": str(path), "SYNTONY_JOB": job}
    started = subprocess.Popen(
        [sys.executable, "-c", PEER, str(connections)], env=environ, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def wait_for(socket: QueuePairSocket, name: str, value: float) -> None:
    end_s = time.monotonic() + 300
    while scraped(socket)[name] != value:
        assert time.monotonic() < end_s, scraped(socket)
        time.sleep(0.02)


def test_admissions_are_counted_and_never_uncounted(tmp_path: Path) -> None:
    socket = QueuePairSocket(tmp_path / "agent-qp")
    socket.start()
    path = tmp_path / "agent-qp"
    try:
        assert set(scraped(socket).values()) == {0.0}
        with peer(path, MAX_PER_PROCESS + 2, "night"), peer(path, 1, ""):
            wait_for(socket, "syntony_queue_pair_processes_refused_total process-full", 2)
            wait_for(socket, "syntony_queue_pair_processes_refused_total no-job", 1)
            wait_for(socket, "syntony_queue_pair_processes", MAX_PER_PROCESS)
            report = socket.report(lambda: FleetOffset(time.monotonic_ns(), 0, 0))
            assert report is not None
            assert report.malformed == MAX_PER_PROCESS  # what they sent is no page
        wait_for(socket, "syntony_queue_pair_processes", 0)
        reported = scraped(socket)
    finally:
        socket.close()
    assert reported["syntony_queue_pair_processes_connected_total"] == MAX_PER_PROCESS
    assert reported["syntony_queue_pair_records_unused_total"] == MAX_PER_PROCESS
    assert reported["syntony_queue_pairs"] == reported["syntony_queue_pairs_left_out"] == 0
