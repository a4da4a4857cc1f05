"""The state of a rank: models, optimizers and the like, tracked so that another process can take it
over.

Parameters and optimizer state are the same on every rank and come from a peer. The rest (random
number generators, buffers, learning rates, position) is particular to this rank and goes into a
*record* at each boundary.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from syntony.torch import ddp, gpu, sharding
from syntony.torch.gradients import Gradients, parameters_of
from syntony.torch.modules import Modules, bytes_in, memory_of
from syntony.torch.random_state import random_state, set_random_state
from syntony.torch.recovery import START, RankReport
from syntony.torch.sharding import WHOLE, is_sharded, like, local
from syntony.torch.track import patch_init, track

if TYPE_CHECKING:
    from syntony.torch.session import CoordinatorSession

STEP_S = 600.0
"""A step of an optimizer that takes longer is a hang."""

CARRIED = "gradients are added up beyond another optimizer's step (or cleared without zero_grad)"


class Replica:
    """Tracks what the program makes; hooks its optimizers' steps."""

    def __init__(self, session: CoordinatorSession) -> None:
        self._session = session
        self.on_gpu = False
        """Whether parameters may be on a GPU."""
        self.optimizers: list[Any] = []
        self.models: list[Any] = []
        """Those in `DistributedDataParallel`."""
        self.stateful: list[Any] = []
        """Schedulers, gradient scalers and registered objects: their `state_dict` is small."""
        self.boundary = START
        self.stepped: set[int] = set()
        """Optimizers (by number) that stepped since the boundary."""
        self._previously: set[int] = set()
        """Optimizers that stepped between the last two boundaries."""
        self.cv = threading.Condition()
        self._stepping = False
        self._frozen = False
        self._undo: dict[int, list[Any]] = {}
        """Optimizer's number → its parameters before its step."""
        self._after: dict[int, tuple[list[Any], list[dict[str, Any]]]] = {}
        """For a replacement that repeats a step which others have passed: what follows the step."""
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        self.expects_loop = False
        """Whether the program contains no training loop."""
        self.modules = Modules()
        self.part = WHOLE
        """This rank's part of the parameters; known once they are all made."""
        self.before_step: Callable[[], None] = lambda: None
        """Waits until the current parameters are no longer needed."""
        self._gradients = Gradients()
        ddp.patch_hooks()
        patch_init(torch.optim.Optimizer, self._add_optimizer)
        track(torch.optim.lr_scheduler.LRScheduler, self.add_stateful)
        patch_init(torch.amp.GradScaler, self.add_stateful)
        patch_init(DistributedDataParallel, self.models.append)

    def _add_optimizer(self, made: Any) -> None:
        if not any(each is made for each in self.optimizers):
            self.optimizers.append(made)

    def add_stateful(self, made: Any) -> None:
        """Register an object with a small `state_dict`, which goes into each record."""
        if not any(each is made for each in self.stateful):
            self.stateful.append(made)

    # --- the optimizer's step ---

    def _number(self, optimizer: Any) -> int | None:
        found = (n for n, each in enumerate(self.optimizers) if each is optimizer)
        return next(found, None)

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """With a closure, which does the forward and backward passes, the step begins after it."""
        closure = kwargs.get("closure") or next(filter(callable, args[1:]), None)
        if closure is None:
            self._begin_step(optimizer)
            return None
        ours = _Closure(closure, partial(self._begin_step, optimizer), self._session)
        replaced = tuple(ours if each is closure else each for each in args)
        return replaced, {k: ours if each is closure else each for k, each in kwargs.items()}

    def _begin_step(self, optimizer: Any) -> None:
        number = self._number(optimizer)
        if number is None:
            self._session.unprotect("an optimizer that was copied or read from a file")
        if self.boundary == START and self.expects_loop:
            self._session.unprotect("a step outside of any training loop that is known")
        if number is None or self.boundary == START:
            return
        self.before_step()
        if self._gradients.carried(parameters_of(optimizer)):
            self._session.unprotect(CARRIED, harms=True)
        with self.cv:
            self.cv.wait_for(lambda: not self._frozen)
            self._stepping = True
            twice = number in self.stepped
            self.stepped.add(number)
        if twice:
            self._session.unprotect("an optimizer steps twice in one iteration")
            return
        with torch.no_grad():
            now = [local(each).detach() for each in parameters_of(optimizer)]
            if number not in self._undo:
                self._undo[number] = [torch.empty_like(each) for each in now]
            torch._foreach_copy_(self._undo[number], now)

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        number = self._number(optimizer)
        if number is None:
            return
        after = self._after.pop(number, None)
        if after is not None:
            with torch.no_grad():
                for parameter, value in zip(parameters_of(optimizer), after[0], strict=True):
                    local(parameter).copy_(value)
            _set_state(optimizer, after[1])
            self._session.event("caught-up", boundary=self.boundary)
        with self.cv:
            self._stepping = False
            self.cv.notify_all()

    def freeze(self) -> RankReport:
        """Wait for a step in progress; from now on none begins, and no boundary is passed."""
        with self.cv:
            self.cv.wait_for(lambda: not self._stepping, STEP_S)
            self._frozen = True
            return RankReport(self.boundary, bool(self.stepped), gives=not self._after)

    def thaw(self) -> None:
        with self.cv:
            self._frozen = False
            self.cv.notify_all()

    def rebuild_buckets(self) -> None:
        """Rebuild DDP's buckets, before a boundary is passed."""
        for each in self.models:
            ddp.rebuild_buckets(each)

    def pass_boundary(self) -> int:
        self._gradients.pass_boundary(p for each in self.optimizers for p in parameters_of(each))
        with self.cv:
            self.cv.wait_for(lambda: not self._frozen)
            self.boundary += 1
            self._previously = self.stepped
            self.stepped = set()
            return self.boundary

    # --- the record of a boundary ---

    def record(self) -> dict[str, Any]:
        """State that only this rank has; numbers and NumPy arrays."""
        return {
            "random": random_state(),
            "groups": [
                [{k: v for k, v in group.items() if k != "params"} for group in each.param_groups]
                for each in self.optimizers
            ],
            "stateful": [each.state_dict() for each in self.stateful],
            "modules": self._modules_record(),
            "gradients": [[p.grad is not None for p in parameters_of(o)] for o in self.optimizers],
            "models": [ddp.state(each) for each in self.models],
        }

    def restore(self, record: dict[str, Any], boundary: int) -> None:
        """Restore a replacement that has parameters and optimizer state already."""
        self.boundary = boundary
        self.stepped.clear()
        for optimizer, groups in zip(self.optimizers, record["groups"], strict=True):
            for group, kept in zip(optimizer.param_groups, groups, strict=True):
                group.update(kept)
        for each, kept in zip(self.stateful, record["stateful"], strict=True):
            each.load_state_dict(kept)
        self.modules.restore(record["modules"], self.parameters())
        for each, kept in zip(self.models, record["models"], strict=True):
            ddp.restore(each, kept)
        for optimizer, present in zip(self.optimizers, record["gradients"], strict=True):
            self._gradients.restore(parameters_of(optimizer), present)
        set_random_state(record["random"])

    def _modules_record(self) -> dict[str, Any]:
        try:
            return self.modules.record(self.parameters())
        except OverflowError as error:
            self._session.unprotect(str(error))
            return {}

    def unprotected(self) -> str:
        """Why this rank's state cannot be transferred; empty if it can."""
        if not self.optimizers:
            return "no optimizer was made before the training loop"
        devices = {each.device for each in self.parameters()}
        kinds = {each.type for each in devices}
        if len(devices) > 1 or kinds - ({"cpu", "cuda"} if self.on_gpu else {"cpu"}):
            places = ", ".join(sorted(map(str, devices)))
            return f"parameters are on {places}: only CPUs, or with NCCL one GPU a rank"
        kinds = {type(each).__name__ for each in self.parameters() if not is_sharded(each)}
        kinds -= {"Parameter", "Tensor"}
        if kinds:
            return f"parameters are of type {', '.join(sorted(kinds))}"
        sharded = sharding.unprotected(self.parameters())
        if sharded:
            return sharded
        return next(filter(None, map(ddp.unprotected, self.models)), "")

    def parameters(self) -> list[Any]:
        """Of all models and optimizers, each once, in an order that all ranks share."""
        found = {id(p): p for each in self.models for p in each.module.parameters()}
        for optimizer in self.optimizers:
            found |= {id(p): p for p in parameters_of(optimizer)}
        return list(found.values())

    def digest(self) -> str:
        """SHA-256 of parameters and optimizer state."""
        state = hashlib.sha256()
        for each in self.parameters():
            state.update(memory_of(each))
        for optimizer in self.optimizers:
            for parameter in parameters_of(optimizer):
                for _, value in sorted(optimizer.state.get(parameter, {}).items()):
                    data = memory_of(value) if torch.is_tensor(value) else repr(value).encode()
                    state.update(data)
        return state.hexdigest()

    # --- from rank to rank ---

    def shared(self, *, undo: bool) -> tuple[dict[str, Any], list[Any]]:
        """State that ranks of one part have in common: a description, and tensors in order.

        `undo`: also parameters from before the last step.
        """
        parameters = [local(each).detach() for each in self.parameters()]
        tensors = [*(self._before() if undo else []), *parameters]
        for each in self.optimizers:
            tensors += _state_tensors(each)
        skeleton = {
            "state": [_skeleton(each) for each in self.optimizers],
            "stepped": sorted(self.stepped or self._previously) if undo else [],
            "shapes": [(tuple(each.shape), str(each.dtype)) for each in parameters],
            "bytes": [bytes_in(each) for each in tensors],
            "gpu": gpu.model_of(parameters),
        }
        return skeleton, tensors

    def give(self, send: Callable[[Any], None], *, undo: bool) -> int:
        """Send the shared state; returns the number of bytes."""
        skeleton, tensors = self.shared(undo=undo)
        data = pickle.dumps(skeleton)
        send(torch.tensor([len(data)]))
        send(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        for tensor in tensors:
            send(tensor.contiguous())
        return sum(skeleton["bytes"])

    def _before(self) -> list[Any]:
        """Parameters from before the steps of this boundary, or of the last one."""
        old: dict[int, Any] = {}
        for number in self.stepped or self._previously:
            for parameter, value in zip(
                parameters_of(self.optimizers[number]), self._undo[number], strict=True
            ):
                old[id(parameter)] = value
        return [old.get(id(each), local(each).detach()) for each in self.parameters()]

    def take(self, receive: Callable[[Any], None], *, undo: bool) -> int:
        """Receive the shared state, as a replacement; returns the number of bytes."""
        size = torch.zeros(1, dtype=torch.int64)
        receive(size)
        data = torch.empty(int(size.item()), dtype=torch.uint8)
        receive(data)
        skeleton = pickle.loads(data.numpy().tobytes())
        parameters = self.parameters()
        parts = [local(each).detach() for each in parameters]
        if skeleton["shapes"] != [(tuple(each.shape), str(each.dtype)) for each in parts]:
            raise RuntimeError("the replacement's parameters have other shapes")
        here = gpu.model_of(parts)
        if here != skeleton["gpu"]:
            print(f"syntony: the replacement's GPU ({here}) is not like the one of the rank that "
                  f"sends its state ({skeleton['gpu']}): results may differ",
                  file=sys.stderr, flush=True)  # fmt: skip
        count = len(parameters)
        live = [torch.empty_like(each) for each in parts]
        with torch.no_grad():
            if undo:
                for each in parts:
                    receive(each)
            for each in live if undo else parts:
                receive(each)
        for number, optimizer in enumerate(self.optimizers):
            state = _from_skeleton(optimizer, skeleton["state"][number], receive)
            _set_state(optimizer, state)
            if number in skeleton["stepped"]:
                at = {id(p): value for p, value in zip(parameters, live, strict=True)}
                self._after[number] = [at[id(p)] for p in parameters_of(optimizer)], _copied(state)
        return count


class _Closure:
    """An optimizer's closure, which must be called once, before any change."""

    def __init__(
        self, closure: Callable[[], Any], begin: Callable[[], None], session: CoordinatorSession
    ) -> None:
        self._closure, self._begin, self._session = closure, begin, session
        self._called = False

    def __call__(self) -> Any:
        if self._called:
            self._session.unprotect("an optimizer that calls its closure more than once")
            return self._closure()
        self._called = True
        value = self._closure()
        self._begin()
        return value


def _skeleton(optimizer: Any) -> list[dict[str, Any]]:
    """State by parameter, with tensors replaced by their shape and type."""
    return [
        {
            key: _described(v) if torch.is_tensor(v) else ("value", v)
            for key, v in optimizer.state.get(each, {}).items()
        }
        for each in parameters_of(optimizer)
    ]


def _described(tensor: Any) -> tuple[str, tuple[int, ...], Any, str]:
    part = local(tensor)
    kind = "part" if is_sharded(tensor) else "tensor"
    return kind, tuple(part.shape), part.dtype, part.device.type


def _state_tensors(optimizer: Any) -> list[Any]:
    return [
        local(value)
        for each in parameters_of(optimizer)
        for value in optimizer.state.get(each, {}).values()
        if torch.is_tensor(value)
    ]


def _from_skeleton(
    optimizer: Any, skeleton: list[dict[str, Any]], receive: Callable[[Any], None]
) -> list[dict[str, Any]]:
    state: list[dict[str, Any]] = []
    for parameter, each in zip(parameters_of(optimizer), skeleton, strict=True):
        found: dict[str, Any] = {}
        for key, what in each.items():
            if what[0] == "value":
                found[key] = what[1]
                continue
            # Counts of steps are on the CPU, also if their parameter is on a GPU.
            at = "cpu" if what[3] == "cpu" else local(parameter).device
            part = torch.empty(what[1], dtype=what[2], device=at)
            receive(part)
            found[key] = like(parameter, part) if what[0] == "part" else part
        state.append(found)
    return state


def _copied(state: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {key: v.clone() if torch.is_tensor(v) else v for key, v in each.items()} for each in state
    ]


def _set_state(optimizer: Any, state: list[dict[str, Any]]) -> None:
    for parameter, kept in zip(parameters_of(optimizer), state, strict=True):
        if kept:
            optimizer.state[parameter] = kept
