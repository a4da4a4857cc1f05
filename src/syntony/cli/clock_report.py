"""`syntony clock report`: plots, a page and data on the clocks of the last minutes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from syntony.cli.fleet import FleetTarget, ask, fleet_options, window_option
from syntony.cli.output import messages, print_json
from syntony.errors import MissingError, UsageError
from syntony.model import DAY_NS, NicRef, S, parse_duration_ns
from syntony.wire.clocks import ClockHistoryQuery
from syntony.wire.probes import MatrixQuery, SeriesPoint, SeriesQuery

if TYPE_CHECKING:
    from syntony.view.clock_summary import ClockReport

PATIENCE_NS = 60 * S
"""Timeout of its queries, which are large."""
MAX_DELAY_NS = 7 * DAY_NS
"""How long the controller keeps delays; older samples are shown without them."""


@click.command()
@fleet_options
@click.option(
    "--out", type=click.Path(file_okay=False), default="clock-report", help="Directory to write."
)
@window_option("10m", name="since")
@click.option("--pair", nargs=2, metavar="SRC DST", help="NICs to show delays of.")
def report(
    *,
    target: FleetTarget,
    out: str,
    since: str,
    pair: tuple[str, str] | None,
    as_json: bool,
) -> None:
    """Write a report on the clocks of the last minutes: HTML page, SVG and PNG pictures, JSON.

    In a lab every error is compared with the truth. Delays are those of the pair whose directions
    differ most, or of --pair. With --json the data go to stdout and nothing is drawn.

    \b
    Example:
      syntony clock report --since 5m --out /tmp/clocks
    """
    window_ns = parse_duration_ns(since)
    for name in pair or ():
        NicRef.parse(name)
    report = _report(target, window_ns, pair)
    if not report.clocks:
        raise UsageError(f"no clock was stored in the last {since}")
    if as_json:
        print_json(report)
        return
    command = f"syntony clock report --since {since}"
    page = write(report, Path(out), command + (f" --pair {' '.join(pair)}" if pair else ""))
    click.echo(page)


def write(report: ClockReport, directory: Path, command: str) -> Path:
    """Write all files into a directory; return the page's path.

    Raises:
        MissingError: the drawing library is not installed.
        UsageError: the directory cannot be written.
    """
    try:
        from syntony.view.clock_plots import make_plots
    except ModuleNotFoundError as error:
        raise MissingError(
            f"clock report draws with {error.name}; pip install 'syntony[report]', or use --json"
        ) from error
    from syntony.view.clock_page import page

    drawn = {form: make_plots(report, form) for form in ("svg", "png")}
    files = {
        f"{name}.{form}": data for form, found in drawn.items() for name, data in found.items()
    }
    files["report.json"] = msgspec.json.encode(report)
    files["index.html"] = page(report, drawn["svg"], command).encode()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (directory / name).write_bytes(data)
    except OSError as error:
        raise UsageError(f"--out {directory}: {error.strerror}") from error
    return directory / "index.html"


def _report(target: FleetTarget, window_ns: int, pair: tuple[str, str] | None) -> ClockReport:
    from syntony.view.clock_summary import summarize_clocks

    with messages.status("asking the controller"):
        query = ClockHistoryQuery(window_ns=window_ns)
        clocks = ask(target, query, until=lambda it: bool(it.samples), timeout_ns=PATIENCE_NS)
        points = _delays(target, min(window_ns, MAX_DELAY_NS), pair)
    name, truth = _truth(target)
    return summarize_clocks(name, clocks.samples, clocks.step_ns, points, truth)


def _delays(
    target: FleetTarget, window_ns: int, pair: tuple[str, str] | None
) -> tuple[SeriesPoint, ...]:
    from syntony.view.clock_summary import most_asymmetric_pair

    chosen = pair
    if chosen is None:
        matrix = ask(target, MatrixQuery(window_ns=window_ns), timeout_ns=PATIENCE_NS)
        chosen = most_asymmetric_pair(matrix.cells)
    if chosen is None:
        return ()
    points: list[SeriesPoint] = []
    for src, dst in (chosen, chosen[::-1]):
        query = SeriesQuery(src=src, dst=dst, window_ns=window_ns)
        found = ask(target, query, timeout_ns=PATIENCE_NS).points
        if pair and not found:
            raise UsageError(f"{src} → {dst} is not probed; `syntony probe plan` lists what is")
        points += found
    return tuple(points)


def _truth(target: FleetTarget) -> tuple[str, dict[str, Callable[[int], int]] | None]:
    """The fleet's name, and in a lab the true time of each clock's readings."""
    if target.lab is None:
        return target.address, None
    from syntony.io.clocks import SyntheticClock
    from syntony.lab.client import open_lab

    specs = open_lab(target.lab).file().clocks
    clocks = {host: SyntheticClock(host, spec) for host, spec in specs.items()}
    return f"lab {target.lab}", {host: clock.unmap_ns for host, clock in clocks.items()}
