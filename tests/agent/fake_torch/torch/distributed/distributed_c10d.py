import os
import time
from typing import Any


class Group:
    group_name = "0"


class Work:
    def __init__(self, until_s: float) -> None:
        self._until_s = until_s

    def is_completed(self) -> bool:
        return time.monotonic() >= self._until_s


WORLD = Group()


def _get_default_group() -> Group:
    return WORLD


def is_initialized() -> bool:
    return True


def get_rank(group: object = None) -> int:
    return int(os.environ["RANK"])


def get_world_size(group: object = None) -> int:
    return int(os.environ["WORLD_SIZE"])


def get_process_group_ranks(group: object) -> list[int]:
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
