"""The fence-and-replay protocol, checked exhaustively by spin, and its broken variants."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spin import NEEDS_SPIN, check

MODEL = Path(__file__).parents[2] / "native" / "nccl" / "model" / "fence.pml"
pytestmark = NEEDS_SPIN


@pytest.mark.parametrize(
    ("defines", "states"),
    [
        (("MESSAGES=3", "CHUNKS=1", "FAULTS=2"), 500_000),
        pytest.param(("STUCK",), 300_000, marks=pytest.mark.slow),
        pytest.param(("MESSAGES=2", "CHUNKS=2", "FAULTS=2"), 100_000, marks=pytest.mark.slow),
        pytest.param(("MESSAGES=3", "CHUNKS=1", "FAULTS=3"), 4_000_000, marks=pytest.mark.slow),
        pytest.param(("MESSAGES=2", "CHUNKS=2", "FAULTS=3"), 1_000_000, marks=pytest.mark.slow),
    ],
)
def test_no_message_completes_twice_incomplete_or_never(
    tmp_path: Path, defines: tuple[str, ...], states: int
) -> None:
    wrong, seen = check(MODEL, tmp_path, *defines, optimized=states >= 300_000)
    assert not wrong
    assert seen > states  # the check did look at faults at any moment


WRITTEN_AFTERWARDS = "assertion violated  !((completed&(1<<m)))"
READ_AFTERWARDS = "assertion violated ((done&"
INCOMPLETE = "assertion violated ((written&"
NEVER = "invalid end state"


@pytest.mark.parametrize(
    ("variant", "wrong"),
    [
        ("NO_FENCE", WRITTEN_AFTERWARDS),
        ("NO_DRAIN", WRITTEN_AFTERWARDS),
        ("NO_REPORT", WRITTEN_AFTERWARDS),
        ("NO_WAIT", READ_AFTERWARDS),
        ("DECREMENT", INCOMPLETE),
        ("NO_CTS_REPLAY", NEVER),
        ("TAKE_LAST", "assertion violated ((failures||"),
    ],
)
def test_each_rule_is_needed(tmp_path: Path, variant: str, wrong: str) -> None:
    size = ("MESSAGES=2", "CHUNKS=2") if variant == "DECREMENT" else ()
    found, _ = check(MODEL, tmp_path, variant, *size)
    assert found.startswith(wrong)
