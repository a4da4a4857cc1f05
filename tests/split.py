"""Which test files each of several workers collects and runs (`tests/workers.py`).

On two cores collecting all files in every worker alone takes a sixth of `make test`, and several
times that in a fresh clone. So each worker collects its own share. The shares are fixed, and about
equally long: the longest files are dealt first, each to the worker with the least so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from pathlib import Path

LONGEST_S = {
    "agent/test_segments.py": 17, "audit/test_real_ssh.py": 16, "fabric/test_varied.py": 14,
    "lab/test_verbs.py": 12, "store/test_store.py": 10, "deploy/test_helm.py": 11,
    "agent_link/test_membership.py": 9, "api/test_sessions.py": 8,
    "resilience/test_schedules.py": 8, "controller/test_notify.py": 8, "agent/test_job_link.py": 7,
    "api/test_oidc.py": 7, "clock/test_tracker.py": 7, "controller/test_job_diagnosis.py": 7,
    "fabric/test_parallel.py": 6, "agent/test_operations.py": 6, "agent/test_reactor_link.py": 6,
    "cli/test_kubernetes.py": 6, "resilience/test_feed.py": 6,
    "deploy/test_slurm_scripts.py": 5, "fabric/test_foreign.py": 5, "fabric/test_some_flows.py": 5,
    "audit/test_parsers.py": 5, "audit/test_bandwidth.py": 5,
    "clock/test_network.py": 5, "clock/test_doubt.py": 5, "agent_link/test_uplink.py": 5,
    "controller/test_placing.py": 5, "controller/test_incidents_of_switches.py": 5,
    "controller/test_after_recovery.py": 5, "controller/test_clock_watch.py": 5,
}  # fmt: skip
"""Files whose tests take longest together, from this folder, and about how many seconds: on a quiet
machine, and twice the processor time besides, for on a busy one computing takes longer."""
_BYTES_A_SECOND = 11_000
"""Of the other files, so many take a second."""


def expected_s(name: str, size: int) -> float:
    """How long the tests of a file of so many bytes take together."""
    return LONGEST_S.get(name, size / _BYTES_A_SECOND)


def share_of(sizes: Mapping[str, int], worker: int, workers: int) -> frozenset[str]:
    """Of files with their sizes (bytes): those of one worker, numbered from 0."""
    seconds = {name: expected_s(name, size) for name, size in sizes.items()}
    loads = [(0.0, number) for number in range(workers)]
    share = set()
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        load, least = heappop(loads)
        heappush(loads, (load + seconds[name], least))
        if least == worker:
            share.add(name)
    return frozenset(share)


def find_files(folder: Path) -> dict[str, int]:
    """Test files below a folder, from it, with their sizes (bytes)."""
    found = folder.rglob("test_*.py")
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in found}
