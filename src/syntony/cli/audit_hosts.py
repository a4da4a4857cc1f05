"""The hosts that an audit's option names."""

from __future__ import annotations

from pathlib import Path

from syntony.audit.hostlist import parse_hosts
from syntony.errors import UsageError


def host_names(text: str) -> tuple[str, ...]:
    """``gpu[001-128]``, ``a,b,c`` or ``@FILE`` with one a line. Raises `UsageError`."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--hosts: {text[1:]} cannot be read") from error
    return parse_hosts(text)
