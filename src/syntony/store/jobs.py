"""Queries about jobs: their processes, collectives, steps and flows, and the network under them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from syntony.errors import UsageError
from syntony.model import DAY_NS
from syntony.model.names import host_of
from syntony.store.engine import Engine, Value, integer
from syntony.store.queries import window
from syntony.store.schema import quote
from syntony.wire.jobs import JobView, Takeover
from syntony.wire.tables import (
    CLOCK,
    COLLECTIVE,
    GPU,
    JOB_DELAY,
    JOB_FLOW,
    JOB_PROCESS,
    LINK_EVENT,
    LINK_PORT,
    PROBE,
    QUEUE_PAIR,
    STEP,
    TAKEOVER,
    Table,
)

MAX_ROWS = 1_000_000
"""Most rows of one table in one recording."""
STANDS_STILL_NS = DAY_NS
"""A job that stands still is judged by operations that it began up to this long ago."""
MAX_PROGRAMS = 8
MAX_TAKEOVERS = 10_000
"""Most lost ranks that are read; more of them in a window are the same incident."""
MAX_SHOWN_TAKEOVERS = 1_000
"""Most lost ranks of one job on a screen."""
_HOST = "arrayElement(splitByChar('/', nic), 1)"
_DEVICE = "arrayElement(splitByChar(':', rdma), 1)"
"""The device of a row of `link_ports`."""
Columns = Mapping[str, list[Any]]
"""Values by column name: text or numbers; None: not finite."""


class JobHost(NamedTuple):
    host: str
    newest_ns: int
    """Until when its newest row reports."""
    running: int
    """Processes that had not ended by then."""


class JobQueries:
    """Queries on jobs; as thread-safe as the engine. Windows are half-open, in fleet time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def jobs(self, first_ns: int, last_ns: int) -> tuple[JobView, ...]:
        """Jobs with a process in the window, newest first."""
        rows = self._engine.select(
            "SELECT job, min(began_ns), max(ts_ns + window_ns), groupUniqArray(host), "
            "uniqExact(host, pid), sum(ended), max(toInt64(ranks)), "
            "uniqExactIf(rank, rank >= 0), groupUniqArray(program) "
            f"FROM {JOB_PROCESS.name} WHERE {window(first_ns, last_ns)} "
            "GROUP BY job ORDER BY min(began_ns) DESC, job"
        )
        protected = self._protected(min((integer(row[1]) for row in rows), default=0), last_ns)
        return tuple(
            JobView(
                job=str(row[0]),
                began_ns=integer(row[1]),
                seen_ns=integer(row[2]),
                hosts=_texts(row[3]),
                processes=integer(row[4]),
                running=integer(row[4]) - integer(row[5]),
                ranks=max(integer(row[6]), integer(row[7])),
                programs=_texts(row[8])[:MAX_PROGRAMS],
                **protected.get(str(row[0]), {}),
            )
            for row in rows
        )

    def hosts(self, job: str, first_ns: int, last_ns: int) -> tuple[JobHost, ...]:
        """Hosts with a process of the job in the window, the one with the oldest newest row
        first."""
        rows = self._engine.select(
            "SELECT host, max(ts_ns + window_ns) AS newest, uniqExact(pid) - sum(ended) "
            f"FROM {JOB_PROCESS.name} WHERE {window(first_ns, last_ns)} AND job = {quote(job)} "
            "GROUP BY host ORDER BY newest, host"
        )
        return tuple(JobHost(str(row[0]), *map(integer, row[1:])) for row in rows)

    def _protected(self, first_ns: int, last_ns: int) -> dict[str, dict[str, int]]:
        """For protected jobs the newest generation and spares, and the losses."""
        newest = "what = 'spares'"
        rows = self._engine.select(
            f"SELECT job, argMaxIf(generation, ts_ns, {newest}), "
            f"argMaxIf(spares, ts_ns, {newest}), countIf({newest}), "
            "countIf(what = 'replaced' AND reason != 'drained') "
            f"FROM {TAKEOVER.name} WHERE {window(first_ns, last_ns)} GROUP BY job"
        )
        found: dict[str, dict[str, int]] = {}
        for row in rows:
            generation, spares, reported, replaced = map(integer, row[1:])
            current = {"generation": generation, "spares": spares} if reported else {}
            found[str(row[0])] = {"replaced": replaced} | current
        return found

    def takeovers_of(self, job: str, first_ns: int, last_ns: int) -> tuple[Takeover, ...]:
        """What became of the job's lost and late ranks: the newest of the window, oldest first."""
        shown = "what NOT IN ('spares', 'no-straggler')"
        which = f"{window(first_ns, last_ns)} AND job = {quote(job)} AND {shown}"
        found = self._columns(TAKEOVER, f"{which} ORDER BY ts_ns DESC LIMIT {MAX_SHOWN_TAKEOVERS}")
        rows = [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]
        names = Takeover.__struct_fields__
        return tuple(Takeover(**{name: row[name] for name in names}) for row in reversed(rows))

    def takeovers(self, first_ns: int, last_ns: int) -> Columns:
        """The newest rows of `job_takeovers` in the window, at most `MAX_TAKEOVERS`."""
        which = f"{window(first_ns, last_ns)} ORDER BY ts_ns DESC LIMIT {MAX_TAKEOVERS}"
        return self._columns(TAKEOVER, which)

    def recording(
        self, job: str, first_ns: int, last_ns: int, most: int = MAX_ROWS
    ) -> dict[str, Columns]:
        """The recording of a job in the window, by table, with the NICs and hosts that it used. Of
        a job that runs and begins no operation in the window, also the last ones before it. Raises
        `UsageError`: more than `most` rows of one table."""
        of_job = f"job = {quote(job)}"
        found = {
            table.name: self._select(table, first_ns, last_ns, of_job, most)
            for table in (JOB_PROCESS, GPU, COLLECTIVE, STEP, JOB_FLOW, JOB_DELAY, QUEUE_PAIR)
        }
        if found[JOB_PROCESS.name]["ts_ns"] and not found[COLLECTIVE.name]["ts_ns"]:
            self._add_last_operations(found, first_ns, last_ns, of_job, most)
        flows, pairs = found[JOB_FLOW.name], found[QUEUE_PAIR.name]
        devices = f"{_among(_HOST, pairs['src'])} AND {_among(_DEVICE, pairs['device'])}"
        nics = {*flows["src"], *flows["dst"], *self._nics(first_ns, last_ns, devices)}
        hosts = {*found[JOB_PROCESS.name]["host"], *(host_of(nic) for nic in nics)}
        hosts |= {*pairs["src"], *pairs["dst"]}
        ends = f"{_among('src', nics)} AND {_among('dst', nics)}"
        found |= {
            PROBE.name: self._select(PROBE, first_ns, last_ns, ends, most),
            LINK_PORT.name: self._select(LINK_PORT, first_ns, last_ns, _among("nic", nics), most),
            LINK_EVENT.name: self._select(LINK_EVENT, first_ns, last_ns, _among("nic", nics), most),
            CLOCK.name: self._select(CLOCK, first_ns, last_ns, _among("node", hosts), most),
        }
        return found

    def _add_last_operations(
        self, found: dict[str, Columns], first_ns: int, last_ns: int, of_job: str, most: int
    ) -> None:
        """Add the newest operations before the window, of a time as long as the window, and the
        readings of processes from then until as long after the newest: some may have ended."""
        rows = self._engine.select(
            f"SELECT max(ts_ns) FROM {COLLECTIVE.name} "
            f"WHERE {window(first_ns - STANDS_STILL_NS, first_ns)} AND {of_job}"
        )
        newest_ns, width_ns = integer(rows[0][0]) if rows else 0, last_ns - first_ns
        if not newest_ns:
            return
        for table, until_ns in ((COLLECTIVE, newest_ns + 1), (JOB_PROCESS, newest_ns + width_ns)):
            end_ns = min(until_ns, first_ns)
            more = self._select(table, newest_ns - width_ns, end_ns, of_job, most)
            here = found[table.name]
            found[table.name] = {name: [*more[name], *here[name]] for name in here}

    def _nics(self, first_ns: int, last_ns: int, which: str) -> set[str]:
        """Ports that meet a condition."""
        rows = self._engine.select(
            f"SELECT DISTINCT nic FROM {LINK_PORT.name} "
            f"WHERE {window(first_ns, last_ns)} AND {which}"
        )
        return {str(row[0]) for row in rows}

    def _select(self, table: Table, first_ns: int, last_ns: int, which: str, most: int) -> Columns:
        within = f"{window(first_ns, last_ns)} AND {which} LIMIT {most + 1}"
        found = self._columns(table, within)
        if len(found["ts_ns"]) > most:
            raise UsageError(f"more than {most} rows in {table.name}; ask for a shorter window")
        return found

    def _columns(self, table: Table, which: str) -> Columns:
        names = [column.name for column in table.columns]
        rows = self._engine.select(f"SELECT {', '.join(names)} FROM {table.name} WHERE {which}")
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        return {name: list(values) for name, values in zip(names, columns, strict=True)}


def _among(column: str, names: Collection[str]) -> str:
    """The SQL condition that a column has one of these values."""
    listed = ", ".join(quote(name) for name in sorted(set(names)))
    return f"{column} IN ({listed})" if listed else "1 = 0"


def _texts(value: Value) -> tuple[str, ...]:
    return tuple(sorted(str(each) for each in value)) if isinstance(value, list) else ()
