"""Interrupts by core, and the cores that a process may run on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from syntony.model import S

_IRQ, _SOFTIRQ = 6, 7
"""Fields of a core's line in /proc/stat (proc_stat(5)), from 1."""


class Interrupts:
    """Time that interrupts take of the cores. Not thread-safe."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._file = proc / "stat"
        self._before: dict[int, int] = {}

    def look(self) -> dict[int, int]:
        """Core to ns since the look before; empty in the first, and where the file is hidden."""
        now: dict[int, int] = {}
        with suppress(OSError, ValueError, IndexError):
            now = _by_core(self._file.read_text(encoding="ascii"))
        before, self._before = self._before, now
        return {core: max(0, now[core] - before[core]) for core in now.keys() & before.keys()}


def allowed(processes: Iterable[Path]) -> frozenset[int]:
    """Cores that any of these may run on.

    Args:
        processes: of each ``/proc/PID``.
    """
    found: set[int] = set()
    for each in processes:
        with suppress(OSError, ValueError, IndexError):
            status = (each / "status").read_text(encoding="utf-8", errors="replace")
            found.update(parse_cpus(status.split("\nCpus_allowed_list:", 1)[1].split("\n", 1)[0]))
    return frozenset(found)


def parse_cpus(text: str) -> list[int]:
    """``0-3,8-11``"""
    found: list[int] = []
    for match in re.finditer(r"(\d{1,5})(?:-(\d{1,5}))?", text):
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def _by_core(text: str) -> dict[int, int]:
    found = {}
    for line in text.splitlines():
        name, *_ = fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = int(fields[_IRQ]) + int(fields[_SOFTIRQ])
            found[int(name[3:])] = ticks * S // os.sysconf("SC_CLK_TCK")
    return found
