"""Protocols of the control plane, checked exhaustively by spin, and their broken variants."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spin import NEEDS_SPIN, check

KEYS = Path(__file__).with_name("key_rotation.pml")
LEADERSHIP = Path(__file__).with_name("leadership.pml")
GATEWAYS = Path(__file__).with_name("gateways.pml")
pytestmark = NEEDS_SPIN

REFUSED = "assertion violated (((flying["
STORED_TWICE = "assertion violated  !((stored&"
OF_TWO = "assertion violated ((obeyed_of["
OLDER_OBEYED = "assertion violated (of_version>=obeyed[me])"


@pytest.mark.parametrize(
    ("model", "defines", "states"),
    [
        (KEYS, ("HOSTS=2",), 40_000),
        pytest.param(
            KEYS, ("HOSTS=3", "DEATHS=1", "BREAKS=1"), 1_000_000, marks=pytest.mark.slow
        ),
        (LEADERSHIP, (), 300_000),
        (LEADERSHIP, ("PROMOTION", "AGENTS=1"), 100_000),
        (GATEWAYS, ("BATCHES=2", "MOVES=2"), 50_000),
        pytest.param(GATEWAYS, (), 1_000_000, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_no_state_breaks_the_promise(
    tmp_path: Path, model: Path, defines: tuple[str, ...], states: int
) -> None:
    """No probe is refused during a rotation; no older order is obeyed after a newer one, and no
    epoch of two controllers; no batch is stored twice, or acknowledged before it is stored."""
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
        (LEADERSHIP, "REUSE", OF_TWO),
        (GATEWAYS, "NO_HELLO", STORED_TWICE),
        (GATEWAYS, "NO_SILENCE", STORED_TWICE),
        (GATEWAYS, "NO_WAITED", STORED_TWICE),
        (GATEWAYS, "NO_RETRY", STORED_TWICE),
        (GATEWAYS, "EARLY_ACK", "assertion violated 0"),
        (GATEWAYS, "TWO_STEPS", STORED_TWICE),
        (GATEWAYS, "QUICK", STORED_TWICE),
    ],
)
def test_each_rule_is_needed(tmp_path: Path, model: Path, variant: str, wrong: str) -> None:
    found, _ = check(model, tmp_path, variant, *(("HOSTS=2",) if model == KEYS else ()))
    assert found.startswith(wrong)


@pytest.mark.parametrize("model", [KEYS, LEADERSHIP, GATEWAYS], ids=lambda model: model.stem)
def test_the_protocol_gets_to_its_end(tmp_path: Path, model: Path) -> None:
    """A rotation is completed, all changes and takeovers happen, all batches are acknowledged after
    moves, a death and a failure: the search is of something."""
    found, _ = check(model, tmp_path, "REACHABLE", "HOSTS=2")
    assert found == "assertion violated 0"
