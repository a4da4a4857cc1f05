"""Which processes the kernel killed for lack of memory, by the counters of their cgroups.

Version 2 counts `oom_kill` in `memory.events`, of a cgroup and all below it; version 1 in
`memory.oom_control`, of that cgroup alone (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1).
Everybody may read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_PLACE = Path("/sys/fs/cgroup")


class OomKills:
    """Not thread-safe.

    Args:
        place: where cgroups are mounted.
    """

    def __init__(self, place: Path = _PLACE) -> None:
        self._place = place
        self._counts: dict[Path, int | None] = {}
        """Of all cgroups that were asked for, and those above them; None: not known."""

    def of(self, process: Path) -> Path | None:
        """The cgroup that a process's memory counts to, whose kills are counted from now on; None:
        not known.

        Args:
            process: ``/proc/PID``.
        """
        try:
            lines = (process / "cgroup").read_text(errors="replace").splitlines()
        except OSError:
            return None
        paths: dict[str, str] = {}
        for line in lines:
            _, controllers, path = line.split(":", 2)
            paths |= dict.fromkeys(controllers.split(","), path.lstrip("/"))
        if "memory" not in paths and "" not in paths:
            return None
        name = "memory" if "memory" in paths else ""
        found = self._place / name / paths[name]
        for level in self._levels(found):
            if level not in self._counts:
                self._counts[level] = _count(level)
        return found

    def look(self, cgroups: Iterable[Path]) -> dict[Path, int]:
        """How many processes of these cgroups were killed since the last call, where some were. Of
        a cgroup that was removed since, the next one above it tells."""
        wanted = {each: self._levels(each) for each in cgroups}
        before = self._counts
        levels = {level for some in wanted.values() for level in some}
        self._counts = {level: _count(level) for level in levels}
        found = {}
        for cgroup, above in wanted.items():
            level = next((each for each in above if self._counts[each] is not None), cgroup)
            now, then = self._counts[level], before.get(level)
            if now is not None and then is not None and now > then:
                found[cgroup] = now - then
        return found

    def _levels(self, cgroup: Path) -> list[Path]:
        """It and those above it, below the mount."""
        return [cgroup, *(each for each in cgroup.parents if self._place in each.parents)]


def _count(cgroup: Path) -> int | None:
    for name in ("memory.events", "memory.oom_control"):
        try:
            text = (cgroup / name).read_text(encoding="ascii")
        except OSError:
            continue
        for line in text.splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill" and value.isdecimal():
                return int(value)
    return None
