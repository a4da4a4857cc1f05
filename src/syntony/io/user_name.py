"""Who runs this process, for the log of changes."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """The user's name; ``uid N`` if it has none, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
