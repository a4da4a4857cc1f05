"""The demo's live view: one screen on a terminal, one line per step elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from syntony.demo.claims import ActReport, ClockError
from syntony.model import format_ns
from syntony.view.heatmap import heatmap
from syntony.wire.probes import MatrixCell


class FleetScene(msgspec.Struct, frozen=True, kw_only=True):
    """What the fleet looks like now."""

    fleet: str
    """One line: hosts, rails, leaves, spines."""
    agents: int
    hosts: int
    probes_per_s: float
    rows_stored: int
    dropped: int
    cells: tuple[MatrixCell, ...]
    truths: tuple[ClockError, ...]


class Screen:
    """Prints the demo's progress as lines, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def say(self, text: str) -> None:
        """Print one line of progress."""
        self.console.print(f"[bold]▸[/] {text}")

    def show(self, scene: FleetScene) -> None:
        """The fleet as it is now."""


class LiveScreen(Screen):
    """For terminals: the fleet is redrawn in place, progress lines scroll above it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, scene: FleetScene) -> None:
        self._live.update(draw(scene, width=self.console.width), refresh=True)


def draw(scene: FleetScene, *, width: int) -> RenderableType:
    facts = Table.grid(padding=(0, 3))
    facts.add_row(
        f"agents [b]{scene.agents}/{scene.hosts}[/]",
        f"probes/s [b]{scene.probes_per_s:,.0f}[/]",
        f"rows stored [b]{scene.rows_stored:,}[/]",
        Text.assemble("dropped ", (f"{scene.dropped}", "bold red" if scene.dropped else "bold")),
        _clock_line(scene.truths),
    )
    body = Group(
        facts, Text(), heatmap(scene.cells, width=width - 4), Text(), _clock_errors(scene.truths)
    )
    return Panel(body, title=scene.fleet, title_align="left", border_style="dim")


def summary(reports: Sequence[ActReport], seconds: float) -> RenderableType:
    """The summary at the end: claims, measurements, which claims held, which acts could not run."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(width=1)
    table.add_column()
    table.add_column(style="dim")
    for report in reports:
        for claim in report.claims:
            mark = Text("✓", style="bold green") if claim.held else Text("✗", style="bold red")
            table.add_row(mark, Text(claim.text), Text(claim.measured))
        if report.not_run:
            mark = Text("–", style="bold yellow")
            table.add_row(mark, f"{report.act} could not run here", Text(report.not_run))
    claims = [claim for report in reports for claim in report.claims]
    held = sum(claim.held for claim in claims)
    missed = sum(bool(report.not_run) for report in reports)
    style = "red" if held < len(claims) else "yellow" if missed else "green"
    title = f"{held} of {len(claims)} claims held, {seconds:.0f} s"
    if missed:
        title += f"; {missed} of {len(reports)} acts could not run"
    return Panel(table, title=title, title_align="left", border_style=style, expand=False)


def _clock_line(truths: Sequence[ClockError]) -> str:
    if not truths:
        return "clocks [b]not known yet[/]"
    worst = max(abs(truth.error_ns) for truth in truths)
    return f"worst clock error against truth [b]{format_ns(worst)}[/]"


def _clock_errors(truths: Sequence[ClockError]) -> Text:
    if not truths:
        return Text()
    text = Text("clock error ± 1-sigma:", style="dim")
    for truth in truths:
        text.append(f"  {truth.host} ", style="dim")
        text.append(f"{truth.error_ns:+.0f}±{truth.clk_err_ns:.0f} ns", style="default")
    return text
