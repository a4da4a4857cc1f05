"""What was measured, kept: one schema, one SQL dialect, embedded or by URL."""

from syntony.store.columnar import Store, StoredPart
from syntony.store.fabric import PathRow
from syntony.store.open import open_store

__all__ = ["PathRow", "Store", "StoredPart", "open_store"]
