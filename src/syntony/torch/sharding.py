"""Split parameters: FSDP2, HSDP and tensor parallelism keep them as `DTensor`.

Of a `DTensor`, only this rank's part is copied, sent and hashed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class Part(NamedTuple):
    """Which part of a job's parameters a rank has."""

    name: str
    """The same on ranks that have the same; empty: all have the same."""
    parts: int


WHOLE = Part("", 1)


def local(tensor: Any) -> Any:
    """This rank's part of a `DTensor`; any other tensor unchanged."""
    return getattr(tensor, "_local_tensor", tensor)


def is_sharded(tensor: Any) -> bool:
    return hasattr(tensor, "_local_tensor")


def like(tensor: Any, part: Any) -> Any:
    """A `DTensor` like `tensor`, with this rank's `part`."""
    return type(tensor).from_local(
        part, tensor.device_mesh, tensor.placements, run_check=False,
        shape=tensor.shape, stride=tensor.stride(),
    )  # fmt: skip


def part_of(parameters: Iterable[Any]) -> Part:
    """The part, from this rank's place along the dimensions of device meshes that parameters are
    split over.

    Dimensions over the same ranks count once: a mesh can be made twice. Ranks make parameters in
    the same order, so dimensions also have the same order.
    """
    places: dict[tuple[Any, ...], tuple[int, int]] = {}
    for each in filter(is_sharded, parameters):
        mesh = each.device_mesh
        place = mesh.get_coordinate()
        for dimension, placement in enumerate(each.placements):
            if _splits(placement) and mesh.size(dimension) > 1:
                ranks = _along(mesh.mesh, place, dimension)
                places[ranks] = place[dimension], mesh.size(dimension)
    count = 1
    for _, size in places.values():
        count *= size
    name = ".".join(f"{at}/{size}" for at, size in places.values())
    return Part(name, count) if count > 1 else WHOLE


def _splits(placement: Any) -> bool:
    """FSDP2 over tensor parallelism splits a dimension twice, with a special placement."""
    return placement.is_shard() or type(placement).__name__ == "_StridedShard"


def _along(ranks: Any, place: list[int], dimension: int) -> tuple[int, ...]:
    """Ranks that differ from this one only in one dimension of a mesh."""
    at = [slice(None) if n == dimension else here for n, here in enumerate(place)]
    return tuple(ranks[tuple(at)].tolist())


def in_stages(part: Part, stages: Iterable[tuple[int, int]]) -> Part:
    """The part of a rank that has only some stages of a pipeline.

    Args:
        part: of their parameters.
        stages: each with the total number.
    """
    places = sorted(set(stages))
    if not places:
        return part
    name = ".".join([*(f"{at}/{size}" for at, size in places), *filter(None, [part.name])])
    return Part(name, part.parts * places[0][1] // len(places))


def unprotected(parameters: Iterable[Any]) -> str:
    """Why sharded parameters cannot be given to another rank; empty if they can."""
    for each in filter(is_sharded, parameters):
        other = [str(p) for p in each.placements if not (_splits(p) or p.is_replicate())]
        if other:
            return f"parameters are placed as {other[0]}"
    return ""
