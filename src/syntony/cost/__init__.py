"""A model of what failures cost a fleet, without and with Syntony. Pure arithmetic over the
messages of `syntony.wire.cost`."""

from syntony.cost.model import check, cost, observed

__all__ = ["check", "cost", "observed"]
