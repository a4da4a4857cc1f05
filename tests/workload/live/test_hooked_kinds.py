"""Kinds of programs under the hook and without: the same results, every step, and no operation that
seems to last."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.workload.live.test_hooked_programs import Watched

from syntony.wire.tables import COLLECTIVE, STEP

pytestmark = pytest.mark.slow
PROGRAM, RANKS = Path(__file__).with_name("kinds.py"), 2


@pytest.mark.parametrize(
    "kind",
    [
        "zero", "fsdp1", "fsdp2", "joins", "accumulates", "comm_hook", "replaces_optimizer",
        "two_optimizers", "in_backward", "closures", "compiles", "loads", "forks", "objects",
        "catches", "stages", "meshes", "loads_ahead", "scales", "sweeps",
    ],
)  # fmt: skip
def test_a_kind_of_program_does_the_same_and_its_steps_are_recorded(
    tmp_path: Path, kind: str
) -> None:
    plain, hooked = (Watched(tmp_path, kind, program=PROGRAM, ranks=RANKS) for _ in range(2))
    plain.run(hooked=False)
    hooked.run()
    assert len(hooked.results) == RANKS
    assert hooked.results == plain.results
    words = (each.split() for each in hooked.results)
    steps = {int(rank): int(count) - 1 for _, rank, _, count in words if int(count)}
    assert Counter(hooked.rows.get(STEP.name, {}).get("rank", [])) == steps
    rows = hooked.rows[COLLECTIVE.name]
    called, ended = set[tuple[str, int, int, int]](), set[tuple[str, int, int, int]]()
    for *operation, done_ns in zip(
        rows["comm"], rows["seq"], rows["rank"], rows["pid"], rows["done_ns"], strict=True
    ):
        called.add(tuple(operation))
        ended |= {tuple(operation)} if done_ns else set()
    assert called == ended
    assert len({each[:3] for each in called}) == len(called), "each is of one process"
    several = {"scales", "accumulates", "joins", "closures", "replaces_optimizer"}
    assert sum(rows["dropped"]) == 0 or kind in several, "passes that are not a step's only one"
    assert not [each for each in hooked.said if each[0] == "hang"]
