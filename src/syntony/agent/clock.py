"""The host's clock, as both processes of an agent read it."""

from __future__ import annotations

from syntony.agent.config import AgentConfig
from syntony.io.clocks import ClockSource, KernelClock, SyntheticClock


def host_clock(config: AgentConfig) -> ClockSource:
    """A lab's synthetic one follows from its spec: both see the same."""
    if config.synthetic_clock is not None:
        return SyntheticClock(config.host, config.synthetic_clock)
    return KernelClock(config.host)
