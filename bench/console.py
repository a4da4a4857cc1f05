"""The console: time to the first view, bundle, map of 10,000 NICs, matrix of 512 x 512.

``python -m bench.console``: headless Chromium against made-up answers on localhost (no controller:
the time is the console's own, and that of fetching and decoding answers). Needs the `dev` extra and
Chromium. Medians of `RUNS`. Beside each is the processor time of all of Chromium's processes, which
says what the figure would be on a machine that does nothing else; the load is printed, too.
"""

from __future__ import annotations

import gzip
import math
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.console.browser import browser, chromium, enter, new_page
from tests.console.fleet import Shape
from tests.console.server import FakeApi, Serving
from tests.console.test_bundle import bundle_files

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RUNS = 3
NICS_10K = Shape(hosts=1250, rails=8, leaves=40, spines=32)
MATRIX_512 = Shape(hosts=512, rails=1, leaves=16, spines=8)
PAN = """async () => {
  const canvas = document.querySelector('canvas');
  const box = canvas.getBoundingClientRect();
  const at = (x) => ({clientX: box.x + x, clientY: box.y + 200, pointerId: 1, bubbles: true});
  canvas.setPointerCapture = () => {};
  canvas.dispatchEvent(new PointerEvent('pointerdown', at(200)));
  const frames = [];
  let before = await new Promise(requestAnimationFrame);
  for (let n = 0; n < 60; n++) {
    canvas.dispatchEvent(new PointerEvent('pointermove', at(200 + 150 * Math.sin(n / 8))));
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - before);
    before = now;
  }
  canvas.dispatchEvent(new PointerEvent('pointerup', at(200)));
  return frames;
}"""
"""Drags the map for 60 frames; ms of each."""
MATRIX = """async () => {
  const seen = performance.now();
  const button = [...document.querySelectorAll('button')].find(b => b.textContent === 'p99');
  button.click();
  await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - seen;
}"""
"""Draws the matrix with another metric: from the click to the second frame."""


class Figure(NamedTuple):
    """One line of the output."""

    name: str
    value: float
    unit: str
    wanted: str
    processor_ms: float = math.nan
    """Of all processes of the browser; of a pan for each frame."""


def processor_ms() -> float:
    """Processor time of every process that this one has begun, and of theirs, until now."""
    ticks, parents = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, fields = int(stat.parent.name), stat.read_text().rpartition(") ")[2].split()
        except OSError:  # it has ended
            continue
        parents[pid], ticks[pid] = int(fields[1]), int(fields[11]) + int(fields[12])

    def ours(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    spent = sum(ticks[pid] for pid in ticks if pid != os.getpid() and ours(pid))
    return spent * 1000 / os.sysconf("SC_CLK_TCK")


def first_view(found: Browser, url: str) -> tuple[float, float]:
    """Seconds from a reload to incidents on the screen, logged in; processor ms."""
    page = new_page(found)
    enter(page, url)
    page.get_by_text("Changed in the last hour").wait_for()
    before = processor_ms()
    page.reload()
    page.get_by_role("table", name="Incidents").wait_for()
    seconds: float = page.evaluate("performance.now() / 1000")
    spent = processor_ms() - before
    page.context.close()
    return seconds, spent


def pan(page: Page, detail: str) -> Figure:
    """Frames per second while the map is dragged."""
    before = processor_ms()
    frames: list[float] = page.evaluate(PAN)
    spent = (processor_ms() - before) / len(frames)
    rate = 1000 / statistics.median(frames)
    return Figure(f"map of 10,000 NICs, pan, {detail}", rate, "fps", ">= 30", spent)


def map_figures(found: Browser) -> Iterator[Figure]:
    """The map as a whole, and nearer."""
    serving = Serving(FakeApi(NICS_10K)).started()
    page = new_page(found)
    enter(page, serving.url, view="fabric")
    page.wait_for_selector("canvas[data-detail]")
    page.wait_for_timeout(3_000)
    yield pan(page, "all of it")
    page.get_by_role("application").focus()
    for _ in range(6):
        page.keyboard.press("+")
    page.wait_for_timeout(500)
    yield pan(page, "with names")
    page.context.close()
    serving.end()


def matrix_figure(found: Browser) -> Figure:
    """From a click until 512 x 512 values are on the screen in other colours."""
    serving = Serving(FakeApi(MATRIX_512)).started()
    page = new_page(found)
    enter(page, serving.url, view="delay")
    page.get_by_role("application").wait_for()
    page.wait_for_timeout(2_000)
    times: list[float] = []
    spent: list[float] = []
    for _ in range(RUNS):
        before = processor_ms()
        times.append(page.evaluate(MATRIX) / 1000)
        spent.append(processor_ms() - before)
        page.get_by_role("button", name="Median").click()
        page.wait_for_timeout(300)
    page.context.close()
    serving.end()
    return Figure(
        "matrix of 512 x 512 drawn", statistics.median(times), "s", "<= 1", statistics.median(spent)
    )


def bundle_figures() -> list[Figure]:
    """What a browser fetches."""
    contents = [file.read_bytes() for file in bundle_files()]
    packed = sum(len(gzip.compress(data)) for data in contents)
    return [
        Figure("bundle", sum(map(len, contents)) / 1000, "kB", "<= 300"),
        Figure("bundle, gzip", packed / 1000, "kB", "<= 700"),
    ]


def figures() -> Iterator[Figure]:
    """All of them, as they are measured."""
    yield from bundle_figures()
    with browser() as found:
        serving = Serving(FakeApi()).started()
        times = [first_view(found, serving.url) for _ in range(RUNS)]
        serving.end()
        seconds, spent = (statistics.median(each) for each in zip(*times, strict=True))
        yield Figure("first view", seconds, "s", "<= 1", spent)
        yield from map_figures(found)
        yield matrix_figure(found)


def main() -> None:
    """Print every figure."""
    if not chromium():
        print("skipped: no chromium here")
        return
    load = os.getloadavg()[0]
    for figure in figures():
        spent = f"{figure.processor_ms:8.0f} ms of a core" if figure.processor_ms >= 0 else ""
        value = f"{figure.value:8.2f} {figure.unit:4}"
        print(f"{figure.name:42} {value} wanted {figure.wanted:6} {spent}", flush=True)
    print(f"load {load:.1f} to {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
