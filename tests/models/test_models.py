"""Protocols of the control plane, checked exhaustively by spin, and their broken variants."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spin import NEEDS_SPIN, check

KEYS = Path(__file__).with_name("key_rotation.pml")
LEADERSHIP = Path(__file__).with_name("leadership.pml")
pytestmark = NEEDS_SPIN

REFUSED = "assertion violated (((flying["
OLDER_OBEYED = "assertion violated (of_version>=obeyed[me])"


@pytest.mark.parametrize(
    ("model", "defines", "states"),
    [
        (KEYS, ("HOSTS=2",), 40_000),
        pytest.param(
            KEYS, ("HOSTS=3", "DEATHS=1", "BREAKS=1"), 1_000_000, marks=pytest.mark.slow
        ),
        (LEADERSHIP, (), 300_000),
    ],
)  # fmt: skip
def test_no_state_breaks_the_promise(
    tmp_path: Path, model: Path, defines: tuple[str, ...], states: int
) -> None:
    """No probe is refused during a rotation; no older order is obeyed after a newer one."""
    wrong, seen = check(model, tmp_path, *defines, optimized=states >= 300_000)
    assert not wrong
    assert seen > states


@pytest.mark.parametrize(
    ("model", "variant", "wrong"),
    [
        (KEYS, "ONE_PHASE", REFUSED),
        (KEYS, "NO_CONFIRM", REFUSED),
        (KEYS, "NO_DRAIN", REFUSED),
        (KEYS, "FORGET_HOSTS", REFUSED),
        (LEADERSHIP, "NO_FENCE", OLDER_OBEYED),
        (LEADERSHIP, "NO_LEASE", "assertion violated"),
        (LEADERSHIP, "SAME_EPOCH", OLDER_OBEYED),
        (LEADERSHIP, "STALE_READ", "assertion violated"),
    ],
)
def test_each_rule_is_needed(tmp_path: Path, model: Path, variant: str, wrong: str) -> None:
    found, _ = check(model, tmp_path, variant, *(("HOSTS=2",) if model == KEYS else ()))
    assert found.startswith(wrong)


@pytest.mark.parametrize("model", [KEYS, LEADERSHIP], ids=lambda model: model.stem)
def test_the_protocol_gets_to_its_end(tmp_path: Path, model: Path) -> None:
    """A rotation is completed, all changes and takeovers happen: the search is of something."""
    found, _ = check(model, tmp_path, "REACHABLE", "HOSTS=2")
    assert found == "assertion violated 0"
