"""Fixtures for tests of the agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from syntony.agent.operations import JobTelemetry


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[JobTelemetry]:
    made = JobTelemetry("h0", tmp_path)
    made.socket.start()
    made.nccl.start()
    yield made
    made.close()
    assert made.socket.fault is made.nccl.fault is None
