"""Data goes to stdout, messages to stderr, colour only to terminals."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

console = Console(highlight=False, emoji=False)
messages = Console(stderr=True, highlight=False, emoji=False)


def print_json(data: Any) -> None:
    """One JSON document on stdout."""
    console.file.write(json.dumps(data, indent=2) + "\n")
