"""A backlog is delivered as fast as network and store allow, in virtual time; each batch once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent_link.draining import Backlog, Drained, drain

from syntony.model import MS
from syntony.wire.messages import MAX_UNACKED, MAX_WINDOW

BATCHES = 6_000


def _drain(directory: Path, rtt_ns: int, *, restarted: bool) -> Drained:
    return drain(directory, Backlog(BATCHES, rtt_ns, 20 * MS, MS // 10, restarted))


@pytest.mark.parametrize("rtt_ns", [1 * MS, 50 * MS])
def test_a_backlog_does_not_wait_for_one_small_window_after_the_other(
    tmp_path: Path, rtt_ns: int
) -> None:
    """With 64 batches in flight: 52 and 57 s."""
    done = _drain(tmp_path, rtt_ns, restarted=False)
    assert done.seconds < 8
    assert done.most_in_flight == MAX_WINDOW
    assert done.looked_up == MAX_UNACKED
    assert (len(done.stored), max(done.stored.values())) == (BATCHES, 1)


def test_what_another_process_left_is_looked_up_and_not_slower(tmp_path: Path) -> None:
    done = _drain(tmp_path, 50 * MS, restarted=True)
    assert done.seconds < 8
    assert done.looked_up == BATCHES
    assert (len(done.stored), max(done.stored.values())) == (BATCHES, 1)
