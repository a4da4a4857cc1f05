"""What was measured, kept: one schema, one SQL dialect, embedded or by URL."""

from syntony.store.columnar import Recorded, Store
from syntony.store.fabric import PathRow
from syntony.store.open import open_store

__all__ = ["PathRow", "Recorded", "Store", "open_store"]
