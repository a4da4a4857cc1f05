"""A coordinator of four ranks at work, and what its orders say."""

from __future__ import annotations

from syntony.torch.membership import Membership
from syntony.torch.orders import Log, Send, Settings

RANKS = 4


def running(spares: int = 1) -> Membership:
    """Four ranks at work at step 3, spares ready."""
    state = Membership(Settings(spares))
    for rank in range(RANKS):
        state.on_keeper(f"r{rank}", rank, RANKS, 0)
    for n in range(spares):
        state.on_keeper(f"s{n}", None, 0, 0)
    for worker in list(state.workers.values()):
        if worker.rank is None:
            state.on_waiting(worker)
        else:
            state.on_arrived(worker, 0)
    state.on_hosted(0, "a")
    for rank in range(RANKS):
        state.on_formed(state.workers[f"r{rank}"], 0, 0)
    assert state.forming is None
    for boundary in range(4):
        for rank in range(RANKS):
            state.on_boundary(state.workers[f"r{rank}"], boundary, 0)
    state.on_tick(0)
    return state


def sends(orders: object, kind: str) -> list[str]:
    assert isinstance(orders, list)
    return [
        each.worker for each in orders if isinstance(each, Send) and each.message["kind"] == kind
    ]


def logged(orders: object) -> list[str]:
    assert isinstance(orders, list)
    return [each.event["event"] for each in orders if isinstance(each, Log)]
