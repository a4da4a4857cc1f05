"""How a job gets its name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.errors import UsageError
from syntony.model.jobs import fresh_job, job_from_environment, job_name


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, None),
        ({"SYNTONY_JOB": "night", "SLURM_JOB_ID": "4711"}, "night"),
        ({"SYNTONY_JOB": "", "SLURM_JOB_ID": "4711"}, "slurm-4711"),
        ({"PBS_JOBID": "12[3].server"}, "pbs-12-3-.server"),
        ({"LSB_JOBID": "99"}, "lsf-99"),
        ({"TORCHELASTIC_RUN_ID": "none"}, None),
        ({"TORCHELASTIC_RUN_ID": "llama 7b"}, "torch-llama-7b"),
        ({"JOB_COMPLETION_INDEX": "3", "HOSTNAME": "train-a-3"}, "k8s-train-a"),
        ({"JOB_COMPLETION_INDEX": "3", "HOSTNAME": "a" * 60 + "-3"}, "k8s-" + "a" * 59),
        ({"JOB_COMPLETION_INDEX": "3", "HOSTNAME": "--3"}, None),
        ({"JOB_COMPLETION_INDEX": "3", "HOSTNAME": "node17"}, None),
        ({"HOSTNAME": "train-3"}, None),
    ],
)
def test_the_scheduler_names_the_job(environ: dict[str, str], name: str | None) -> None:
    assert job_from_environment(environ) == name


@pytest.mark.parametrize("text", ["", "-x", "a b", "a/b", "x" * 64, "a\n"])
def test_what_cannot_name_a_job(text: str) -> None:
    with pytest.raises(UsageError, match="cannot name a job"):
        job_name(text)


@given(st.text(), st.sampled_from(["SLURM_JOB_ID", "PBS_JOBID", "TORCHELASTIC_RUN_ID"]))
def test_whatever_a_scheduler_says_the_name_is_one(value: str, variable: str) -> None:
    name = job_from_environment({variable: value})
    assert name is None or job_name(name) == name


@given(st.text())
def test_a_new_name_is_one(program: str) -> None:
    assert job_name(fresh_job(program, "0a1b2c"))
