"""Pictures of the console for the docs, of the made-up fleet.

``python -m tests.console.pictures [FOLDER]``: ``console-VIEW.png``, and the dark overview.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.console.browser import browser, enter, new_page
from tests.console.server import FakeApi, Serving

VIEWS = {
    "overview": "overview", "fabric": "fabric", "link": "fabric/h5%2Frail1", "delay": "delay",
    "pair": "delay/h0%2Frail0/h4%2Frail0", "clock": "clock", "audit": "audit", "jobs": "jobs",
    "job": "jobs/train-7", "traffic": "traffic", "incidents": "incidents",
    "incident": "incidents/12", "cost": "cost",
}  # fmt: skip
DARK = ("overview", "delay")
SETTLE_MS = 2_500


def main(folder: Path) -> None:
    """Draw all of them."""
    with browser() as found:
        serving = Serving(FakeApi()).started()
        for dark in (False, True):
            page = new_page(found, dark=dark)
            enter(page, serving.url)
            for name in DARK if dark else VIEWS:
                page.evaluate("to => { location.hash = to }", f"#/{VIEWS[name]}")
                page.wait_for_timeout(SETTLE_MS)
                page.screenshot(path=folder / f"console-{name}{'-dark' if dark else ''}.png")
            page.context.close()
        serving.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/images"))
