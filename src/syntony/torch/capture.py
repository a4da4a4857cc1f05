"""What of a program's variables is remembered at a boundary: small values that copy exactly."""

from __future__ import annotations

import collections
import sys
from typing import Any

MAX_DEPTH, MAX_ITEMS = 6, 20_000
SIMPLE = (bool, int, float, complex, str, bytes, type(None))


class _Missing:
    """A value that is not captured."""


MISSING = _Missing()


class Instance:
    """The captured attributes of an object of the program's own classes."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self.attributes = attributes


class Array:
    """A small array or tensor, as NumPy keeps it."""

    def __init__(self, data: Any, *, tensor: bool) -> None:
        self.data = data
        self.tensor = tensor


MAX_ARRAY_BYTES = 65_536


def capture(  # noqa: PLR0911 - one line for each kind
    value: Any, local_modules: frozenset[str], depth: int = 0
) -> Any:
    """A copy of `value` that can be pickled, or MISSING.

    Containers are captured whole or not at all; of objects whose class is defined in
    `local_modules`, every attribute that can be.
    """
    if isinstance(value, SIMPLE):
        return value
    if depth > MAX_DEPTH:
        return MISSING
    if type(value) in {list, tuple, set, collections.deque}:
        return _sequence(value, local_modules, depth)
    if type(value) in {dict, collections.OrderedDict, collections.Counter, collections.defaultdict}:
        return _mapping(value, local_modules, depth)
    found = _array(value)
    if found is not MISSING:
        return found
    if type(value).__module__ in local_modules and hasattr(value, "__dict__"):
        return _instance(value, local_modules, depth)
    return MISSING


def _sequence(value: Any, local_modules: frozenset[str], depth: int) -> Any:
    if len(value) > MAX_ITEMS:
        return MISSING
    if all(type(each) in _FLAT for each in value):
        return value.copy() if hasattr(value, "copy") else value
    items = [capture(each, local_modules, depth + 1) for each in value]
    if any(each is MISSING for each in items):
        return MISSING
    return (
        collections.deque(items, value.maxlen) if hasattr(value, "maxlen") else type(value)(items)
    )


_FLAT = {bool, int, float, str, type(None)}


def _mapping(value: Any, local_modules: frozenset[str], depth: int) -> Any:
    if len(value) > MAX_ITEMS or not all(isinstance(each, SIMPLE) for each in value):
        return MISSING
    items = {key: capture(each, local_modules, depth + 1) for key, each in value.items()}
    if any(each is MISSING for each in items.values()):
        return MISSING
    if isinstance(value, collections.defaultdict):
        return collections.defaultdict(value.default_factory, items)
    return type(value)(items)


def _array(value: Any) -> Any:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        small = value.numel() * value.element_size() <= MAX_ARRAY_BYTES
        plain = type(value) is torch.Tensor and value.device.type == "cpu"
        if not (small and plain and value.dtype != torch.bfloat16):
            return MISSING
        return Array(value.detach().clone().numpy(), tensor=True)
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        data = numpy.asarray(value)
        whole = data.nbytes <= MAX_ARRAY_BYTES and data.dtype != object
        return Array(value.copy(), tensor=False) if whole else MISSING
    return MISSING


def _instance(value: Any, local_modules: frozenset[str], depth: int) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.nn.Module | torch.utils.data.Dataset):
        return MISSING
    found = {key: capture(each, local_modules, depth + 1) for key, each in vars(value).items()}
    return Instance({key: each for key, each in found.items() if each is not MISSING})


def restore(kept: Any, now: Any = None) -> Any:
    """The value again; in place where `now`, what a replacement has there, is of the same kind."""
    if isinstance(kept, Instance):
        for key, each in kept.attributes.items():
            vars(now)[key] = restore(each, vars(now).get(key))
        return now
    if isinstance(kept, Array):
        if not kept.tensor:
            return kept.data
        import torch

        return torch.as_tensor(kept.data)
    if isinstance(kept, dict):
        return _restored_mapping(kept, now)
    if isinstance(kept, list | tuple | set | collections.deque):
        return _restored_sequence(kept, now)
    return kept


def _restored_mapping(kept: Any, now: Any) -> Any:
    before = now if type(now) is type(kept) else {}
    items = {key: restore(each, before.get(key)) for key, each in kept.items()}
    if type(now) is not type(kept):
        kept.update(items)
        return kept
    now.clear()
    now.update(items)
    return now


def _restored_sequence(kept: Any, now: Any) -> Any:
    place = list(now) if type(now) is type(kept) and not isinstance(now, set) else []
    items = [restore(each, place[at] if at < len(place) else None) for at, each in enumerate(kept)]
    if isinstance(now, list) and isinstance(kept, list):
        now[:] = items
        return now
    return collections.deque(items, kept.maxlen) if hasattr(kept, "maxlen") else type(kept)(items)
