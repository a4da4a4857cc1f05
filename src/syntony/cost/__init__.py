"""What failures cost a fleet, today and with Syntony. Pure arithmetic over `wire.cost`."""

from syntony.cost.history import observed
from syntony.cost.model import check, cost

__all__ = ["check", "cost", "observed"]
