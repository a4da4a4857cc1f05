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
        """The cgroup that counts kills of a process, from now on: its own, or, where that has no
        counter, the next one above it; None: not known.

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
        levels = self._levels(self._place / name / paths[name])
        for level in levels:
            if level not in self._counts:
                self._counts[level] = _count(level)
        return next((level for level in levels if self._counts[level] is not None), None)

    def look(self, cgroups: Iterable[Path]) -> dict[Path, int]:
        """How many processes of these cgroups were killed since the last call, where that is known.
        Of a cgroup that was removed since, the next one above it tells, by what no other below it
        counted; of several that were, the first gets it, and the others are not known."""
        wanted = {each: self._levels(each) for each in sorted(cgroups)}
        before = self._counts
        levels = {level for some in wanted.values() for level in some}
        self._counts = {level: _count(level) for level in levels}
        new = {
            level: max(0, now - then)
            for level, now in self._counts.items()
            if now is not None and (then := before.get(level)) is not None
        }
        found = {cgroup: new[cgroup] for cgroup in wanted if cgroup in new}
        given = set[Path]()
        for cgroup, above in wanted.items():
            level = next((each for each in above if self._counts[each] is not None), cgroup)
            if level != cgroup and level in new and level not in given:
                below = sum(count for each, count in new.items() if each.parent == level)
                found[cgroup] = max(0, new[level] - below)
                given |= {level} if found[cgroup] else set()
        return found

    def _levels(self, cgroup: Path) -> list[Path]:
        """Those that count its kills: it, and of version 2 those above it, below the mount."""
        if self._place / "memory" in cgroup.parents:
            return [cgroup]
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
