"""The telemetry store: one schema and SQL dialect for all measured rows. It runs in an embedded
engine or on a ClickHouse server."""

from syntony.store.columnar import Store, StoredPart
from syntony.store.fabric import TracedPathRow
from syntony.store.open import open_store

__all__ = ["Store", "StoredPart", "TracedPathRow", "open_store"]
