import os
import time
from typing import Any


class Group:
    def __init__(self, name: str = "0") -> None:
        self.group_name, self.destroyed = name, False


class Work:
    def __init__(self, until_s: float) -> None:
        self._until_s = until_s

    def is_completed(self) -> bool:
        return time.monotonic() >= self._until_s

    def wait(self) -> None:
        time.sleep(max(0.0, self._until_s - time.monotonic()))

    def _source_rank(self) -> int:
        return 3


class World:
    def __init__(self) -> None:
        self.default_pg: Group | None = Group()


_world = World()


def _get_default_group() -> Group:
    assert _world.default_pg is not None
    return _world.default_pg


def is_initialized() -> bool:
    return True


def get_rank(group: object = None) -> int:
    return int(os.environ["RANK"])


def get_world_size(group: object = None) -> int:
    return int(os.environ["WORLD_SIZE"])


def get_process_group_ranks(group: Group) -> list[int]:
    if group.destroyed:
        raise KeyError(group)
    return list(range(get_world_size()))


def all_reduce(
    tensor: Any, op: Any = None, group: Any = None, async_op: bool = False
) -> Work | None:
    if tensor is None:
        raise ValueError("no tensor")
    if op == "dies":
        os.kill(os.getpid(), 9)
    time.sleep(0.01)
    return Work(time.monotonic() + 0.05) if async_op else None


def all_gather_single(
    output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    """Since torch 2.13; before it, its old name."""
    return Work(time.monotonic()) if async_op else None


def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    return all_gather_single(output_tensor, input_tensor, group, async_op)


def reduce_scatter_tensor(
    output: Any,
    input: Any,  # noqa: A002 - as torch has it
    op: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """As before torch 2.13, which has another name for it."""
    return Work(time.monotonic()) if async_op else None


def get_global_rank(group: object, group_rank: int) -> int:
    return group_rank


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: object) -> Any:
    if "down" in url:
        raise ValueError("no store")
    yield None, rank, world_size


def init_process_group(  # noqa: PLR0917 - as torch has it
    backend: str | None = None, init_method: str | None = None, timeout: object = None,
    world_size: int = -1, rank: int = -1, store: object = None,
) -> None:  # fmt: skip
    if store is None:
        next(rendezvous(init_method or "env://", rank, world_size))
    if backend == "fails":
        raise ValueError("no rank")
    if backend == "hangs":
        time.sleep(3600)


def new_group(ranks: list[int] | None = None) -> Group | None:
    if ranks == [2, 99]:
        raise ValueError("no such rank")
    return Group("1") if ranks is None or get_rank() in sorted(ranks) else None


def destroy_process_group(group: Group | None = None) -> None:
    (group or _get_default_group()).destroyed = True
    if group is None:
        _world.default_pg = Group()  # as if formed again


def monitored_barrier(group: Any = None, timeout: object = None) -> None:
    """Of gloo."""


class P2POp:
    def __init__(self, op: Any, tensor: Any, peer: int) -> None:
        self.op, self.tensor, self.peer = op, tensor, peer


def isend(
    tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    return Work(time.monotonic() + 0.05)


def irecv(
    tensor: Any, src: int | None = None, group: Any = None, tag: int = 0,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    return Work(time.monotonic() + 0.05)


def send(
    tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """As torch 2.13 has it."""
    isend(tensor, group=group, tag=tag, group_dst=group_dst if dst is None else dst)


def recv(
    tensor: Any, src: int | None = None, group: Any = None, tag: int = 0,
    group_src: int | None = None,
) -> int:  # fmt: skip
    """As before torch 2.13."""
    if tag < 0:
        raise ValueError("no such tag")
    time.sleep(0.01)
    return 1 if src is None else src


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """As with NCCL: one end for all."""
    for each in p2p_op_list:
        each.op(each.tensor, group=None, tag=0, **{
            "group_dst" if each.op is isend else "group_src": each.peer})  # fmt: skip
    return [Work(time.monotonic() + 0.05)]
