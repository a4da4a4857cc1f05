"""A bundle as the rules use it: checked columns, and what is missing.

Text columns are numbered once, so that rules compare integers. Unusable data is left out and listed
in `Bundle.gaps`, with the conclusions that are impossible without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony.errors import InputError
from syntony.workload.schema import FORMAT, TABLES, VERSION

NULL = np.iinfo(np.int64).min
"""Null in `instant` and `whole` columns; numbers and flags use NaN, texts and names the code -1."""
OWN_CLOCKS = "each host's own"
"""Timeline of a bundle whose instants are comparable only within one host."""
MAX_SPAN_NS = 32 * 86_400 * 1_000_000_000
"""A bundle covers a month at most: rows farther from its middle belong to another clock."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Codes(NamedTuple):
    """A column of texts, or of lists of texts, as indices into its distinct values."""

    codes: Ints
    values: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def at(self, row: int | np.signedinteger[Any]) -> Any:
        """The value of one row; None for null."""
        code = int(self.codes[row])
        return self.values[code] if code >= 0 else None


class BundleTable:
    """One table; columns that it lacks read as all null."""

    def __init__(self, name: str, columns: Mapping[str, Any], rows: int) -> None:
        self.name, self.columns, self.rows = name, columns, rows
        self._kinds = {column.name: column.kind for column in TABLES[name]}

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def ints(self, name: str) -> Ints:
        """An `instant` or `whole` column, (rows,), null is `NULL`."""
        found: Ints | None = self.columns.get(name)
        return np.full(self.rows, NULL, dtype=np.int64) if found is None else found

    def numbers(self, name: str) -> Floats:
        """A `number` or `flag` column, (rows,), null is NaN."""
        found: Floats | None = self.columns.get(name)
        return np.full(self.rows, np.nan) if found is None else found

    def codes(self, name: str) -> Codes:
        """A `text` or `names` column."""
        found: Codes | None = self.columns.get(name)
        return Codes(np.full(self.rows, -1, dtype=np.int64), ()) if found is None else found

    def where(self, keep: NDArray[np.bool_]) -> BundleTable:
        """The rows for which the mask is true."""
        kept = {
            name: Codes(each.codes[keep], each.values) if isinstance(each, Codes) else each[keep]
            for name, each in self.columns.items()
        }
        return BundleTable(self.name, kept, int(keep.sum()))


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`manifest.json`."""

    format: str
    version: int
    job: str = ""
    timeline: str = "fleet"
    """Name of the clock, island or epoch to which instants refer."""
    timelines: dict[str, str] = {}
    """Tables whose instants refer to another one."""
    begin_ns: int | None = None
    end_ns: int | None = None
    """When recording ended: a hanging job writes no rows."""
    rail_shares: dict[str, float] = {}
    """Planned share of bytes by rail; empty: equal."""
    notes: tuple[str, ...] = ()
    """What the recorder left out, and why."""


class Gap(msgspec.Struct, frozen=True):
    """Data that is missing or was left out, and the consequence."""

    table: str
    reason: str
    """The problem, in one line."""
    limits: str = ""
    """Conclusions that are impossible."""


class Bundle(NamedTuple):
    """The data to be diagnosed."""

    manifest: Manifest
    tables: Mapping[str, BundleTable]
    gaps: tuple[Gap, ...]

    def table(self, name: str) -> BundleTable:
        """The table, or an empty one."""
        return self.tables.get(name) or BundleTable(name, {}, 0)


LIMITS = {
    "collectives": "hang, stragglers, and whether anything cost the job time",
    "flows": "slow flows, contention, incast, lossy links, class mismatch, rail use, moved flows",
    "probes": "class mismatch, and whether delays are the network's or the host's",
    "links": "flapping, PCIe, PFC storms, and whether a link was full or broken",
    "hosts": "GPU throttling, host jitter by run queues, state of clocks",
    "processes": "",
    "steps": "data stalls, and stragglers explained by their work",
}
"""What cannot be concluded without each table; empty: a table that no class needs, and whose
absence is not noted."""


def parse_manifest(data: bytes) -> Manifest:
    """Parse the bytes of `manifest.json`.

    Raises:
        InputError: not JSON of this structure, another format, or an unknown version.
    """
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError("broken-manifest", f"manifest.json: {error}") from error
    return check_manifest(manifest)


def check_manifest(manifest: Manifest) -> Manifest:
    """Return the manifest if its format is known.

    Raises:
        InputError: it is not.
    """
    if manifest.format != FORMAT:
        raise InputError("not-a-bundle", f"manifest.json: format {manifest.format!r}, not {FORMAT}")
    if manifest.version != VERSION:
        raise InputError(
            "unknown-version",
            f"manifest.json: version {manifest.version}; this program reads {VERSION}",
        )
    ends = [each for each in (manifest.begin_ns, manifest.end_ns) if each is not None]
    if any(not 0 <= each < 2**62 for each in ends) or ends != sorted(ends):
        raise InputError("broken-manifest", "manifest.json: end_ns is before begin_ns")
    if any(not 0 <= share <= 1 for share in manifest.rail_shares.values()):
        raise InputError("broken-manifest", "manifest.json: a rail share is not between 0 and 1")
    return manifest


def make_bundle(
    manifest: Manifest, columns: Mapping[str, Mapping[str, Any]], gaps: tuple[Gap, ...] = ()
) -> Bundle:
    """Make a bundle from typed columns by table; `gaps`: those already found while reading.

    Raises:
        InputError: no table can be used.
    """
    tables: dict[str, BundleTable] = {}
    found = [*gaps, *(Gap("", note) for note in manifest.notes)]
    named = {gap.table for gap in gaps if gap.limits}
    for name in TABLES:
        if name not in columns:
            if name not in named and LIMITS[name]:
                found.append(Gap(name, "missing", LIMITS[name]))
            continue
        table, problems = _checked(name, columns[name])
        found += problems
        if table is not None:
            tables[name] = table
    tables = _of_one_clock(manifest, tables, found)
    if not tables:
        why = "; ".join(f"{gap.table}: {gap.reason}" for gap in found)
        raise InputError("empty-bundle", f"no table can be used ({why})")
    return Bundle(manifest, tables, tuple(found))


def _checked(name: str, columns: Mapping[str, Any]) -> tuple[BundleTable | None, list[Gap]]:
    """The table without invalid rows; None if it cannot be used."""
    rows = len(next(iter(columns.values()))) if columns else 0
    missing = [each.name for each in TABLES[name] if each.required and each.name not in columns]
    if missing:
        return None, [Gap(name, f"no usable column {', '.join(missing)}", LIMITS[name])]
    keep = np.ones(rows, dtype=bool)
    clean: dict[str, Any] = {}
    for column in TABLES[name]:
        if column.name not in columns:
            continue
        values = columns[column.name]
        if column.kind in {"number", "flag"}:
            values = _sane(column.name, values)
        elif column.required and isinstance(values, Codes):
            keep &= values.codes >= 0
        elif column.required:
            keep &= values >= (1 if column.name == "window_ns" else 0)
        clean[column.name] = values
    table, problems = BundleTable(name, clean, rows), []
    if not keep.all():
        table = table.where(keep)
        problems.append(Gap(name, f"{rows - table.rows:,} of {rows:,} rows make no sense"))
    if not table.rows:
        return None, [*problems, Gap(name, "no rows", LIMITS[name])]
    if np.nansum(table.numbers("dropped")) > 0:
        lost = int(np.nansum(table.numbers("dropped")))
        problems.append(Gap(name, f"{lost:,} records were lost while recording"))
    return table, problems


def _sane(name: str, values: Floats) -> Floats:
    """Finite values, and non-negative ones where negative is impossible; else null. Delays may be
    negative, because clocks may be wrong; an exit status, because of signals; the time until an
    end, because it may be noticed later."""
    bad = ~np.isfinite(values) | (np.abs(values) > 2.0**62)
    if name == "exit_status":
        bad |= (values < -64) | (values > 255)
    elif name != "lived_ns" and not name.startswith("owd_"):
        bad |= values < 0
    return np.where(bad, np.nan, values)


def instants(table: BundleTable) -> Ints:
    """Instants of the table's rows, (rows,)."""
    for name in ("at_ns", "enqueue_ns", "begin_ns"):
        if name in table:
            return table.ints(name)
    return np.zeros(0, dtype=np.int64)


def _of_one_clock(
    manifest: Manifest, tables: dict[str, BundleTable], gaps: list[Gap]
) -> dict[str, BundleTable]:
    """Only tables and rows that are on the manifest's timeline."""
    for name in [name for name in tables if manifest.timelines.get(name, manifest.timeline)
                 != manifest.timeline]:  # fmt: skip
        other = manifest.timelines[name]
        gaps.append(Gap(name, f"on timeline {other!r}, not {manifest.timeline!r}", LIMITS[name]))
        del tables[name]
    if not tables:
        return tables
    kept = {}
    middle = _middle(manifest, tables)
    for name, table in tables.items():
        near = np.abs(instants(table) - middle) <= MAX_SPAN_NS // 2
        if near.any():
            kept[name] = table if near.all() else table.where(near)
        if not near.all():
            limits = "" if near.any() else LIMITS[name]
            lost = f"{int((~near).sum()):,} rows are of another time or clock"
            gaps.append(Gap(name, lost, limits))
    return kept


def _middle(manifest: Manifest, tables: Mapping[str, BundleTable]) -> int:
    """An instant of the recording: the manifest's, else the median of the tables' medians."""
    if manifest.begin_ns is not None and manifest.end_ns is not None:
        return (manifest.begin_ns + manifest.end_ns) // 2
    return sorted(int(np.sort(instants(each))[each.rows // 2]) for each in tables.values())[
        len(tables) // 2
    ]
