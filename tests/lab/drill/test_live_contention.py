"""Two real jobs on a real lab: what is reported their flows is so, and they are moved."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.fleet.waiting import await_true
from tests.lab.drill.two_controllers import Watch, go_over, other_controller
from tests.live import eventually, live

from syntony import cli
from syntony.errors import UsageError
from syntony.lab.client import Lab
from syntony.lab.drill import contention
from syntony.lab.drill.fleet import wait_ready
from syntony.lab.jobs.runner import LabJob
from syntony.lab.plan import CONTROLLER
from syntony.lab.world import World, new_lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from syntony.wire.traffic import PlacedFlow


PATIENCE_S = 120.0
"""A new controller reads the store, solves clocks, and waits for the old one's orders to expire."""


@pytest.fixture(scope="module")
def lab(able: None) -> Iterator[Lab]:
    with World(new_lab("t-contention", contention.SPEC), detach=False) as world:
        world.wait_ready()
        found = Lab(world.directory)
        wait_ready(found)
        yield found


def spines(lab: Lab, flow: PlacedFlow) -> str:
    """What the switches themselves say of a flow's way there and back."""
    ways = (
        lab.paths(flow.src, flow.dst, [flow.sport], flow.dport, proto="tcp")[0],
        lab.paths(flow.dst, flow.src, [flow.dport], flow.sport, proto="tcp")[0],
    )
    return " | ".join(way.spine or "" for way in ways)


def agree(lab: Lab) -> bool:
    """Whether what the controller tells of every flow is what the switches do."""
    flows = [flow for flow in contention.fetch_traffic(lab).flows if flow.paths]
    return bool(flows) and all(flow.path == spines(lab, flow) for flow in flows)


def moving(lab: Lab) -> bool:
    """Whether any flow is on its way."""
    return any(flow.moving for flow in contention.fetch_traffic(lab).flows)


@pytest.mark.slow
@pytest.mark.lab
def test_agents_killed_and_gone_over_one_by_one_never_give_two_controllers_a_say(
    able: None,
) -> None:
    spec = msgspec.structs.replace(contention.SPEC, rails=1)
    with World(new_lab("t-two", spec), detach=False) as world:
        world.wait_ready()
        lab = Lab(world.directory)
        wait_ready(lab)
        with other_controller(lab) as socket:
            watch = Watch((lab.controller_socket, socket))
            try:
                watch.wait((True, False), "the first decides, the other one has nobody")
                go_over(lab, "h0")
                go_over(lab, "h1")
                watch.wait((False, False), "two and two: nobody decides")
                go_over(lab, "h2")
                watch.wait((False, True), "three of four: the other one decides")
            finally:
                watch.close()
            assert watch.requested > 20
            assert watch.both == 0


@pytest.mark.slow
@pytest.mark.lab
def test_flows_are_where_they_are_said_to_be_before_and_after_moves(lab: Lab) -> None:
    specs = contention.job_specs(lab, contention.ContentionOptions())
    wraps = [
        (sys.executable, "-m", "syntony", "run", "--job", n, "--") for n in contention.JOBS
    ]  # fmt: skip
    with LabJob(lab, specs[0], wrap=wraps[0]) as red, LabJob(lab, specs[1], wrap=wraps[1]) as blue:
        for job in (red, blue):
            job.wait_steps(5)
        contention.wait_map(lab, 2)
        eventually(lambda: agree(lab), "what is reported flows is what the switches do")
        done = (red.steps_done(), blue.steps_done())
        contention.set_mode(lab, "act")
        time.sleep(8)  # long enough for whatever there is to be moved
        eventually(lambda: agree(lab), "and still after moves")
        contention.set_mode(lab, "observe")
        reported = contention.fetch_moves(lab)
        assert all(move.result for move in reported)
        assert red.steps_done() > done[0]
        assert blue.steps_done() > done[1]
        for job in (red, blue):
            job.request_end()
        for job in (red, blue):
            assert job.wait_end(30), job.last_output()
            assert job.finished(), job.last_output()
            assert not any(getattr(record, "wrong", 0) for record in job.records())


@pytest.mark.slow
@pytest.mark.lab
def test_a_controller_killed_while_it_moves_flows_harms_no_job(lab: Lab) -> None:
    """ECMP may have been lucky: then it is killed while it has nothing to move."""
    specs = contention.job_specs(lab, contention.ContentionOptions())
    with contention.start_jobs(
        lab, contention.JOBS, specs, contention.ContentionTimes(alone_ns=0), lambda _: None
    ) as (jobs, _):
        contention.wait_map(lab, 2)
        contention.set_mode(lab, "act")
        end_s = time.monotonic() + 5
        while not contention.fetch_moves(lab) and time.monotonic() < end_s:
            time.sleep(0.05)
        (controller,) = [d for d in lab.status().daemons if d.node == CONTROLLER]
        lab.run(CONTROLLER, "kill", "-9", str(controller.pid))
        done = [job.steps_done() for job in jobs]
        await_true(
            lambda: contention.fetch_traffic(lab).deciding and agree(lab) and not moving(lab),
            "the next one decides, all moves have ended, and flows are where they are said to be",
            patience_s=PATIENCE_S,
            pause_s=0.5,
        )
        assert contention.fetch_traffic(lab).mode == "observe", "what its file says"
        assert all(job.steps_done() > n for job, n in zip(jobs, done, strict=True))
        contention.end_jobs(jobs)
        for job in jobs:
            assert job.finished(), job.last_output()
            assert not any(getattr(record, "wrong", 0) for record in job.records())


@pytest.mark.slow
@pytest.mark.lab
def test_the_command(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["lab", "drill", "contention", "--lab", lab.name, "--before", "2s", "--after", "6s"]
    assert cli.run([*words, "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["figures"]["finished"]
    assert reported["figures"]["wrong"] == reported["figures"]["lost"] == 0
    assert reported["figures"]["before"]["total_mbps"] > 0
    assert reported["figures"]["alone_mbps"] > 0
    assert contention.fetch_traffic(lab).mode == "observe", "as it was before"


@pytest.mark.slow
@pytest.mark.lab
def test_on_a_link_that_none_can_avoid_classes_get_rates(
    able: None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["lab", "drill", "qos", "--pace", "--before", "5s", "--after", "16s", "--json"]
    assert cli.run(words) == 0
    reported = json.loads(capsys.readouterr().out)["figures"]
    assert reported["finished"]
    assert reported["wrong"] == reported["lost"] == 0
    before, after = reported["before"]["mbps"], reported["after"]["mbps"]
    assert after["gold"] > before["gold"]
    assert after["brown"] < before["brown"]
    assert after["gold"] > after["grey"] > after["brown"]


@pytest.mark.lab
def test_a_lab_without_agents_is_refused_in_one_line(able: None) -> None:
    said: list[str] = []
    with (
        live("t-bare", "--hosts", "4") as bare,
        pytest.raises(UsageError, match="without agents"),
    ):
        contention.drill(contention.ContentionOptions(), said.append, lab=bare)
    assert not said


def test_wrong_options_are_refused_before_anything_starts() -> None:
    for words in (["--before", "0s"], ["--after", "2h"], ["--hosts", "3"], ["--job", "ddp"]):
        assert cli.run(["lab", "drill", "contention", *words]) == 2
