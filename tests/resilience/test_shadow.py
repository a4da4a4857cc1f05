"""Parts of parameters: who has which, and copies of them on a neighbour."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip(
    "torch", reason="needs PyTorch (pip install '.[torch]'): copies of parts are NOT tested"
)

from tests.resilience.apart import apart  # noqa: E402
from tests.resilience.test_replica import begun, replica  # noqa: E402


@pytest.mark.parametrize(
    ("world", "per_host", "to"),
    [(4, 0, [1, 2, 3, 0]), (4, 4, [1, 2, 3, 0]), (4, 2, [2, 3, 0, 1]), (6, 4, [1, 2, 3, 4, 5, 0])],
)
def test_a_neighbour_is_on_another_host_where_there_is_one(
    world: int, per_host: int, to: list[int]
) -> None:
    from syntony.torch.shadow import neighbours

    found = [neighbours(rank, world, per_host) for rank in range(world)]
    assert [each[0] for each in found] == to
    for rank, (_, of) in enumerate(found):
        assert found[of][0] == rank


def split(mesh: Any, rank: int, *placements: str) -> Any:
    """A parameter over a device mesh, of one rank."""
    place = (mesh == rank).nonzero()[0].tolist()
    return SimpleNamespace(
        _local_tensor=None,
        device_mesh=SimpleNamespace(
            mesh=mesh, get_coordinate=lambda: place, size=lambda at: mesh.shape[at]
        ),
        placements=[
            SimpleNamespace(is_shard=lambda k=kind: k == "s", is_replicate=lambda k=kind: k == "r")
            for kind in placements
        ],
    )


@pytest.mark.parametrize(
    ("shape", "placements", "parts"),
    [
        ((4,), "s", 4),
        ((4,), "r", 1),
        ((2, 2), "rs", 2),
        ((2, 2), "ss", 4),
        ((2, 3), "sr", 2),
        ((1, 4), "sr", 1),
    ],
)
def test_ranks_of_one_part_are_those_with_the_same_place(
    shape: tuple[int, ...], placements: str, parts: int
) -> None:
    from syntony.torch.sharding import part_of

    mesh = torch.arange(torch.Size(shape).numel()).view(shape)
    found = [part_of([split(mesh, rank, *placements)]) for rank in range(mesh.numel())]
    assert {each.parts for each in found} == {parts}
    assert len({each.name for each in found}) == parts


def test_meshes_over_the_same_ranks_are_one() -> None:
    from syntony.torch.sharding import part_of

    mesh = torch.arange(4)
    both = [split(mesh, 1, "s"), split(mesh.clone(), 1, "s"), torch.ones(2)]
    assert part_of(both).parts == 4
    assert part_of([torch.ones(2)]).parts == 1


def handed_over(seed: int) -> tuple[bool, list[int], int]:
    """A rank's state through its neighbour's copy into a replacement."""
    from syntony.torch.operations import Pool
    from syntony.torch.shadow import Shadows

    pool = Pool()
    choice = random.Random(seed)
    torch.manual_seed(seed)
    made, _ = replica()
    shapes = [tuple(choice.randrange(4) for _ in range(choice.randrange(1, 3))) for _ in range(4)]
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    optimizer = torch.optim.AdamW(parameters, lr=0.1)
    shadows = Shadows(made)
    shadows._of = 7
    digests = []
    for boundary in range(4):
        shadows.store(boundary, shadows.copy(pool), pool)
        digests.append(made.digest())
        for each in parameters:
            each.grad = torch.randn_like(each)
        optimizer.step()
    sent: list[Any] = []
    size = shadows.give(2, sent.append)
    optimizer.state.clear()
    with torch.no_grad():
        for each in parameters:
            each.zero_()

    def receive(tensor: Any) -> None:
        data = sent.pop(0).contiguous().view(-1).view(torch.uint8)
        tensor.copy_(data.view(tensor.dtype).view(tensor.shape))

    made.take(receive, undo=False)
    kept = made.optimizers[0].state[parameters[0]]["step"]
    assert float(kept) == 2.0
    return made.digest() == digests[2] and not sent, shadows.held()[7], size


def test_a_copy_is_the_state_that_it_was_made_of() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    same, held, size = apart(handed_over, seed)
    assert same
    assert held == [2, 3], "of two boundaries"
    assert size >= 0


def test_a_step_waits_until_the_state_before_it_is_copied() -> None:
    assert apart(waits)


def waits() -> bool:
    import threading

    from syntony.torch.operations import Pool
    from syntony.torch.shadow import Shadows

    made, _ = replica()
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    shadows = Shadows(made)
    made.before_step = shadows.wait_copied
    begun(made)
    shadows.operation(None, (1, 1), 0)  # type: ignore[arg-type]
    parameter.grad = torch.ones(2)
    thread = threading.Thread(target=optimizer.step)
    thread.start()
    thread.join(0.3)
    waited = thread.is_alive() and bool((parameter == 1).all())
    shadows.copy(Pool())
    thread.join(300)
    return waited and bool((parameter != 1).all())


class Ring:
    """Process groups of ranks in one process: what is sent waits for who receives it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.waiting: dict[tuple[int, int, int], Any] = {}
        self.moved = 0

    def inner(self, rank: int) -> Any:
        def send(tensors: list[Any], to: int, tag: int) -> Any:
            self.moved += tensors[0].numel()
            self.waiting[rank, to, tag] = tensors[0].clone()
            return SimpleNamespace(wait=lambda: None)

        def recv(tensors: list[Any], of: int, tag: int) -> Any:
            return SimpleNamespace(wait=lambda: tensors[0].copy_(self.waiting.pop((of, rank, tag))))

        return SimpleNamespace(send=send, recv=recv)


def stops() -> tuple[list[int], list[dict[int, list[int]]], int]:
    """Three ranks; one becomes unprotected after three steps. Bytes that move at each step."""
    import threading

    from syntony.torch.operations import Pool
    from syntony.torch.shadow import Shadows, neighbours

    made, _ = replica()
    torch.optim.SGD([torch.nn.Parameter(torch.ones(100))], lr=0.1)
    ring, protected, pools = Ring(3), [True] * 3, [Pool() for _ in range(3)]
    ranks = [Shadows(made, lambda at=at: protected[at]) for at in range(3)]  # type: ignore[misc]
    barrier = threading.Barrier(3)

    def step(rank: int, boundary: int, log: list[Any]) -> None:
        group = SimpleNamespace(inner=ring.inner(rank))
        mirror = ranks[rank].operation(group, neighbours(rank, 3, 0), boundary)  # type: ignore[arg-type]
        both = mirror._both

        def together(*args: Any) -> None:
            """All send before any receives."""
            sent, received, tag = args
            both(sent, [], tag)
            barrier.wait()
            both([], received, tag)
            barrier.wait()

        mirror._both = together  # type: ignore[assignment, method-assign]
        mirror.keep(pools[rank])
        mirror.run()
        mirror.done()
        log.append(mirror)

    moved, begun_at, logs = [], 0, [[], [], []]  # type: ignore[var-annotated]
    for boundary in range(8):
        protected[1] = boundary < 3
        threads = [threading.Thread(target=step, args=(r, boundary, logs[r])) for r in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(300)
        for log, pool in zip(logs, pools, strict=True):
            for old in log[:-1]:
                old.drop(pool)
        moved.append(ring.moved - begun_at)
        begun_at = ring.moved
    return (
        moved,
        [each.held() for each in ranks],
        len(pools[0]._free.get((400, torch.uint8, torch.device("cpu")), [])),
    )


def test_copies_stop_on_all_ranks_once_one_is_not_protected() -> None:
    moved, held, free = apart(stops)
    assert moved[0] > 3 * 400
    assert moved[2] == moved[1] == moved[0]
    assert moved[3] < moved[2], "the rank itself at once"
    assert moved[5:] == [6, 6, 6], "sizes only"
    assert held == [{}, {}, {}]
    assert 0 < free <= 5, "buffers are used again"
