"""A spare's program learns which rank it is when it asks, by whichever variable."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from tests.resilience.apart import apart


class Session:
    """Of a spare that becomes rank 2 of 4."""

    world = 4
    asked = 0

    def wait_rank(self) -> int:
        self.asked += 1
        return 2


ASKING: dict[str, Callable[[], object]] = {
    "item": lambda: os.environ["OMPI_COMM_WORLD_RANK"],
    "get": lambda: os.environ.get("RANK"),
    "in": lambda: "2" if "LOCAL_RANK" in os.environ else "none",
    "getenv": lambda: os.getenv("PMIX_RANK", "2"),
}


def asked(how: str) -> tuple[int, object, int, str]:
    from syntony.torch.runner import _wait_at_rank

    os.environ |= {"OMPI_COMM_WORLD_SIZE": "4", "OTHER": "1"}
    session = Session()
    _wait_at_rank(session)
    before = os.environ["OTHER"], os.environ.get("NONE"), "NONE" in os.environ, session.asked
    assert before == ("1", None, False, 0)
    return session.asked, ASKING[how](), session.asked, os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]


@pytest.mark.parametrize("how", list(ASKING))
def test_a_program_that_asks_for_its_rank_waits_for_one(how: str) -> None:
    assert apart(asked, how) == (0, "2", 1, "2")


def counted() -> tuple[dict[str, int], list[int]]:
    from tests.resilience.test_replica import replica

    from syntony.torch.collectives import Executor

    made, session = replica()
    session.generation = -1  # type: ignore[attr-defined]
    executor = Executor(session, made)  # type: ignore[arg-type]
    executor.solo = True
    groups = [executor.new_group(key, 0, 2) for key in ("", "half")]
    groups[0].calls, groups[1].calls = 7, 3
    kept = executor.calls
    for each in groups:
        each.calls = 1
    executor.restore_calls(kept)
    return kept, [each.calls for each in groups]


def test_a_replacement_counts_its_collectives_on() -> None:
    pytest.importorskip(
        "torch", reason="needs PyTorch (pip install '.[torch]'): collectives are NOT tested"
    )
    assert apart(counted) == ({"": 7, "half": 3}, [7, 3])
