"""The kernel's log since boot, from whichever source may be read."""

from __future__ import annotations

import re

from syntony.audit.facts import FactError, Facts, UnreadableError

SOURCES = (("dmesg",), ("journalctl", "-k", "-b", "--no-pager", "-o", "short-iso"))
READS = tuple(f"$ {' '.join(command)}" for command in SOURCES)


_STAMP = re.compile(
    r"^(?:<\d+>|kern\s*:\w+\s*:\s*)?(?:\[[^\]]{3,40}\]|\d+,\d+,\d+,|\d{4}-\d\d-\d\dT|"
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )",
    re.MULTILINE,
)
"""How lines of a log begin: dmesg's times, /dev/kmsg's numbers, a journal's or syslog's date."""


def kernel_log(host: Facts) -> str:
    """Its text. Raises `UnreadableError`: none of the sources may be read, or all are empty, which
    they cannot be after a boot."""
    reasons = []
    for command in SOURCES:
        try:
            text = host.run(*command)
        except FactError as error:
            reasons.append(str(error))
            continue
        if _STAMP.search(text):
            return text
        what = "is empty" if not text.strip() else "printed no kernel log"
        reasons.append(f"`{' '.join(command)}` {what}")
    raise UnreadableError(f"the kernel log cannot be read: {'; '.join(reasons)}")
