"""The kernel's log since boot, from whichever source may be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syntony.audit.facts import FactError, UnreadableError

if TYPE_CHECKING:
    from syntony.audit.facts import Facts

SOURCES = (("dmesg",), ("journalctl", "-k", "-b", "--no-pager", "-o", "short-iso"))
READS = tuple(f"$ {' '.join(command)}" for command in SOURCES)


def kernel_log(host: Facts) -> str:
    """Its text.

    Raises:
        UnreadableError: none of the sources may be read, or all are empty: a kernel that has
            booted has said something.
    """
    reasons = []
    for command in SOURCES:
        try:
            text = host.run(*command)
        except FactError as error:
            reasons.append(str(error))
            continue
        if text.strip() and "-- No entries --" not in text[:200]:
            return text
        reasons.append(f"`{' '.join(command)}` is empty")
    raise UnreadableError(f"the kernel log cannot be read: {'; '.join(reasons)}")
