"""The telemetry store: one schema and SQL dialect for all measured rows. It runs in an embedded
engine or on a ClickHouse server."""

from collections.abc import Callable
from pathlib import Path

from syntony.errors import UsageError
from syntony.store.columnar import Store, StoredPart
from syntony.store.engine import Engine
from syntony.store.fabric import TracedPathRow

_SERVERS = ("clickhouse://", "clickhouses://")
_EMBEDDED = "chdb:"


def open_store(url: str) -> Store:
    """Open a directory or ``chdb:PATH`` (embedded), or ``clickhouse://user:pass@host:port/database``.

    Raises:
        UsageError: the URL has no such form.
        MissingError: the embedded engine is not installed.
        StoreError: the store cannot be opened.
    """
    check_url(url)
    if url.startswith(_SERVERS):
        from syntony.store.clickhouse import ClickHouseEngine, parse_url

        server = ClickHouseEngine(parse_url(url))
        return _opened(server, server.close)
    from syntony.store.embedded import EmbeddedEngine

    embedded = EmbeddedEngine(Path(url.removeprefix(_EMBEDDED)))
    return _opened(embedded, embedded.abandon)


def check_url(url: str) -> None:
    """Check the form of a store's URL, without opening it. Raises `UsageError`."""
    if url.startswith(_SERVERS):
        from syntony.store.clickhouse import parse_url

        parse_url(url)
    elif "://" in url or not url:
        raise UsageError(
            f"store {url!r}: write a directory, chdb:PATH or clickhouse://user@host:port/database"
        )


def _opened(engine: Engine, abandon: Callable[[], None]) -> Store:
    try:
        return Store(engine)
    except BaseException:
        abandon()
        raise


__all__ = ["Store", "StoredPart", "TracedPathRow", "open_store"]
