"""The host's clock, for both processes of an agent."""

from __future__ import annotations

from syntony.agent.config import AgentConfig
from syntony.io.clocks import ClockSource, KernelClock, SyntheticClock


def host_clock(config: AgentConfig) -> ClockSource:
    """The host's clock. A lab's synthetic one follows from its spec, so that both processes see the
    same."""
    if config.synthetic_clock is not None:
        return SyntheticClock(config.host, config.synthetic_clock)
    return KernelClock(config.host)
