"""Python packages that only some commands need, and how they are installed on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

EXTRAS = {
    "chdb": "controller", "jwt": "controller", "matplotlib": "report", "psycopg": "postgresql",
    "pyarrow": "controller", "scipy": "controller", "starlette": "controller",
    "uvicorn": "controller",
}  # fmt: skip
"""Module to the extra that installs it."""
_PREFIX = "/opt/syntony"
_PACKAGE = Path("/var/lib/dpkg/info/syntony-tools.list")


def install_command(module: str, extra: str = "") -> str:
    """The command that installs a module's extra: by apt where this program is Debian's package.

    Args:
        module: as an import error names it.
        extra: in place of the module's own.
    """
    name = extra or EXTRAS[module.partition(".")[0]]
    if name != "report" and sys.prefix == _PREFIX and _PACKAGE.exists():
        return "apt install syntony-controller"
    return f"pip install 'syntony[{name}]'"
