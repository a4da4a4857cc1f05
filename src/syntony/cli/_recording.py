"""What a fleet has recorded of a job, for the commands that judge it or keep it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from syntony.cli.fleet import FleetTarget, ask
from syntony.cli.output import messages
from syntony.model import S, parse_duration_ns

if TYPE_CHECKING:
    import pyarrow as pa

    from syntony.workload.bundle import Bundle

PATIENCE_NS = 60 * S
"""The store reads for so long at most."""


class JobRecording(NamedTuple):
    """Tables of a bundle, not checked yet, and its manifest."""

    manifest: dict[str, Any]
    tables: dict[str, pa.Table]

    def bundle(self) -> Bundle:
        """Checked. Raises `InputError`: no table can be used."""
        from syntony.io.bundle_files import bundle_from_tables

        return bundle_from_tables(self.tables, self.manifest)


def window_option(default: str = "2m") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command ``--window``, as `window_ns`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--window", default=default, show_default=True, help="How far back to look.")
        @wraps(command)
        def wrapper(*args: Any, window: str, **kwargs: Any) -> Any:
            return command(*args, window_ns=parse_duration_ns(window), **kwargs)

        return wrapper

    return decorate


def fetch(target: FleetTarget, job: str, window_ns: int, *, quiet: bool = False) -> JobRecording:
    """A job's newest recording; what the fleet left out of it is said on stderr, if not `quiet`.

    Raises:
        RemoteError: no answer, or one that says why not.
    """
    import msgspec

    from syntony.io.bundle_files import joined
    from syntony.wire.jobs import RecordingQuery

    answer = ask(target, RecordingQuery(job=job, window_ns=window_ns), timeout_ns=PATIENCE_NS)
    for note in () if quiet else answer.notes:
        messages.print(f"note: {note}", markup=False)
    return JobRecording(msgspec.json.decode(answer.manifest), joined(answer.rows))
