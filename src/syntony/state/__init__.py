"""Control state: what was ordered, allowed and keyed. Transactional, and apart from telemetry."""

from syntony.state.control import ControlState, ProbeKey

__all__ = ["ControlState", "ProbeKey"]
