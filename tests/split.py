"""Which test files each worker of `pytest -n N --dist each` collects and runs.

Under xdist's other ways every worker collects all files and runs some: on two cores collecting
alone takes a sixth of `make test`, and several times that in a fresh clone. So each worker collects
its own share. The shares are fixed, and about equally long: the longest files are dealt first, then
the largest.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

LONGEST = (
    "controller/test_loaded.py", "world/test_world.py", "controller/test_two_faults.py",
    "controller/test_dead_spine.py", "nccl/test_profiler_socket.py", "api/test_requests.py",
    "controller/test_job_diagnosis.py", "controller/test_orders.py", "nccl/test_agent_orders.py",
    "agent_link/test_large.py", "verbs/test_pairing.py",
)  # fmt: skip
"""Files whose tests take longest together, from this folder: begun last, they would keep one core
busy alone."""


def share_of(sizes: Mapping[str, int], worker: int, workers: int) -> frozenset[str]:
    """Of files with their sizes (bytes): those of one worker, numbered from 0."""
    place = {name: number for number, name in enumerate(LONGEST)}

    def order(name: str) -> tuple[int, int, str]:
        return place.get(name, len(place)), -sizes[name], name

    return frozenset(sorted(sizes, key=order)[worker::workers])


def find_files(folder: Path) -> dict[str, int]:
    """Test files below a folder, from it, with their sizes (bytes)."""
    found = folder.rglob("test_*.py")
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in found}
