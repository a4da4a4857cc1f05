"""Pictures of the console for the docs, of a real lab with a job, a planted fault and an audit.

``python -m tests.console.pictures [FOLDER]``: ``console-VIEW.png``, and two of them dark. Takes
about four minutes, and two cores.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.console.browser import browser, enter, new_page
from tests.console.lab_fleet import BAD, JOB, PATIENCE_S, LabFleet, lab_fleet
from tests.live import eventually

from syntony.errors import RemoteError
from syntony.wire.incidents import IncidentsQuery

if TYPE_CHECKING:
    from playwright.sync_api import Page

VIEWS = {
    "overview": ("overview", "hits"), "fabric": ("fabric", "NICs"),
    "link": (f"fabric/{BAD.replace('/', '%2F')}?window=1h", "to its slowest peer"),
    "delay": ("delay?metric=loss&window=1m", "Worst pairs"),
    "pair": (f"delay/h0%2Frail1/{BAD.replace('/', '%2F')}", "one each"),
    "clock": ("clock", "Drift against fleet time"), "audit": ("audit", "Agents × NICs"),
    "jobs": ("jobs", JOB), "job": (f"jobs/{JOB}", "Throughput, all flows"),
    "traffic": ("traffic", "Managed connections"), "incidents": ("incidents", BAD),
    "incident": ("incidents/{number}", "Evidence"), "cost": ("cost", "Restarts a year"),
}  # fmt: skip
"""Name of the picture → address, and text of what it must show."""
DARK = ("overview", "fabric")
SETTLE_MS = 4_000
WATCHED, WATCHED_MS = ("clock",), 30_000
"""Views with a curve that begins when they are opened."""
TROUBLED_S = 60


def main(folder: Path) -> None:
    """Draw all of them."""
    with lab_fleet("console-pictures") as fleet, browser() as found:
        page = new_page(found)
        page.on("pageerror", lambda error: print(f"error of the page: {error}", file=sys.stderr))
        enter(page, fleet.url, fleet.token("operator", "alice"), "audit")
        audit(page)
        fleet.lab.inject("loss", BAD, {"percent": "30"})
        eventually(lambda: trouble(fleet) > 0, "the fault is an incident", within_s=PATIENCE_S)
        page.wait_for_timeout(TROUBLED_S * 1_000)
        number = trouble(fleet)
        for name in VIEWS:
            draw(page, name, folder / f"console-{name}.png", number)
        page.context.close()
        dark = new_page(found, dark=True)
        enter(dark, fleet.url, fleet.token("viewer", "bob"))
        for name in DARK:
            draw(dark, name, folder / f"console-{name}-dark.png", number)
        dark.context.close()


def trouble(fleet: LabFleet) -> int:
    """Number of the incident about the planted fault that pages; 0 before there is one."""
    try:
        with fleet.client() as client:
            found = client.ask(IncidentsQuery(resolved=True)).incidents
    except RemoteError:  # a busy machine
        return 0
    # On a busy machine it may be its cable; others are about jobs that it slows down.
    return max(
        (
            each["number"] for each in found
            if BAD in each["subject"] and each["severity"] == "critical"
        ),
        default=0,
    )  # fmt: skip


def audit(page: Page) -> None:
    """Start one and wait for its end."""
    page.get_by_role("button", name="Start audit").click()
    page.get_by_role("dialog").get_by_role("button", name="Start audit").click()
    page.get_by_text("have reported").wait_for()
    page.get_by_text("have reported").wait_for(state="detached", timeout=PATIENCE_S * 1_000)


def draw(page: Page, name: str, path: Path, number: int) -> None:
    """One picture, once the view shows what it is about."""
    address, text = VIEWS[name]
    page.evaluate("to => { location.hash = to }", f"#/{address.format(number=number)}")
    page.get_by_role("main").get_by_text(text).first.wait_for(timeout=PATIENCE_S * 1_000)
    page.mouse.move(0, 0)
    page.wait_for_timeout(WATCHED_MS if name in WATCHED else SETTLE_MS)
    page.screenshot(path=path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/images"))
