"""`syntony sla recorded`: SLA verdicts on recorded rows, without a fleet."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.cli.parquet import read_parquet
from syntony.controller.sla import enough, latencies, verdicts
from syntony.errors import InputError, UsageError
from syntony.fabric.names import ARROW, GROUP, guess_kind
from syntony.fabric.names import ComponentKind as Kind
from syntony.io.operator_files import load_objectives
from syntony.model import S
from syntony.sla.judge import class_of
from syntony.sla.terms import Terms
from syntony.store import Store, open_store
from syntony.store.schema import stored_columns
from syntony.wire.sla import SlaReport
from syntony.wire.tables import PROBE

if TYPE_CHECKING:
    import pyarrow as pa

_NEEDED = ("ts_ns", "src", "dst", "prober", "sent", "lost", "count")
"""Required columns; other columns count as 0 if the file lacks them."""
_NOT_SWITCHES = frozenset({Kind.NIC, Kind.HOST, Kind.LINK, Kind.CABLE})


def recorded_report(
    rows: Path, *, by: str, window_ns: int, terms: str, paths: Path | None
) -> SlaReport:
    """The report over the newest `window_ns` of recorded rows.

    Args:
        rows: Parquet with the columns of `probe_1s`.
        by: ``pair``, ``host`` or ``rail``.
        window_ns: how far back from the newest row.
        terms: a file of objectives; empty for none.
        paths: PATHS, as `fabric paths --parquet` writes them, for the classes of pairs.

    Raises:
        InputError, UsageError, ConfigError: a file cannot be used.
    """
    if window_ns <= 0:
        raise UsageError("give a window longer than 0, for example 60s")
    wanted = load_objectives(terms) if terms else Terms()
    table = _rows(rows)
    with tempfile.TemporaryDirectory(prefix="syntony-sla-") as directory:
        store = open_store(str(Path(directory) / "store"))
        try:
            store.insert(PROBE, table)
            return _report(store, by, window_ns, wanted, _classes(paths) if paths else {})
        finally:
            store.close()


def _report(
    store: Store, by: str, window_ns: int, terms: Terms, classes: dict[str, str]
) -> SlaReport:
    last_ns = (store.latest_ns() // S + 1) * S
    now = latencies(store, by, last_ns - window_ns, last_ns, {})
    past = terms.history
    before = latencies(store, by, last_ns - past.window_ns, last_ns - past.until_ns, {})
    known = classes if by == "pair" else {}
    rows = verdicts(now, enough(before), known, terms)
    return SlaReport(by=by, window_ns=window_ns, rows=rows)


def _rows(file: Path) -> pa.Table:
    """Read rows in the form of the store."""
    import pyarrow as pa

    columns = stored_columns(PROBE)
    found = read_parquet(file, [column.name for column in columns])
    missing = [name for name in _NEEDED if name not in found.column_names]
    if missing:
        raise InputError(
            "missing-columns", f"{file}: no column {', '.join(missing)}: give rows of {PROBE.name}"
        )
    if not found.num_rows:
        raise InputError("empty", f"{file} holds no rows")
    arrays = []
    for column in columns:
        kind = getattr(pa, column.type)()
        if column.name not in found.column_names:
            empty = "" if column.type == "string" else 0
            arrays.append(pa.array([empty] * found.num_rows, kind))
            continue
        try:
            values = found.column(column.name).cast(kind)
        except pa.ArrowException as error:
            raise InputError(
                "not-numbers", f"{file}: column {column.name} is not of type {column.type}"
            ) from error
        if values.null_count:
            raise InputError("missing-values", f"{file}: column {column.name} has empty rows")
        arrays.append(values)
    return pa.table(dict(zip((column.name for column in columns), arrays, strict=True)))


def _classes(file: Path) -> dict[str, str]:
    """``a->b`` to the class of its longest path that is known from end to end."""
    table = read_parquet(file, ("components",))
    if "components" not in table.column_names:
        raise InputError("missing-columns", f"{file}: no column components: give PATHS")
    switches: dict[str, int] = {}
    for parts in table.column("components").to_pylist():
        if not parts or any(GROUP in part for part in parts):
            continue
        pair = f"{parts[0]}{ARROW}{parts[-1]}"
        crossed = sum(guess_kind(part) not in _NOT_SWITCHES for part in parts)
        switches[pair] = max(switches.get(pair, 0), crossed)
    return {pair: class_of(crossed) for pair, crossed in switches.items()}
