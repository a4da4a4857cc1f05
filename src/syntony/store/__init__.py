"""What was measured, kept: one schema, one SQL dialect, embedded or by URL."""

from syntony.store.interface import ClockPoint, FlowSecond, PathRow, Recorded, Store
from syntony.store.open import open_store

__all__ = ["ClockPoint", "FlowSecond", "PathRow", "Recorded", "Store", "open_store"]
