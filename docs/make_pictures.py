"""Draw the docs' pictures: python docs/make_pictures.py [clocks | drill | contention]

What a running lab shows is what `syntony demo` shows; nothing is edited afterwards. Pictures of
clocks (all that `clocks` draws) are made of docs/data/clock-report.json, which is the output of
`syntony clock report --json` in a lab of four hosts while one UDP flow of 190 Mb/s ran from h0 to
h2 (its first recording had the gauge of errors at the upper of two middle clocks; it was shifted to
their mean, as the report has it now).
The picture of a NIC that dies under a job (all that `drill` draws) is what `syntony lab drill
nic-flap` draws; that of two jobs on one fabric (`contention`) is `syntony lab drill contention
--seed 3`.
"""

from __future__ import annotations

import io
import os
import re
import sys
import time
from pathlib import Path

import msgspec
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, RenderableType
from syntony.demo.report import play

from syntony.demo.acts import ACTS
from syntony.demo.screen import Screen, draw, summary
from syntony.demo.stage import Stage
from syntony.lab.client import Lab
from syntony.lab.drill import contention, contention_report, nic_flap, scenarios
from syntony.lab.drill.chart import make_chart
from syntony.lab.drill.figures import figures
from syntony.lab.jobs.torch_build import find_torch
from syntony.lab.plan import FabricSpec
from syntony.lab.world import World, new_lab
from syntony.model import S
from syntony.view import drill_charts
from syntony.view.clock_plots import make_plots
from syntony.view.clock_summary import ClockReport

IMAGES = Path(__file__).parent / "images"
CLOCK_DATA = Path(__file__).parent / "data" / "clock-report.json"
WIDTH = 112
# The template's web font would make every reader's browser ask a third party for it.
LOCAL_FONTS = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def save(name: str, title: str, picture: RenderableType) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(picture)
    svg = console.export_svg(title=title, code_format=LOCAL_FONTS)
    (IMAGES / name).write_text(svg, encoding="utf-8")


def draw_clocks() -> None:
    report = msgspec.json.decode(CLOCK_DATA.read_bytes(), type=ClockReport)
    for name, svg in make_plots(report).items():
        (IMAGES / f"clock-{name}.svg").write_bytes(svg)


def draw_drill(screen: Screen) -> None:
    options = nic_flap.NicFlapOptions(framework="gloo", kind="ddp", python=find_torch())
    trials = nic_flap.drill(options, screen.say)
    drawn = make_chart(trials, [figures(t) for t in trials], scenarios.meaning(options.fault))
    for kind in drill_charts.FORMATS:
        (IMAGES / f"nic-flap.{kind}").write_bytes(drawn.render(kind))


def draw_contention(screen: Screen) -> None:
    spec = msgspec.structs.replace(contention.SPEC, seed=3)
    trial = contention.drill(contention.ContentionOptions(spec=spec), screen.say)
    report = contention_report.make_report(trial)
    drawn = contention_report.make_chart(trial, report.figures, report.fabric)
    for kind in drill_charts.FORMATS:
        (IMAGES / f"contention.{kind}").write_bytes(drawn.render(kind))


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    if "drill" in sys.argv[1:]:
        draw_drill(Screen(Console(stderr=True)))
        return
    if "contention" in sys.argv[1:]:
        draw_contention(Screen(Console(stderr=True)))
        return
    draw_clocks()
    if "clocks" in sys.argv[1:]:
        return
    screen = Screen(Console(stderr=True))
    with World(new_lab(f"pictures-{os.getpid()}", FabricSpec()), detach=False) as world:
        world.wait_ready()
        stage = Stage(Lab(world.directory), screen)
        began_s = time.monotonic()
        reports = [play(name, act, stage) for name, act in ACTS.items()]
        save("summary.svg", "syntony demo", summary(reports, time.monotonic() - began_s))
        save("fleet.svg", "syntony demo", draw(stage.scene(), width=WIDTH))
        stage.lab.inject("blackhole", "h3/rail0", for_ns=9 * S)
        time.sleep(8.5)
        save("blackhole.svg", "syntony demo", draw(stage.scene(), width=WIDTH))
    draw_drill(screen)
    draw_contention(screen)


if __name__ == "__main__":
    main()
