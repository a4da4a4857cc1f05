"""A controller whose control state does not answer lets its agents look for another one."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from syntony.controller.lease import DOUBT_CHECK_NS, DOUBT_NS, LeaseWatch
from syntony.model import S
from syntony.state import ControlState


def test_agents_are_released_while_the_lease_is_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = time.monotonic_ns()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    released = list[int]()
    with ControlState(tmp_path) as state:
        watch = LeaseWatch(state, lambda _: None, lambda: released.append(now_ns))

        def go_on(for_ns: int, *, answers: bool) -> list[float]:
            """When they were released, in seconds from the beginning."""
            nonlocal now_ns
            began_ns = now_ns
            released.clear()
            while now_ns < began_ns + for_ns:
                now_ns += DOUBT_CHECK_NS
                if answers:
                    state.database.check()
                asyncio.run(watch.doubt_lease())
            return [(at_ns - began_ns) / S for at_ns in released]

        assert go_on(10 * S, answers=True) == []
        once_s = (DOUBT_NS + DOUBT_CHECK_NS) / S
        assert go_on(3 * DOUBT_NS + S, answers=False) == [once_s, 2 * once_s, 3 * once_s]
        assert go_on(10 * S, answers=True) == []
        assert go_on(DOUBT_NS, answers=False) == []


@pytest.mark.parametrize("pause_s", [3.6, 20])
def test_a_pause_of_the_controller_is_no_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause_s: float
) -> None:
    """It did not ask meanwhile: its agents stay, while control state answers from then on."""
    now_ns = time.monotonic_ns()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    released = list[int]()
    with ControlState(tmp_path) as state:
        watch = LeaseWatch(state, lambda _: None, lambda: released.append(now_ns))
        asyncio.run(watch.doubt_lease())
        now_ns += round(pause_s * S)
        asyncio.run(watch.doubt_lease())
        for _ in range(20):
            now_ns += DOUBT_CHECK_NS
            state.database.check()
            asyncio.run(watch.doubt_lease())
    assert not released
