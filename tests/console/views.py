"""The views of the console over the made-up fleet, and going from one to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page

VIEWS = {
    "overview": "Changed in the last hour",
    "fabric": "16 NICs, 6 switches",
    "fabric?show=list": "Devices and cables, worst first",
    "fabric/h5%2Frail1": "to its slowest peer",
    "delay": "Worst pairs",
    "delay/h0%2Frail0/h4%2Frail0": "One-way delay",
    "clock": "Drift against fleet time",
    "audit": "Agents × NICs",
    "jobs": "Jobs that had a process",
    "jobs/train-7": "Delay in band beside out of band",
    "traffic": "Failovers: cause and effect",
    "incidents": "One line for each cause",
    "incidents/12": "What was ruled out",
    "incidents/rules": "In force",
    "cost": "What failures take",
}
"""View to a text that it shows once its data are there."""


def goto(page: Page, view: str) -> None:
    page.evaluate("to => { location.hash = to }", f"#/{view}")


def complaints(page: Page) -> list[str]:
    """Errors and warnings of the page; what is asked for and may be absent is none."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))

    def told(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and "404" not in message.text:
            found.append(message.text)

    page.on("console", told)
    return found
