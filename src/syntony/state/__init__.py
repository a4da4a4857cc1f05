"""Control state: what was ordered, allowed and keyed. Transactional, and apart from telemetry."""

from syntony.state.control import ControlState, log_change
from syntony.state.database import Connection, InUseError, LeaseLostError, upsert

__all__ = ["Connection", "ControlState", "InUseError", "LeaseLostError", "log_change", "upsert"]
