"""Draw the README's pictures from a running lab: python docs/make_pictures.py

What is drawn is what `syntony demo` shows; nothing is edited afterwards.
"""

from __future__ import annotations

import io
import os
import re
import time
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, RenderableType

from syntony.demo.acts import ACTS
from syntony.demo.screen import Screen, draw, summary
from syntony.demo.stage import Stage
from syntony.lab.client import Lab
from syntony.lab.plan import FabricSpec
from syntony.lab.world import World, new_lab
from syntony.model import S

IMAGES = Path(__file__).parent / "images"
WIDTH = 112
# The template's web font would make every reader's browser ask a third party for it.
LOCAL_FONTS = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def save(name: str, title: str, picture: RenderableType) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(picture)
    svg = console.export_svg(title=title, code_format=LOCAL_FONTS)
    (IMAGES / name).write_text(svg, encoding="utf-8")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    screen = Screen(Console(stderr=True))
    with World(new_lab(f"pictures-{os.getpid()}", FabricSpec()), detach=False) as world:
        world.wait_ready()
        stage = Stage(Lab(world.directory), screen)
        began_s = time.monotonic()
        claims = [claim for act in ACTS.values() for claim in act(stage)]
        save("summary.svg", "syntony demo", summary(claims, time.monotonic() - began_s))
        save("fleet.svg", "syntony demo", draw(stage.scene(), width=WIDTH))
        stage.lab.inject("blackhole", "h3/rail0", for_ns=9 * S)
        time.sleep(8.5)
        save("blackhole.svg", "syntony demo", draw(stage.scene(), width=WIDTH))


if __name__ == "__main__":
    main()
