"""Captures a program's variables at a boundary: small values that copy exactly.

Objects of the program's own classes, and of libraries whose training loops are known, are followed
through their attributes: each once, so that shared objects stay shared.
"""

from __future__ import annotations

import collections
import datetime as dt
import enum
import functools
import sys
import types
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from syntony.torch.reading import Reading, ReadingState

MAX_DEPTH, MAX_ITEMS = 6, 20_000
SIMPLE = (
    bool, int, float, complex, str, bytes, type(None), enum.Enum, PurePath, dt.timedelta,
)  # fmt: skip
"""Immutable types that can be pickled."""
ADDRESS = 1 << 40
"""Larger integer keys are assumed to be the `id` of objects, which are valid in this process
only."""
_FLAT = {bool, int, float, str, type(None)}
_SEQUENCES = {list, tuple, set, collections.deque}
_FUNCTIONS = {types.FunctionType, types.MethodType, types.BuiltinFunctionType}
_MAPPINGS = {dict, collections.OrderedDict, collections.Counter, collections.defaultdict}


class _Placeholder:
    """A value that is not captured, by its name in this module."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> str:
        return self._name


MISSING = _Placeholder("MISSING")
OPAQUE = _Placeholder("OPAQUE")
"""In a container among captured objects: keep what the replacement has there."""


class Instance:
    """The captured attributes of an object."""

    def __init__(self, kind: type) -> None:
        self.kind = kind.__module__, kind.__qualname__
        self.attributes: dict[str, Any] = {}
        self.items: Any = None
        """The contents of an object that is itself a dictionary or a list."""


class Array:
    """A small array or tensor, as a NumPy array."""

    def __init__(self, data: Any, *, tensor: bool) -> None:
        self.data = data
        self.tensor = tensor


class Function:
    """A function or class by its name, or a method by its object."""

    def __init__(self, place: Any, name: str) -> None:
        self.place = place
        """A module's name, or the captured object that has it as an attribute."""
        self.name = name


class Partial:
    """A `functools.partial`: its function and arguments, captured."""

    def __init__(self, function: Any, args: Any, keywords: Any) -> None:
        self.parts = function, args, keywords


MAX_ARRAY_BYTES = 65_536


def capture_all(values: Mapping[str, Any], modules: frozenset[str]) -> dict[str, Any]:
    """Capture those of the variables, by name, that can be, as values that can be pickled.

    Args:
        values: containers of values that cannot be copied are captured whole or not at all; shared
            objects stay shared.
        modules: objects of classes that are defined in these, or in their submodules, are captured
            attribute by attribute.
    """
    once = _Capture(modules)
    found = {
        name: once.of(each)
        for name, each in values.items()
        if "__syntony_" not in name and not name.startswith("__")
    }
    return {name: each for name, each in found.items() if each is not MISSING}


class _Capture:
    def __init__(self, modules: frozenset[str]) -> None:
        self._modules = modules
        self._done: dict[int, Any] = {}
        """Objects and methods (by `id`) already visited."""
        self._torch, self._numpy = sys.modules.get("torch"), sys.modules.get("numpy")

    def of(self, value: Any, depth: int = 0) -> Any:  # noqa: PLR0911 - one line for each kind
        if isinstance(value, SIMPLE):
            return value
        kind = type(value)
        if kind is Reading:
            return value.state()
        if depth > MAX_DEPTH:
            return MISSING
        if kind in _SEQUENCES:
            return self._sequence(value, depth)
        if kind in _MAPPINGS:
            return self._mapping(value, depth)
        if self._is_ours(kind) and hasattr(value, "__dict__"):
            return self._instance(value)
        return self._array(value)

    def _attribute(self, value: Any) -> Any:
        if type(value) in _FUNCTIONS or isinstance(value, type):
            return self._function(value)
        if type(value) is functools.partial:
            parts = [self._attribute(each) for each in (value.func, value.args, value.keywords)]
            return MISSING if any(each is MISSING for each in parts) else Partial(*parts)
        return self.of(value)

    def _function(self, value: Any) -> Any:
        owner = getattr(value, "__self__", None)
        if owner is None or isinstance(owner, types.ModuleType):
            names = (value.__module__ or "torch", value.__qualname__), ("torch", value.__name__)
            found = (each for each in names if _named(*each) is value)
            return next((Function(*each) for each in found), MISSING)
        if id(value) not in self._done:
            place = self._attribute(owner)
            whole = isinstance(place, Instance | Function)
            made = Function(place, value.__name__) if whole else MISSING
            self._done.setdefault(id(value), made)  # the object may have led to its own method
        return self._done[id(value)]

    def _is_ours(self, kind: type) -> bool:
        return _is_within(kind.__module__, self._modules)

    def _sequence(self, value: Any, depth: int) -> Any:
        if len(value) > MAX_ITEMS:
            return MISSING
        if all(type(each) in _FLAT for each in value):
            return value.copy() if hasattr(value, "copy") else value
        items = self._whole([self.of(each, depth + 1) for each in value])
        if items is MISSING or (isinstance(value, set) and OPAQUE in items):
            return MISSING
        if hasattr(value, "maxlen"):
            return collections.deque(items, value.maxlen)
        return type(value)(items)

    def _mapping(self, value: Any, depth: int) -> Any:
        if len(value) > MAX_ITEMS or not all(isinstance(each, SIMPLE) for each in value):
            return MISSING
        if value and all(type(each) is int and each > ADDRESS for each in value):
            return MISSING
        found = self._whole([self.of(each, depth + 1) for each in value.values()])
        if found is MISSING:
            return MISSING
        items = dict(zip(value, found, strict=True))
        if isinstance(value, collections.defaultdict):
            return collections.defaultdict(value.default_factory, items)
        return type(value)(items)

    @staticmethod
    def _whole(items: list[Any]) -> Any:
        """All of a container, or, if it has captured objects, only those."""
        if not any(each is MISSING for each in items):
            return items
        if any(isinstance(each, Instance) for each in items):
            return [OPAQUE if each is MISSING else each for each in items]
        return MISSING

    def _array(self, value: Any) -> Any:
        torch, numpy = self._torch, self._numpy
        if torch is not None and isinstance(value, torch.device | torch.dtype | torch.Size):
            return value
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

    def _instance(self, value: Any) -> Any:
        torch = self._torch
        if torch is not None and isinstance(value, torch.utils.data.Dataset):
            return MISSING
        known = self._done.get(id(value))
        if known is not None:
            return known
        made = self._done[id(value)] = Instance(type(value))
        attributes = vars(value)
        if torch is not None and isinstance(value, torch.nn.Module):
            attributes = _own_attributes(value, torch)
        made.attributes = {
            key: each
            for key, each in ((key, self._attribute(each)) for key, each in attributes.items())
            if each is not MISSING
        }
        if isinstance(value, dict):
            made.items = self._mapping(dict(value), 0)
        elif isinstance(value, list):
            made.items = self._sequence(list(value), 0)
        return made


def _own_attributes(module: Any, torch: Any) -> dict[str, Any]:
    """Attributes of a module other than parameters, buffers, hooks and submodules."""
    plain = {k: v for k, v in vars(module).items() if k not in _internal(torch)}
    return plain | {"_modules": dict(module._modules)}


@functools.cache
def _internal(torch: Any) -> set[str]:
    return set(vars(torch.nn.Module())) - {"training"}


@functools.cache
def _is_within(name: str, modules: frozenset[str]) -> bool:
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return bool(name)


class Restoring:
    """Restores values that were captured together."""

    def __init__(self) -> None:
        self._done: dict[int, Any] = {}
        """Captured objects and methods (by `id`) → restored ones."""

    def of(self, kept: Any, now: Any) -> Any:  # noqa: PLR0911 - one line for each kind
        """Restore a value; in place if `now`, the replacement's current value, is of its kind."""
        if isinstance(kept, Instance):
            return self._instance(kept, now)
        if isinstance(kept, ReadingState):
            return kept.reopen(now)
        if isinstance(kept, Array):
            return _restored_array(kept)
        if isinstance(kept, Function):
            return self._function(kept, now)
        if isinstance(kept, Partial):
            function, args, keywords = (self.of(each, None) for each in kept.parts)
            return functools.partial(function, *args, **keywords)
        if isinstance(kept, dict):
            return self._mapping(kept, now)
        if isinstance(kept, list | tuple | set | collections.deque):
            return self._sequence(kept, now)
        return kept

    def _instance(self, kept: Instance, now: Any) -> Any:
        if id(kept) in self._done:
            return self._done[id(kept)]
        fresh = None
        if (type(now).__module__, type(now).__qualname__) != kept.kind:
            fresh = _allocated(*kept.kind)
            now = now if fresh is None else fresh
        if not hasattr(now, "__dict__"):
            return now
        self._done[id(kept)] = now
        before = vars(now)
        found = {key: self.of(each, before.get(key)) for key, each in kept.attributes.items()}
        if fresh is not None and hasattr(fresh, "__setstate__"):
            fresh.__setstate__(found)
        else:
            before.update(found)
        if kept.items is not MISSING and isinstance(now, dict):
            self._fill(now, kept.items)
        elif kept.items is not MISSING and isinstance(now, list):
            now[:] = self._sequence(kept.items, list(now))
        return now

    def _function(self, kept: Function, now: Any) -> Any:
        if isinstance(kept.place, str):
            return _named(kept.place, kept.name)
        if id(kept) not in self._done:
            owner = self.of(kept.place, getattr(now, "__self__", None))
            self._done.setdefault(id(kept), getattr(owner, kept.name))
        return self._done[id(kept)]

    def _mapping(self, kept: Any, now: Any) -> Any:
        if type(now) is not type(kept):
            now = type(kept)() if not isinstance(kept, collections.defaultdict) else kept.copy()
            self._fill(now, kept, {})
            return now
        self._fill(now, kept)
        return now

    def _fill(self, now: Any, kept: Any, before: Any = None) -> None:
        """Fill a dictionary in place; `before`: its previous contents, of which objects are
        kept."""
        before = dict(now) if before is None else before
        items = {
            key: before[key] if each is OPAQUE else self.of(each, before.get(key))
            for key, each in kept.items()
            if each is not OPAQUE or key in before
        }
        now.clear()
        now.update(items)

    def _sequence(self, kept: Any, now: Any) -> Any:
        place = list(now) if type(now) is type(kept) and not isinstance(now, set) else []
        if any(each is OPAQUE for each in list(kept)[len(place) :]):
            return now  # its previous value is unknown
        items = [
            place[at] if each is OPAQUE else self.of(each, place[at] if at < len(place) else None)
            for at, each in enumerate(kept)
        ]
        if isinstance(now, list) and isinstance(kept, list):
            now[:] = items
            return now
        return (
            collections.deque(items, kept.maxlen) if hasattr(kept, "maxlen") else type(kept)(items)
        )


def _allocated(module: str, name: str) -> Any:
    """An object that was made during training, without its attributes; None: its class no longer
    exists."""
    kind: Any = _named(module, name)
    if not isinstance(kind, type):
        return None
    allocate: Any = kind.__new__
    made = allocate(kind)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(made, torch.nn.Module):
        torch.nn.Module.__init__(made)
    return made


def _named(module: str, name: str) -> Any:
    """A function or class; None: there is none with this name."""
    found = sys.modules.get(module)
    for each in name.split("."):
        found = getattr(found, each, None)
    return found


def _restored_array(kept: Array) -> Any:
    if not kept.tensor:
        return kept.data
    import torch

    return torch.as_tensor(kept.data)
