"""Who keeps fleet time when the clocks of a fleet are solved anew."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.clock.gauge import continue_timeline
from syntony.model import ClockState, S, Timeline

NOW_NS = 1_700_000_000 * S
OFFSETS_NS = st.integers(-200 * S, 200 * S)


def line(node: str, offset_ns: int, part: str) -> Timeline:
    return Timeline(
        node=node, ref_ns=NOW_NS, offset_ns=float(offset_ns), drift_ppb=0.0, sigma_ns=10.0,
        drift_sigma_ppb=1.0, state=ClockState.SYNCHRONIZED, component=part,
    )  # fmt: skip


@given(
    st.lists(st.tuples(OFFSETS_NS, st.sampled_from("abc"), st.booleans()), min_size=1, max_size=6),
    OFFSETS_NS,
    OFFSETS_NS,
)
def test_a_clock_that_has_stepped_moves_no_other(
    clocks: list[tuple[int, str, bool]], solved_ns: int, jump_ns: int
) -> None:
    """Of however few clocks it is one: in whatever part of an earlier fleet these were."""
    before = {f"h{i}": line(f"h{i}", ns, part) for i, (ns, part, _) in enumerate(clocks)}
    stepped = {f"h{i}" for i, (_, _, steps) in enumerate(clocks) if steps}
    fresh = {
        node: msgspec.structs.replace(
            old,
            offset_ns=old.offset_ns + solved_ns - (jump_ns if node in stepped else 0),
            component="now",
        )
        for node, old in before.items()
    }
    now = continue_timeline(fresh, before, stepped)
    for node in before.keys() - stepped:
        assert now[node].offset_ns == pytest.approx(before[node].offset_ns)
        assert now[node].state is ClockState.SYNCHRONIZED
    for node in stepped if len(stepped) < len(before) else ():
        assert now[node].offset_ns == pytest.approx(before[node].offset_ns - jump_ns)
