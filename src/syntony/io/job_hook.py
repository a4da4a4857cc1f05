"""Adds the hook to a job's Python environment, so that it reports its collectives and steps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import syntony

PATH_VARIABLE = "PYTHONPATH"
REPORTING_VARIABLE = "SYNTONY_REPORTING"
"""Number of the process that reports; what finds another one there is not recorded. A command that
`syntony run` starts is recorded, also if a rank of another job asked for it."""


def hook_directory() -> Path:
    """Where its `sitecustomize` lies, which Python imports when it starts."""
    return Path(syntony.__file__).with_name("job_hook")


def hooked_path(environ: Mapping[str, str]) -> str:
    """``PYTHONPATH`` with the hook in front; as it is where the hook is in it already."""
    ours, before = str(hook_directory()), environ.get(PATH_VARIABLE, "")
    if ours in before.split(os.pathsep):
        return before
    return os.pathsep.join(filter(None, (ours, before)))
