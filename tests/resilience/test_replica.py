"""What a replacement gets from a record is what the lost rank had: each test in its own process,
for a replica changes PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.resilience.apart import apart

torch = pytest.importorskip(
    "torch", reason="needs PyTorch (pip install '.[torch]'): replicas are NOT tested"
)


class Session:
    """Notes why a job is not protected any more."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def unprotect(self, reason: str, *, harms: bool = False) -> None:
        self.reasons.append(reason)

    def event(self, *_: Any, **__: Any) -> None:
        pass


def replica() -> tuple[Any, Session]:
    from syntony.torch.replica import Replica

    session = Session()
    return Replica(session), session  # type: ignore[arg-type]


def begun(made: Any) -> Any:
    """Pass a boundary; its record as it goes over the wire."""
    import pickle

    if made.boundary == -1:
        made.modules.begin(made.parameters())
    made.pass_boundary()
    return pickle.loads(pickle.dumps(made.record()))  # noqa: S301 - our own


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: _made("LambdaLR", o, lambda step: 0.9**step),
    "MultiplicativeLR": lambda o: _made("MultiplicativeLR", o, lambda _: 0.9),
    "StepLR": lambda o: _made("StepLR", o, 2),
    "MultiStepLR": lambda o: _made("MultiStepLR", o, [2, 3]),
    "ConstantLR": lambda o: _made("ConstantLR", o, total_iters=3),
    "LinearLR": lambda o: _made("LinearLR", o, total_iters=6),
    "ExponentialLR": lambda o: _made("ExponentialLR", o, 0.9),
    "SequentialLR": lambda o: _made(
        "SequentialLR", o, [_made("StepLR", o, 2), _made("ExponentialLR", o, 0.8)], [7]
    ),
    "PolynomialLR": lambda o: _made("PolynomialLR", o, 9),
    "CosineAnnealingLR": lambda o: _made("CosineAnnealingLR", o, 9),
    "ChainedScheduler": lambda o: _made(
        "ChainedScheduler", [_made("StepLR", o, 2), _made("ExponentialLR", o, 0.8)]
    ),
    "ReduceLROnPlateau": lambda o: _made("ReduceLROnPlateau", o, patience=2),
    "CyclicLR": lambda o: _made("CyclicLR", o, 0.01, 0.1, step_size_up=3, cycle_momentum=False),
    "CosineAnnealingWarmRestarts": lambda o: _made("CosineAnnealingWarmRestarts", o, 3),
    "OneCycleLR": lambda o: _made("OneCycleLR", o, 0.1, total_steps=20),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.05),
}


def _made(kind: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(torch.optim.lr_scheduler, kind)(*args, **kwargs)


def kinds(base: type[Any]) -> Iterator[str]:
    each: type[Any]
    for each in base.__subclasses__():
        yield each.__name__
        yield from kinds(each)


def test_every_scheduler_of_torch_is_here() -> None:
    import torch.optim.swa_utils

    known = set(kinds(torch.optim.lr_scheduler.LRScheduler))
    assert known - {"_LRScheduler"} == set(SCHEDULERS)


def all_rates() -> dict[str, tuple[list[float], list[float]]]:
    made, _ = replica()
    return {kind: rates_after_a_takeover(made, kind) for kind in SCHEDULERS}


def rates_after_a_takeover(made: Any, kind: str) -> tuple[list[float], list[float]]:
    """Learning rates of a rank, and of one that took over in the middle."""
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    schedule = SCHEDULERS[kind](optimizer)

    def steps() -> list[float]:
        rates = []
        for _ in range(5):
            parameter.grad = torch.ones(2)
            optimizer.step()
            schedule.step(*([1.0] if kind == "ReduceLROnPlateau" else []))
            rates.append(float(optimizer.param_groups[0]["lr"]))
        return rates

    begun(made)
    steps()
    record = begun(made)
    own = steps()
    steps()  # the replacement is somewhere else
    made.restore(record, made.boundary)
    return own, steps()


def test_learning_rates_go_on_as_the_lost_ranks() -> None:
    rates = apart(all_rates)
    assert {kind: own for kind, (own, _) in rates.items()} == {
        kind: others for kind, (_, others) in rates.items()
    }


def wrapped() -> tuple[Any, Any, Session, Any, Any]:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    made, session = replica()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    layers = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters())
    synchronized: list[int] = []
    model._sync_buffers = lambda: synchronized.append(1)
    return made, model, session, optimizer, synchronized


def train(model: Any, optimizer: Any) -> None:
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def broadcasts_after_validation() -> tuple[int, int]:
    """DDP does not broadcast buffers in the pass after one without gradients."""
    made, model, _, optimizer, synchronized = wrapped()
    begun(made)
    for _ in range(3):
        train(model, optimizer)
    with torch.no_grad():
        model(torch.randn(5, 3))
    record = begun(made)
    synchronized.clear()
    train(model, optimizer)
    own = len(synchronized)
    train(model, optimizer)
    made.restore(record, made.boundary)
    synchronized.clear()
    train(model, optimizer)
    return own, len(synchronized)


def test_buffers_are_broadcast_when_others_do() -> None:
    assert apart(broadcasts_after_validation) == (0, 0)


class Crossed(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Gradients are ready in another order than parameters were made in."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        sizes = torch.randint(100, 400, (6,), generator=torch.Generator().manual_seed(seed))
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, int(each)) for each in sizes)
        self.norm = torch.nn.BatchNorm1d(3)
        self.order = torch.randperm(6, generator=torch.Generator().manual_seed(seed)).tolist()

    def forward(self, x: Any) -> Any:
        x = self.norm(x)
        for each in self.order:
            x = x + self.layers[each](x).mean()
        return x


def warmed(seed: int) -> list[bool]:
    """A model whose buckets were made alone, beside one that made them in training."""
    from torch.nn.parallel import DistributedDataParallel

    from syntony.torch import ddp
    from syntony.torch.modules import bytes_of
    from syntony.torch.random_state import random_state

    wrapped()
    model, other = (DistributedDataParallel(Crossed(seed), bucket_cap_mb=0.004) for _ in range(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer)
    ddp.rebuild_buckets(model)
    wanted = ddp.layout(model)
    assert wanted is not None
    assert len(wanted) > 2, "several buckets"
    tensors = [*other.parameters(), *other.buffers()]
    before = [*map(bytes_of, tensors), random_state()]
    with other.no_sync():
        ddp.warm(other, wanted)
        kept = not other.require_backward_grad_sync
    same = [a == b for a, b in zip(before, [*map(bytes_of, tensors), random_state()], strict=True)]
    train(other, torch.optim.SGD(other.parameters(), lr=0.1))
    return [*same, kept, ddp.layout(other) == wanted, ddp.layout(model) == wanted]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_replacement_comes_to_the_others_buckets_alone_and_stays_as_it_was(seed: int) -> None:
    assert all(apart(warmed, seed))


def closures(kind: str) -> tuple[list[str], list[float]]:
    """The step begins after the closure, in which the passes are, and collectives."""
    made, session = replica()
    model = torch.nn.Linear(3, 1)
    optimizer = getattr(torch.optim, kind)(model.parameters())
    begun(made)
    seen: list[float] = []

    def closure() -> Any:
        seen.append(float(made.freeze().stepped))  # waits for a step that is under way
        made.thaw()
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    seen.append(float(0 in made.stepped))
    begun(made)
    optimizer.step(closure=closure)
    return session.reasons, seen


def test_a_closure_is_before_the_step() -> None:
    assert apart(closures, "AdamW") == ([], [0.0, 1.0, 0.0])


def test_an_optimizer_that_calls_its_closure_often_is_reported() -> None:
    reasons, _ = apart(often)
    assert reasons == ["an optimizer that calls its closure more than once"]


def often() -> tuple[list[str], int]:
    made, session = replica()
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    begun(made)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return session.reasons[:1], 0


def outside() -> list[str]:
    made, session = replica()
    made.expects_loop = True
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return session.reasons


def test_a_step_before_any_loop_of_a_library_is_reported() -> None:
    assert apart(outside) == ["a step outside of any training loop that is known"]


def layouts() -> list[Any]:
    from syntony.torch import ddp

    made, model, session, optimizer, _ = wrapped()
    begun(made)
    first = ddp.layout(model)
    train(model, optimizer)
    train(model, optimizer)
    model.register_comm_hook({"left": 0}, lambda state, bucket: None)  # noqa: ARG005
    return [first, ddp.layout(model), made.unprotected(), session.reasons]


def test_layout_names_parameters_and_a_hook_with_state_is_reported() -> None:
    first, later, reason, reasons = apart(layouts)
    assert first is None
    assert sorted(each for bucket in later for each in bucket) == [0, 1, 2, 3, 4, 5]
    assert reason == "a communication hook with state of its own"
    assert reasons == ["an optimizer steps twice in one iteration"]


class Averaged:
    """A program that keeps an average of its model, a frozen part, and a model without DDP."""

    def __init__(self) -> None:
        import copy

        self.made, self.session = replica()
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        self.frozen = torch.nn.Linear(3, 3)
        self.teacher = copy.deepcopy(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self) -> None:
        with torch.no_grad():
            x = self.frozen(torch.randn(5, 3))
        self.model(x).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            pairs = zip(self.teacher.parameters(), self.model.parameters(), strict=True)
            for mean, now in pairs:
                mean.mul_(0.9).add_(now, alpha=0.1)

    def own(self) -> list[bytes]:
        from syntony.torch.modules import bytes_of

        tensors = [*self.model.buffers(), *self.teacher.parameters(), *self.teacher.buffers()]
        return [bytes_of(each) for each in tensors]


def average_after_a_takeover() -> tuple[bool, bool, list[str]]:
    program = Averaged()
    begun(program.made)
    for _ in range(3):
        program.step()
        record, own = begun(program.made), program.own()
    program.step()
    differed = program.own() != own
    program.made.restore(record, program.made.boundary)
    return differed, program.own() == own, program.session.reasons


def test_averages_and_buffers_of_plain_models_are_restored() -> None:
    assert apart(average_after_a_takeover) == (True, True, [])


def another_frozen_part() -> str:
    program = Averaged()
    record = begun(program.made)
    with torch.no_grad():
        program.frozen.weight[0, 0] += 1
    try:
        program.made.restore(record, 0)
    except ValueError as error:
        return str(error)
    return ""


def test_a_frozen_part_that_came_out_different_is_noticed() -> None:
    assert "no optimizer has came out different" in apart(another_frozen_part)


def too_much() -> list[str]:
    from syntony.torch import modules

    modules.MAX_BYTES = 64
    program = Averaged()
    begun(program.made)
    return program.session.reasons


def test_too_much_for_a_record_is_reported() -> None:
    assert apart(too_much)[0].startswith("buffers, and changing parameters")


def copied_optimizer() -> list[str]:
    import copy

    program = Averaged()
    begun(program.made)
    program.optimizer = copy.deepcopy(program.optimizer)
    program.step()
    return program.session.reasons


def test_an_optimizer_that_is_not_known_is_reported() -> None:
    assert apart(copied_optimizer) == ["an optimizer that was copied or read from a file"]


def drop(model: Any) -> None:
    for each in model.parameters():
        each.grad = None


CLEARING: dict[str, Callable[[Any, Any], None]] = {
    "at the end": lambda model, _: model.zero_grad(),
    "to zero": lambda _, optimizer: optimizer.zero_grad(set_to_none=False),
    "one by one": lambda model, _: drop(model),
    "never": lambda *_: None,
}


def gradients_carried() -> dict[str, int]:
    """By how the program clears them: how often gradients were carried beyond a boundary."""
    made, _ = replica()
    counts = {}
    for name, clear in CLEARING.items():
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        counts[name] = 0
        for early in (False, True, True, False, False):
            made._gradients.pass_boundary(model.parameters())
            if early:
                clear(model, optimizer)
            model(torch.ones(1, 2)).sum().backward()
            counts[name] += made._gradients.carried(model.parameters())
            if not early:
                clear(model, optimizer)
    return counts


def test_gradients_beyond_a_boundary_are_noticed() -> None:
    # In the first iteration there are none yet; in the fourth, the third had not cleared its own.
    assert apart(gradients_carried) == {"at the end": 1, "to zero": 1, "one by one": 1, "never": 4}
