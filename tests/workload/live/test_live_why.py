"""`syntony why` on jobs that run in a lab: a slow flow and a straggler named, a quiet job not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.live import SYNTONY, LiveLab, eventually, live, syntony

from syntony.errors import MissingError
from syntony.lab.drill.fleet import wait_ready
from syntony.lab.jobs.programs import JobSpec
from syntony.lab.jobs.runner import LabJob
from syntony.lab.jobs.torch_build import find_torch

pytestmark = pytest.mark.lab
TRAIN = Path(__file__).with_name("train.py")
WAIT_S = 240.0
SECONDS, STEPS = 12, 60
"""Of which something must be recorded before it is judged."""
STARVED = {"host-jitter"}
"""What may be said of any job on a machine that is short of processors."""
SLOW_BPS = "3mbit"
_PLAIN = ("env", "SYNTONY_TCP=off", *SYNTONY, "run", "--job")


@pytest.fixture(scope="module")
def lab(able: None) -> Iterator[LiveLab]:
    with live("t-why", "--hosts", "4", "--rails", "1", agents=True) as found:
        wait_ready(found)
        yield found


def requested(*words: str) -> Any:
    """What a command answers, None if it cannot."""
    done = syntony(*words, "--lab", "t-why", "--json")
    if not done.stdout:
        print(" ".join(words), done.stderr, flush=True)
        return None
    return json.loads(done.stdout)


def why(job: str) -> list[dict[str, Any]]:
    """Verdicts of the last minute and a half."""
    for _ in range(10):
        found: list[dict[str, Any]] | None = requested("why", job, "--window", "90s")
        if found is not None:
            return found
    raise AssertionError(f"no answer about {job}")


def rows(job: str, table: str) -> int:
    """Of the last two minutes."""
    return int((requested("jobs", "show", job) or {"rows": {}})["rows"].get(table, 0))


def stands_out(names: set[str]) -> bool:
    """Whether one of these is first in the list of flows, in band far above what probes see."""
    shown = requested("job", "flows", "flows", "--window", "30s") or []
    return (
        len(shown) == 12
        and shown[0]["flow"] in names
        and shown[0]["in_band_ns"] > 20 * (shown[0]["out_of_band_ns"] or float("inf"))
    )


def slow_one(lab: LiveLab) -> set[str]:
    """Throttle one connection from h0 to h2; its names, both ways."""
    far = lab.addresses(4)["h2/rail0"]
    ends = lab.run("h0", "ss", "-Htn", "dst", far).split()[3:5]
    sport, dport = (end.rpartition(":")[2] for end in ends)
    which = f"match ip dst {far}/32 match ip sport {sport} 0xffff match ip dport {dport} 0xffff"
    for words in (
        "qdisc add dev rail0 parent 1:1 handle 9: htb default 1",
        "class add dev rail0 parent 9: classid 9:1 htb rate 1gbit quantum 60000",
        f"class add dev rail0 parent 9: classid 9:2 htb rate {SLOW_BPS} burst 2k quantum 60000",
        f"filter add dev rail0 parent 9: protocol ip u32 {which} flowid 9:2",
    ):
        lab.run("h0", "tc", *words.split())
    return {f"h0/rail0:{sport}>h2/rail0:{dport}", f"h2/rail0:{dport}>h0/rail0:{sport}"}


def test_one_slow_flow_among_twelve_is_named_while_the_job_runs(
    lab: LiveLab, tmp_path: Path
) -> None:
    hosts = lab.status().hosts
    addresses = tuple(lab.addresses(4)[f"{host}/rail0"] for host in hosts)
    spec = JobSpec(kind="all-to-all", hosts=hosts, addresses=addresses, elements=3_000)
    with LabJob(lab, spec, wrap=(*_PLAIN, "flows", "--")) as job:
        job.wait_steps(5)
        eventually(lambda: rows("flows", "flows") >= 12 * SECONDS, "rows", within_s=WAIT_S)
        assert {each["class"] for each in why("flows")} <= STARVED
        names = slow_one(lab)
        eventually(
            lambda: any(each["class"] == "slow-flow" for each in why("flows")), "a verdict",
            within_s=WAIT_S,
        )  # fmt: skip
        found = [each for each in why("flows") if each["class"] not in STARVED]
        assert {each["class"] for each in found} == {"slow-flow"}
        assert {name for each in found for name in each["subjects"]} <= names
        eventually(lambda: stands_out(names), "the worst flow is the slow one", within_s=WAIT_S)
        place = str(tmp_path / "bundle")
        assert syntony("record", "flows", "--lab", "t-why", "--out", place).returncode == 0
        kept = json.loads(syntony("diagnose", place, "--json").stdout)
        assert "slow-flow" in {each["class"] for each in kept}
        classes = pq.read_table(Path(place) / "flows.parquet", columns=["dscp"])["dscp"]
        assert set(classes.to_pylist()) == {0}, "the job's sockets have the default class"
    (seen,) = (each for each in requested("jobs", "list") if each["job"] == "flows")
    assert (seen["job"], seen["hosts"], seen["ranks"]) == ("flows", list(hosts), 4)


@contextmanager
def training(lab: LiveLab, name: str, slow_rank: int, slow_ms: int) -> Iterator[None]:
    """A gloo job that has done a few steps."""
    try:
        python = find_torch()
    except MissingError as error:
        pytest.skip(f"{error}: `syntony why` of training is NOT tested")
    hosts = lab.status().hosts
    common = os.environ | {
        "WORLD_SIZE": str(len(hosts)), "SLOW_RANK": str(slow_rank), "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": lab.addresses(4)["h0/rail0"], "MASTER_PORT": "29650",
        "GLOO_SOCKET_IFNAME": "rail0",
    }  # fmt: skip
    command = (*SYNTONY, "run", "--job", name, "--", python, str(TRAIN), "20000", str(slow_ms))
    with ExitStack() as stack:
        ranks = []
        for rank, host in enumerate(hosts):
            process = subprocess.Popen(
                lab.enter_argv(host, command), env=common | {"RANK": str(rank)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.kill)
            ranks.append(stack.enter_context(process))
        first = ranks[0].stdout
        assert first is not None
        for _ in range(10):
            assert first.readline().startswith(b"step"), "the job did not start"
        yield


@pytest.mark.parametrize("slow_rank", [2, -1])
def test_a_straggler_is_named_and_nobody_where_there_is_none(lab: LiveLab, slow_rank: int) -> None:
    name = "train" if slow_rank >= 0 else "quiet"
    with training(lab, name, slow_rank, 80):
        eventually(lambda: rows(name, "collectives") >= 4 * STEPS, "rows", within_s=WAIT_S)
        if slow_rank >= 0:
            eventually(lambda: bool(why(name)), "a verdict", within_s=WAIT_S)
        found = why(name)
        shown = requested("jobs", "show", name)
    named = [(each["class"], each["subjects"]) for each in found if each["class"] not in STARVED]
    assert named == ([] if slow_rank < 0 else [("straggler", ["rank 2"])])
    assert list(shown["communicators"].values()) == [["0", "1", "2", "3"]]
    assert shown["step_ns"] > 20_000_000
