"""The loop of a world: what follows from the seed, and not from places in memory."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from random import Random

from tests.world.loop import HostClock, Loop, Node
from tests.world.network import Arrivals

from syntony.model import S


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


def test_time_goes_on_to_what_is_due_and_not_to_what_was_cancelled() -> None:
    ran: list[tuple[str, int]] = []
    with contextlib.closing(Loop(Random(1))) as loop:
        loop.call_later(5, loop.stop)
        loop.call_later(2, lambda: ran.append(("later", loop.now_ns)))
        loop.call_soon(lambda: ran.append(("soon", loop.now_ns)))
        timer, call = (
            loop.call_later(1, ran.append, ("never", 0)),
            loop.call_soon(ran.append, ("", 0)),
        )
        timer.cancel()
        call.cancel()
        assert timer.cancelled()
        assert call.cancelled()
        loop.run_forever()
        assert loop.time() == 5
    assert ran == [("soon", 0), ("later", 2 * S)]


def test_what_a_paused_process_would_do_waits_and_a_dead_one_does_nothing() -> None:
    paused, dead = (Node(name, HostClock(0, 0.0)) for name in ("paused", "dead"))
    done: list[tuple[str, float]] = []

    async def sleeper(name: str) -> None:
        await asyncio.sleep(1)
        done.append((name, loop.time()))

    with contextlib.closing(Loop(Random(1))) as loop:
        tasks = [loop.spawn(paused, sleeper("paused")), loop.spawn(dead, sleeper("dead"))]
        paused.paused, dead.alive = True, False
        loop.call_later(3, loop.resume, paused)
        loop.run_until_complete(asyncio.wait_for(asyncio.shield(tasks[0]), 10))
        assert done == [("paused", 4.0)]
        tasks[1].get_coro().close()
        tasks[1]._log_destroy_pending = False  # type: ignore[attr-defined]


def test_an_error_of_a_callback_ends_nothing() -> None:
    with contextlib.closing(Loop(Random(1))) as loop:
        loop.call_soon(lambda: 1 / 0)
        loop.call_later(1, loop.stop)
        loop.run_forever()
        assert loop.time() == 1


def test_what_a_pool_has_done_is_heard_of() -> None:
    done: concurrent.futures.Future[int] = concurrent.futures.Future()
    with contextlib.closing(Loop(Random(1))) as loop:

        async def wait() -> int:
            return await asyncio.wrap_future(done)

        loop.call_later(1, done.set_result, 7)
        assert loop.run_until_complete(asyncio.wait_for(wait(), 5)) == 7


def test_one_reader_gets_all_that_arrives_until_the_end() -> None:
    with contextlib.closing(Loop(Random(1))) as loop:
        arrived = Arrivals(loop)
        for at_s, data in enumerate((b"a", b"b", None)):
            loop.call_later(1 + at_s // 2, arrived.put, data)

        async def read() -> list[bytes]:
            return [data async for data in arrived]

        assert loop.run_until_complete(read()) == [b"a", b"b"]
        assert loop.run_until_complete(read()) == []
        assert loop.time() == 2
