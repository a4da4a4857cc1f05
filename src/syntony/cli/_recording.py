"""Fetches a fleet's recording of a job, for the commands that judge or store it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from syntony.cli.fleet import FleetTarget, ask, window_option
from syntony.cli.output import messages
from syntony.errors import UsageError
from syntony.model import DAY_NS, S, parse_duration_ns
from syntony.model.names import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from syntony.workload.bundle import Bundle

PATIENCE_NS = 60 * S
"""Time limit for the store's reads."""
KEPT_NS = 90 * DAY_NS
"""The longest time that a fleet's recordings go back."""


class JobRecording(NamedTuple):
    """The tables of a bundle, not yet validated, and its manifest."""

    manifest: dict[str, Any]
    tables: dict[str, pa.Table]
    notes: tuple[str, ...] = ()
    """What the fleet left out, and why."""

    def bundle(self) -> Bundle:
        """The validated bundle. Raises `InputError`: no table can be used."""
        from syntony.io.bundle_files import bundle_from_tables

        return bundle_from_tables(self.tables, self.manifest)


def window_ns_option(default: str = "2m") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command ``--window``, as `window_ns`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @window_option(default)
        @wraps(command)
        def wrapper(*args: Any, window: str, **kwargs: Any) -> Any:
            return command(*args, window_ns=parse_duration_ns(window), **kwargs)

        return wrapper

    return decorate


def fetch(
    target: FleetTarget, job: str, window_ns: int, *, end_ns: int = 0, quiet: bool = False
) -> JobRecording:
    """Fetch a job's recording up to `end_ns` of fleet time (0: now). What the fleet left out is
    printed on stderr, unless `quiet`. Raises `RemoteError`: no answer, or a refusal."""
    import msgspec

    from syntony.io.bundle_files import joined
    from syntony.wire.jobs import RecordingQuery

    query = RecordingQuery(job=job, window_ns=window_ns, end_ns=end_ns, processes=True)
    answer = ask(target, query, timeout_ns=PATIENCE_NS)
    for note in () if quiet else answer.notes:
        messages.print(f"note: {note}", markup=False)
    return JobRecording(msgspec.json.decode(answer.manifest), joined(answer.rows), answer.notes)


def last_of(target: FleetTarget, job: str, window_ns: int) -> JobRecording:
    """Fetch the last part of a job that may have ended days ago. Raises `UsageError`: unknown
    job."""
    from syntony.wire.jobs import JobsQuery

    answer = ask(target, JobsQuery(window_ns=KEPT_NS), timeout_ns=PATIENCE_NS)
    seen_ns = {each.job: each.seen_ns for each in answer.jobs}
    if job not in seen_ns:
        raise UsageError(
            f"{job}: neither a directory nor a job of the last {KEPT_NS // DAY_NS} days"
            f"{did_you_mean(job, seen_ns)}; `syntony jobs list --window 90d` shows jobs"
        )
    return fetch(target, job, window_ns, end_ns=seen_ns[job])
