"""What an incident, a rule or a silence is where nothing was said of it."""

from __future__ import annotations

from tests.defaults import meaningful


def test_what_is_left_out_is_nothing() -> None:
    assert meaningful("alerts") == {
        "BookState.next_number": 1,
        "BookState.next_silence": 1,
        "Rule.open_after": 2,
        "Rule.clear_after": 3,
        "Rule.stable": "1min",
        "Rule.wait": "0s",
        "Rule.enabled": True,
        "Silence.rule": "*",
        "Silence.subject": "*",
    }
