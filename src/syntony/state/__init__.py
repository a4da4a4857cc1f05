"""Control state: orders, policies, identities, keys, incidents and undelivered messages. It is
stored in a transactional database, SQLite or PostgreSQL."""

from syntony.state.control import ControlState, log_change
from syntony.state.database import (
    DatabaseConnection,
    InUseError,
    LeaseLostError,
    SilentError,
    upsert,
)

__all__ = [
    "ControlState",
    "DatabaseConnection",
    "InUseError",
    "LeaseLostError",
    "SilentError",
    "log_change",
    "upsert",
]
