"""The loop of a world: what follows from the seed, and not from places in memory."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

from tests.world.loop import Loop


async def _ended_by_a_group(waste: list[bytes]) -> list[int]:
    """In which order a group ends its tasks; `waste` is memory between them."""
    ended = []

    async def wait(number: int) -> None:
        waste.append(bytes(number * 997 % 4096))
        try:
            await asyncio.sleep(1)
        finally:
            ended.append(number)

    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(wait(number))
                waste.append(bytes(number * 991 % 4096))
            await asyncio.sleep(0.5)
            raise KeyError
    return ended


def test_a_group_ends_its_tasks_in_the_same_order_again() -> None:
    waste: list[bytes] = []
    runs = []
    for _ in range(3):
        with contextlib.closing(Loop(Random(1))) as loop:
            runs.append(loop.run_until_complete(_ended_by_a_group(waste)))
    assert sorted(runs[0]) == list(range(40))
    assert runs[1:] == runs[:1] * 2
