"""The name of a job, common to its processes on all hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from syntony.errors import UsageError

JOB_VARIABLE = "SYNTONY_JOB"
"""Environment variable with the name of a process's job."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_SCHEDULERS = (
    ("SLURM_JOB_ID", "slurm-"),
    ("PBS_JOBID", "pbs-"),
    ("LSB_JOBID", "lsf-"),
    ("TORCHELASTIC_RUN_ID", "torch-"),
)
"""Variables that are equal in all processes of a job, most specific first."""


def job_name(text: str) -> str:
    """`text`, if it can name a job. Raises `UsageError`: it cannot."""
    if _NAME.fullmatch(text) is None:
        raise UsageError(
            f"{text!r} cannot name a job: letters, digits, '.', '_' and '-', 63 at most"
        )
    return text


def job_from_environment(environ: Mapping[str, str]) -> str | None:
    """The scheduler's name of the job, converted to a valid name; None: there is none.

    A process that is already part of a job stays part of it. Kubernetes names the pods of an
    indexed Job after it, ``NAME-INDEX``, and sets ``JOB_COMPLETION_INDEX``.

    Raises:
        UsageError: `SYNTONY_JOB` is set to what cannot name a job.
    """
    if environ.get(JOB_VARIABLE):
        return job_name(environ[JOB_VARIABLE])
    for variable, prefix in _SCHEDULERS:
        value = _fit(environ.get(variable, ""))
        if value and value != "none":  # torchrun's run id unless one is given
            return (prefix + value)[:63]
    index = environ.get("JOB_COMPLETION_INDEX", "")
    name, dash, end = environ.get("HOSTNAME", "").rpartition("-")
    if index and dash and end == index and _fit(name):
        return ("k8s-" + _fit(name))[:63]
    return None


def fresh_job(program: str, token: str) -> str:
    """A name for a job without a scheduler's name: its program and a random suffix."""
    return f"{_fit(program)[:40] or 'job'}-{token}"


def _fit(text: str) -> str:
    return _UNFIT.sub("-", text).strip("-._")
