"""One worker of a protected job: connects its parts, and patches PyTorch for the program."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from syntony.torch import checkpoint, communicators, ddp, launchers, shadow, sharding, state_file
from syntony.torch.collectives import BACKEND, Executor
from syntony.torch.position import Position
from syntony.torch.reading import patch_loader
from syntony.torch.recovery import START, VERIFY_AFTER
from syntony.torch.replica import Replica
from syntony.torch.track import patch_init

if TYPE_CHECKING:
    from syntony.torch.session import CoordinatorSession

GLOO = {None, "gloo", "cpu:gloo"}
KNOWN = GLOO | communicators.BACKENDS


class RankProcess:
    """All protection state of this process."""

    def __init__(self, session: CoordinatorSession, modules: frozenset[str]) -> None:
        self.session = session
        self.replica = Replica(session)
        self.executor = Executor(session, self.replica)
        self.position = Position(self, modules)
        self._plan: dict[str, Any] | None = None
        """A replacement's plan, once it follows it."""
        self._origin: dict[str, Any] | None = None
        """The checkpoint from which this rank resumes, until it has."""
        self._verify: set[int] = {0, *VERIFY_AFTER}
        """Boundaries at which ranks compare parameters."""
        self._verified_for = 0
        self._stages: list[tuple[int, int]] = []
        """Pipeline stages of this rank: index and total number."""
        self._init = c10d.init_process_group
        self._patch()
        self.executor.start()

    def _patch(self) -> None:
        devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
        c10d.Backend.register_backend(BACKEND, self._made, extended_api=True, devices=devices)
        for module in (dist, c10d):
            module.init_process_group = self._begin
        new_group = c10d.new_group

        def made(ranks: Any = None, timeout: Any = None, backend: Any = None, **rest: Any) -> Any:
            return new_group(ranks, timeout, None if backend in KNOWN else backend, **rest)

        dist.new_group = c10d.new_group = made
        named = c10d.get_backend

        def backend_of(*args: Any, **kwargs: Any) -> Any:
            """The backend that the program asked for. Programs behave differently for gloo than for
            others."""
            found = named(*args, **kwargs)
            return c10d.Backend(self._backend) if found == BACKEND else found

        dist.get_backend = c10d.get_backend = backend_of
        patch_loader()

    # --- joining ---

    def _begin(self, backend: Any = None, *args: Any, **kwargs: Any) -> None:
        """Replaces `init_process_group`."""
        reason = self._choose(backend)
        if reason:
            self.session.unprotect(reason)
            self._init(backend, *args, **kwargs)
            return
        rank = self.session.wait_rank()
        plan = self.session.wait_plan()
        while plan["boundary"] == START and not self.executor.enter(plan):
            plan = self.session.wait_plan()
        if "resume" in plan and plan["boundary"] == START:
            self._origin = plan["resume"]
            worlds = int(plan["resume"]["world"]), int(plan["world"])
            self.position.aim(pickle.loads(self.session.record), worlds)
        if plan["boundary"] > START:
            self._plan = plan
            self.executor.restore_prologue(self.session.prologue)
            self.position.aim(pickle.loads(self.session.record))
        self._init(BACKEND, store=dist.HashStore(), rank=rank, world_size=plan["world"])

    def _choose(self, backend: str | None) -> str:
        """Why the job is not protected with this backend; empty if it is."""
        if backend not in KNOWN:
            return f"backend {backend}: only gloo and nccl"
        wanted = backend in communicators.BACKENDS
        unusable = communicators.unusable()
        if wanted and unusable:
            return unusable
        if wanted or (backend is None and torch.cuda.is_available() and not unusable):
            self.executor.use_nccl()
            self.replica.on_gpu = True
        self._backend = "nccl" if wanted else "gloo"
        return ""

    _backend = "gloo"
    """The backend that the program asked for."""

    def _made(self, options: Any, _: Any) -> Any:
        """Create a group for c10d; called on its members."""
        size = options.group_size
        whole = size == self.session.world
        key = "" if whole and not self._has_world else f"{options.group_id}"
        self._has_world = True
        return self.executor.new_group(key, options.group_rank, size)

    _has_world = False

    def become(self) -> None:
        """A replacement reaches the lost rank's place: take its state and its role."""
        if self._origin is not None:
            self._resume(self._origin)
            return
        session, plan = self.session, self._plan
        assert plan is not None
        while True:
            newest = session.wait_plan()
            if newest["boundary"] != plan["boundary"]:
                session.event("overtaken", boundary=plan["boundary"], now=newest["boundary"])
                os._exit(ddp.MOVED)
            record = pickle.loads(session.record)
            self.executor.solo = False
            if self.executor.enter(newest):
                break
            if session.generation == newest["generation"]:
                break  # it is a survivor by now: the executor continues
        self._restore(record, plan["boundary"])
        session.acked = plan["boundary"]
        self.replica.part = sharding.part_of(self.replica.parameters())
        self._mirror()

    def _restore(self, record: dict[str, Any], boundary: int) -> None:
        self.executor.restore_calls(record["calls"])
        self.executor.solo = True  # models are prepared
        try:
            self.replica.restore(record, boundary)
        except ValueError as error:
            self.differs(error)
        self.executor.solo = False

    @staticmethod
    def differs(error: Exception) -> None:
        print(f"syntony: the replacement is not like the lost rank: {error}",
              file=sys.stderr, flush=True)  # fmt: skip
        os._exit(1)  # not an exception: the program might catch it

    def _resume(self, origin: dict[str, Any]) -> None:
        """All ranks are at a checkpoint's step: take its state. Their prologues were real."""
        self._origin = None
        self.executor.drain()
        self.first_boundary()
        boundary = int(origin["boundary"])
        try:
            self._read_state(Path(origin["path"]))
        except (OSError, ValueError, RuntimeError, checkpoint.CheckpointError) as error:
            print(f"syntony: the checkpoint cannot be gone on from: {error}",
                  file=sys.stderr, flush=True)  # fmt: skip
            os._exit(1)
        self._restore(pickle.loads(self.session.record), boundary)
        self._verify = {boundary + each for each in VERIFY_AFTER}
        self.session.send("boundary", self.session.record, boundary=boundary)
        self._mirror()

    def _read_state(self, place: Path) -> None:
        part = self.replica.part.name
        name = checkpoint.state_name(part)
        kept = checkpoint.read(place, check=False).files.get(name)
        if kept is None:
            raise ValueError(f"{place} has no part {part or '0/1'} of the parameters")
        state_file.read(place / name, self.replica, undo=kept.undo)

    # --- boundaries ---

    def first_boundary(self) -> None:
        """Report what a replacement could not do, before the first step."""
        self.replica.modules.begin(self.replica.parameters())
        reason = self.replica.unprotected()
        if reason:
            self.session.unprotect(reason)
        self._find_part()
        self.session.send("prologue", self.executor.prologue())

    def _find_part(self) -> None:
        """Determine this rank's part, once all parameters are made."""
        part = sharding.part_of(self.replica.parameters())
        self.replica.part = part = sharding.in_stages(part, self._stages)
        world = self.session.world
        if part.parts > 1:
            self.session.send("sharded", part=part.name, alone=self._alone)
            if self.session.rank == 0 and not self.session.fixed:
                self.session.event("sharded", parts=part.parts, copies=world // part.parts)

    def expect_stages(self) -> None:
        """The program is about to make stages of a pipeline, each on some ranks only."""
        from torch.distributed.pipelining import stage

        self.session.fix("they are stages of a pipeline, whose messages are not repeated")
        patch_init(stage._PipelineStageBase, lambda made: self._stages.append(
            (made.stage_index, made.num_stages)))  # fmt: skip

    @property
    def _alone(self) -> bool:
        """Each rank needs a copy of its parameters on another, because no rank has the same."""
        return not self.session.fixed and self.replica.part.parts > self.session.world // 2

    def _mirror(self) -> None:
        if self._alone and self.session.world > 1:
            on_host, rank = launchers.per_host(os.environ), self.session.rank or 0
            self.executor.mirror(shadow.neighbours(rank, self.session.world, on_host))

    def passed(self, boundary: int) -> None:
        """At a boundary: compare parameters if that is due."""
        plan = self.session.plan
        if plan is not None and plan["generation"] > self._verified_for:
            self._verified_for = plan["generation"]
            if plan["verify"]:
                # Only these: a replacement does not have earlier ones.
                self._verify = {plan["boundary"] + each for each in VERIFY_AFTER}
        if boundary in self._verify:
            self._verify.discard(boundary)
            self.session.send("digest", boundary=boundary, digest=self.replica.digest())
        self._mirror()

    # --- the end ---

    def finish(self) -> None:
        """The program has ended well: stay until all have, because a replacement may need this
        rank."""
        if self.session.generation >= 0:
            self.executor.drain()
            self.session.event("spent", record_ns=self.position.spent_ns,
                               boundaries=self.replica.boundary + 1,
                               record_bytes=self.position.last_record_bytes)  # fmt: skip
        self.session.send("finished")
        self.session.wait_release()


def warm_up() -> None:
    """Make slow first calls while a spare waits: imports, kernels, the autograd engine."""
    import torch._dynamo

    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(2, 4)).sum().backward()
    optimizer.step()
    sys.stdout.flush()
