"""Collectives over real sockets between threads: right results, and wrong ones caught."""

from __future__ import annotations

import itertools
import socket
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.lab.jobs import content
from syntony.lab.jobs.builtin import Rank
from syntony.lab.jobs.mesh import RankMesh

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PATIENCE_S = 300.0


def meshes(ranks: int) -> list[RankMesh]:
    peers: list[dict[int, socket.socket]] = [{} for _ in range(ranks)]
    for a, b in itertools.combinations(range(ranks), 2):
        peers[a][b], peers[b][a] = socket.socketpair()
    return [RankMesh(rank, mine) for rank, mine in enumerate(peers)]


def everywhere(ranks: int, work: Callable[[RankMesh], None]) -> None:
    """Runs `work` in one thread per rank; raises what any of them raised."""
    errors: list[BaseException] = []

    def one(mesh: RankMesh) -> None:
        try:
            with mesh:
                work(mesh)
        except BaseException as error:  # noqa: BLE001 - carried to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=one, args=(mesh,)) for mesh in meshes(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE_S)
        assert not thread.is_alive(), "a collective hangs"
    for error in errors:
        raise error


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all", "gather"])
@given(ranks=st.integers(2, 5), elements=st.integers(5, 300), steps=st.integers(1, 4))
def test_every_result_is_right_and_all_end_together(
    kind: str, ranks: int, elements: int, steps: int
) -> None:
    data = content.Content(ranks, elements)
    done: list[tuple[int, int]] = []

    def work(mesh: RankMesh) -> None:
        end_requested = threading.Event()
        rank = Rank(mesh, data, end_requested)
        last = False
        number = 0
        while not last:
            if number == steps - 1:
                end_requested.set()  # only rank 0's counts
            wrong, last = getattr(rank, kind)(number, spoil=False)
            assert wrong == 0
            number += 1
        done.append((mesh.rank, number))

    everywhere(ranks, work)
    assert sorted(done) == [(rank, steps) for rank in range(ranks)]


@given(
    ranks=st.integers(2, 5), steps=st.integers(1, 6), joined=st.integers(0, 6),
)  # fmt: skip
def test_one_rank_sends_alone_until_all_may(ranks: int, steps: int, joined: int) -> None:
    data = content.Content(ranks, 50)
    sent: dict[tuple[int, int], int] = {}
    ends: list[int] = []

    def work(mesh: RankMesh) -> None:
        end_requested, all_requested = threading.Event(), threading.Event()
        rank = Rank(mesh, data, end_requested, all_requested)
        exchange = mesh.exchange

        def counted(out: Mapping[int, memoryview], into: Mapping[int, memoryview]) -> None:
            sent[mesh.rank, number] = sent.get((mesh.rank, number), 0) + sum(map(len, out.values()))
            exchange(out, into)

        mesh.exchange = counted  # type: ignore[method-assign]
        last, number = False, 0
        while not last:
            if number == joined:
                all_requested.set()  # only rank 0's counts
            if number == steps - 1:
                end_requested.set()
            wrong, last = rank.gather(number, spoil=False)
            assert wrong == 0
            number += 1
        ends.append(number)

    everywhere(ranks, work)
    assert ends == [steps] * ranks
    for rank in range(1, ranks):
        for number in range(steps):
            sends = rank == 1 or number > joined
            assert sent.get((rank, number), 0) == (4 * data.elements if sends else 0)


class LateWish(threading.Event):
    """Comes between two looks at it."""

    def is_set(self) -> bool:
        before = super().is_set()
        self.set()
        return before


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all", "gather"])
def test_a_wish_that_comes_in_the_middle_of_a_step_is_the_same_to_all(kind: str) -> None:
    data = content.Content(3, 100)
    done: list[int] = []

    def work(mesh: RankMesh) -> None:
        rank = Rank(mesh, data, LateWish())
        ends = [getattr(rank, kind)(number, spoil=False)[1] for number in range(2)]
        assert ends == [False, True]
        done.append(mesh.rank)

    everywhere(3, work)
    assert sorted(done) == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "who"), [("all_reduce", {0, 1, 2}), ("all_to_all", {2}), ("gather", {0})]
)
def test_one_planted_bit_is_caught_where_it_arrives(kind: str, who: set[int]) -> None:
    data = content.Content(3, 1000)
    caught: dict[int, int] = {}

    def work(mesh: RankMesh) -> None:
        rank = Rank(mesh, data, threading.Event())
        caught[mesh.rank], _ = getattr(rank, kind)(0, spoil=mesh.rank == 1)

    everywhere(3, work)
    assert {rank for rank, wrong in caught.items() if wrong} == who
    assert all(wrong in {0, 1} for wrong in caught.values())


def test_large_exchanges_in_both_directions_do_not_block_each_other() -> None:
    size = 8 << 20  # far beyond socket buffers

    def work(mesh: RankMesh) -> None:
        out = np.full(size, mesh.rank, dtype=np.uint8)
        into = np.empty(size, dtype=np.uint8)
        peer = 1 - mesh.rank
        mesh.exchange({peer: out.data}, {peer: into.data})
        assert (into == peer).all()

    everywhere(2, work)


def test_a_peer_that_leaves_is_an_error() -> None:
    def work(mesh: RankMesh) -> None:
        if mesh.rank == 0:
            return
        buffer = bytearray(10)
        with pytest.raises(ConnectionError):
            mesh.exchange({}, {0: memoryview(buffer)})

    everywhere(2, work)


@given(
    step=st.integers(0, 100_000),
    other=st.integers(0, 100_000),
    rank=st.integers(0, 7),
)
def test_content_of_another_step_or_rank_is_wrong(step: int, other: int, rank: int) -> None:
    data = content.Content(8, 4096)
    stale = data.sum(step) - data.contribution(rank, step) + data.contribution(rank, other)
    assert (content.count_wrong(stale, data.sum(step)) == 0) is (other == step)
    doubled = data.sum(step) + data.contribution(rank, step)
    assert content.count_wrong(doubled, data.sum(step)) > 0
    assert content.count_wrong(data.send(0, rank, step), data.send(0, (rank + 1) % 8, step)) > 0
