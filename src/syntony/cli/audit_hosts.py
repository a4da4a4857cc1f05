"""The hosts that an audit's option names."""

from __future__ import annotations

from syntony.audit.hostlist import parse_hosts
from syntony.errors import UsageError
from syntony.input_files import MAX_CONFIG_BYTES, read_text


def host_names(text: str) -> tuple[str, ...]:
    """``gpu[001-128]``, ``a,b,c`` or ``@FILE`` with one a line. Raises `UsageError`."""
    if text.startswith("@"):
        try:
            text = read_text(text[1:], MAX_CONFIG_BYTES)
        except OSError as error:
            raise UsageError(f"--hosts: {text[1:]} cannot be read: {error.strerror}") from error
    return parse_hosts(text)
