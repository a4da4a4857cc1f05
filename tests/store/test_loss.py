"""Attribution of broken round trips conserves them, whatever the counters say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syntony.store.loss import BrokenSecond, attribute, correct_directions, correct_seconds

_COUNT = st.integers(0, 1000)
_SECONDS = st.lists(
    st.builds(
        BrokenSecond,
        src=st.sampled_from("ab"),
        dst=st.sampled_from("cd"),
        second=st.integers(0, 3),
        sent=_COUNT,
        lost=_COUNT,
        unresolved=_COUNT,
        heard=_COUNT,
    )
)


@given(_COUNT, st.integers(-1000, 2000))
def test_attribution_conserves_and_stays_within_bounds(unresolved: int, missing: int) -> None:
    there, back = attribute(unresolved, missing)
    assert there + back == unresolved
    assert there >= 0
    assert back >= 0
    assert there <= max(missing, 0)


@given(_SECONDS)
def test_every_broken_round_trip_is_lost_once(seconds: list[BrokenSecond]) -> None:
    total = sum(second.unresolved for second in seconds)
    for corrections in (correct_directions(seconds), correct_seconds(seconds)):
        assert sum(each.lost for each in corrections.values()) == total
        assert sum(each.unsent for each in corrections.values()) <= total


def test_a_request_heard_a_second_later_is_not_lost() -> None:
    seconds = [
        BrokenSecond("a", "b", 0, sent=40, lost=0, unresolved=40, heard=38),
        BrokenSecond("a", "b", 1, sent=40, lost=0, unresolved=40, heard=42),
    ]
    corrections = correct_directions(seconds)
    assert (corrections["a", "b"].lost, corrections["b", "a"].lost) == (0, 80)
