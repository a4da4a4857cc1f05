"""The plug-in on real verbs: two machines with Soft-RoCE, and rails that fail under a job."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import msgspec
import pytest
from tests.live import SYNTONY, syntony

from syntony.lab.client import Lab, open_lab
from syntony.lab.drill import modes, verbs
from syntony.lab.drill.place import job_spec
from syntony.lab.jobs.nccl_mesh import PLUGIN
from syntony.lab.jobs.records import StepRecord
from syntony.lab.jobs.runner import LabJob
from syntony.lab.verbs import image
from syntony.lab.world import missing_tools, unshare_argv

pytestmark = [pytest.mark.lab, pytest.mark.slow]
NAME = "test-nccl"
FAULTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("link-down", "h0/rail0", {"side": "leaf"}),
    ("blackhole", "h1/rail1", {}),
    ("link-down", "h1/rail0", {"side": "leaf"}),
)
SLOW_S = 120.0


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    unshare_argv()
    missing = missing_tools(image.TOOLS)
    if missing:
        pytest.skip(
            f"no machines here: {', '.join(missing)} (see syntony doctor): the net plug-in is "
            "NOT tested over Soft-RoCE"
        )
    words = ("lab", "verbs", "up", "--name", NAME, "--detach", "--no-agents")
    subprocess.run([*SYNTONY, *words], check=True, timeout=600)
    yield open_lab(NAME)
    syntony("lab", "down", "--name", NAME, "--yes")


def test_no_element_is_lost_or_doubled_while_rails_fail(lab: Lab) -> None:
    spec = job_spec(lab, framework="builtin", kind="all-reduce", python="", ranks=verbs.HOSTS)
    spec = msgspec.structs.replace(spec, net=PLUGIN, elements=verbs.ELEMENTS)
    with LabJob(lab, spec, wrap=modes.NCCL_SYNTONY.wrap) as job:
        job.wait_steps(20, verbs.START_S)
        for kind, target, options in FAULTS:
            lab.inject(kind, target, options)
            job.wait_steps(job.steps_done() + 20, SLOW_S)
            lab.clear()
            time.sleep(4)
            job.wait_steps(job.steps_done() + 20, SLOW_S)
        job.request_end()
        assert job.wait_end(SLOW_S), job.unparsed()
        assert job.finished(), job.last_output()
        steps = [each for each in job.records() if isinstance(each, StepRecord)]
        said = "\n".join(job.unparsed())
    assert sum(each.wrong for each in steps) == 0
    for rail in ("rxe_rail0", "rxe_rail1"):
        assert f"rail {rail} is left" in said
        assert f"rail {rail} is back" in said
    print(f"longest step: {max(each.end_ns - each.start_ns for each in steps) / 1e6:.0f} ms")
