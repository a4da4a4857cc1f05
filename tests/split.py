"""Which test files each worker of `pytest -n N --dist each` collects and runs.

Under xdist's other ways every worker collects all files and runs some: on two cores collecting
alone takes a sixth of `make test`, and several times that in a fresh clone. So each worker collects
its own share. The shares are fixed, and about equally long: the longest files are dealt first, each
to the worker with the least so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from pathlib import Path

LONGEST_S = {
    "audit/test_real_ssh.py": 23, "store/test_store.py": 20, "agent/test_segments.py": 18,
    "agent_link/test_enrolment_port.py": 13, "fabric/test_rugged.py": 13,
    "controller/test_clock_watch.py": 12,
    "api/test_requests.py": 11, "lab/test_verbs.py": 11, "clock/test_laplacian.py": 10,
    "agent_link/test_membership.py": 9, "api/test_sessions.py": 9, "agent_link/test_uplink.py": 9,
    "controller/test_orders.py": 8, "agent_link/test_hostile_peers.py": 8,
    "agent_link/test_spool_killed.py": 8,
    "fabric/test_fault_locator.py": 8, "controller/test_silent_fleet.py": 8,
    "cli/test_kubernetes.py": 8, "fabric/test_strange_hosts.py": 8, "fabric/test_parallel.py": 7,
    "agent/test_reactor_link.py": 7, "agent/test_job_link.py": 7,
    "resilience/test_schedules.py": 7, "clock/test_doubt.py": 7, "controller/test_notify.py": 7,
    "cli/test_diff_and_timeline.py": 7, "controller/test_enrolment.py": 7,
    "audit/test_checks.py": 6, "resilience/test_feed.py": 6,
    "controller/test_incidents_of_switches.py": 6, "api/test_oidc_login.py": 6,
    "fabric/test_varied.py": 6, "gpus/test_gpu_reading.py": 6,
    "controller/test_after_recovery.py": 6, "clock/test_network.py": 6,
    "controller/test_replay.py": 6, "nccl/test_profiler_chain.py": 6,
    "agent/test_operations.py": 6, "world/test_time.py": 6, "fabric/test_foreign.py": 6,
    "controller/test_placing.py": 6,
}  # fmt: skip
"""Files whose tests take longest together, from this folder, and about how many seconds."""
_BYTES_A_SECOND = 9_000
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
