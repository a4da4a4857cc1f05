"""Control state: orders, policies, identities and keys, in a transactional database."""

from syntony.state.control import ControlState, log_change
from syntony.state.database import DatabaseConnection, InUseError, LeaseLostError, upsert

__all__ = [
    "ControlState",
    "DatabaseConnection",
    "InUseError",
    "LeaseLostError",
    "log_change",
    "upsert",
]
