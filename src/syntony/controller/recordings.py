"""Recordings of jobs: rows of the store as the tables of a bundle."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import msgspec

from syntony.controller.recorded_paths import HOPS, ProbePaths
from syntony.errors import UsageError
from syntony.io.bundle_files import arrow_tables
from syntony.model import DAY_NS, S, format_ns
from syntony.model.names import did_you_mean
from syntony.store import Store
from syntony.store.jobs import MAX_ROWS, JobHost
from syntony.wire.jobs import RecordedRows, Recording, RecordingQuery
from syntony.workload.recorded import RecordedBundle, recorded

ROWS_AT_ONCE = 20_000
"""Rows in one part of an answer: a page or less."""
KNOWN_NS = DAY_NS
"""For an unknown job the nearest name of a job of this time is suggested."""
SAME_PATHS_NS = 60 * S
"""Maximum age of the end of a window to which probes' paths as known now apply."""
NAMED = 5
"""Most late agents in one line."""


def recording(store: Store, paths: ProbePaths, query: RecordingQuery, now_ns: int) -> Recording:
    """The stored data of one job; `now_ns` is fleet time. `paths`: of probes.

    Raises:
        UsageError: none, or too much.
    """
    found = read_job(store, query.job, query.window_ns, query.end_ns, now_ns, paths=paths)
    if not query.processes:
        found.tables.pop("processes", None)
    return Recording(
        manifest=msgspec.json.encode(found.manifest),
        notes=found.notes,
        rows=tuple(_parts(found)),
    )


def read_job(
    store: Store,
    job: str,
    window_ns: int,
    end_ns: int,
    now_ns: int,
    *,
    paths: ProbePaths,
    most: int = MAX_ROWS,
) -> RecordedBundle:
    """Tables of a bundle of one job, up to `end_ns` or now (0).

    Raises:
        UsageError: no data, or more than `most` rows of a table.
    """
    last_ns = min(end_ns, now_ns) if end_ns > 0 else now_ns
    first_ns = last_ns - window_ns
    rows = store.jobs.recording(job, first_ns, last_ns, most)
    recent = now_ns - last_ns < SAME_PATHS_NS
    if recent:
        rows = paths.added(rows)
    found = recorded(job, rows, first_ns, last_ns, now_ns)
    if "probes" in found.tables and HOPS not in found.tables["probes"]:
        why = "none is known now" if recent else f"they are kept for {format_ns(SAME_PATHS_NS)}"
        found = found._replace(notes=(*found.notes, f"paths of probes are not recorded: {why}"))
    if not found.tables:
        hosts = store.jobs.hosts(job, now_ns - KNOWN_NS, now_ns)
        if hosts:
            hint = f"; {_newest(hosts, last_ns, now_ns)}"
        else:
            known = store.jobs.jobs(now_ns - KNOWN_NS, now_ns)
            hint = did_you_mean(job, [each.job for each in known])
        raise UsageError(
            f"no record of job {job!r} in that time{hint}; `syntony jobs list` shows jobs"
        )
    return found


def _newest(hosts: Sequence[JobHost], last_ns: int, now_ns: int) -> str:
    """How old the newest rows of a job are, and whose are late, for a window that ends at
    `last_ns` and has none."""
    running = [each for each in hosts if each.running > 0]
    newest_ns = max(each.newest_ns for each in running or hosts)
    age = format_ns(now_ns - newest_ns)
    if not running:
        return f"it ended {age} ago"
    if newest_ns > last_ns:
        return f"its newest rows are {age} old"
    ages = [f"{each.host} {format_ns(now_ns - each.newest_ns)}" for each in running]
    more = f" and {len(ages) - NAMED} more" if len(ages) > NAMED else ""
    named = ", ".join(ages[:NAMED])
    return f"it has not ended, but its agents are late; age of their newest rows: {named}{more}"


def _parts(found: RecordedBundle) -> Iterator[RecordedRows]:
    import pyarrow as pa

    for name, table in arrow_tables(found.tables).items():
        for begin in range(0, table.num_rows, ROWS_AT_ONCE):
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.slice(begin, ROWS_AT_ONCE))
            yield RecordedRows(table=name, arrow=sink.getvalue())
