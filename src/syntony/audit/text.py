"""Makes text that a host sent safe to print. Pure.

Kernel lines, host names and device names may hold escape sequences that a terminal obeys (colours,
window titles, the clipboard: ECMA-48, xterm's OSC), and characters that reorder what is read.
"""

from __future__ import annotations

import re

_SEQUENCE = re.compile(
    r"(?:\x1b\]|\x9d).*?(?:\x07|\x1b\\|\x9c|$)"  # OSC: title, hyperlink, clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f]).*?(?:\x1b\\|\x9c|$)"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x1b[ -/]*[0-~]?",
    re.DOTALL,
)
_INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def printable(text: str) -> str:
    """The text on one line, without escape sequences and without what cannot be printed."""
    if text.isprintable():
        return text
    text = _INVISIBLE.sub("", _SEQUENCE.sub("", text))
    return "".join(letter if letter.isprintable() else " " for letter in text)
