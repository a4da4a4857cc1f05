"""Pictures of views reduced to what a layout is, and compared with those that are kept.

A picture is cut into blocks of `BLOCK` × `BLOCK` pixels, of each the mean brightness: a panel that
is missing, moved or unstyled moves many of them, a changed word few. The kept ones are in
``screens/``, with the width of a text in the font that they were drawn with: with other fonts
nothing can be compared. ``python -m tests.console.screens`` draws them anew; look at the difference
before committing it.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from tests.console.browser import PATIENCE_MS, SIZE, browser, enter, new_page
from tests.console.server import FakeApi, Serving
from tests.console.views import VIEWS, goto

if TYPE_CHECKING:
    from collections.abc import Generator

    from playwright.sync_api import Browser, Page

KEPT = Path(__file__).parent / "screens"
BLOCK = 10
COLUMNS, ROWS = SIZE[0] // BLOCK, SIZE[1] // BLOCK
OTHER = 6
"""Of 255: a block whose mean differs by more is another one."""
MOST_OTHER = 0.01
"""Share of blocks that may be others."""
NOW = dt.datetime(2026, 11, 26, 12, 0, tzinfo=dt.UTC)
NOW_NS = int(NOW.timestamp()) * 10**9
REDUCE = """async ([png, columns, rows, block]) => {
  const picture = new Image();
  picture.src = 'data:image/png;base64,' + png;
  await picture.decode();
  const canvas = new OffscreenCanvas(columns * block, rows * block);
  const context = canvas.getContext('2d');
  context.drawImage(picture, 0, 0);
  const { data, width } = context.getImageData(0, 0, columns * block, rows * block);
  const sums = new Float64Array(columns * rows);
  for (let y = 0; y < rows * block; y++)
    for (let x = 0; x < width; x++) {
      const at = 4 * (y * width + x);
      const bright = 0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2];
      sums[Math.floor(y / block) * columns + Math.floor(x / block)] += bright;
    }
  return Array.from(sums, (sum) => Math.round(sum / (block * block)));
}"""
"""Mean brightness of each block, row by row."""


FONTS = KEPT / "fonts.txt"
FONT = """() => {
  const context = document.createElement('canvas').getContext('2d');
  const widths = ['body', 'code, .mono'].map((chosen) => {
    const found = document.querySelector(chosen);
    context.font = '100px ' + getComputedStyle(found ?? document.body).fontFamily;
    return context.measureText('Delay of h0/rail0: 12 µs').width.toFixed(0);
  });
  return widths.join(' ');
}"""


def name_of(view: str) -> str:
    """Of the file."""
    return re.sub(r"[^a-z0-9]+", "-", view.lower().replace("%2f", "-"))


def reduced(found: Browser, page: Page) -> bytes:
    """A byte for each block of what the page shows."""
    png = base64.b64encode(page.screenshot(animations="disabled", caret="hide")).decode()
    blank = found.new_page()  # the console's own policy allows no such picture
    try:
        values: list[int] = blank.evaluate(REDUCE, [png, COLUMNS, ROWS, BLOCK])
    finally:
        blank.close()
    return bytes(values)


def share_of_others(one: bytes, other: bytes) -> float:
    """Of their blocks, those that differ."""
    assert len(one) == len(other) == COLUMNS * ROWS
    pairs = zip(one, other, strict=True)
    return sum(abs(a - b) > OTHER for a, b in pairs) / len(one)


def kept(view: str) -> bytes:
    """The kept picture of a view, reduced."""
    return zlib.decompress((KEPT / f"{name_of(view)}.z").read_bytes())


def keep(view: str, picture: bytes) -> None:
    """Replace it."""
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"{name_of(view)}.z").write_bytes(zlib.compress(picture, 9))


def views(found: Browser) -> Generator[tuple[str, Page]]:
    """Each view over a fleet of a fixed instant, once it shows its data."""
    serving = Serving(FakeApi(now_ns=NOW_NS)).started()
    page = new_page(found)
    try:
        page.clock.set_fixed_time(NOW)
        enter(page, serving.url)
        for view in VIEWS:
            goto(page, view)
            ready(page, view)
            yield view, page
    finally:
        page.context.close()
        serving.end()


def ready(page: Page, view: str) -> None:
    """Wait until a view shows all it will."""
    page.get_by_text(VIEWS[view]).first.wait_for()
    page.wait_for_function(STILL, timeout=PATIENCE_MS)
    page.mouse.move(0, 0)


STILL = """() => new Promise((done) => {
  let text = '', same = 0;
  const look = () => {
    const now = document.body.innerText.length + ':' + document.querySelectorAll('*').length;
    same = now === text ? same + 1 : 0;
    text = now;
    if (same >= 10) done(true); else setTimeout(look, 100);
  };
  look();
})"""
"""Once nothing has come to the page for a second."""


def main() -> None:
    """Draw all of them anew."""
    with browser() as found:
        for view, page in views(found):
            picture = reduced(found, page)
            before = kept(view) if (KEPT / f"{name_of(view)}.z").exists() else bytes(len(picture))
            keep(view, picture)
            FONTS.write_text(
                f"{page.evaluate(FONT)}\n" if view == "overview" else FONTS.read_text()
            )
            print(f"{view}: {share_of_others(before, picture):.1%} of blocks differ from before")


if __name__ == "__main__":
    main()
