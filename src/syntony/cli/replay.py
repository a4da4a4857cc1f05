"""`syntony replay`: runs the leader's code on recorded rows."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syntony.cli import incident_view
from syntony.cli.output import console, json_option, messages, print_json
from syntony.errors import UsageError
from syntony.model import US, S, parse_duration_ns
from syntony.view import lazy_rich

if TYPE_CHECKING:
    from syntony.controller.replay import ReplayedEvent

PROGRESS_NS = 2 * S
_SHOWN = frozenset({"page", "clear", "blamed", "cleared"})


@click.command()
@click.argument("store_url", metavar="STORE")
@click.option("--for", "length", default="1h", metavar="TIME", help="Length of the window.")
@click.option(
    "--end",
    default="",
    show_default=False,
    metavar="INSTANT",
    help="End of the window, for example 2026-11-25T14:00:00Z. [default: newest row]",
)
@click.option(
    "--policy",
    default="",
    show_default=False,
    metavar="FILE",
    help="Rules, TOML file as for `alerts.rules`.",
)
@click.option(
    "--topology",
    default="",
    show_default=False,
    metavar="FILE",
    help="Topology file, as the controller's `topology`.",
)
@click.option("--all", "everything", is_flag=True, help="Print every change, not only pages.")
@json_option
def command(
    store_url: str,
    *,
    length: str,
    end: str,
    policy: str,
    topology: str,
    everything: bool,
    as_json: bool,
) -> None:
    """Replay recorded rows: show which faults would be found and paged, with other rules if given.

    STORE is a copy of a store's directory, or the URL of a ClickHouse; it is only read. Moves and
    placement are not replayed, since agents' half-second flow reports are not recorded
    (`syntony traffic place` places the flows of a file).

    Exit status: 0 no page, 1 a page would be sent.

    \b
    Example:
      syntony replay /backup/store --for 24h --policy stricter.toml
    """
    from syntony.controller.replay import Replay, recorded, stretch
    from syntony.store import open_store

    if "://" not in store_url and not Path(store_url.removeprefix("chdb:"), "chdb").is_dir():
        raise UsageError(
            f"{store_url}: no store found; give a store's directory, or a ClickHouse URL"
        )
    with contextlib.closing(open_store(store_url)) as store, _errors_only():
        first_ns, last_ns = stretch(
            store, parse_duration_ns(length), _instant_ns(end) if end else 0
        )
        replay = Replay(store, first_ns, last_ns, rules=policy, topology=topology)
        events: list[ReplayedEvent] = []
        next_ns = time.monotonic_ns() + PROGRESS_NS
        for now_ns, some in replay.run():
            events += some
            if time.monotonic_ns() >= next_ns:
                next_ns += PROGRESS_NS
                messages.print(f"{(now_ns - first_ns) // S} of {(last_ns - first_ns) // S} s")
        before = recorded(store, first_ns, last_ns)
    pages = sum(each.what == "page" for each in events)
    if as_json:
        print_json({
            "first_ns": first_ns, "last_ns": last_ns, "pages": pages,
            "events": [each._asdict() for each in events], "recorded": before,
        })  # fmt: skip
    else:
        _print(events, before, everything=everything)
    click.get_current_context().exit(int(bool(pages)))


@contextlib.contextmanager
def _errors_only() -> Iterator[None]:
    """Log errors only: other messages of the loops were logged when the rows were recorded."""
    logger = logging.getLogger("syntony")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _instant_ns(text: str) -> int:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not an instant; write for example 2026-11-25T14:00:00Z"
        ) from error
    if moment.tzinfo is None:
        raise UsageError(f"{text!r}: the time zone is missing; 2026-11-25T14:00:00Z is UTC")
    since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since // dt.timedelta(microseconds=1) * US


def _print(
    events: list[ReplayedEvent], before: list[dict[str, object]], *, everything: bool
) -> None:
    from syntony.alerts.render import instant

    for each in events:
        if everything or each.what in _SHOWN:
            number = f"#{each.number}" if each.number else ""
            text = each.summary if each.number else f"{each.subject}: {each.rule}, {each.summary}"
            line = lazy_rich.Text.assemble(
                (f"{instant(each.at_ns)} ", "dim"), f"{each.what:<9}{number:<5}",
                (text, incident_view.STYLES.get(each.severity, "")),
            )  # fmt: skip
            console.print(line, soft_wrap=True)
    counts = Counter(each.what for each in events)
    console.print(
        f"{counts['page']} pages, {counts['opened'] + counts['reopened']} incidents opened; the "
        f"leader of that time opened {len(before)}"
    )
