"""The lab of a module's tests of failover."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.fleet.failing import Fleet, four_hosts


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Of the module's `NAME`."""
    yield from four_hosts(request.module.NAME)


@pytest.fixture
def fleet(running: Fleet) -> Fleet:
    """All faults of the test before are over."""
    running.lab.clear()
    return running
