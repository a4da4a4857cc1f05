"""Runs worlds, one after the other."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.world.ledger import BrokenError
from tests.world.world import Settings, World

_MEMORY = Path("/dev/shm")  # noqa: S108 — spools need no disk


class Ran(NamedTuple):
    """What became of one world."""

    broken: str
    """The promise that did not hold; empty: all did."""
    lines: tuple[str, ...]
    """The newest of its log."""
    simulated_s: float
    checks: int
    batches: int
    pages: int
    moves: int
    digest: str
    """Of its log, its counts and what would be drawn next: equal if nothing went otherwise."""


def run(seed: int, settings: Settings, planted: str = "") -> Ran:
    """A world from its seed, with a planted fault if one is named."""
    place = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="syntony-world-", dir=place) as folder:
        world = World(seed, Path(folder) / "world", settings)
        broken = ""
        try:
            world.run(planted)
        except BrokenError as error:
            broken = str(error) or "unknown"
        return Ran(
            broken, tuple(world.log.lines), world.loop.time(), world.ledger.checks,
            len(world.store.batches), world.pager.pages, len(world.ledger.moves), _digest(world),
        )  # fmt: skip


def _digest(world: World) -> str:
    found = world.log.digest.copy()
    counts = world.loop.now_ns, world.ledger.checks, sorted(world.store.batches)
    found.update(repr((counts, [each.getstate() for each in world.chances])).encode())
    return found.hexdigest()


def command(seed: int, settings: Settings) -> str:
    """Runs this one again."""
    return (
        f"python -m bench.world --first {seed} --seeds 1 --hosts {settings.hosts} "
        f"--controllers {settings.controllers} --gateways {settings.gateways} "
        f"--seconds {settings.faults_s:g} --gap {settings.mean_gap_s:g}"
        + f" --faults {','.join(settings.only)}"
        * bool(settings.only)
    )
